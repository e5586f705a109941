"""A process that learns with a state folder and is killed while it does, again and again.

A life (`tests/nursery.py`) is told what was answered before it (the log), goes on from there as a client would, and
says each answer when it has it. It kills itself with SIGKILL at the n-th system call that touches a file (of one kind,
or of any): before it, after it, or with half of a write done. The client's calls are the public ones; only the hook and
the digest look inside.
"""

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Message, Receipt
from pot_agent.policy.local import LocalPolicy
from tests.nursery import Said, nurse, say

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
LORA = LoraConfig(rank=2, alpha=4.0)
GRPO = GrpoConfig(learning_rate=1e-2)
CALLS = ("pwrite", "fsync", "ftruncate", "rename", "replace", "mkdir", "rmdir", "unlink")
"""What the state folder is written with."""

Event = Said


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
    say(kind="opened", version=opened.version, samples=list(known.journal._samples), receipts=len(known.receipts))
    version = _repeat(policy, job["log"])
    last = job["log"][-1] if job["log"] else None
    step = 0 if last is None else last["step"] + (last["kind"] == "learned")
    ids = last["ids"] if last is not None and last["kind"] == "sampled" else None
    while step < job["steps"]:
        version = _step(policy, step, version, ids).version
        step, ids = step + 1, None
    say(kind="done", digest=_digest(policy))
    policy.shutdown()


def _repeat(policy: LocalPolicy, log: list[Event]) -> int:
    """Every update that was answered, asked for again: the same receipts, and nothing trained."""
    version = 0
    for event in log:
        if event["kind"] == "learned":
            receipt = _learn(
                policy, event["step"], event["receipt"]["parent_version"], list(event["receipt"]["rewards"])
            )
            say(kind="repeated", step=event["step"], receipt=receipt.to_dict())
            version = receipt.version
    return version


def _step(policy: LocalPolicy, step: int, version: int, ids: list[str] | None) -> Receipt:
    if ids is None:
        group = policy.sample("s", version=version, messages=ASK, n=3, max_tokens=8, temperature=1.0, seed=step)
        ids = [sample.sample_id for sample in group]
        told = [(sample.text, sample.logprob) for sample in group]
        say(kind="sampled", step=step, ids=ids, told=told)
    receipt = _learn(policy, step, version, ids)
    say(kind="learned", step=step, receipt=receipt.to_dict())
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
    say(kind="died", call=f"{how} {name}")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    nurse(_live)
