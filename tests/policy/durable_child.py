"""A process that learns with a state folder and is killed while it does, again and again.

`Nursery` starts one process that has torch loaded; each *life* is a fork of it, so that a kill costs no import. A life
is told what was answered before it (the log), goes on from there as a client would, and says each answer when it has
it. It kills itself with SIGKILL at the n-th system call that touches a file (of one kind, or of any): before it, after
it, or with half of a write done. The client's calls are the public ones; only the hook and the digest look inside.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Message, Receipt
from pot_agent.policy.local import LocalPolicy

ROOT = Path(__file__).parents[2]
ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
LORA = LoraConfig(rank=2, alpha=4.0)
GRPO = GrpoConfig(learning_rate=1e-2)
CALLS = ("pwrite", "fsync", "ftruncate", "rename", "replace", "mkdir", "rmdir", "unlink")
"""What the state folder is written with."""

Event = dict[str, Any]


class Nursery:
    """Starts lives, one at a time. A context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.policy.durable_child"],
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

    def life(self, **job: Any) -> tuple[list[Event], int]:
        """What it answered, and its exit status (negative: the signal that ended it)."""
        events = list(self.events(**job))
        return events[1:-1], events[-1]["status"]

    def events(self, **job: Any) -> Iterator[Event]:
        """The events as they come: `born` with its pid, its answers, `ended` with its status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            try:
                event: Event = json.loads(line)
            except ValueError:
                continue  # killed in the middle of saying it: not answered
            yield event
            if event["kind"] == "ended":
                return
        raise AssertionError("the nursery ended")


def rewards_of(step: int, sample_ids: list[str]) -> dict[str, float]:
    """Every fourth group is of equal rewards, so that its update is skipped."""
    return {name: float(step % 4 != 2 and place == 0) for place, name in enumerate(sample_ids)}


def comparable(receipt: Event) -> Event:
    """A receipt without what differs between two runs that do the same: random ids and times."""
    kept = {name: value for name, value in receipt.items() if name not in ("digest", "seconds", "phases")}
    return kept | {name: list(receipt[name].values()) for name in ("rewards", "advantages")}


def _live(job: Event) -> None:
    state = job.get("state")
    policy = LocalPolicy(job["model"], threads=1, state_dir=None if state is None else Path(state))
    if job.get("at"):
        _arm(job["at"], job["how"], (job["call"],) if job.get("call") else CALLS)
    opened = policy.open("s", lora=LORA, seed=3)
    known = policy._sessions._open["s"]
    _say(kind="opened", version=opened.version, samples=list(known.journal._samples), receipts=len(known.receipts))
    version = _repeat(policy, job["log"])
    last = job["log"][-1] if job["log"] else None
    step = 0 if last is None else last["step"] + (last["kind"] == "learned")
    ids = last["ids"] if last is not None and last["kind"] == "sampled" else None
    while step < job["steps"]:
        version = _step(policy, step, version, ids).version
        step, ids = step + 1, None
    _say(kind="done", digest=_digest(policy))
    policy.shutdown()


def _repeat(policy: LocalPolicy, log: list[Event]) -> int:
    """Every update that was answered, asked for again: the same receipts, and nothing trained."""
    version = 0
    for event in log:
        if event["kind"] == "learned":
            receipt = _learn(
                policy, event["step"], event["receipt"]["parent_version"], list(event["receipt"]["rewards"])
            )
            _say(kind="repeated", step=event["step"], receipt=receipt.to_dict())
            version = receipt.version
    return version


def _step(policy: LocalPolicy, step: int, version: int, ids: list[str] | None) -> Receipt:
    if ids is None:
        group = policy.sample("s", version=version, messages=ASK, n=3, max_tokens=8, temperature=1.0, seed=step)
        ids = [sample.sample_id for sample in group]
        told = [(sample.text, sample.logprob) for sample in group]
        _say(kind="sampled", step=step, ids=ids, told=told)
    receipt = _learn(policy, step, version, ids)
    _say(kind="learned", step=step, receipt=receipt.to_dict())
    return receipt


def _learn(policy: LocalPolicy, step: int, version: int, ids: list[str]) -> Receipt:
    return policy.internalize("s", version=version, rewards=rewards_of(step, ids), grpo=GRPO)


def _digest(policy: LocalPolicy) -> str:
    """Of all that the next update would go on from, bit for bit."""
    session = policy._sessions._open["s"]
    moments = session.moments
    tensors = [session.vectors[session.version], session.reference] + (
        [moments.first, moments.second] if moments else []
    )
    digest = hashlib.sha256(f"{session.version} {session.steps} {session.steps_since_sync}".encode())
    for tensor in tensors:
        digest.update(b"base" if tensor is None else tensor.numpy().tobytes())
    return digest.hexdigest()


def _arm(at: int, how: str, names: tuple[str, ...]) -> None:
    calls = 0

    def deadly(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at and how == "half" and name == "pwrite":
                call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], arguments[2])
            if calls == at and how != "after":
                _die(name, how)
            result = call(*arguments, **options)
            if calls == at:
                _die(name, how)
            return result

        return wrapped

    for name in names:
        setattr(os, name, deadly(name, getattr(os, name)))


def _die(name: str, how: str) -> None:
    _say(kind="died", call=f"{how} {name}")
    os.kill(os.getpid(), signal.SIGKILL)


def _say(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def _nursery() -> None:
    import torch

    import pot_agent.policy.engine
    import pot_agent.policy.store  # noqa: F401  (loaded before the forks)

    torch.set_num_threads(1)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            _say(kind="born", pid=os.getpid())
            try:
                _live(json.loads(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, b"\n")
        _say(kind="ended", status=status)


if __name__ == "__main__":
    _nursery()
