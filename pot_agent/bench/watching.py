"""What a run's stream shows: its answer, its thought tree, its programs, and a row a iteration for learning curves.

It reads the graph's state (`values`) and its progress events (`pot_agent/events.py`), and takes what is there: a method
without a tree has an empty one. Numbers that are not finite become None, so that every record is JSON.

Limits: a method that raises leaves what it had shown until then; a checkpointer is not looked at.
"""

import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from pot_agent import tree as thought_tree
from pot_agent.bench.record import Curve, Thought
from pot_agent.errors import StateError
from pot_agent.node import CANCEL_KEY
from pot_agent.problem import Problem

_OF_A_PROGRAM = ("text", "verdict", "passed", "total", "feedback")


@dataclass
class Watched:
    """A run so far. `state` and `event` take what the graph streams as `values` and `custom`."""

    clock: Callable[[], float] = time.monotonic
    _state: Mapping[str, Any] = field(default_factory=dict)
    _rows: dict[int, Curve] = field(default_factory=dict)
    _committed: int | None = None
    _tokens: int = 0
    _version: int = 0

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def solution(self) -> Mapping[str, Any]:
        """The solution; empty until the run has ended."""
        return self._state.get("solution") or {}

    @property
    def curve(self) -> list[Curve]:
        """A row for each iteration, in order."""
        return [self._rows[iteration] for iteration in sorted(self._rows)]

    @property
    def tree(self) -> list[Thought]:
        """The thought tree, the problem first."""
        return [_thought(node) for node in self._state.get("tree") or ()]

    @property
    def programs(self) -> list[dict[str, Any]]:
        """Each program once, in the order in which they came."""
        return [{name: program.get(name) for name in _OF_A_PROGRAM} for program in self._state.get("programs") or ()]

    @property
    def committed_path(self) -> list[int]:
        """Nodes from the root to the newest commit; empty where there is none."""
        tree = self._state.get("tree") or ()
        if self._committed is None or self._committed >= len(tree):
            return []
        return [thought_tree.ROOT, *thought_tree.path(tree, self._committed)]

    def state(self, values: Mapping[str, Any]) -> None:
        """Take in the whole state after a step."""
        self._state = values

    def event(self, event: Mapping[str, Any]) -> None:
        """Take in one progress event; one of a kind that is not known is left alone."""
        if "iteration" in event:
            self._row(event["iteration"])
        handler = getattr(self, f"_on_{event.get('event')}", None)
        if handler is not None:
            handler(event)
        if "iteration" in event:
            row = self._row(event["iteration"])
            row["seconds"], row["tokens"] = round(self.clock() - self._began, 3), self._tokens

    def _row(self, iteration: int) -> Curve:
        if iteration not in self._rows:
            row = Curve(
                iteration=iteration,
                rewards=[],
                skipped=None,
                version=self._version,
                loss=None,
                kl=None,
                grad_norm=None,
                adapter_norm=None,
                seconds=0.0,
                tokens=0,
            )
            self._rows[iteration] = row
        return self._rows[iteration]

    def _on_thought(self, event: Mapping[str, Any]) -> None:
        self._tokens += event["tokens"]

    def _on_generated(self, event: Mapping[str, Any]) -> None:
        self._tokens += event["tokens"]

    def _on_verdict(self, event: Mapping[str, Any]) -> None:
        if event["phase"] == "propose" and event["score"] is not None:
            self._row(event["iteration"])["rewards"].append(float(event["score"]))

    def _on_update(self, event: Mapping[str, Any]) -> None:
        row, self._version = self._row(event["iteration"]), event["version"]
        row["version"], row["skipped"] = event["version"], event.get("skipped")
        row["loss"], row["kl"] = _finite(event.get("loss")), _finite(event.get("kl"))
        row["grad_norm"], row["adapter_norm"] = _finite(event.get("grad_norm")), _finite(event.get("adapter_norm"))

    def _on_committed(self, event: Mapping[str, Any]) -> None:
        self._committed = event["node"]


def watch(graph: Any, problem: Problem, watched: Watched, *, cancel: Event | None = None) -> None:
    """Run the graph on a problem to its end. What it shows is in `watched` also where it raises."""
    given = {name: value for name, value in problem.to_dict().items() if value not in (None, "") and name != "evidence"}
    configurable: dict[str, Any] = {"thread_id": uuid.uuid4().hex} | ({CANCEL_KEY: cancel} if cancel else {})
    for mode, chunk in graph.stream(given, {"configurable": configurable}, stream_mode=["values", "custom"]):
        if mode == "custom":
            watched.event(chunk)
        else:
            watched.state(chunk)
    if not watched.solution:
        raise StateError(
            "the method's graph ended without a `solution`; every method answers {'solution': Solution} "
            "(pot_agent/methods/base.py)",
            value=sorted(watched._state),
        )


def _thought(node: Mapping[str, Any]) -> Thought:
    is_root = node["parent"] == thought_tree.NO_PARENT
    return Thought(
        parent=None if is_root else int(node["parent"]),
        iteration=int(node["iteration"]),
        committed=bool(node["committed"]),
        program=None if is_root else int(node["program"]),
        reward=None if is_root else float(node["reward"]),
        visits=int(node["visits"]),
        value=node["value_sum"] / node["visits"] if node["visits"] else 0.0,
        prior=float(node["prior"]),
    )


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
