"""A person approves each commit. The policy is scripted, the sandbox and the checkpoints are real."""

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from examples.approve import solve
from pot_agent import PotConfig, create_pot_agent
from tests.fakes import ScriptedPolicy, block

TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
PROBLEM = {"problem": "Write add(a, b).", "tests": TESTS}
GOOD, HALF, ZERO = (block(f"def add(a, b):\n    return {value}") for value in ("a + b", "3", "None"))
THREAD: Any = {"configurable": {"thread_id": "1"}}


def agent(policy: ScriptedPolicy, sandbox: Any, **options: Any) -> Any:
    config = PotConfig.quick(iterations=2, width=2)
    options = {"checkpointer": InMemorySaver(), **options}
    return create_pot_agent(policy, sandbox, config=config, approve_commits=True, **options)


def question_of(found: dict[str, Any]) -> dict[str, Any]:
    (asked,) = found["__interrupt__"]
    return dict(asked.value)


def test_the_question_shows_what_is_to_be_committed_and_how_it_did(sandbox: Any) -> None:
    question = question_of(agent(ScriptedPolicy([ZERO, HALF, GOOD]), sandbox).invoke(PROBLEM, THREAD))
    assert question["program"]["text"] == "def add(a, b):\n    return a + b\n"
    assert (question["program"]["passed"], question["program"]["total"]) == (2, 2)
    assert question["update"]["version"] == 1
    assert question["best_score"] == 0.5
    assert question["answers"] == ["approve", "next", "end"]


@pytest.mark.parametrize("answer", ["approve", True])
def test_an_approved_draft_is_committed_without_being_written_again(sandbox: Any, answer: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, GOOD])
    graph = agent(policy, sandbox)
    graph.invoke(PROBLEM, THREAD)
    solution = graph.invoke(Command(resume=answer), THREAD)["solution"]
    assert (solution["solved"], solution["stop_reason"], solution["updates"]) == (True, "solved", 1)
    assert len(policy.of("sample")) == 2
    assert solution["tokens"] == 30
    assert policy.versions == {}


@pytest.mark.parametrize("answer", ["end", False])
def test_a_rejected_draft_is_not_the_answer_and_the_adapter_is_freed(sandbox: Any, answer: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, GOOD])
    graph = agent(policy, sandbox)
    graph.invoke(PROBLEM, THREAD)
    solution = graph.invoke(Command(resume=answer), THREAD)["solution"]
    assert (solution["stop_reason"], solution["score"]) == ("cancelled", 0.5)
    assert solution["program"] == "def add(a, b):\n    return 3\n"
    assert policy.versions == {}


def test_next_leaves_the_draft_out_and_searches_on(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, GOOD, ZERO, ZERO, HALF])
    graph = agent(policy, sandbox)
    graph.invoke(PROBLEM, THREAD)
    question = question_of(graph.invoke(Command(resume="next"), THREAD))
    assert question["iteration"] == 2
    programs = graph.get_state(THREAD).values["programs"]
    in_tree = {node["program"] for node in graph.get_state(THREAD).values["tree"]}
    assert next(at for at, program in enumerate(programs) if program["score"] == 1.0) not in in_tree
    solution = graph.invoke(Command(resume="next"), THREAD)["solution"]
    assert (solution["stop_reason"], solution["score"]) == ("iterations", 0.5)


def test_an_answer_that_is_none_is_asked_for_again(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO, HALF, GOOD]), sandbox)
    graph.invoke(PROBLEM, THREAD)
    for answer in ("yes please", {"approve": 1}, 1):
        question = question_of(graph.invoke(Command(resume=answer), THREAD))
        assert "approve, next, end" in question["error"]
    assert graph.invoke(Command(resume="approve"), THREAD)["solution"]["solved"] is True


def test_it_asks_the_same_when_awaited(sandbox: Any) -> None:
    async def run() -> Any:
        graph = agent(ScriptedPolicy([ZERO, HALF, GOOD]), sandbox)
        question_of(await graph.ainvoke(PROBLEM, THREAD))
        return await graph.ainvoke(Command(resume="approve"), THREAD)

    assert asyncio.run(run())["solution"]["solved"] is True


def test_a_parent_with_a_checkpointer_asks_for_its_sub_graph(sandbox: Any) -> None:
    class Parent(TypedDict, total=False):
        problem: str
        tests: list[Any]
        solution: dict[str, Any]

    builder = StateGraph(Parent)
    builder.add_node("pot", agent(ScriptedPolicy([ZERO, HALF, GOOD]), sandbox, checkpointer=None))
    builder.add_edge(START, "pot")
    builder.add_edge("pot", END)
    parent = builder.compile(checkpointer=InMemorySaver())
    question_of(parent.invoke(PROBLEM, THREAD))
    assert parent.invoke(Command(resume="approve"), THREAD)["solution"]["solved"] is True


def test_a_solution_that_was_proposed_needs_no_commit_and_no_approval(sandbox: Any) -> None:
    found = agent(ScriptedPolicy([ZERO, GOOD]), sandbox).invoke(PROBLEM, THREAD)
    assert "__interrupt__" not in found
    assert found["solution"]["solved"] is True


def test_approving_everything_finds_what_a_run_without_a_person_finds(sandbox: Any) -> None:
    script = [ZERO, HALF, HALF, ZERO, block("def add(a, b):\n    return 4"), ZERO]
    plain = create_pot_agent(ScriptedPolicy(script), sandbox, config=PotConfig.quick(iterations=2, width=2))
    expected = plain.invoke(PROBLEM)["solution"]
    asked: list[Any] = []
    found = solve(agent(ScriptedPolicy(script), sandbox), PROBLEM, lambda question: asked.append(question) or "approve")
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    assert len(asked) == 2
