"""Several problems at once: each is sent to PoT by `Send`, and the answers come back in the order of the problems.

A problem that fails has its error as its answer and leaves the others alone. On the embedded model all are sampled
together; a chat model takes as many calls at once as its policy allows.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Overwrite, Send
from pydantic import Field
from typing_extensions import TypedDict

from graphs.pot import graph as pot
from pot_agent.errors import PotError
from pot_agent.state import PotContext

_EXAMPLES = [[{"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}]]

Answers = dict[int, dict[str, Any]]


class Problems(TypedDict):
    """What to solve."""

    problems: Annotated[
        list[dict[str, Any]],
        Field(
            description="Problems, each as PoT's own input: `problem`, and perhaps `tests` and the rest.",
            examples=_EXAMPLES,
        ),
    ]


class Solutions(TypedDict):
    """One for each problem, in their order: a solution, or `{"error": ...}`."""

    solutions: list[dict[str, Any]]


class Parallel(Problems, Solutions):
    """The graph's state; `answers` gathers what comes, in whatever order."""

    answers: Annotated[Answers, lambda old, new: {**old, **new}]


class One(TypedDict):
    """What is sent to one solver."""

    index: int
    given: dict[str, Any]


def parallel(solver: Runnable[Any, Any] = pot) -> CompiledStateGraph[Parallel, PotContext, Problems, Solutions]:
    """The graph, over any graph of `create_pot_agent`."""

    def begin(state: Problems) -> dict[str, Any]:
        return {"answers": Overwrite({})}  # a thread that is used again starts clean

    def send(state: Problems) -> Sequence[Send | str]:
        return [Send("solve", One(index=at, given=given)) for at, given in enumerate(state["problems"])] or ["gather"]

    def solve(one: One) -> dict[str, Any]:
        try:
            return {"answers": {one["index"]: solver.invoke(one["given"])["solution"]}}
        except PotError as error:
            return {"answers": {one["index"]: {"error": str(error)}}}

    async def asolve(one: One) -> dict[str, Any]:
        try:
            return {"answers": {one["index"]: (await solver.ainvoke(one["given"]))["solution"]}}
        except PotError as error:
            return {"answers": {one["index"]: {"error": str(error)}}}

    def gather(state: Parallel) -> Solutions:
        return {"solutions": [state["answers"][at] for at in range(len(state["problems"]))]}

    builder = StateGraph(Parallel, context_schema=PotContext, input_schema=Problems, output_schema=Solutions)
    builder.add_node("begin", begin)
    node: Any = RunnableLambda(solve, afunc=asolve, name="solve")
    builder.add_node("solve", node, input_schema=One)
    builder.add_node("gather", gather)
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", send, ["solve", "gather"])
    builder.add_edge("solve", "gather")
    builder.add_edge("gather", END)
    return builder.compile(name="parallel")


graph = parallel()
