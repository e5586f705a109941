"""Events and updates reach who streams them: sync, async, below a parent, and from a policy's own threads."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from pot_agent import PotConfig, create_pot_agent
from pot_agent.policy.local import LocalPolicy
from pot_agent.prompts import extract_program
from pot_agent.state import PotInput, PotOutput
from tests.fakes import ScriptedPolicy, block
from tests.policy.serving import serving
from tests.tiny import make_tiny_model

PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
SCRIPT = [block(f"def add(a, b):\n    return {number}") for number in (9, 3, 8)]
NODES = ["start", "propose", "execute", "internalize", "commit", "finish"]
EVENTS = ["started", "selected", "thought", "thought", "verdict", "verdict"]
EVENTS += ["update", "thought", "verdict", "committed", "finished"]


class Both(PotInput, PotOutput, total=False):
    """A parent's state."""


def agent(sandbox: Any, policy: Any = None, **changes: Any) -> Any:
    config = PotConfig.quick(**{"iterations": 1, "width": 2, **changes})
    return create_pot_agent(policy or ScriptedPolicy(SCRIPT), sandbox, config=config)


def parent_of(graph: Any) -> Any:
    builder = StateGraph(Both)
    builder.add_node("solver", graph)
    builder.add_edge(START, "solver")
    builder.add_edge("solver", END)
    return builder.compile()


def told(parts: list[Any]) -> tuple[list[str], list[str]]:
    """The nodes that updated the state, and the events."""
    nodes = [node for mode, value in parts if mode == "updates" for node in value]
    return nodes, [value["event"] for mode, value in parts if mode == "custom"]


async def collected(stream: Any) -> list[Any]:
    return [part async for part in stream]


def test_updates_and_events_of_a_sync_stream_come_in_order(sandbox: Any) -> None:
    parts = list(agent(sandbox).stream(PROBLEM, stream_mode=["updates", "custom"]))
    assert told(parts) == (NODES, EVENTS)
    # Each event comes before the update of the step that it is of.
    assert [mode for mode, _ in parts[:2]] == ["custom", "updates"]


def test_an_async_stream_gives_the_same(sandbox: Any) -> None:
    parts = asyncio.run(collected(agent(sandbox).astream(PROBLEM, stream_mode=["updates", "custom"])))
    assert told(parts) == (NODES, EVENTS)


def test_a_sub_graph_streams_under_the_name_of_its_node(sandbox: Any) -> None:
    options: Any = {"stream_mode": ["updates", "custom"], "subgraphs": True}
    parts = list(parent_of(agent(sandbox)).stream(PROBLEM, **options))
    inside = [(mode, value) for where, mode, value in parts if where and where[0].startswith("solver:")]
    assert told(inside) == (NODES, EVENTS)
    assert [list(value) for where, mode, value in parts if not where and mode == "updates"] == [["solver"]]


def test_an_async_sub_graph_streams_the_same(sandbox: Any) -> None:
    options: Any = {"stream_mode": ["updates", "custom"], "subgraphs": True}
    parts = asyncio.run(collected(parent_of(agent(sandbox)).astream(PROBLEM, **options)))
    assert told([(mode, value) for where, mode, value in parts if where]) == (NODES, EVENTS)


def test_an_update_carries_what_changed_and_no_list_whole(sandbox: Any) -> None:
    parts = list(agent(sandbox).stream(PROBLEM, stream_mode="updates"))
    (commit,) = [part["commit"] for part in parts if "commit" in part]
    assert list(commit["programs"]) == ["2"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("stream") / "tiny", context=8192)


@pytest.fixture(params=[True, False], ids=["batched", "alone"])
def real(request: pytest.FixtureRequest, tiny: Path) -> Iterator[LocalPolicy]:
    with LocalPolicy(str(tiny), threads=1, batch=request.param) as policy:
        yield policy


@pytest.mark.parametrize("form", ["sync", "async", "sub-graph"])
def test_tokens_are_told_while_a_real_model_samples(
    sandbox: Any, real: LocalPolicy, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pot_agent.ticking.SECONDS_BETWEEN_TICKS", 0.0)
    graph = agent(sandbox, real, max_new_tokens=40, end_at_block=False)
    if form == "async":
        events = asyncio.run(collected(graph.astream(PROBLEM, stream_mode="custom")))
    elif form == "sync":
        events = list(graph.stream(PROBLEM, stream_mode="custom"))
    else:
        events = [part for _, part in parent_of(graph).stream(PROBLEM, stream_mode="custom", subgraphs=True)]
    totals = [event["tokens"] for event in events if event["event"] == "tokens" and event["phase"] == "propose"]
    drawn = [event["tokens"] for event in events if event["event"] == "thought" and event["phase"] == "propose"]
    assert totals == sorted(totals)
    assert totals[-1] == sum(drawn)


@pytest.mark.parametrize("form", ["sync", "async", "sub-graph", "async sub-graph", "HTTP"])
def test_the_text_of_each_thought_is_told_while_it_is_written(
    sandbox: Any, tiny: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote: list[str] = []
    monkeypatch.setattr("pot_agent.ticking.SECONDS_BETWEEN_TEXTS", 0.0)
    monkeypatch.setattr("pot_agent.run.extract_program", spying(extract_program, wrote))
    is_below = "sub" in form
    # Below a parent it is asked for as a knob of the run.
    options: Any = {"stream_mode": "custom"}
    options |= {"subgraphs": True, "context": {"stream_text": True}} if is_below else {}
    with contextlib.ExitStack() as stack:
        policy: Any = stack.enter_context(LocalPolicy(str(tiny), threads=1))
        policy = stack.enter_context(serving(policy)) if form == "HTTP" else policy
        graph = agent(sandbox, policy, max_new_tokens=40, end_at_block=False, stream_text=not is_below)
        graph = parent_of(graph) if is_below else graph
        if form.startswith("async"):
            parts = asyncio.run(collected(graph.astream(PROBLEM, **options)))
        else:
            parts = list(graph.stream(PROBLEM, **options))
    events = [part[1] for part in parts] if is_below else parts
    told: dict[tuple[str, int], str] = {}
    for event in events:
        if event["event"] == "text":
            key = (event["phase"], event["index"])
            told[key] = told.get(key, "") + event["text"]
    assert [told.get(key, "") for key in (("propose", 0), ("propose", 1), ("commit", 0))] == wrote
    kinds = [event["event"] for event in events]
    assert kinds.count("text") > 6
    assert kinds.index("selected") < kinds.index("text") < kinds.index("thought")


def test_no_text_is_told_unless_it_is_asked_for(sandbox: Any, real: LocalPolicy) -> None:
    graph = agent(sandbox, real, max_new_tokens=20, end_at_block=False)
    assert "text" not in [event["event"] for event in graph.stream(PROBLEM, stream_mode="custom")]


def test_a_policy_that_tells_no_text_is_warned_of_and_never_asked(sandbox: Any) -> None:
    events = list(agent(sandbox, stream_text=True).stream(PROBLEM, stream_mode="custom"))
    assert [event["message"] for event in events if event["event"] == "warning"] == [
        "scripted tells no text while it writes: there are no `text` events, and each thought comes whole, in its "
        "`thought` event"
    ]
    assert "text" not in [event["event"] for event in events]


def spying(extract: Any, seen: list[str]) -> Any:
    """Records the completions that programs are taken from."""

    def spied(text: str, problem: Any) -> Any:
        seen.append(text)
        return extract(text, problem)

    return spied
