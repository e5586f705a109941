"""One confined process as the zygote sees it: its CPU clock, wall time and threads, and how it ended.

Limits first: time that a program waited for a busy CPU is not counted against its wall limit (up to `STARVED` times the
limit). Of several tests in one process the child itself says which one runs: a program that lies there only shifts time
between its own tests, within their sum. Standard library only.
"""

import os
import signal
import time
from typing import Any

from pot_agent.sandbox.family import Usage, anonymous_pages, usage
from pot_agent.sandbox.wire import HELLO_OK, MAX_THREADS, STARVED, Answer, Ending, Request


class Child:
    """One confined process, and the limits it is watched against."""

    def __init__(self, request: Request, pid: int, *, progress: int, ready: int, proc: int) -> None:
        self.request, self.pid, self.progress, self.ready, self.proc = request, pid, progress, ready, proc
        self.pidfd = os.pidfd_open(pid)
        self.clock = ~pid << 3 | 2  # the kernel's id of a process's CPU clock
        self.started = self.wall_at = time.monotonic()
        self.test, self.cpu_at, self.delay_at = 0, 0.0, 0.0
        self.ending: Ending = "exited"
        self.ended = False
        self.status, self.cpu, self.wall, self.peak = 0, 0.0, 0.0, 0

    def answer(self) -> Answer:
        """How it ended; `setup` where it never came to run anything."""
        word = os.read(self.ready, 1000)
        if word != HELLO_OK and self.ending == "exited":
            reason = word.decode("utf-8", "replace") or f"wait status {self.status}"
            return Answer(ending="setup", reason=reason)
        return Answer(ending=self.ending, status=self.status, cpu=self.cpu, wall=self.wall, peak=self.peak)

    def stop(self, ending: Ending) -> None:
        """Send it SIGKILL, once."""
        if not self.ended and self.ending == "exited":
            self.ending = ending
            os.kill(self.pid, signal.SIGKILL)

    def kill(self, ending: Ending) -> None:
        """Have it ended and gone when this returns."""
        if not self.ended:
            self.ending = ending if self.ending == "exited" else self.ending
            os.kill(self.pid, signal.SIGKILL)
            self.reap()

    def reap(self) -> None:
        """Wait for its end."""
        _, self.status, usage = os.wait4(self.pid, 0)
        self.cpu, self.peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        self.wall = time.monotonic() - self.started
        self.ended = True
        os.close(self.pidfd)

    def check_limits(self) -> None:
        """Stop it where it has passed one."""
        try:
            cpu, memory, threads = self._usage()
        except OSError:
            return  # it has just ended
        self._next_test(cpu)
        if cpu - self.cpu_at > self.request.cpu:
            self.stop("cpu")
        elif threads > MAX_THREADS:
            self.stop("threads")
        elif memory > self.request.memory:
            self.stop("memory")
        elif self._waited_too_long():
            self.stop("wall")

    def _usage(self) -> Usage:
        """Memory is the business of RLIMIT_AS where there is one process."""
        threads = os.stat(f"{self.pid}/task", dir_fd=self.proc).st_nlink - 2
        return Usage(cpu=time.clock_gettime(self.clock), memory=0, threads=threads)

    def _next_test(self, cpu: float) -> None:
        number = int.from_bytes(os.pread(self.progress, 4, 0), "little")
        if self.test < number <= self.request.tests:
            self.test, self.cpu_at, self.wall_at, self.delay_at = number, cpu, time.monotonic(), self._delay()

    def _waited_too_long(self) -> bool:
        elapsed = time.monotonic() - self.wall_at
        if elapsed <= self.request.wall:
            return False
        starved = self._delay() - self.delay_at
        return elapsed - starved > self.request.wall or elapsed > STARVED * self.request.wall

    def _delay(self) -> float:
        """Seconds that the child was ready to run and had no CPU."""
        try:
            return int(self._read("schedstat").split()[1]) * 1e-9
        except (OSError, ValueError, IndexError):
            return 0.0

    def _read(self, name: str) -> bytes:
        descriptor = os.open(f"{self.pid}/{name}", os.O_RDONLY, dir_fd=self.proc)
        try:
            return os.read(descriptor, 4096)
        finally:
            os.close(descriptor)


class Head(Child):
    """The process above a program that may start others, and all below it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.inherited = anonymous_pages(self.proc, "1")
        self.used = 0.0

    def _usage(self) -> Usage:
        found = usage(self.proc, self.pid, self.inherited)
        self.used = max(self.used, found.cpu)
        return found._replace(cpu=self.used)

    def reap(self) -> None:
        """What was killed before anybody waited for it is in the last count alone."""
        super().reap()
        self.cpu = max(self.cpu, self.used)
