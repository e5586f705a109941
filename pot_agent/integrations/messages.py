"""PoT as an agent that speaks messages: for deepagents, supervisors, and whatever else hands a conversation on.

Such parents pass `messages` and drop keys that they do not know, so the tests must stand in the message itself (as
assertions, doctests or sample input and output) or be bound with `tests=`; without any, the answer is one greedy
program and says that it was not tested. A problem that cannot be read is answered in words, since an error would end
the parent's run; every other error is raised.
"""

from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from pot_agent.errors import ProblemError
from pot_agent.integrations.conversation import answer_of, problem_in


class MessagesState(TypedDict):
    """A conversation, and nothing else: what a parent agent passes on and takes back."""

    messages: Annotated[list[AnyMessage], add_messages]


MessagesAgent = CompiledStateGraph[MessagesState, None, MessagesState, MessagesState]


def create_messages_agent(
    graph: Runnable[Any, Any] | None = None,
    *,
    tests: list[Any] | None = None,
    entry_point: str | None = None,
    name: str = "pot",
) -> MessagesAgent:
    """A compiled graph over `messages` that answers the last human message with a program and how it did.

    Args:
        graph: a graph of `create_pot_agent`; None: one with its defaults.
        tests: tests of every problem; None: those found in the message.
        entry_point: the function to write; None: as the message and the tests say.
        name: the agent's name, on the graph and on its messages.
    """
    solver = graph if graph is not None else _default_graph()

    def asked(state: MessagesState) -> dict[str, Any]:
        return problem_in(state["messages"], tests=tests, entry_point=entry_point)

    def solve(state: MessagesState) -> dict[str, Any]:
        try:
            solution = solver.invoke(asked(state))["solution"]
        except ProblemError as error:
            return {"messages": [_refusal(error, name)]}
        return {"messages": [answer_of(solution, name=name)]}

    async def asolve(state: MessagesState) -> dict[str, Any]:
        try:
            solution = (await solver.ainvoke(asked(state)))["solution"]
        except ProblemError as error:
            return {"messages": [_refusal(error, name)]}
        return {"messages": [answer_of(solution, name=name)]}

    builder = StateGraph(MessagesState)
    node: Any = RunnableLambda(solve, afunc=asolve, name="solve")
    builder.add_node("solve", node)
    builder.add_edge(START, "solve")
    builder.add_edge("solve", END)
    return builder.compile(name=name)


def _refusal(error: ProblemError, name: str) -> AIMessage:
    return AIMessage(f"This problem cannot be read: {error}", name=name, response_metadata={"error": error.code})


def _default_graph() -> Runnable[Any, Any]:
    from pot_agent.graph import create_pot_agent

    return create_pot_agent()
