"""What a policy tells while it samples, made into events of the node that asked: seldom enough for who streams them.

Limits: a policy calls these from whatever thread draws, one call at a time.
"""

import time
from typing import Literal

from pot_agent.events import emitter

SECONDS_BETWEEN_TICKS = 0.5
"""At least so long between two `tokens` events."""
SECONDS_BETWEEN_TEXTS = 0.1
"""At least so long between two `text` events of one thought, its last one apart."""

Phase = Literal["propose", "commit", "tests"]


class TokenTicker:
    """Turns a running total of tokens into `tokens` events."""

    def __init__(self, iteration: int, phase: Phase) -> None:
        self._iteration, self._phase, self._emit = iteration, phase, emitter()
        self._began = self._last = time.monotonic()

    def __call__(self, tokens: int) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_TICKS:
            self._last = now
            self._emit("tokens", iteration=self._iteration, phase=self._phase, tokens=tokens, seconds=now - self._began)


class TextTicker:
    """Turns pieces of texts into `text` events, several pieces in one."""

    def __init__(self, iteration: int, phase: Phase) -> None:
        self._iteration, self._phase, self._emit = iteration, phase, emitter()
        self._waiting: dict[int, list[str]] = {}
        self._last: dict[int, float] = {}

    def __call__(self, index: int, text: str) -> None:
        self._waiting.setdefault(index, []).append(text)
        if time.monotonic() - self._last.get(index, 0.0) >= SECONDS_BETWEEN_TEXTS:
            self._send(index)

    def flush(self) -> None:
        """Send what waits: nothing more comes."""
        for index in sorted(self._waiting):
            self._send(index)

    def _send(self, index: int) -> None:
        self._last[index] = time.monotonic()
        text = "".join(self._waiting.pop(index))
        self._emit("text", iteration=self._iteration, phase=self._phase, index=index, text=text)
