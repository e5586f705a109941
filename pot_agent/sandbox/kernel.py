"""The few system calls that Python does not offer, through ctypes. Linux only; standard library only.

Nothing is checked here beyond the kernel's own answer: a failed call raises `OSError` with the name of the call.
"""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
"""Beyond the last one that any kernel has; dropping an unknown one fails harmlessly."""


def machine() -> str:
    """`x86_64` or `aarch64`, or whatever else this is."""
    name = os.uname().machine if hasattr(os, "uname") else sys.platform
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name.lower(), name.lower())


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def syscall(name: str, number: int, *arguments: object) -> int:
    """Make a system call by number; raises `OSError` naming it."""
    prepared = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *prepared))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(name: str, option: int, *arguments: int) -> None:
    """`prctl(2)`; raises `OSError` naming the option."""
    padded = [*arguments, 0, 0, 0, 0][:4]
    if _libc().prctl(ctypes.c_int(option), *[ctypes.c_ulong(value) for value in padded]) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({name}): {os.strerror(error)}")


def set_no_new_privileges() -> None:
    """No set-user-id program can give this process, or its children, more than it has."""
    prctl("NO_NEW_PRIVS", PR_SET_NO_NEW_PRIVS, 1)


def set_undumpable() -> None:
    """No core files, no ptrace, and no /proc/PID/mem for others of the same user."""
    prctl("DUMPABLE", PR_SET_DUMPABLE, 0)


def set_dumpable() -> None:
    """Give a process that changed its user the files of its own /proc back."""
    prctl("DUMPABLE", PR_SET_DUMPABLE, 1)


def die_with_parent(signal: int) -> None:
    """Have the kernel send `signal` to this process when the thread that forked it ends."""
    prctl("PDEATHSIG", PR_SET_PDEATHSIG, signal)


def drop_capabilities() -> None:
    """Give up every capability for good: a root user without any is an ordinary user."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            prctl("CAPBSET_DROP", PR_CAPBSET_DROP, capability)
        except OSError:
            continue  # not privileged (there is nothing to drop), or not a capability of this kernel
    with contextlib.suppress(OSError):  # before Linux 4.3 there were no ambient capabilities
        prctl("CAP_AMBIENT", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    syscall("capset", SYS_CAPSET[machine()], ctypes.byref(header), ctypes.byref(nothing))


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name for fresh ones; of a pid namespace the next child is the first process."""
    if _libc().unshare(ctypes.c_int(flags)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare({flags:#x}): {os.strerror(error)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """`mount(2)`; raises `OSError` naming the target."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _libc().mount(*words, ctypes.c_ulong(flags), os.fsencode(options) if options else None) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount({target}): {os.strerror(error)}")


def detach(target: str) -> None:
    """Unmount, now from the tree and for good when nobody uses it any more."""
    mnt_detach = 2
    if _libc().umount2(os.fsencode(target), ctypes.c_int(mnt_detach)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"umount({target}): {os.strerror(error)}")


def pivot_root(new: str, old: str) -> None:
    """Make the mount `new` the root, and move the present one to `old` below it."""
    paths = [ctypes.c_char_p(os.fsencode(path)) for path in (new, old)]
    syscall("pivot_root", SYS_PIVOT_ROOT[machine()], *paths)


class _Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install_filter(instructions: Sequence[tuple[int, int, int, int]]) -> None:
    """Install a seccomp filter of (code, jump if true, jump if false, constant) instructions on all threads."""
    array = (_Filter * len(instructions))(*[_Filter(*instruction) for instruction in instructions])
    program = _Program(len(instructions), ctypes.cast(array, ctypes.c_void_p))
    set_mode_filter, sync_threads = 1, 1
    syscall("seccomp", SYS_SECCOMP[machine()], set_mode_filter, sync_threads, ctypes.byref(program))


def seccomp_knows(action: int) -> bool:
    """Whether the kernel has seccomp filters with this action."""
    get_action_available = 2
    try:
        syscall("seccomp", SYS_SECCOMP[machine()], get_action_available, 0, ctypes.byref(ctypes.c_uint32(action)))
    except (OSError, KeyError):
        return False
    return True


def set_thread_stack(size: int) -> bool:
    """Set the stack of later threads, which otherwise is the stack limit at exec; False where it cannot."""
    libc = _libc()
    if not hasattr(libc, "pthread_setattr_default_np"):
        return False
    attributes = ctypes.create_string_buffer(128)  # larger than any pthread_attr_t
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size))
    return bool(libc.pthread_setattr_default_np(attributes) == 0)
