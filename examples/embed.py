"""PoT as a node of another graph: a parent that shares keys writes the tests, lets PoT solve, and reports."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from graphs.pot import graph as pot


class Assistant(TypedDict, total=False):
    """The parent's state; `problem`, `tests` and `solution` are PoT's, the rest is its own."""

    request: str
    problem: str
    tests: list[Any]
    solution: dict[str, Any]
    answer: str


def specify(state: Assistant) -> Assistant:
    """Turn a request into a problem with tests; a real assistant would ask its user or a model."""
    return {
        "problem": state["request"] + " Name the function largest.",
        "tests": ["assert largest([1, 5, 3]) == 5", "assert largest([-2, -7]) == -2", "assert largest([4]) == 4"],
    }


def answer(state: Assistant) -> Assistant:
    """Say what came out, honestly."""
    solution = state["solution"]
    outcome = f"passes {solution['tests_passed']} of {solution['tests_total']} tests"
    return {"answer": f"# {outcome}\n{solution['program']}"}


def assistant(solver: Any = pot) -> CompiledStateGraph[Assistant, None, Assistant, Assistant]:
    """The parent graph, with PoT as one of its nodes."""
    builder = StateGraph(Assistant)
    builder.add_node("specify", specify)
    builder.add_node("pot", solver)
    builder.add_node("answer", answer)
    builder.add_edge(START, "specify")
    builder.add_edge("specify", "pot")
    builder.add_edge("pot", "answer")
    builder.add_edge("answer", END)
    return builder.compile(name="assistant")


if __name__ == "__main__":
    print(assistant().invoke({"request": "Write a function that finds the largest number in a list."})["answer"])
