"""A zygote in namespaces of its own: user, mount, pid, network, IPC and host name. Linux; standard library only.

Limits first: all programs of one zygote share its namespaces, one after the other; whatever one of them leaves in /tmp
ends the zygote (`pot_agent.sandbox.zygote`). What a kernel refuses is an `OSError` that names the call, and nothing is
half done: the process is then to end.

Two ways lead in. With the right to mount, everything is mounted first, and the process then becomes a user that nobody
else is. Without it, a user namespace comes first, and gives that right inside. Either way no capability is left at the
end, and the process is number 1 of its pid namespace: its end is the end of every process below it.
"""

import _socket
import contextlib
import os
import signal
from typing import NoReturn

from pot_agent.sandbox import kernel, roots
from pot_agent.sandbox.readable import Readable

NEW_MOUNTS, NEW_HOST_NAME, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_ALL_BUT_USER = NEW_MOUNTS | NEW_HOST_NAME | NEW_IPC | NEW_PIDS | NEW_NETWORK
USER_INSIDE = 1000
"""What a program takes its user and group to be."""
FIRST_USER, USERS = 1_000_000_000, 4_194_304
"""Users that nobody is, one for each process number; where a container has fewer, the upper half of those it has."""


def enter(readable: Readable, *, whole_folders: bool, scratch: str, keep: int) -> int:
    """Go on as the first process of new namespaces; the caller waits outside and never returns from here.

    `keep` is the one descriptor that only the new process holds. Returns a descriptor of its own /proc.
    """
    root = roots.place(readable)
    user = _user_of_its_own()
    mounts_as_root = _leave_the_old_ones(user)
    roots.build(root, readable, whole_folders=whole_folders)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    child = os.fork()
    if child:
        _stand_by(child, keep)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
    proc = _move_in(root, scratch)
    _socket.sethostname("sandbox")
    if mounts_as_root:
        _become(user)
        kernel.set_dumpable()  # or the maps below belong to root
        with contextlib.suppress(OSError):  # no user namespaces here: it is a user of its own all the same
            kernel.unshare(NEW_USER)
            map_user(proc, user, user)
    kernel.die_with_parent(signal.SIGKILL)
    return proc


def _user_of_its_own() -> int:
    """The number of a user that no other process runs as, if this process may choose one."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [(int(first), int(count)) for first, _, count in (line.split() for line in file)]
    if any(first <= FIRST_USER and first + count >= FIRST_USER + USERS for first, count in ranges):
        return FIRST_USER + os.getpid() % USERS
    first, count = max(ranges, key=lambda each: each[1])
    return first + count // 2 + os.getpid() % max(1, count // 2)


def _leave_the_old_ones(user: int) -> bool:
    """True where it was done with the right to mount, False where by way of a user namespace."""
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            kernel.unshare(_ALL_BUT_USER)
            return True
        _become(user)  # root without that right: its user namespace would still be root's
        kernel.set_dumpable()
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(NEW_USER | _ALL_BUT_USER)
    proc = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
    map_user(proc, user, group, process="")
    os.close(proc)
    return False


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def map_user(proc: int, user: int, group: int, *, process: str = "1/") -> None:
    """Say who the user and group inside are outside."""
    users, groups = f"{USER_INSIDE} {user} 1", f"{USER_INSIDE} {group} 1"
    for name, line in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        descriptor = os.open(process + name, os.O_WRONLY, dir_fd=proc)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _move_in(root: str, scratch: str) -> int:
    """Change to the new root for good; a descriptor of a /proc that no path leads to."""
    kernel.mount("proc", f"{root}/proc", "proc", roots.MS_NOSUID | roots.MS_NODEV | roots.MS_NOEXEC)
    proc = os.open(f"{root}/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.detach(f"{root}/proc")
    roots.scratch(root + scratch)
    kernel.pivot_root(root, f"{root}/old")
    os.chdir("/")
    kernel.detach("/old")
    os.rmdir("/old")
    os.rmdir("/proc")
    roots.seal("/")
    return proc


def _stand_by(child: int, keep: int) -> NoReturn:
    """Outside: end with the child, and end it, with all below it, when told to."""
    os.close(keep)
    if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGTERM:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # returns when nothing is left in its pid namespace
    os._exit(0)
