"""PoT in LangChain expressions: as a link of a chain, over a batch, and as a chat model.

A chain and a `batch` run their links with LangChain's own limit of 25 steps, room for five iterations: a longer
run then ends with the best so far and says so (`stop_reason` is `recursion_limit`). Give a limit of your own for more.
"""

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from graphs.pot import graph as pot
from pot_agent.integrations import ChatPoT

ROOM = RunnableConfig(recursion_limit=10_000)
"""Room for a whole run."""


def to_problem(pair: dict[str, Any]) -> dict[str, Any]:
    """A problem from an example's own fields."""
    return {"problem": f"Write a function {pair['name']}. {pair['does']}", "tests": pair["tests"]}


def chain(solver: Any = pot) -> Runnable[dict[str, Any], str]:
    """Fields in, a program out."""
    return RunnableLambda(to_problem) | solver | RunnableLambda(lambda found: found["solution"]["program"])


def chat_chain(model: ChatPoT) -> Runnable[dict[str, Any], str]:
    """A prompt, PoT as the chat model, and the text of its answer."""
    prompt = ChatPromptTemplate.from_messages([("system", "Use no imports."), ("user", "{task}")])
    return prompt | model | StrOutputParser()


ASKED = [
    {"name": "is_even", "does": "It tells whether n is even.", "tests": ["assert is_even(4)", "assert not is_even(7)"]},
    {
        "name": "largest",
        "does": "It finds the largest.",
        "tests": ["assert largest([1, 5]) == 5", "assert largest([3]) == 3"],
    },
]

if __name__ == "__main__":
    print(*chain().batch(ASKED, ROOM), sep="\n")
    print(
        chat_chain(ChatPoT(graph=pot)).invoke(
            {"task": "Write is_even(n).\n\n>>> is_even(4)\nTrue\n>>> is_even(7)\nFalse"}
        )
    )
