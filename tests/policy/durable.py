"""What the tests of durable state share: processes that come and go, a session that grows, and what it consists of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pot_agent.config import LoraConfig
from pot_agent.policy.base import Completion, Policy, Receipt
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.session import Session
from pot_agent.policy.state_folder import StateFolder
from pot_agent.policy.store import Store
from tests.policy.contract import ASK, GRPO

LORA = LoraConfig(rank=2, alpha=4.0)


@contextmanager
def process(tiny: Path, state: Path | None, **options: Any) -> Iterator[LocalPolicy]:
    """A policy that starts, and ends without closing its sessions, as a process does."""
    with LocalPolicy(str(tiny), threads=1, state_dir=state, **options) as policy:
        yield policy


def draw(policy: Policy, step: int, version: int, session: str = "s") -> list[Completion]:
    return policy.sample(session, version=version, messages=ASK, n=3, max_tokens=8, temperature=1.0, seed=step)


def learn(policy: Policy, step: int, version: int, *, equal: bool = False, session: str = "s") -> Receipt:
    """One group and its update; `equal` rewards are skipped."""
    group = draw(policy, step, version, session)
    rewards = {sample.sample_id: float(not equal and place == 0) for place, sample in enumerate(group)}
    return policy.internalize(session, version=version, rewards=rewards, grpo=GRPO)


def grown(policy: Policy, updates: int) -> list[Receipt]:
    """A session after so many updates."""
    policy.open("s", lora=LORA, seed=3)
    return [learn(policy, step, step) for step in range(updates)]


def again(policy: Policy, receipt: Receipt) -> Receipt:
    """The call that the receipt is of, once more."""
    return policy.internalize("s", version=receipt.parent_version, rewards=receipt.rewards, grpo=GRPO)


def in_memory(policy: LocalPolicy, session: str = "s") -> Session:
    return policy._sessions._open[session]


def folder_of(state: Path) -> Path:
    (folder,) = [path for path in state.iterdir() if not path.name.startswith(".")]
    return folder


def versions_in(state: Path) -> set[str]:
    return {path.name for path in (folder_of(state) / "versions").iterdir()}


def essence(session: Session) -> dict[str, Any]:
    """All that decides how a session goes on, bit for bit."""
    moments = session.moments
    tensors = {f"version {version}": vector for version, vector in session.vectors.items()}
    if moments is not None:
        tensors |= {"first": moments.first, "second": moments.second}
    if session.reference is not None:
        tensors["reference"] = session.reference
    return {
        "counters": (session.version, session.steps, session.steps_since_sync, moments and moments.steps),
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in sorted(tensors.items())},
        "reference is the newest": session.reference is session.vectors.get(session.version),
        "pinned": session.pinned - {0},
        "receipts": dict(session.receipts),
        "samples": list(session.journal._samples.values()),
    }


def on_disk(policy: LocalPolicy, state: Path, copy: Path) -> dict[str, Any]:
    """What another process would restore, from a copy of the folder."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(state, copy)
    store = Store(StateFolder(copy, seconds=1e9), policy._engine)
    try:
        return essence(store.load("s"))
    finally:
        store.release()


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
