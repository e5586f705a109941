"""Every way to stop a run: sampling ends within a decoding step, the adapter is freed, the best so far is kept."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from pot_agent import PotConfig, create_pot_agent
from pot_agent.policy.local import LocalPolicy
from tests.fakes import ScriptedPolicy, block
from tests.tiny import make_tiny_model

ROOT = Path(__file__).parent.parent
PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
THREAD: Any = {"configurable": {"thread_id": "1"}}
FOREVER = 100_000
"""Tokens of a thought that would not end by itself while a test waits; the tiny model has room for them."""


class Watched(LocalPolicy):
    """The real policy; says when tokens flow, how many more were sampled after `stopped_at`, and when a call ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.flowing, self.ended = threading.Event(), threading.Event()
        self.asked_to_stop = threading.Event()
        self.after = 0

    def sample(self, session: str, **arguments: Any) -> Any:
        told = arguments["on_tokens"]

        def on_tokens(tokens: int) -> None:
            self.after += self.asked_to_stop.is_set()
            if tokens > 5:
                self.flowing.set()
            time.sleep(0.02)
            told(tokens)

        try:
            return super().sample(session, **{**arguments, "on_tokens": on_tokens})
        finally:
            self.ended.set()

    def stop_by(self, act: Callable[[], Any]) -> None:
        """Do `act` when tokens flow."""
        assert self.flowing.wait(20)
        act()
        self.asked_to_stop.set()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("stop") / "tiny", context=4 * FOREVER)


@pytest.fixture
def policy(tiny: Path) -> Iterator[Watched]:
    with Watched(str(tiny), threads=1, batch=False) as policy:
        yield policy


def agent(policy: Any, sandbox: Any, **options: Any) -> Any:
    config = PotConfig.quick(iterations=2, width=2, max_new_tokens=FOREVER, end_at_block=False)
    return create_pot_agent(policy, sandbox, config=config, **options)


def is_soon(found: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not found() and time.monotonic() < end:
        time.sleep(0.01)
    return found()


def test_a_callers_event_stops_real_sampling_within_a_step_and_frees_the_adapter(policy: Watched, sandbox: Any) -> None:
    cancel = threading.Event()
    threading.Thread(target=policy.stop_by, args=(cancel.set,)).start()
    found = agent(policy, sandbox).invoke(PROBLEM, {"configurable": {"cancel": cancel}})
    assert found["solution"]["stop_reason"] == "cancelled"
    assert policy.after <= 1
    assert len(policy._sessions) == 0


def test_a_cancelled_task_stops_real_sampling_within_a_step_and_frees_the_adapter(
    policy: Watched, sandbox: Any
) -> None:
    async def run() -> None:
        task = asyncio.create_task(agent(policy, sandbox).ainvoke(PROBLEM))
        await asyncio.to_thread(policy.stop_by, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert policy.ended.wait(10)
    assert policy.after <= 2  # the loop has to run once before the task knows
    assert is_soon(lambda: len(policy._sessions) == 0)


def test_the_wall_clock_stops_real_sampling(policy: Watched, sandbox: Any) -> None:
    found = agent(policy, sandbox).invoke(PROBLEM, context={"max_seconds": 1.0})["solution"]
    assert found["stop_reason"] == "max_seconds"
    assert len(policy._sessions) == 0


def test_a_drain_stops_real_sampling_within_a_step_and_the_run_goes_on_later(policy: Watched, sandbox: Any) -> None:
    control = RunControl()
    graph = agent(policy, sandbox, checkpointer=InMemorySaver())
    threading.Thread(target=policy.stop_by, args=(control.request_drain,)).start()
    with pytest.raises(GraphDrained):
        graph.invoke(PROBLEM, THREAD, control=control)
    assert policy.after <= 1
    assert graph.get_state(THREAD).next == ("propose",)
    assert len(policy._sessions) == 1
    cancel = threading.Event()
    cancel.set()
    config = {"configurable": {"thread_id": "1", "cancel": cancel}}
    assert graph.invoke(None, config)["solution"]["stop_reason"] == "cancelled"
    assert len(policy._sessions) == 0


def test_a_drain_of_a_run_that_nothing_can_resume_frees_the_adapter(policy: Watched, sandbox: Any) -> None:
    control = RunControl()
    threading.Thread(target=policy.stop_by, args=(control.request_drain,)).start()
    with pytest.raises(GraphDrained):
        agent(policy, sandbox).invoke(PROBLEM, control=control)
    assert len(policy._sessions) == 0


def test_a_drain_between_two_steps_of_a_run_that_nothing_can_resume_frees_the_adapter(sandbox: Any) -> None:
    class DrainsAtTheEndOfSampling(ScriptedPolicy):
        def sample(self, session: str, **arguments: Any) -> Any:
            found = super().sample(session, **arguments)
            control.request_drain()
            return found

    control, policy = RunControl(), DrainsAtTheEndOfSampling([block("def add(a, b): ...")], context_tokens=4 * FOREVER)
    with pytest.raises(GraphDrained):
        agent(policy, sandbox).invoke(PROBLEM, control=control)
    assert policy.versions == {}


def test_a_drained_run_ends_as_an_undisturbed_one(sandbox: Any) -> None:
    script = [block(f"def add(a, b):\n    return {number}") for number in (9, 3, 8, 3, 7, 3)]
    graph = agent(ScriptedPolicy(script, context_tokens=4 * FOREVER), sandbox, checkpointer=InMemorySaver())
    control = RunControl()
    steps = graph.stream(PROBLEM, THREAD, control=control, stream_mode="updates")
    next(steps)
    control.request_drain()
    with pytest.raises(GraphDrained):
        list(steps)
    found = graph.invoke(None, THREAD)["solution"]
    undisturbed = agent(ScriptedPolicy(script, context_tokens=4 * FOREVER), sandbox).invoke(PROBLEM)["solution"]
    assert {**found, "seconds": 0} == {**undisturbed, "seconds": 0}


SCRIPT = """
import sys, threading, time
from langgraph.checkpoint.sqlite import SqliteSaver
from tests.test_stopping import PROBLEM, THREAD, Watched, agent
from pot_agent.sandbox.local import LocalSandbox

policy = Watched(sys.argv[1], threads=1, batch=sys.argv[3] == "batch")
threading.Thread(target=lambda: (policy.flowing.wait(), print("flowing", flush=True)), daemon=True).start()
with SqliteSaver.from_conn_string(sys.argv[2]) as checkpointer, LocalSandbox() as sandbox:
    graph = agent(policy, sandbox, checkpointer=None if sys.argv[2] == ":memory:" else checkpointer)
    try:
        graph.invoke(PROBLEM, THREAD)
    except KeyboardInterrupt:
        stopped = policy.ended.wait(2)
        policy.asked_to_stop.set()
        time.sleep(0.3)
        ahead = graph.checkpointer and graph.get_state(THREAD).next
        print("interrupted", stopped, policy.after, len(policy._sessions), ahead)
"""


@pytest.mark.parametrize(("kept", "batch"), [(True, "batch"), (False, "alone")])
def test_ctrl_c_stops_real_sampling_and_keeps_what_a_checkpointer_can_resume(
    tiny: Path, tmp_path: Path, kept: bool, batch: str
) -> None:
    where = str(tmp_path / "checkpoints.sqlite") if kept else ":memory:"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tiny), where, batch], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "flowing\n"
    process.send_signal(signal.SIGINT)
    said = process.stdout.readline().split(maxsplit=4)
    assert process.wait(30) == 0
    assert said[:3] == ["interrupted", "True", "0"]  # the call ended, and no token came after that
    assert said[3:] == (["1", "('propose',)\n"] if kept else ["0", "None\n"])
