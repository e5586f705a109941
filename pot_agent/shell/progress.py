"""What a person wants to know of a run, gathered from its stream of events and updates; no drawing here."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pot_agent import tree as thought_tree
from pot_agent.changes import changed


@dataclass
class ThoughtView:
    """One thought of the newest iterations."""

    iteration: int
    phase: str
    index: int
    tokens: int
    finish_reason: str
    verdict: str = ""
    score: float | None = None
    passed: int = 0
    total: int = 0
    failure: str = ""
    cached: bool = False
    generated: float | None = None

    @property
    def name(self) -> str:
        """`2.1` for the first thought of iteration 2, `2.c` for its commit."""
        return f"{self.iteration}.{'c' if self.phase == 'commit' else self.index + 1}"


@dataclass
class Progress:
    """A run so far. `event` and `update` take what the graph streams as `custom` and `updates`."""

    began: float = field(default_factory=time.monotonic)
    started: dict[str, Any] = field(default_factory=dict)
    iteration: int = 0
    doing: str = "reading the problem"
    thoughts: list[ThoughtView] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    frontier: list[dict[str, Any]] = field(default_factory=list)
    tier: str = ""
    best: float | None = None
    tokens: int = 0
    ticking: int = 0
    sampling_seconds: float = 0.0
    solution: dict[str, Any] = field(default_factory=dict)
    """Empty until the run has ended."""
    _sampling_since: float | None = None
    _tree: list[Any] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    @property
    def tokens_per_second(self) -> float | None:
        """Sampled tokens over the seconds spent sampling, the completion in progress included."""
        seconds = self.sampling_seconds
        if self._sampling_since is not None and self.ticking:
            seconds += time.monotonic() - self._sampling_since
        return (self.tokens + self.ticking) / seconds if seconds > 0.2 else None

    @property
    def seconds_left(self) -> float | None:
        """Until the time limit, or an estimate from the iterations so far; None while there is no ground for one."""
        limit, total = self.started.get("max_seconds"), self.started.get("iterations", 0)
        done = self.iteration - 1
        estimate = self.seconds / done * (total - done) if done > 0 else None
        bound = None if limit is None else max(0.0, limit - self.seconds)
        return min((value for value in (estimate, bound) if value is not None), default=None)

    def event(self, event: Mapping[str, Any]) -> None:
        """Take in one custom event; one of a kind that is not known is left alone."""
        handler = getattr(self, f"_on_{event.get('event')}", None)
        if handler is not None:
            handler(event)

    def update(self, node: str, update: Mapping[str, Any] | None) -> None:
        """Take in what one node changed."""
        update = update or {}
        if "tier" in update:
            self.tier = update["tier"]
        if written := update.get("tree"):
            tree = self._tree = changed(self._tree, [written])
            self.frontier = [{"index": index, **tree[index]} for index in thought_tree.frontier(tree)[:6]]
            index = thought_tree.best(tree)
            self.best = None if index is None else tree[index]["reward"]
        if update.get("solution"):
            self.solution = update["solution"]

    def _on_started(self, event: Mapping[str, Any]) -> None:
        self.started = dict(event)
        self.doing = "starting"

    def _on_warning(self, event: Mapping[str, Any]) -> None:
        self.warnings.append(event["message"])

    def _on_selected(self, event: Mapping[str, Any]) -> None:
        self.iteration = event["iteration"]
        where = "the problem" if event["leaf"] == 0 else f"thought {event['leaf']} at depth {event['depth']}"
        self._begin_sampling(f"writing {self.started.get('width', 1)} thoughts below {where}")

    def _begin_sampling(self, doing: str) -> None:
        self.doing, self.ticking, self._sampling_since = doing, 0, time.monotonic()

    def _on_tokens(self, event: Mapping[str, Any]) -> None:
        self.ticking = event["tokens"]
        if event["phase"] == "tests":
            self.doing = "writing tests to learn from"

    def _on_generated(self, event: Mapping[str, Any]) -> None:
        self.ticking = 0
        self.tokens += event["tokens"]
        self.sampling_seconds += event["seconds"]
        self.doing = "running the programs on the generated tests"

    def _on_thought(self, event: Mapping[str, Any]) -> None:
        if self._sampling_since is not None:
            self.sampling_seconds += time.monotonic() - self._sampling_since
            self._sampling_since = None
        self.ticking = 0
        self.tokens += event["tokens"]
        names = ("iteration", "phase", "index", "tokens", "finish_reason")
        self.thoughts.append(ThoughtView(**{name: event[name] for name in names}))
        self.doing = "running the programs"

    def _on_verdict(self, event: Mapping[str, Any]) -> None:
        for thought in reversed(self.thoughts):
            if (thought.iteration, thought.phase, thought.index) == tuple(
                event[name] for name in ("iteration", "phase", "index")
            ):
                for name in ("verdict", "score", "passed", "total", "failure", "cached", "generated"):
                    setattr(thought, name, event[name])
                break
        if event["score"] is not None:
            self.best = max(event["score"], self.best or 0.0)
        self.doing = "learning from the group" if event["phase"] == "propose" else "choosing where to go on"

    def _on_update(self, event: Mapping[str, Any]) -> None:
        self.receipts.append(dict(event))
        self._begin_sampling("decoding the commit greedily")

    def _on_finished(self, event: Mapping[str, Any]) -> None:
        self.doing = f"done: {event['stop_reason']}"


def update_line(receipt: Mapping[str, Any]) -> str:
    """A receipt in one line."""
    name = f"iteration {receipt['iteration']}: "
    if receipt.get("skipped"):
        return f"{name}adapter stays at version {receipt['version']}: {receipt['skipped']}"
    figures = " · ".join(
        f"{label} {receipt[key]:.3g}"
        for label, key in (("loss", "loss"), ("KL", "kl"), ("gradient", "grad_norm"), ("clipped", "clip_fraction"))
        if receipt.get(key) is not None
    )
    return (
        f"{name}adapter version {receipt['parent_version']} → {receipt['version']} · {receipt['steps']} steps on "
        f"{receipt['tokens']} tokens in {receipt['seconds']:.1f} s · {figures}"
    )


def score_text(thought: ThoughtView) -> str:
    """`1/2`, or a dash before it ran."""
    return "–" if not thought.verdict else f"{thought.passed}/{thought.total}"
