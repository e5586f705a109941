"""Seconds of an update's phases."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Seconds by phase; on a GPU a phase ends when its work has ended, not when it was queued."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add what happens inside to this phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
