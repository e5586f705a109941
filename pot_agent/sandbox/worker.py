"""The judge's side of one zygote: starts it, sends it a job in memory files, waits, reads what came out.

Not thread-safe: the pool gives a worker to one thread at a time.
"""

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

from pot_agent.errors import CancelledError, SandboxUnavailableError
from pot_agent.sandbox.execution import Job, Outcome, Stream
from pot_agent.sandbox.tiers import PROCESSES, Tier, has_namespaces
from pot_agent.sandbox.wire import HELLO_OK, MAX_MESSAGE, STARVED, Answer, Request

START_SECONDS = 30.0
"""A zygote that has not said hello by then is not coming."""
END_SECONDS = 5.0
"""A process that stands by outside a pid namespace ends it, and itself, when told to; the kernel needs a moment."""
CANCEL_TICK = 0.05
GRACE_SECONDS = 5.0
"""How much later than any limit a zygote may answer before it is given up."""
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the same order of sets in each run
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large allocations cost a quarter of the CPU time
    "OPENBLAS_NUM_THREADS": "1",  # each thread of linear algebra would take address space
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The whole environment of a zygote; a program sees the thread counts alone."""
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # SEAL, SHRINK, GROW, WRITE
_F_ADD_SEALS = 1033


class WorkerLostError(Exception):
    """The zygote is gone or does not answer."""


class Worker:
    """One running zygote."""

    def __init__(self, tier: Tier, *, packages: Sequence[str], processes: bool = False) -> None:
        self.tier = tier
        self._spent = False
        self._ended_by = signal.SIGTERM if has_namespaces(tier) else signal.SIGKILL
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = self._start(theirs, [tier, PROCESSES if processes else "", ",".join(packages)])
        finally:
            theirs.close()
        try:
            self._hello()
        except BaseException:
            self.kill()
            raise

    def _start(self, theirs: socket.socket, options: Sequence[str]) -> "subprocess.Popen[bytes]":
        if not sys.executable:
            raise SandboxUnavailableError(
                "there is no Python interpreter to run programs with: sys.executable is empty"
            )
        boot = str(Path(__file__).with_name("boot.py"))
        flags = ["-s", "-S", "-P", "-X", "utf8"]
        command = [sys.executable, *flags, boot, str(theirs.fileno()), *options, *_site_packages()]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=ENVIRONMENT,
                cwd="/",
                close_fds=True,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxUnavailableError(f"{sys.executable} could not be started: {error}", value=command) from error

    def _hello(self) -> None:
        self._control.settimeout(START_SECONDS)
        try:
            word = self._control.recv(MAX_MESSAGE)
        except OSError as error:
            raise SandboxUnavailableError(f"the helper process did not start: {error}") from error
        if word != HELLO_OK:
            reason = word.decode("utf-8", "replace") or "the helper process ended while it started"
            raise SandboxUnavailableError(reason, value=reason)

    def run(self, job: Job, cancel: Event | None) -> Outcome:
        """Run one job; raises `WorkerLostError`, `CancelledError`. After any error the worker is to be killed."""
        limits, parts = job.limits, job.processes()
        request = Request(
            cpu=limits.cpu_seconds,
            wall=limits.wall,
            memory=int(limits.memory_mb * 2**20),
            output=job.output_bytes,
            tests=job.tests,
            processes=len(parts),
        )
        with contextlib.ExitStack() as stack:
            files = [_Files(stack, part) for part in parts]
            self._send(request.pack(), [descriptor for of_part in files for descriptor in of_part.descriptors])
            deadline = time.monotonic() + STARVED * limits.wall * job.tests + GRACE_SECONDS
            outcomes = [of_part.outcome(self._answer(deadline, cancel)) for of_part in files]
        self._spent = outcomes[-1].answer.spent
        if len(outcomes) == 1:
            return outcomes[0]
        program, assertion = outcomes
        return replace(assertion, program=program, lost=program.lost or assertion.lost)

    def _send(self, message: bytes, descriptors: Sequence[int]) -> None:
        attached = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            self._control.sendmsg([message], [attached])
        except OSError as error:
            raise WorkerLostError(f"the helper process is gone: {error}") from error

    def _answer(self, deadline: float, cancel: Event | None) -> Answer:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while not poll.poll(1000 * (CANCEL_TICK if cancel is not None else 1.0)):
            if cancel is not None and cancel.is_set():
                raise CancelledError("judging was cancelled by its caller")
            if time.monotonic() > deadline:
                raise WorkerLostError("the helper process does not answer")
        try:
            message = self._control.recv(MAX_MESSAGE)
        except OSError as error:
            raise WorkerLostError(f"the helper process is gone: {error}") from error
        if not message:
            raise WorkerLostError("the helper process ended")
        return Answer.unpack(message)

    @property
    def alive(self) -> bool:
        """Whether the zygote still runs, and takes another program."""
        return not self._spent and self._process.poll() is None

    def end(self) -> None:
        """End the zygote; the kernel ends its children with it. From any thread; idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._ended_by)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the zygote and free what it took. Idempotent."""
        self.end()
        self._control.close()

    def abandon(self) -> None:
        """After a fork of this process, in the child: let go of what belongs to the parent."""
        self._control.close()
        self._process.returncode = 0  # nobody here may wait for it


def _site_packages() -> list[str]:
    return [path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))]


class _Files:
    """The memory files of one process: its job, its results, the test it is at, and three streams for each test."""

    def __init__(self, stack: contextlib.ExitStack, job: Job) -> None:
        self._most = job.output_bytes
        self._result = _file(stack, "result")
        self._streams = [self._triple(stack, text) for text in job.inputs]
        streams = [descriptor for triple in self._streams for descriptor in triple]
        self.descriptors = [_sealed(stack, "job", job.encode()), self._result, _file(stack, "progress"), *streams]

    def _triple(self, stack: contextlib.ExitStack, text: str) -> tuple[int, int, int]:
        stdin = _sealed(stack, "stdin", text.encode("utf-8", "surrogateescape"))
        return stdin, _file(stack, "stdout"), _file(stack, "stderr")

    def outcome(self, answer: Answer) -> Outcome:
        """What the files hold now that the process is dead."""
        return Outcome(
            answer=answer,
            lost=answer.ending == "setup",
            result=_read(self._result, self._most),
            stdouts=tuple(_read(triple[1], self._most) for triple in self._streams),
            stderrs=tuple(_read(triple[2], self._most, short=len(self._streams) > 1) for triple in self._streams),
        )


def _file(files: contextlib.ExitStack, name: str) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    files.callback(os.close, descriptor)
    return descriptor


def _sealed(files: contextlib.ExitStack, name: str, data: bytes) -> int:
    """A memory file that nobody can change any more, read from its start."""
    import fcntl  # not there on every system, and needed on Linux alone

    descriptor = _file(files, name)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEALS)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read(descriptor: int, most: int, *, short: bool = False) -> Stream:
    """Read a file whose writers are dead, at most `most` bytes of it; `short`: only whether it was more."""
    size = os.fstat(descriptor).st_size
    data = b"" if short else os.pread(descriptor, min(size, most), 0)
    return Stream(data=data, over=size > most)
