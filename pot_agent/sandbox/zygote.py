"""The warm process that forks one confined child for each run, watches it and answers how it ended.

Limits first: a zygote is trusted and runs no line of any program; it holds no test data, no program text and no
environment, and its own system calls are filtered too. It looks at the child every `TICK` seconds
(`pot_agent.sandbox.watching`), so limits bite up to that much late. In a tier with namespaces it ends after a program
that used /tmp: the next one finds nothing of it.
Standard library only; single-threaded.
"""

import _socket
import array
import gc
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import cast

from pot_agent.sandbox import kernel, runner
from pot_agent.sandbox.confinement import Confinement
from pot_agent.sandbox.family import separate, sweep
from pot_agent.sandbox.tiers import PROCESSES, Tier
from pot_agent.sandbox.watching import Child, Head
from pot_agent.sandbox.wire import EXIT_MEMORY, EXIT_RUNNER, HELLO_OK, MAX_DESCRIPTORS, MAX_MESSAGE, Answer, Request

TICK = 0.01
PRELOAD = (
    "bisect", "collections", "copy", "functools", "heapq", "io", "itertools", "math", "operator", "random", "re",
    "string", "threading", "typing",
)  # fmt: skip
"""Modules that most programs import; each costs every fork a little, so no more than these."""


def main(arguments: Sequence[str]) -> None:
    """Serve requests until the judge's side is gone.

    Arguments: descriptor of the socket, tier, `processes` or nothing, packages, folders of packages.
    """
    sys.dont_write_bytecode = True
    descriptor, tier, processes, packages, *site_packages = arguments
    control = _socket.socket(fileno=int(descriptor))
    try:
        confinement = Confinement(
            cast(Tier, tier),
            processes=processes == PROCESSES,
            site_packages=site_packages,
            packages=packages.split(",") if packages else (),
            control=control.fileno(),
        )
        for name in PRELOAD:
            __import__(name)
    except (OSError, KeyError, ImportError) as error:
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
        answers = _Run(Request.unpack(message), descriptors, confinement, control).answers()
        spent = confinement.used
        for answer in answers:
            control.send(answer._replace(spent=spent).pack())
        if spent:
            return


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
        self.children: list[Child] = []

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
            kind = Head if self.confinement.processes else Child
            self.children.append(kind(self.request, pid, progress=own[2], ready=ready, proc=self.confinement.proc))
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
        if self.confinement.processes:
            sweep()

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
        kept = {0, 1, 2, tell, channel, confinement.ruleset, *descriptors}
        if confinement.processes:
            _keep_only({*kept, confinement.proc})
            separate(confinement.proc)
        _keep_only(kept)
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
