"""Which system calls a program may make: an allow list, as classic BPF built by hand.

Limits first: a filter sees numbers, not what pointers point at, so files are Landlock's business, and a kernel bug
behind an allowed call is not covered. Two filters stack. The *first* is installed once in the zygote: an allow list
with rules on arguments. The *second*, installed in each fork before the program starts, takes away what only the zygote
needs (forking, sending descriptors, signals to others). Refused calls fail with EPERM, so a program that tries one sees
an ordinary `PermissionError`; calls of another architecture (x32, i386) end the process.
"""

from pot_agent.sandbox.syscall_table import AUDIT_ARCH, NUMBERS, PROCESS_NUMBERS, SCRATCH_NUMBERS, ZYGOTE_ONLY, number

Instruction = tuple[int, int, int, int]

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000 | 0x00000100 | 0x00000800  # THREAD, VM, SIGHAND: what a thread is
_CLONE_NAMESPACES = 0x7E020080  # every CLONE_NEW* (NEWTIME is 0x80)

IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TIOCGWINSZ (isatty, terminal size), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
FCNTLS = (0, 1, 2, 3, 4, 1030, 1032, 1034)
"""Duplicate, descriptor and status flags, pipe size and seals as queries. No locks (they reach other processes), no
F_SETOWN (signals to others), no F_SETPIPE_SZ (kernel memory that no limit counts)."""
PRCTLS = (2, 3, 15, 16, 0x53564D41)
"""Queries of the death signal and of dumpability, thread names, names of memory areas."""


def _argument(index: int, *, high: bool = False) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _returns(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _one_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow when the low half of an argument is one of `values`, else EPERM."""
    rules = [_argument(index)]
    for value in values:
        rules += [(_JUMP_EQUAL, 0, 1, value), _returns(ALLOW)]
    return [*rules, _returns(ERRNO | EPERM)]


def _socketpair() -> list[Instruction]:
    """A unix stream pair, as asyncio needs to wake itself; a datagram one could send to any address."""
    return [
        _argument(0), (_JUMP_EQUAL, 0, 4, 1),
        _argument(1), (_AND, 0, 0, 0xF), (_JUMP_EQUAL, 0, 1, 1),
        _returns(ALLOW), _returns(ERRNO | EPERM),
    ]  # fmt: skip


def _sendto_without_address() -> list[Instruction]:
    return [
        _argument(4), (_JUMP_EQUAL, 0, 3, 0),
        _argument(4, high=True), (_JUMP_EQUAL, 0, 1, 0),
        _returns(ALLOW), _returns(ERRNO | EPERM),
    ]  # fmt: skip


def _clone_of_a_thread() -> list[Instruction]:
    return [
        _argument(0), (_JUMP_SET, 3, 0, _CLONE_NAMESPACES),
        (_AND, 0, 0, _CLONE_THREAD), (_JUMP_EQUAL, 0, 1, _CLONE_THREAD),
        _returns(ALLOW), _returns(ERRNO | EPERM),
    ]  # fmt: skip


def _guard(machine: str) -> list[Instruction]:
    """End a process that calls by another architecture's numbers, then leave the number in the accumulator."""
    rules: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]), _returns(KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if machine == "x86_64":
        rules += [(_JUMP_GREATER_EQUAL, 0, 1, X32_BIT), _returns(KILL_PROCESS)]
    return rules


def _assemble(machine: str, rules: dict[str, list[Instruction]], otherwise: int) -> list[Instruction]:
    """For each name its rules, which must all end in a return; any other number gets `otherwise`."""
    program = _guard(machine)
    for name, body in rules.items():
        found = number(name, machine)
        if found is not None:
            program += [(_JUMP_EQUAL, 0, len(body), found), *body]
    return [*program, _returns(otherwise)]


def _clone_without_namespaces() -> list[Instruction]:
    return [_argument(0), (_JUMP_SET, 0, 1, _CLONE_NAMESPACES), _returns(ERRNO | EPERM), _returns(ALLOW)]


def zygote_filter(machine: str, *, scratch: bool = False, processes: bool = False) -> list[Instruction]:
    """The first filter: the allow list, with what the zygote itself needs.

    `scratch`: there are files to write. `processes`: programs may start some.
    """
    rules: dict[str, list[Instruction]] = {name: [_returns(ALLOW)] for name in NUMBERS}
    rules |= {name: [_returns(ALLOW)] for name in SCRATCH_NUMBERS if scratch}
    rules |= {name: [_returns(ALLOW)] for name in PROCESS_NUMBERS if processes}
    rules["ioctl"] = _one_of(1, IOCTLS)
    rules["fcntl"] = _one_of(1, FCNTLS)
    rules["socketpair"] = _socketpair()
    rules["sendto"] = _sendto_without_address()
    rules["clone3"] = [_returns(ERRNO | ENOSYS)]
    return _assemble(machine, rules, ERRNO | EPERM)


def program_filter(machine: str, pid: int) -> list[Instruction]:
    """The second filter, for the process `pid`: no new process, no signal to any other, nothing of the zygote's."""
    rules: dict[str, list[Instruction]] = {name: [_returns(ERRNO | EPERM)] for name in ZYGOTE_ONLY}
    rules["clone"] = _clone_of_a_thread()
    rules["kill"] = _one_of(0, (pid,))
    rules["tgkill"] = _one_of(0, (pid,))
    rules["prlimit64"] = _one_of(0, (0, pid))
    rules["prctl"] = _one_of(0, PRCTLS)
    return _assemble(machine, rules, ALLOW)


def family_filter(machine: str) -> list[Instruction]:
    """The second filter, for a program that may start processes: signals reach those of its pid namespace alone."""
    kept = ("setsid",)
    rules = {name: [_returns(ERRNO | EPERM)] for name in (*ZYGOTE_ONLY, "unshare", "capset") if name not in kept}
    rules["clone"] = _clone_without_namespaces()
    rules["prlimit64"] = _one_of(0, (0,))
    rules["prctl"] = _one_of(0, PRCTLS)
    return _assemble(machine, rules, ALLOW)
