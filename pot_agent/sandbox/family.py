"""A program that may start processes: a pid namespace for each run, with an init above the program.

Limits first: CPU time is counted over all processes that are there and those that were waited for; one that nobody
waits for is lost to the count when it ends, and then the wall limit holds. Memory is what the processes hold beyond
what each had from the warm process, looked at every tick. Standard library only; runs in the zygote and its children.

Three processes stand one below the other: the child that the zygote watches, outside; the init, number 1 inside; the
program, number 2. When the program ends, so does the init, and with it whatever is left in the namespace: the child
outside then ends as the program did.
"""

import contextlib
import os
import signal
from typing import NamedTuple, NoReturn

from pot_agent.sandbox import kernel
from pot_agent.sandbox.namespaces import NEW_PIDS, NEW_USER, map_user

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
OVERHEAD = 2
"""Processes of a run that are not the program's: the child outside and the init."""


def separate(proc: int) -> None:
    """Return as the program's process, in namespaces of its own; the two above it never return."""
    user, group = os.geteuid(), os.getegid()
    kernel.set_dumpable()  # or the maps below belong to root
    kernel.unshare(NEW_USER | NEW_PIDS)
    map_user(proc, user, group, process=f"{os.getpid()}/")
    kernel.set_undumpable()
    told, tell = os.pipe()
    init = os.fork()
    if init:
        _outside(init, told)
    kernel.die_with_parent(signal.SIGKILL)
    program = os.fork()
    if program:
        _be_init(program, tell)
    os.close(told)
    os.close(tell)
    os.setsid()  # a signal to its group must not reach the two above


def check() -> None:
    """Raise `OSError` where the kernel would not let `separate` do its work."""
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(NEW_USER | NEW_PIDS)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(status, f"unshare: a pid namespace for each run: {os.strerror(status)}")


def _be_init(program: int, tell: int) -> NoReturn:
    """Wait for whoever ends; when it is the program, pass its status on and end all the others."""
    os.closerange(0, tell)
    os.closerange(tell + 1, 1 << 16)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == program:
            os.write(tell, status.to_bytes(4, "little"))
            os._exit(0)


def _outside(init: int, told: int) -> NoReturn:
    """Wait until nothing is left inside, then end as the program did."""
    os.closerange(0, told)
    os.closerange(told + 1, 1 << 16)
    os.waitpid(init, 0)
    word = os.read(told, 4)
    if len(word) != 4:
        os._exit(1)
    code = os.waitstatus_to_exitcode(int.from_bytes(word, "little"))
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def sweep() -> None:
    """In the zygote, number 1 of its pid namespace: end and collect every other process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


class Usage(NamedTuple):
    """What the processes of one run use together."""

    cpu: float
    memory: int
    """Bytes beyond what each had from the warm process."""
    threads: int


class _Stat(NamedTuple):
    parent: int
    cpu: int
    threads: int
    pages: int


def usage(proc: int, head: int, inherited_pages: int) -> Usage:
    """Of the process `head` and all below it."""
    stats = {int(name): found for name in _numbers(proc) if (found := _stat(proc, name)) is not None}
    members = {head} & set(stats)
    while more := {pid for pid, stat in stats.items() if stat.parent in members} - members:
        members |= more
    ours = [stats[pid] for pid in members]
    return Usage(
        cpu=sum(stat.cpu for stat in ours) / TICKS,
        memory=sum(max(0, stat.pages - inherited_pages) for stat in ours) * PAGE,
        threads=sum(stat.threads for stat in ours) - OVERHEAD,
    )


def anonymous_pages(proc: int, name: str = "self") -> int:
    """Pages of a process that no file stands behind."""
    _, resident, shared, *_ = _read(proc, f"{name}/statm").split()
    return int(resident) - int(shared)


def _numbers(proc: int) -> list[str]:
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    finally:
        os.close(folder)


def _stat(proc: int, name: str) -> _Stat | None:
    try:
        fields = _read(proc, f"{name}/stat").rpartition(b")")[2].split()
        return _Stat(int(fields[1]), sum(map(int, fields[11:15])), int(fields[17]), anonymous_pages(proc, name))
    except (OSError, ValueError, IndexError):
        return None  # it has just ended


def _read(proc: int, path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY, dir_fd=proc)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
