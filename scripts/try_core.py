"""The core alone, without torch: a LangChain chat model proposes, the sandbox judges, the graph ends solved."""

import importlib.util

from langchain_core.language_models import FakeListChatModel

from pot_agent import MissingExtraError, PotConfig, create_pot_agent


def main() -> None:
    """Exit with an error where the core install does not do what it promises."""
    assert importlib.util.find_spec("torch") is None, "torch is installed: this is not the core alone"
    replies = ["```python\ndef add(a, b):\n    return a - b\n```", "```python\ndef add(a, b):\n    return a + b\n```"]
    graph = create_pot_agent(FakeListChatModel(responses=replies), config=PotConfig.quick(learn=False, width=2))
    found = graph.invoke({"problem": "Add two numbers.", "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]})
    solution = found["solution"]
    assert solution["solved"], solution
    said = ""
    try:
        create_pot_agent().invoke({"problem": "Add.", "tests": ["assert add(1, 2) == 3"]})
    except MissingExtraError as error:
        said = str(error)
    assert "policy-of-thoughts[local]" in said, f"a local model without torch should name the extra: {said!r}"
    print(f"core alone: solved in the sandbox tier {solution['tier']}; a local model names the extra that is missing")


if __name__ == "__main__":
    main()
