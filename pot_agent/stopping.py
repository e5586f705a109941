"""One signal for the ways in which a step is told to stop: its caller, a draining server, the clock.

A `StopSignal` is an `Event`, so it can be given to anything that takes one. It is also set when its parent is, and when
its deadline has passed; `reason` says which it was. Work that runs in a thread cannot be killed, so everything long
(sampling, training, running programs) looks at the signal at every step.
"""

import time
from collections.abc import Callable
from threading import Event
from typing import Literal

StopReason = Literal["solved", "iterations", "exhausted", "max_seconds", "recursion_limit", "cancelled", "no_tests"]

_SLICE = 0.02  # seconds between two looks at the parent while waiting


class StopSignal(Event):
    """An event that also fires with its parent and at its deadline (seconds of `time.monotonic`)."""

    def __init__(
        self,
        *,
        parent: Event | None = None,
        seconds: float | None = None,
        is_draining: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()
        self._parent = parent
        self._is_draining = is_draining
        self._deadline = None if seconds is None else time.monotonic() + seconds

    @property
    def reason(self) -> Literal["cancelled", "drained", "max_seconds"] | None:
        """Why it is set; None while it is not."""
        if super().is_set():
            return "cancelled"
        if self._is_draining is not None and self._is_draining():
            return "drained"
        if self._parent is not None and self._parent.is_set():
            return self._parent.reason if isinstance(self._parent, StopSignal) else "cancelled"
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return "max_seconds"
        return None

    @property
    def caller_is_gone(self) -> bool:
        """Whether the signal itself was set, as a cancelled asyncio task does; its parent or the clock do not count."""
        return super().is_set()

    def is_set(self) -> bool:
        """Whether there is a reason to stop."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until set, at most `timeout` seconds; whether it is set."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
            if left <= 0:
                return False
            super().wait(left)
        return True
