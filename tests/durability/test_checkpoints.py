"""What a checkpointer holds: how much, and from when on."""

import asyncio
import random
import string
import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from pot_agent import PotConfig, create_pot_agent, durable
from pot_agent.errors import StateError
from pot_agent.state import PotInput, PotOutput
from tests.fakes import ScriptedPolicy, block
from tests.test_graph import HALF, PROBLEM, ZERO

THREAD: Any = {"configurable": {"thread_id": "1"}}


def thoughts_of(size: int, count: int) -> list[str]:
    """Programs of that many characters that pass nothing and that no compression helps."""
    rng = random.Random(0)
    return [block(f"x = {number}\n# {''.join(rng.choices(string.printable[:62], k=size))}") for number in range(count)]


def test_a_whole_run_of_the_papers_budget_takes_less_than_two_megabytes(sandbox: Any, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.sqlite"
    policy = ScriptedPolicy(thoughts_of(4096, 80))
    with SqliteSaver.from_conn_string(str(file)) as checkpointer:
        graph = create_pot_agent(policy, sandbox, config=PotConfig.paper(), checkpointer=checkpointer)
        solution = graph.invoke(PROBLEM, THREAD)["solution"]
    assert (solution["iterations"], solution["stop_reason"]) == (20, "iterations")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < 2_000_000, f"{size:,} bytes"


class Lagging(InMemorySaver):
    """A checkpointer whose writes take a while, as those of a database far away do."""

    seconds = 0.2

    def put(self, *arguments: Any) -> Any:
        time.sleep(self.seconds)
        return super().put(*arguments)

    async def aput(self, *arguments: Any) -> Any:
        await asyncio.sleep(self.seconds)
        return super().put(*arguments)


class Ahead(ScriptedPolicy):
    """Records what the checkpointer held when a call changed the adapter for good."""

    held: list[tuple[str, Any]]
    below = False
    """Whether to look at the checkpoints of a sub-graph."""

    def watch(self, checkpointer: InMemorySaver) -> None:
        self.held, self._checkpointer = [], checkpointer

    def _look(self, call: str) -> None:
        where = [name for name in self._checkpointer.storage["1"] if bool(name) is self.below]
        newest: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": where[0]}}
        found = self._checkpointer.get_tuple(newest)
        self.held.append((call, found and {**found.checkpoint["channel_values"]}))

    def internalize(self, session: str, **arguments: Any) -> Any:
        self._look("internalize")
        return super().internalize(session, **arguments)

    def close(self, session: str) -> None:
        self._look("close")
        super().close(session)


@pytest.mark.parametrize("form", ["sync", "async", "sub-graph"])
def test_no_step_is_taken_and_no_adapter_closed_ahead_of_its_checkpoint(sandbox: Any, form: str) -> None:
    policy, checkpointer = Ahead([ZERO, HALF, ZERO]), Lagging()
    config = PotConfig.quick(iterations=1, width=2)
    if form == "sub-graph":
        builder = StateGraph(Both)
        builder.add_node("solver", create_pot_agent(policy, sandbox, config=config))
        builder.add_edge(START, "solver")
        builder.add_edge("solver", END)
        graph: Any = builder.compile(checkpointer=checkpointer)
        policy.watch(checkpointer)
        policy.below = True
    else:
        graph = create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer)
        policy.watch(checkpointer)
    if form == "async":
        asyncio.run(graph.ainvoke(PROBLEM, THREAD))
    else:
        graph.invoke(PROBLEM, THREAD)
    (learned, before), (closed, after) = policy.held
    assert (learned, closed) == ("internalize", "close")
    assert len(before["rewards"]) == 2
    assert after["solution"]["stop_reason"] == "iterations"


class Both(PotInput, PotOutput, total=False):
    """A parent's state."""


def test_a_checkpointer_that_never_writes_is_an_error_and_no_endless_wait(
    sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            return None

    monkeypatch.setattr(durable.wait_until_saved, "__kwdefaults__", {"seconds": 0.1})
    graph = create_pot_agent(
        ScriptedPolicy([ZERO, HALF]), sandbox, config=PotConfig.quick(width=2), checkpointer=Forgetful()
    )
    with pytest.raises(StateError, match="has not written checkpoint"):
        graph.invoke(PROBLEM, THREAD)


def test_durability_exit_waits_for_nothing(sandbox: Any) -> None:
    graph = create_pot_agent(
        ScriptedPolicy([ZERO, HALF]), sandbox, config=PotConfig.quick(iterations=1, width=2), checkpointer=Lagging()
    )
    found = graph.invoke(PROBLEM, THREAD, durability="exit")
    assert found["solution"]["updates"] == 1


def test_a_run_in_async_sqlite_ends_and_can_be_read(sandbox: Any, tmp_path: Path) -> None:
    async def run() -> Any:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as checkpointer:
            config = PotConfig.quick(iterations=2, width=2)
            graph = create_pot_agent(ScriptedPolicy([ZERO, HALF]), sandbox, config=config, checkpointer=checkpointer)
            await graph.ainvoke(PROBLEM, THREAD)
            return (await graph.aget_state(THREAD)).values

    values = asyncio.run(run())
    assert values["solution"]["iterations"] == 2
    assert [program["score"] for program in values["programs"]] == [0.0, 0.5]


def test_a_reused_thread_of_a_database_starts_clean(sandbox: Any, tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as checkpointer:
        config = PotConfig.quick(iterations=1, width=2)
        graph = create_pot_agent(ScriptedPolicy([ZERO, HALF]), sandbox, config=config, checkpointer=checkpointer)
        graph.invoke(PROBLEM, THREAD)
        graph.invoke({"problem": "Say hello."}, THREAD)
        values = graph.get_state(THREAD).values
    assert values["task"]["problem"] == "Say hello."
    assert (len(values["programs"]), len(values["tree"]), values["updates"]) == (1, 1, 0)
