"""What `check_gpu.py` checks: one policy, how much is asked of it, and what the checks leave for one another."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError
from pot_agent.policy.base import Completion, Message, Receipt
from pot_agent.policy.fingerprint import digest_of
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.memory_plan import MemoryPlan

LORA = LoraConfig()
STRONG = GrpoConfig(learning_rate=1e-3)
"""Large enough to be seen through the noise of 16 bits."""


class CheckFailedError(Exception):
    """A check that did not hold; the message says what was found."""


class CheckSkippedError(Exception):
    """A check that cannot be made here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much each check does."""

    widths: Sequence[int]
    prompt: int
    new_tokens: int
    group: int
    completion: int
    versions: int
    sessions: int


@dataclass
class Subject:
    """One policy under check, and what the checks leave for one another."""

    policy: LocalPolicy
    load: Load
    plan: MemoryPlan
    cancel: threading.Event
    held_before: int
    peak_tflops: float | None = None
    sessions: int = 0
    receipt: Receipt | None = None
    digest: str = ""

    def ask(self, tokens: int = 40) -> list[Message]:
        """A prompt of about so many tokens."""
        words = "Write a function that adds two numbers. "
        each = max(1, self.policy.count_tokens(words))
        return [{"role": "user", "content": words * max(1, tokens // each)}]

    def open(self) -> str:
        """A new session."""
        self.sessions += 1
        name = f"check-{self.sessions}"
        self.policy.open(name, lora=LORA, seed=self.sessions)
        return name

    def draw(self, session: str, version: int = 0, **changes: Any) -> list[Completion]:
        """A group, at temperature 0.7 unless said."""
        options = {"messages": self.ask(), "n": 3, "max_tokens": 24, "temperature": 0.7} | changes
        return self.policy.sample(session, version=version, cancel=self.cancel, **options)

    def learn(self, session: str, version: int = 0, *, best: int = 0, **changes: Any) -> Receipt:
        """An update on a new group, whose sample of this index is rewarded."""
        group = self.draw(session, version, seed=version, **changes)
        rewards = {sample.sample_id: float(index == best) for index, sample in enumerate(group)}
        receipt = self.policy.internalize(session, version=version, rewards=rewards, grpo=STRONG, cancel=self.cancel)
        if receipt.skipped:
            raise CheckFailedError(f"the update was skipped: {receipt.skipped}")
        return receipt

    def go_on(self) -> None:
        """Raises `CancelledError` when the time is over."""
        if self.cancel.is_set():
            raise CancelledError("the time is over", value=None)

    def weights(self) -> str:
        """Digest of the base model's weights as they are now."""
        return digest_of(self.policy._engine._base)
