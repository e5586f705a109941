"""Events and updates reach who streams them: sync, async, below a parent, and from a policy's own threads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from pot_agent import PotConfig, create_pot_agent
from pot_agent.policy.local import LocalPolicy
from pot_agent.state import PotInput, PotOutput
from tests.fakes import ScriptedPolicy, block
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
    monkeypatch.setattr("pot_agent.run.SECONDS_BETWEEN_TICKS", 0.0)
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
