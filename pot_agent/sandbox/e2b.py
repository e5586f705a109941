"""Programs run in E2B's cloud sandboxes (virtual machines), judged here. Needs the extra `e2b` and an E2B account.

Limits first: E2B sees the programs and their inputs, never an expected value (a test's own checker aside: it is given
what it checks). Internet access is off inside. CPU time is measured inside, by the runner that is uploaded there; in a
machine whose kernel gives less than tier T1 a program could tamper with that, so each program then gets a machine of
its own. What goes wrong with E2B itself is retried, and at last `internal`; it is never a verdict. A command that timed
out may still run in its machine, so that machine is ended.

It is the same judge as everywhere: `pot_agent.sandbox.judge`, over `execute`.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from types import TracebackType
from typing import Self

from pot_agent.errors import CancelledError, ConfigError, MissingExtraError, SandboxError
from pot_agent.problem import Limits, Test
from pot_agent.sandbox.base import Isolation, Judgement, RunResult
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.judge import judge, run_once
from pot_agent.sandbox.machine import Machine, MachineError, Settings, available
from pot_agent.sandbox.tiers import NAMES
from pot_agent.sandbox.wire import Answer

_log = logging.getLogger(__name__)
CLOSED = "this sandbox is closed; make a new E2BSandbox"
_SAFE = tuple(name for tier, name in NAMES.items() if tier != "unsafe")


class E2BSandbox:
    """Runs untrusted programs in E2B. Thread-safe; a context manager; starts no machine before it is used."""

    def __init__(
        self,
        *,
        workers: int = 2,
        api_key: str | None = None,
        template: str | None = None,
        lifetime_seconds: int = 900,
        retry_seconds: float = 1.0,
    ) -> None:
        """At most `workers` machines at once: keep below the account's limit.

        `lifetime_seconds` is when E2B ends a machine by itself (at most an hour on its free plan, a day on others);
        `retry_seconds` the first pause before asking again for a machine, doubled each time. The key is that of the
        environment (`E2B_API_KEY`), unless given.
        """
        if not available():
            raise MissingExtraError('E2B needs its SDK: pip install "policy-of-thoughts[e2b]"')
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ConfigError(f"workers must be a whole number, 1 or more, got {workers!r}", value=workers)
        if not 60 <= lifetime_seconds <= 86_400:
            raise ConfigError(
                f"lifetime_seconds must be from 60 to 86400, got {lifetime_seconds!r}", value=lifetime_seconds
            )
        self._workers = workers
        self._settings = Settings(api_key, template, lifetime_seconds, retry_seconds)
        self._slots = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._idle: list[Machine] = []
        self._all: set[Machine] = set()
        self._inner: str | None = None
        self._closed = False

    @property
    def tier(self) -> str:
        """`E2B` and the tier inside the machine; the first time, this starts one."""
        if self._inner is None:
            self.run("")
        return f"E2B, {self._inner}" if self._inner is not None else "E2B"

    @property
    def workers(self) -> int:
        """How many machines it uses at once."""
        return self._workers

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
        """Run `program` on every test and compare here; see `Sandbox.judge`."""
        with self._leased(cancel) as lease:
            return judge(
                lease,
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
        with self._leased(cancel) as lease:
            return run_once(lease, program, stdin=stdin, limits=limits or Limits(), cancel=cancel)

    @contextmanager
    def _leased(self, cancel: Event | None) -> Iterator["_Lease"]:
        """One machine for one program; then it is the next program's, if no program can harm another there."""
        while not self._slots.acquire(timeout=0.05 if cancel is not None else None):
            if cancel is not None and cancel.is_set():
                raise CancelledError("judging was cancelled by its caller")
        lease = _Lease(self)
        try:
            yield lease
        finally:
            lease.end()
            self._slots.release()

    def take(self, job: Job) -> Machine:
        """A machine that is there, with time enough for the job, or a new one; raises as `Machine` does."""
        with self._lock:
            if self._closed:
                raise SandboxError(CLOSED)
            while self._idle:
                machine = self._idle.pop()
                if machine.has_time_for(job):
                    return machine
                self._all.discard(machine)
                machine.kill()
        machine = Machine(self._settings)
        with self._lock:
            self._all.add(machine)
        return machine

    def give_back(self, machine: Machine, inner: str | None) -> None:
        """Keep it for the next program, or end it."""
        with self._lock:
            self._inner = inner or self._inner
            if inner in _SAFE and not self._closed:
                self._idle.append(machine)
                return
            self._all.discard(machine)
        machine.kill()

    def close(self) -> None:
        """End all machines. Idempotent; a closed sandbox refuses further work."""
        with self._lock:
            self._closed = True
            machines, self._all, self._idle = self._all, set(), []
        for machine in machines:
            machine.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Lease:
    """The executor of one judgement."""

    def __init__(self, sandbox: E2BSandbox) -> None:
        self.sandbox = sandbox
        self.machine: Machine | None = None
        self.inner: str | None = None
        self.code = ""

    @property
    def tier(self) -> str:
        """`E2B` and the tier of the last outcome."""
        return f"E2B, {self.inner}" if self.inner is not None else "E2B"

    def execute(self, job: Job, cancel: Event | None = None) -> Outcome:
        """Run one job; what goes wrong with the machine is an outcome that is lost, and the next gets another."""
        try:
            code = job.program or job.source
            if self.machine is not None and not (self._may_share(code) and self.machine.has_time_for(job)):
                self._drop()
            self.code = code
            if self.machine is None:
                self.machine = self.sandbox.take(job)
            outcome, self.inner = self.machine.run(job, cancel)
            return outcome
        except MachineError as error:
            _log.warning("E2B failed, which says nothing about the program: %s", error)
            self._drop()
            return Outcome(answer=Answer(ending="setup", reason=str(error)), lost=True)
        except BaseException:
            self._drop()
            raise

    def _may_share(self, code: str) -> bool:
        """Whether this code may run where the last did: in a weak tier no other may, such as a checker."""
        return self.inner in _SAFE or code == self.code

    def spare(self, wanted: int) -> int:
        """A program has one machine, and so does one thing after the other."""
        return 0

    def _drop(self) -> None:
        if self.machine is not None:
            self.sandbox.give_back(self.machine, None)
            self.machine = None

    def end(self) -> None:
        """The program is done with."""
        if self.machine is not None:
            self.sandbox.give_back(self.machine, self.inner)
            self.machine = None
