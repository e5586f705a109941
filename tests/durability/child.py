"""A process that runs the graph over a tiny model, with a state folder and a checkpointer, and is killed while it does.

A life (`tests/nursery.py`) kills itself with SIGKILL at its n-th *moment*: before or after a call that the graph makes
of its policy, its sandbox or its checkpointer, run by `invoke` or by `ainvoke`.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Event, Lock
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.policy.local import LocalPolicy
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation, ExecutionReward
from pot_agent.sandbox.local import LocalSandbox
from tests.nursery import Said, nurse, say

PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
CONFIG = {"iterations": 4, "width": 3, "max_new_tokens": 8, "temperature": 1.0, "max_depth": 3}
POLICY = ("open", "sample", "score", "internalize", "close")
CHECKPOINTER = ("put", "put_writes")
ASYNC_CHECKPOINTER = ("aput", "aput_writes")


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
        async def awaited(*arguments: Any, **options: Any) -> Any:
            self.pass_one(f"before {name}")
            result = await call(*arguments, **options)
            self.pass_one(f"after {name}")
            return result

        def watched(*arguments: Any, **options: Any) -> Any:
            self.pass_one(f"before {name}")
            result = call(*arguments, **options)
            self.pass_one(f"after {name}")
            return result

        return awaited if iscoroutinefunction(call) else watched

    def __int__(self) -> int:
        return self._count


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


@asynccontextmanager
async def async_checkpointer_at(where: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """SQLite in a file, through its event loop."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(where) as saver:
        yield saver


def _live(job: Said) -> None:
    moments = Moments(job.get("at"), job.get("only"))
    with (
        LocalPolicy(job["model"], threads=1, batch=False, state_dir=Path(job["state"])) as policy,
        LocalSandbox() as sandbox,
    ):
        _tell_what_ends(policy)
        moments.watch(policy, POLICY)
        moments.watch(sandbox, ("judge",))
        config = PotConfig.quick(**{**CONFIG, **job.get("config", {})}, grpo=GrpoConfig(learning_rate=1e-2))
        build = partial(create_pot_agent, policy, sandbox, config=config, reward=GradedByText())
        if job.get("form") == "async":
            asyncio.run(_run_async(job, moments, build))
        else:
            _run(job, moments, build)


def _run(job: Said, moments: Moments, build: Callable[..., Any]) -> None:
    thread: Any = {"configurable": {"thread_id": job.get("thread", "1")}}
    with checkpointer_at(job["checkpoints"]) as checkpointer:
        moments.watch(checkpointer, CHECKPOINTER)
        graph = build(checkpointer=checkpointer)
        known = graph.get_state(thread)
        _tell_the_end(known, graph.invoke(_input_after(known), thread), moments)


async def _run_async(job: Said, moments: Moments, build: Callable[..., Any]) -> None:
    thread: Any = {"configurable": {"thread_id": job.get("thread", "1")}}
    async with async_checkpointer_at(job["checkpoints"]) as checkpointer:
        moments.watch(checkpointer, ASYNC_CHECKPOINTER)
        graph = build(checkpointer=checkpointer)
        known = await graph.aget_state(thread)
        _tell_the_end(known, await graph.ainvoke(_input_after(known), thread), moments)


def _input_after(known: Any) -> Any:
    """The problem, or None to go on; not by `known.next`, which leaves out a step whose writes are saved."""
    return PROBLEM if known.created_at is None else None


def _tell_the_end(known: Any, found: Any, moments: Moments) -> None:
    ahead = [name for name in known.next if name != "__start__"]
    say(kind="done", went_on_at=ahead, solution=found["solution"], moments=int(moments))


if __name__ == "__main__":
    nurse(_live)
