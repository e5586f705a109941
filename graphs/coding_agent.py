"""A small coding assistant: a file with one function missing or failing goes in, one that passes its tests comes out.

It runs the file's own tests, has PoT write the function (searching and learning on those tests), puts it in its place,
runs the tests again, and repairs for a few rounds, each told what the last one got wrong. The best file is the answer.
Limits: one function at the top level of one file; which tests are run, `pot_agent/integrations/source_file.py` says.
PoT is a node of the graph: its steps show in Studio, its events stream, and cancelling reaches it.
"""

import json
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool
from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import Field
from typing_extensions import TypedDict

from graphs.pot import graph as pot
from graphs.search import graph as search
from pot_agent.errors import ProblemError
from pot_agent.integrations.source_file import SourceFile
from pot_agent.settings import Settings
from pot_agent.state import PotContext
from tools.run_tests import run_tests

ROUNDS = 3
"""Functions written before the best of them is the answer, where the task does not say."""

_EXAMPLE = 'def clamp(x, low, high):\n    """x, moved into [low, high]."""\n    ...\n\n\ndef test_clamp():\n    '
_EXAMPLE += "assert clamp(5, 0, 3) == 3\n    assert clamp(-1, 0, 3) == 0\n    assert clamp(2, 0, 3) == 2\n"


class Task(TypedDict, total=False):
    """What to do. Only `file` is needed."""

    file: Annotated[str, Field(description="The text of a Python file with its own tests.", examples=[_EXAMPLE])]
    function: Annotated[str | None, EphemeralValue, Field(description="The function to write, where it is not plain.")]
    wish: Annotated[str | None, EphemeralValue, Field(description="What it should do, beyond docstring and tests.")]
    rounds: Annotated[int | None, EphemeralValue, Field(description=f"Tries at most; {ROUNDS} where it is not said.")]


class Done(TypedDict, total=False):
    """What came out: the best file, and what its own tests say of it."""

    file: str
    report: dict[str, Any]


class Coding(Task, Done, total=False):
    """The state. `problem` to `solution` are PoT's keys, which the two graphs share."""

    target: str
    asked: str
    left: int
    draft: str
    draft_report: dict[str, Any]
    problem: str
    tests: list[str]
    entry_point: str
    starter_code: str
    setup: str
    solution: dict[str, Any] | None


def coding_agent(solver: Any, tester: BaseTool = run_tests) -> CompiledStateGraph[Coding, PotContext, Task, Done]:
    """The assistant over any graph of `create_pot_agent` and any tool that runs a file's tests."""

    def test(state: Coding) -> Coding:
        """Run the draft's tests, and keep it where it is the best so far."""
        report = json.loads(tester.invoke({"source": state["draft"]}))
        first = "report" not in state or state["solution"] is None
        better = first or report["passed"] > state["report"]["passed"]
        kept: Coding = {"file": state["draft"], "report": report} if better else {}
        return {**kept, "draft_report": report}

    builder = StateGraph(Coding, context_schema=PotContext, input_schema=Task, output_schema=Done)
    builder.add_node("read", read)
    builder.add_node("test", test)
    builder.add_node("specify", specify)
    builder.add_node("pot", solver)
    builder.add_node("place", place)
    builder.add_edge(START, "read")
    builder.add_edge("read", "test")
    builder.add_conditional_edges("test", what_next, ["specify", END])
    builder.add_edge("specify", "pot")
    builder.add_edge("pot", "place")
    builder.add_edge("place", "test")
    return builder.compile(name="coding_agent")


def read(state: Task) -> Coding:
    """Read the file; a task that cannot be read is an error."""
    file, rounds, function = SourceFile.parse(state.get("file")), state.get("rounds"), state.get("function") or ""
    if rounds is not None and (not isinstance(rounds, int) or rounds < 1):
        raise ProblemError(f"rounds must be a whole number, 1 or more, got {rounds!r}", value=rounds)
    if function and not function.isidentifier():
        raise ProblemError(f"function must name a function at the top level, got {function!r}", value=function)
    asked = state.get("wish") or ""
    return {"target": function, "asked": asked, "left": rounds or ROUNDS, "draft": file.text, "solution": None}


def specify(state: Coding) -> Coding:
    """The function as a problem for PoT: the assertions of the file's tests, its helpers, and the last failure."""
    file = SourceFile.parse(state["file"])
    target = state["target"] or file.function_to_write(failing=state["draft_report"]["failures"])
    parts = (f"Write the Python function {target}.", state["asked"], _last_failure(state))
    return {
        "target": target,
        "problem": "\n\n".join(part for part in parts if part),
        "tests": file.assertions(target),
        "entry_point": target,
        "starter_code": f"{file.helpers(target)}\n\n{file.stub_of(target)}\n",
        "setup": file.setup,
        "left": state["left"] - 1,
    }


def place(state: Coding) -> Coding:
    """Put the function that PoT wrote into the file; one that is not there leaves the file as it was."""
    file, solution = SourceFile.parse(state["file"]), state["solution"]
    try:
        return {"draft": file.with_function(state["target"], solution["program"] if solution else "")}
    except ProblemError:
        return {"draft": file.text}


def what_next(state: Coding) -> Literal["specify", "__end__"]:
    """On with the next round, unless all tests pass or no round is left."""
    return "__end__" if state["draft_report"]["verdict"] == "passed" or not state["left"] else "specify"


def _last_failure(state: Coding) -> str:
    if state["solution"] is None:
        return ""
    found = "\n".join(
        f"{name}: {said['error'] or said['got']}" for name, said in state["draft_report"]["failures"].items()
    )
    written = SourceFile.parse(state["draft"]).source_of(state["target"])
    return f"This version fails its tests:\n\n{written}\n\n{found}"


graph = coding_agent(search if Settings.from_env().chat_model else pot)
