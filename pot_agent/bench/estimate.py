"""How long a run takes: estimated before it starts, from a short probe of the policy; reckoned anew as records come in.

The estimate is an upper bound by these assumptions, which are printed and kept in the manifest: every problem uses the
arm's whole budget (nothing is solved early, every thought is as long as it may be), tokens come as fast as the probe's,
and programs take `PROGRAM_SECONDS`. Runs are mostly shorter; the ETA says by how much once a few problems are done.

Limits: the probe is a few dozen tokens on one prompt; prompts that grow with the search are not in its speed.
"""

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Event
from typing import Any

from pot_agent.bench.rehearsal import Spending
from pot_agent.config import PotConfig
from pot_agent.errors import PotError
from pot_agent.policy.base import Message, Policy
from pot_agent.problem import Problem
from pot_agent.prompts import build_messages

PROBE_TOKENS = 24
PROGRAM_SECONDS = 0.3
"""Of one program on its visible tests, most often."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How fast a policy was, just before the run."""

    sessions: int
    width: int
    tokens_per_second: float
    """Of all sessions together, prompts included."""
    update_seconds_per_token: float | None
    """Of one update, by the tokens of its completions and of its prompt; None where nothing is learned."""


def probe(
    policy: Policy, problem: Problem, config: PotConfig, *, sessions: int, learn: bool, cancel: Event | None = None
) -> Probe:
    """Sample a little in so many sessions at once, as the run will, and learn from one group. Nothing of it is kept.

    Raises `CancelledError` once `cancel` is set.
    """
    names = [f"probe-{uuid.uuid4().hex}" for _ in range(sessions)]
    width, tokens = config.search.width, min(PROBE_TOKENS, config.search.max_new_tokens)
    messages = _prompt(policy, problem, config)
    try:
        for name in names:
            policy.open(name, lora=config.lora if learn else None, seed=config.seed)

        def draw(name: str, most: int = tokens) -> list[Any]:
            temperature = config.search.temperature
            return policy.sample(
                name, version=0, messages=messages, n=width, temperature=temperature, max_tokens=most, seed=1,
                cancel=cancel,
            )  # fmt: skip

        draw(names[0], 2)  # what is built at the first call is not what a token costs
        began = time.monotonic()
        with ThreadPoolExecutor(max_workers=sessions) as pool:
            groups = list(pool.map(draw, names))
        seconds = max(time.monotonic() - began, 1e-6)
        drawn = sum(completion.tokens for group in groups for completion in group)
        update = _update_seconds(policy, names[0], groups[0], config, cancel) if learn else None
        return Probe(sessions=sessions, width=width, tokens_per_second=drawn / seconds, update_seconds_per_token=update)
    finally:
        for name in names:
            with suppress(PotError):
                policy.close(name)


def _prompt(policy: Policy, problem: Problem, config: PotConfig) -> list[Message]:
    room = policy.capabilities.context_tokens - config.search.max_new_tokens
    return build_messages(
        problem, [], max_tokens=room, count=policy.count_tokens, feedback_tokens=config.search.feedback_tokens
    ).messages


def _update_seconds(
    policy: Policy, session: str, group: Sequence[Any], config: PotConfig, cancel: Event | None
) -> float | None:
    """Seconds a token of an update on a group of which one is good; None where one sample is no group."""
    if len(group) < 2:
        return None
    rewards = {completion.sample_id: float(not at) for at, completion in enumerate(group)}
    began = time.monotonic()
    grpo = config.grpo_for(policy.capabilities.parameters)
    policy.internalize(session, version=0, rewards=rewards, grpo=grpo, cancel=cancel)
    seconds = time.monotonic() - began
    return seconds / float(group[0].prompt_tokens + sum(completion.tokens for completion in group))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The most that a run takes, and what that rests on."""

    hours: float
    seconds_by_arm: dict[str, float]
    """Of one problem, if it ran alone at the probe's speed."""
    trials: int
    probe: Probe
    spending: dict[str, Spending]
    lanes: int = 1
    """Policies of that speed, side by side."""

    @property
    def assumptions(self) -> list[str]:
        """In words."""
        speed, learning = self.probe.tokens_per_second, self.probe.update_seconds_per_token
        found = [
            "every problem uses its whole budget: nothing is solved early, every thought is as long as it may be",
            f"{speed:.1f} tokens/s, {self.probe.sessions} problems at once, {self.probe.width} thoughts each (probed)",
            f"{PROGRAM_SECONDS} s a program",
        ]
        if self.lanes > 1:
            found.append(f"{self.lanes} such policies side by side")
        return found if learning is None else [*found, f"{learning * 1000:.1f} ms of an update a token (probed)"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "assumptions": self.assumptions}


def estimate(trials: Counter[str], spending: Mapping[str, Spending], measured: Probe, *, lanes: int = 1) -> Estimate:
    """From the trials to be run of each arm, what one spends at most, and a probe of one of so many equal policies."""
    by_arm = {name: _seconds(spent, measured) for name, spent in spending.items()}
    total = sum(count * by_arm[name] for name, count in trials.items())
    return Estimate(
        hours=total / 3600 / lanes,
        seconds_by_arm=by_arm,
        trials=trials.total(),
        probe=measured,
        spending=dict(spending),
        lanes=lanes,
    )


def _seconds(spent: Spending, measured: Probe) -> float:
    learning = spent.trained_tokens * (measured.update_seconds_per_token or 0.0)
    running = spent.programs * PROGRAM_SECONDS / measured.sessions
    return spent.completion_tokens / measured.tokens_per_second + learning + running


@dataclass
class Eta:
    """How many seconds are left, from what the problems so far took; arms that have none yet go by their estimate."""

    left: Counter[str]
    """Trials still to be done, by arm."""
    expected: Mapping[str, float]
    """Seconds of one trial by arm, estimated; only their ratios count once something is done."""
    at_once: int = 1
    """Trials side by side, at most."""
    _took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.total = self.left.total()

    @property
    def done(self) -> int:
        """Trials done since the start."""
        return self.total - self.left.total()

    def record(self, arm: str, seconds: float) -> None:
        """A trial of that arm was done, in so many seconds of its own."""
        self.left[arm] -= 1
        self._took[arm].append(seconds)

    @property
    def seconds(self) -> float | None:
        """Seconds until the end; None before the first trial is done."""
        if not self.done:
            return None
        work = sum(count * self._cost(arm) for arm, count in self.left.items())
        return work / max(1, min(self.at_once, self.left.total()))

    def _cost(self, arm: str) -> float:
        if self._took.get(arm):
            return sum(self._took[arm]) / len(self._took[arm])
        known = [(sum(seconds), len(seconds) * self.expected.get(name, 1.0)) for name, seconds in self._took.items()]
        ratio = sum(real for real, _ in known) / max(sum(guess for _, guess in known), 1e-9)
        return self.expected.get(arm, 1.0) * ratio


def in_words(seconds: float) -> str:
    """`3 h 20 min`, `4 min`, `25 s`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
