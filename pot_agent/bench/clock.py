"""Wall seconds by phase, where calls overlap: what goes on at the same time counts once."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ANY = "any"


class PhaseClock:
    """Seconds in which at least one call of a phase was under way. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._seconds: Counter[str] = Counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A call of this phase is under way inside."""
        self._enter(name)
        try:
            yield
        finally:
            self._leave(name)

    def seconds(self, phases: tuple[str, ...]) -> dict[str, float]:
        """Seconds of each phase so far, `total` since the clock was made, and `other`: those of no phase at all."""
        with self._lock:
            now = self._clock()
            found = {name: self._until(name, now) for name in phases}
            total = now - self._began
            return {**found, "other": max(0.0, total - self._until(_ANY, now)), "total": total}

    def _until(self, name: str, now: float) -> float:
        return float(self._seconds[name]) + (now - self._since[name] if self._running[name] else 0.0)

    def _enter(self, phase: str) -> None:
        with self._lock:
            now = self._clock()
            for name in (phase, _ANY):
                if not self._running[name]:
                    self._since[name] = now
                self._running[name] += 1

    def _leave(self, phase: str) -> None:
        with self._lock:
            now = self._clock()
            for name in (phase, _ANY):
                self._running[name] -= 1
                if not self._running[name]:
                    self._seconds[name] += now - self._since[name]  # type: ignore[assignment]
