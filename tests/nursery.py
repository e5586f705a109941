"""Processes that are killed while they work, without the cost of starting each: forks of one that has torch loaded.

A module of tests says what a life does and ends with `if __name__ == "__main__": nurse(live)`; `Nursery(its name)`
starts it. A *life* gets a job (plain JSON) and says what it has done on its output, a line for each: what was said was
said for certain, and all else is asked of the disk by the next life.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]

Said = dict[str, Any]


class Nursery:
    """Starts lives, one at a time. A context manager."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def life(self, **job: Any) -> tuple[list[Said], int]:
        """What it said, and its exit status (negative: the signal that ended it)."""
        said = list(self.said(**job))
        return said[1:-1], said[-1]["status"]

    def said(self, **job: Any) -> Iterator[Said]:
        """As it comes: `born` with its pid, what the life says, `ended` with its status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            try:
                one: Said = json.loads(line)
            except ValueError:
                continue  # killed in the middle of saying it: not said
            yield one
            if one["kind"] == "ended":
                return
        raise AssertionError("the nursery ended")


def say(**said: Any) -> None:
    """Say it at once, in one write."""
    os.write(1, json.dumps(said).encode() + b"\n")


def nurse(live: Callable[[Said], None]) -> None:
    """Lead lives, as jobs come in, until there are no more."""
    import torch

    import pot_agent.policy.engine
    import pot_agent.policy.store  # noqa: F401  (loaded before the forks)

    torch.set_num_threads(1)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            say(kind="born", pid=os.getpid())
            try:
                live(json.loads(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, b"\n")
        say(kind="ended", status=status)
