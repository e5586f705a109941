"""The sandbox of this machine: Landlock + seccomp + resource limits around forks of warm interpreters. Linux.

What is covered: files, network, processes, signals, environment, memory, time and output of the program, without any
privilege. What is not: kernel bugs behind the calls that stay allowed, side channels (timing, caches), the names and
sizes of files (`stat`), and resources of the whole machine (a program may keep one core busy for its CPU limit).
Where the kernel cannot give this, the first use raises `SandboxUnavailableError`; it never falls back in silence.
"""

import os
import weakref
from collections.abc import Sequence
from threading import Event
from types import TracebackType
from typing import Self

from pot_agent.errors import ConfigError
from pot_agent.problem import Limits, Test
from pot_agent.sandbox.base import Isolation, Judgement, RunResult
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.judge import judge, run_once
from pot_agent.sandbox.pool import Pool
from pot_agent.sandbox.tiers import NAMES, SAFE, TIERS, Tier
from pot_agent.sandbox.wire import Answer
from pot_agent.sandbox.worker import WorkerLostError

PACKAGES = ("numpy", "scipy", "sympy", "mpmath", "networkx", "sortedcontainers")
"""Installed packages that programs may import; any other might hold the answers of a benchmark."""


class LocalSandbox:
    """Runs untrusted programs on this machine. Thread-safe; a context manager; starts nothing before it is used."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        tier: Tier | None = None,
        unsafe: bool = False,
        allow_processes: bool = False,
        packages: Sequence[str] = PACKAGES,
    ) -> None:
        """`tier` asks for one by name; without it the strongest that works here is taken, and never `unsafe`.

        `allow_processes` lets programs start processes, in a pid namespace for each run; it needs tier T2.
        """
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise ConfigError(f"workers must be a whole number, 1 or more, got {workers!r}", value=workers)
        self._workers = workers or min(_cores(), 4)
        self._pool = Pool(
            tiers=_wanted(tier, unsafe, allow_processes),
            options={"packages": tuple(packages), "processes": allow_processes},
            size=self._workers,
        )
        self._finalizer = weakref.finalize(self, self._pool.close)

    @property
    def tier(self) -> str:
        """What programs run under. Where that is still to be found out, this starts a worker, as `probe` does."""
        known = self._pool.tier
        return self.probe() if known is None else NAMES[known]

    @property
    def workers(self) -> int:
        """How many programs run side by side."""
        return self._workers

    def probe(self) -> str:
        """Start a worker and return the tier; raises `SandboxUnavailableError` with the reason and the ways out."""
        with self._pool.worker(None) as worker:
            return NAMES[worker.tier]

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
        """Run `program` on every test and compare outside; see `Sandbox.judge`.

        Programs that may start processes get a process per test: what one test leaves must not meet the next.
        """
        return judge(
            self,
            program,
            tests,
            entry_point=entry_point,
            setup=setup,
            limits=limits or Limits(),
            isolation="test" if self._pool.processes and isolation == "program" else isolation,
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

    def spare(self, wanted: int) -> int:
        """How many idle workers there are, `wanted` at most; where there are fewer, one more is started for later."""
        return self._pool.spare(wanted)

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


def _wanted(tier: Tier | None, unsafe: bool, processes: bool) -> tuple[Tier, ...]:
    """The tiers to try, in order."""
    if tier is not None and tier not in TIERS:
        raise ConfigError(f"tier must be one of {', '.join(TIERS)}, got {tier!r}", value=tier)
    if tier == "unsafe" and not unsafe:
        raise ConfigError("programs run without isolation only where you say unsafe=True", value=tier)
    if unsafe and tier not in (None, "unsafe"):
        raise ConfigError(f"unsafe=True means tier unsafe, and tier is {tier!r}: leave one of the two out", value=tier)
    if processes and (unsafe or tier not in (None, "T2")):
        raise ConfigError(f"allow_processes=True needs tier T2, and tier is {tier or 'unsafe'!r}", value=tier)
    if processes:
        return ("T2",)
    return ("unsafe",) if unsafe else SAFE if tier is None else (tier,)
