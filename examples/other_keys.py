"""PoT inside a graph with keys of its own: what goes in and out of it is renamed by two functions around it."""

from typing import Any

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from graphs.pot import graph as pot


class Ticket(TypedDict, total=False):
    """The parent's state; PoT knows none of these keys."""

    title: str
    acceptance: list[str]
    patch: str
    passed: str


def to_problem(ticket: Ticket) -> dict[str, Any]:
    """What PoT reads."""
    return {"problem": ticket["title"], "tests": ticket["acceptance"]}


def to_ticket(found: dict[str, Any]) -> Ticket:
    """What the parent keeps."""
    solution = found["solution"]
    return {"patch": solution["program"], "passed": f"{solution['tests_passed']} of {solution['tests_total']}"}


def desk(solver: Any = pot) -> CompiledStateGraph[Ticket, None, Ticket, Ticket]:
    """The parent graph; the node is a sequence, so that it runs sync and async, streams, and can be cancelled."""
    builder = StateGraph(Ticket)
    node: Any = RunnableLambda(to_problem) | solver | RunnableLambda(to_ticket)
    builder.add_node("develop", node)
    builder.add_edge(START, "develop")
    builder.add_edge("develop", END)
    return builder.compile(name="desk")


if __name__ == "__main__":
    asked: Ticket = {
        "title": "Write a function is_even(n) that tells whether the integer n is even.",
        "acceptance": ["assert is_even(4) == True", "assert is_even(7) == False", "assert is_even(0) == True"],
    }
    done = desk().invoke(asked)
    print(f"# passes {done['passed']}\n{done['patch']}")
