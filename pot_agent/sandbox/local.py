"""The sandbox of this machine: Landlock + seccomp + resource limits around forks of warm interpreters. Linux.

What is covered: files, network, processes, signals, environment, memory, time and output of the program, without any
privilege. What is not: kernel bugs behind the calls that stay allowed, side channels (timing, caches), the names and
sizes of files (`stat`), and resources of the whole machine (a program may keep one core busy for its CPU limit).
Where the kernel cannot give this, the first use raises `SandboxUnavailableError`; it never falls back in silence.
"""

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from types import TracebackType
from typing import Self

from pot_agent.errors import CancelledError, ConfigError, SandboxError, SandboxUnavailableError
from pot_agent.problem import Limits, Test
from pot_agent.sandbox.base import Isolation, Judgement, RunResult
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.judge import judge, run_once
from pot_agent.sandbox.probe import WAYS_OUT, missing, not_linux
from pot_agent.sandbox.wire import Answer
from pot_agent.sandbox.worker import Worker, WorkerLostError

TIER = "T1 (landlock + seccomp + rlimits)"
UNSAFE_TIER = "unsafe (rlimits only)"
PACKAGES = ("numpy", "scipy", "sympy", "mpmath", "networkx", "sortedcontainers")
"""Installed packages that programs may import; any other might hold the answers of a benchmark."""
WAIT_SECONDS = 0.05
CLOSED = "this sandbox is closed; make a new LocalSandbox"


class LocalSandbox:
    """Runs untrusted programs on this machine. Thread-safe; a context manager; starts nothing before it is used."""

    def __init__(self, *, workers: int | None = None, unsafe: bool = False, packages: Sequence[str] = PACKAGES) -> None:
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise ConfigError(f"workers must be a whole number, 1 or more, got {workers!r}", value=workers)
        self._workers = workers or min(_cores(), 4)
        self._pool = _Pool(unsafe=unsafe, packages=tuple(packages), size=self._workers)
        self._unsafe = unsafe
        self._finalizer = weakref.finalize(self, self._pool.close)

    @property
    def tier(self) -> str:
        """What programs run under; `unsafe` stands in every result that was had without isolation."""
        return UNSAFE_TIER if self._unsafe else TIER

    @property
    def workers(self) -> int:
        """How many programs run side by side."""
        return self._workers

    def probe(self) -> str:
        """Start a worker and return the tier; raises `SandboxUnavailableError` with the reason and the ways out."""
        with self._pool.worker(None):
            return self.tier

    def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        limits: Limits | None = None,
        isolation: Isolation = "program",
        cancel: Event | None = None,
    ) -> Judgement:
        """Run `program` on every test and compare outside; see `Sandbox.judge`."""
        return judge(
            self,
            program,
            tests,
            entry_point=entry_point,
            setup=setup,
            limits=limits or Limits(),
            isolation=isolation,
            cancel=cancel,
        )

    def run(
        self, program: str, *, stdin: str = "", limits: Limits | None = None, cancel: Event | None = None
    ) -> RunResult:
        """Run `program` once as a script; nothing is judged."""
        return run_once(self, program, stdin=stdin, limits=limits or Limits(), cancel=cancel)

    def execute(self, job: Job, cancel: Event | None = None) -> Outcome:
        """Run one job; what `judge` and `run` are built on."""
        with self._pool.worker(cancel) as worker:
            try:
                return worker.run(job, cancel)
            except WorkerLostError as error:
                worker.kill()
                return Outcome(answer=Answer(ending="setup", reason=str(error)), lost=True)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pool.closed

    def close(self) -> None:
        """End all helper processes. Idempotent; a closed sandbox refuses further work."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool:
    """At most `size` workers, started when first needed and given to one thread at a time."""

    def __init__(self, *, unsafe: bool, packages: tuple[str, ...], size: int) -> None:
        self._unsafe, self._packages, self._size = unsafe, packages, size
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._slots = threading.BoundedSemaphore(self._size)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._closed = False

    @contextmanager
    def worker(self, cancel: Event | None) -> Iterator[Worker]:
        """Borrow a worker; one that is left by an error is ended, not handed on."""
        while not self._slots.acquire(timeout=WAIT_SECONDS if cancel is not None else None):
            if cancel is not None and cancel.is_set():
                raise CancelledError("judging was cancelled by its caller")
        slots = self._slots
        try:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                worker.kill()
                raise
            finally:
                self._give_back(worker)
        finally:
            slots.release()

    def _take(self) -> Worker:
        with self._lock:
            if self._closed:
                raise SandboxError(CLOSED)
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._all.discard(worker)
                worker.kill()
        worker = self._start()
        with self._lock:
            closed: bool = self.closed  # by another thread, while this one started a worker
            if not closed:
                self._all.add(worker)
        if closed:
            worker.kill()
            raise SandboxError(CLOSED)
        return worker

    def _start(self) -> Worker:
        reason = not_linux() if self._unsafe else missing()
        try:
            if reason is None:
                return Worker(unsafe=self._unsafe, packages=self._packages)
        except SandboxUnavailableError as error:
            reason = error.message
        raise SandboxUnavailableError(
            f"programs cannot be isolated on this machine: {reason}. {WAYS_OUT}", value=reason
        )

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker.alive and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.kill()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._all - set(idle)
            self._all.clear()
        for worker in idle:
            worker.kill()
        for worker in busy:
            worker.end()  # the thread that uses it sees it gone, and frees what belongs to it

    def after_fork(self) -> None:
        """In a forked child: the workers are the parent's; start anew when needed."""
        for worker in self._all:
            worker.abandon()
        closed = self._closed
        self._reset()
        self._closed = closed


_pools: "weakref.WeakSet[_Pool]" = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
