"""A process that runs the graph over a tiny model, with a state folder and a checkpointer, and is killed while it does.

`Nursery` starts one process that has torch loaded; each *life* is a fork of it, so that a kill costs no import. A life
kills itself with SIGKILL at its n-th *moment*: before or after a call that the graph makes of its policy, its sandbox
or its checkpointer. What it says on its output was said for certain; the rest is asked of the disk by the next life.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Any, Self

from langgraph.checkpoint.base import BaseCheckpointSaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.policy.local import LocalPolicy
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation, ExecutionReward
from pot_agent.sandbox.local import LocalSandbox

ROOT = Path(__file__).parents[2]
PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
CONFIG = {"iterations": 4, "width": 3, "max_new_tokens": 8, "temperature": 1.0, "max_depth": 3}
POLICY = ("open", "sample", "score", "internalize", "close")
CHECKPOINTER = ("put", "put_writes")

Said = dict[str, Any]


class Nursery:
    """Starts lives, one at a time. A context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.durability.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def life(self, **job: Any) -> list[Said]:
        """All that it said; the last is `ended`, with its exit status (negative: the signal that ended it)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        said: list[Said] = []
        for line in self._process.stdout:
            said.append(json.loads(line))
            if said[-1]["kind"] == "ended":
                return said
        raise AssertionError("the nursery ended")


class GradedByText(ExecutionReward):
    """Runs every program for real, and scores it by its text: noise that never passes a test still has good and bad."""

    def evaluate(
        self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Event | None
    ) -> Evaluation:
        ran = super().evaluate(problem, program, sandbox=sandbox, limits=limits, cancel=cancel)
        share = hashlib.sha256(program.encode()).digest()[0] / 512
        return Evaluation(score=share, verdict=ran.verdict, total=ran.total, feedback=ran.feedback, tier=ran.tier)


class Moments:
    """Counts the moments of one life, and kills the process at one of them."""

    def __init__(self, at: int | None, only: str | None) -> None:
        self._at, self._only, self._count, self._lock = at, only, 0, Lock()

    def pass_one(self, name: str) -> None:
        if self._only not in (None, name):
            return
        with self._lock:
            self._count += 1
            if self._count == self._at:
                say(kind="died", moment=name)
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, thing: Any, names: tuple[str, ...]) -> None:
        """Let each call of these methods be two moments."""
        for name in names:
            setattr(thing, name, self._watched(name, getattr(thing, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.pass_one(f"before {name}")
            result = call(*arguments, **options)
            self.pass_one(f"after {name}")
            return result

        return watched

    def __int__(self) -> int:
        return self._count


def say(**said: Any) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


@contextmanager
def checkpointer_at(where: str) -> Iterator[BaseCheckpointSaver[Any]]:
    """SQLite in a file, or PostgreSQL at a URL."""
    if where.startswith("postgresql:"):
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(where) as saver:
            saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(where) as saver:
            yield saver


def _tell_what_ends(policy: LocalPolicy) -> None:
    """Say what the adapter was, bit for bit, and which updates it had, whenever one is closed."""
    close = policy.close

    def telling(session: str) -> None:
        if policy._sessions._open.get(session) or (policy._sessions._store and policy._sessions._store.has(session)):
            policy.restore(session)
            held = policy._sessions._open[session]
            vector = held.vectors.get(held.version)
            weights = "base" if vector is None else hashlib.sha256(vector.numpy().tobytes()).hexdigest()
            made = [[r.version, r.total_steps] for r in held.receipts.values() if r.skipped is None]
            say(kind="closing", session=session, version=held.version, steps=held.steps, weights=weights, made=made)
        close(session)

    policy.close = telling  # type: ignore[method-assign]


def _live(job: Said) -> None:
    moments = Moments(job.get("at"), job.get("only"))
    with (
        LocalPolicy(job["model"], threads=1, batch=False, state_dir=Path(job["state"])) as policy,
        LocalSandbox() as sandbox,
        checkpointer_at(job["checkpoints"]) as checkpointer,
    ):
        _tell_what_ends(policy)
        moments.watch(policy, POLICY)
        moments.watch(sandbox, ("judge",))
        moments.watch(checkpointer, CHECKPOINTER)
        config = PotConfig.quick(**{**CONFIG, **job.get("config", {})}, grpo=GrpoConfig(learning_rate=1e-2))
        graph = create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer, reward=GradedByText())
        thread: Any = {"configurable": {"thread_id": job.get("thread", "1")}}
        known = graph.get_state(thread)
        ahead = [name for name in known.next if name != "__start__"]
        # Not `known.next`: it leaves out a step whose writes are saved, though the steps after it are yet to come.
        solution = graph.invoke(PROBLEM if known.created_at is None else None, thread)["solution"]
        say(kind="done", went_on_at=ahead, solution=solution, moments=int(moments))


def _nursery() -> None:
    import torch

    import pot_agent.policy.engine
    import pot_agent.policy.store  # noqa: F401  (loaded before the forks)

    torch.set_num_threads(1)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            try:
                _live(json.loads(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        say(kind="ended", status=status)


if __name__ == "__main__":
    _nursery()
