"""The warm process that forks one confined child for each run, watches it and answers how it ended.

Limits first: a zygote is trusted and runs no line of any program; it holds no test data, no program text and no
environment, and its own system calls are filtered too. It watches the child's CPU clock, wall time and number of
threads every `TICK` seconds, so limits bite up to that much late. Time that a program waited for a busy CPU is not
counted against its wall limit (up to `STARVED` times the limit). Of several tests in one process the child itself says
which one runs: a program that lies there only shifts time between its own tests, within their sum.
Standard library only; single-threaded.
"""

import _socket
import array
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence

from pot_agent.sandbox import kernel, landlock, limits, runner, seccomp
from pot_agent.sandbox.wire import (
    EXIT_MEMORY,
    EXIT_RUNNER,
    HELLO_OK,
    MAX_DESCRIPTORS,
    MAX_MESSAGE,
    MAX_THREADS,
    STARVED,
    Answer,
    Ending,
    Request,
)

TICK = 0.01
PRELOAD = (
    "bisect", "collections", "copy", "functools", "heapq", "io", "itertools", "math", "operator", "random", "re",
    "string", "threading", "typing",
)  # fmt: skip
"""Modules that most programs import; each costs every fork a little, so no more than these."""


class Confinement:
    """What every child puts on before it runs a program; `unsafe` leaves resource limits alone."""

    def __init__(self, *, unsafe: bool, site_packages: Sequence[str], packages: Sequence[str]) -> None:
        self.unsafe = unsafe
        self.machine = kernel.machine()
        self.ruleset = -1
        kernel.set_undumpable()
        if not kernel.set_thread_stack(limits.THREAD_STACK_BYTES):
            threading.stack_size(limits.THREAD_STACK_BYTES)
        if unsafe:
            return
        kernel.set_no_new_privileges()
        kernel.drop_capabilities()
        self.ruleset = landlock.build(_libraries(), site_packages, packages)
        kernel.install_filter(seccomp.zygote_filter(self.machine))

    def put_on(self, request: Request, descriptors: Sequence[int]) -> None:
        """Confine the calling process, for good; raises `OSError` where any part fails."""
        limits.apply(
            cpu_seconds=request.cpu_total,
            memory_bytes=request.memory,
            file_bytes=request.output,
            descriptors=max(descriptors) + limits.SPARE_DESCRIPTORS,
        )
        if not self.unsafe:
            landlock.restrict(self.ruleset)
            os.close(self.ruleset)
            kernel.install_filter(seccomp.program_filter(self.machine, os.getpid()))


def _libraries() -> list[str]:
    return [path for path in sys.path if os.path.isdir(path)]


def main(arguments: Sequence[str]) -> None:
    """Serve requests until the judge's side is gone. Arguments: descriptor of the socket, mode, packages, folders."""
    descriptor, mode, packages, *site_packages = arguments
    control = _socket.socket(fileno=int(descriptor))
    try:
        for name in PRELOAD:
            __import__(name)
        confinement = Confinement(
            unsafe=mode == "unsafe", site_packages=site_packages, packages=packages.split(",") if packages else ()
        )
    except (OSError, KeyError) as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:MAX_MESSAGE])
        return
    sys.path += site_packages
    sys.argv = sys.orig_argv = ["main.py"]
    for name in ("PYTHONHASHSEED", "GLIBC_TUNABLES", "LC_CTYPE"):
        os.environ.pop(name, None)
    sys.set_int_max_str_digits(0)
    gc.collect()
    gc.freeze()
    control.send(HELLO_OK)
    while True:
        message, descriptors = _receive(control)
        if not message:
            return
        for answer in _Run(Request.unpack(message), descriptors, confinement, control).answers():
            control.send(answer.pack())


def _receive(control: _socket.socket) -> tuple[bytes, list[int]]:
    received = array.array("i")
    space = _socket.CMSG_SPACE(MAX_DESCRIPTORS * received.itemsize)
    message, ancillary, _, _ = control.recvmsg(MAX_MESSAGE, space)
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
    return message, list(received)


class _Run:
    """One request under way: one process, or a program and the assertion that calls it."""

    def __init__(
        self, request: Request, descriptors: list[int], confinement: Confinement, control: _socket.socket
    ) -> None:
        self.request, self.descriptors, self.confinement, self.control = request, descriptors, confinement, control
        self.children: list[_Child] = []

    def answers(self) -> list[Answer]:
        """Fork, watch to the end, and say how each process ended."""
        opened = list(self.descriptors)
        try:
            self._fork(opened)
            self._watch()
            return [child.answer() for child in self.children]
        except OSError as error:
            for child in self.children:
                child.kill("setup")
            return [Answer(ending="setup", reason=f"{error}")] * self.request.processes
        finally:
            _close(opened)

    def _fork(self, opened: list[int]) -> None:
        each = len(self.descriptors) // self.request.processes
        channels = [-1]
        if self.request.processes == 2:
            ends = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            channels = [end.detach() for end in ends]
            opened += channels
        for number, channel in enumerate(channels):
            own = self.descriptors[number * each : (number + 1) * each]
            ready, tell = os.pipe()
            opened += [ready, tell]
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _child(self.request, own, channel, self.confinement, tell, parent)
            self.children.append(_Child(self.request, pid, progress=own[2], ready=ready))
            os.close(tell)
            opened.remove(tell)
        for channel in channels:  # theirs now: the end of one is the end of the channel for the other
            if channel >= 0:
                os.close(channel)
                opened.remove(channel)

    def _watch(self) -> None:
        """Until the last process has ended (of a pair, the assertion); then none is left."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        for child in self.children:
            poll.register(child.pidfd, select.POLLIN)
        while not self.children[-1].ended:
            ready = {descriptor for descriptor, _ in poll.poll(1000 * TICK)}
            if self.control.fileno() in ready:
                self._called_off()
            for child in self.children:
                if child.pidfd in ready and not child.ended:
                    poll.unregister(child.pidfd)
                    child.reap()
                elif not child.ended:
                    child.check_limits()
        for child in self.children:
            child.kill("exited")

    def _called_off(self) -> None:
        """The judge's side is gone: it says nothing while a run is under way."""
        for child in self.children:
            child.kill("setup")
        os._exit(0)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _child(
    request: Request, descriptors: list[int], channel: int, confinement: Confinement, tell: int, parent: int
) -> None:
    """Everything that happens in the fork; never returns."""
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _keep_only({0, 1, 2, tell, channel, confinement.ruleset, *descriptors})
        confinement.put_on(request, [*descriptors, channel])
        os.write(tell, HELLO_OK)
        os.close(tell)
    except BaseException as error:
        os.write(tell, f"{type(error).__name__}: {error}".encode()[:1000])
        os._exit(1)
    try:
        runner.main(descriptors, channel)
    except MemoryError:
        os._exit(EXIT_MEMORY)
    finally:
        os._exit(EXIT_RUNNER)


def _keep_only(kept: set[int]) -> None:
    edges = sorted(fd for fd in kept if fd >= 0)
    for low, high in zip(edges, [*edges[1:], 1 << 20], strict=True):
        if high - low > 1:
            os.closerange(low + 1, high)


class _Child:
    """One confined process, and the limits it is watched against."""

    def __init__(self, request: Request, pid: int, *, progress: int, ready: int) -> None:
        self.request, self.pid, self.progress, self.ready = request, pid, progress, ready
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
            cpu = time.clock_gettime(self.clock)
            threads = os.stat(f"/proc/{self.pid}/task").st_nlink - 2
        except OSError:
            return  # it has just ended
        self._next_test(cpu)
        if cpu - self.cpu_at > self.request.cpu:
            self.stop("cpu")
        elif threads > MAX_THREADS:
            self.stop("threads")
        elif self._waited_too_long():
            self.stop("wall")

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
            with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as file:
                return int(file.read().split()[1]) * 1e-9
        except (OSError, ValueError, IndexError):
            return 0.0
