"""Taking turns: one caller at a time, in the order in which they came, each free to give up while it waits.

A plain lock would let whoever comes by just then overtake those who wait, and a session could wait for ever.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.02
"""How often a caller that waits looks whether it is still to go on."""


class Turns:
    """A fair lock. Not re-entrant."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Callers inside or waiting."""
        return len(self._waiting)

    @contextmanager
    def taken(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The caller's turn. `check` is called again and again while it waits, and may raise to give up."""
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            if self._waiting[0] is mine:
                mine.set()
        try:
            check()
            while not mine.wait(LOOK_SECONDS):
                check()
            check()
            yield
        finally:
            self._leave(mine)

    def _leave(self, mine: threading.Event) -> None:
        with self._lock:
            self._waiting.remove(mine)
            if self._waiting:
                self._waiting[0].set()
