"""What a thought is worth: the contract between the graph and whatever judges a program."""

from dataclasses import dataclass
from threading import Event
from typing import Protocol, runtime_checkable

from pot_agent.problem import Limits, Problem
from pot_agent.sandbox.base import Sandbox


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A reward and what it rests on. `score` is None when nothing could be found out (never scored, never trained)."""

    score: float | None
    """In [0, 1]."""
    verdict: str
    passed: int = 0
    total: int = 0
    feedback: str = ""
    """What the model is told, at most a few hundred words; bounded and escaped."""
    failure: str = ""
    """The first failure in one line, for a person."""
    tier: str = ""
    """Isolation tier that the program ran under."""
    seconds: float = 0.0


@runtime_checkable
class Reward(Protocol):
    """Judges one program for one problem. Thread-safe."""

    def evaluate(
        self, problem: Problem, program: str, *, sandbox: Sandbox, limits: Limits, cancel: Event | None = None
    ) -> Evaluation:
        """The program's worth. Raises `CancelledError` when `cancel` is set."""
        ...
