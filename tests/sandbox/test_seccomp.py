"""The system call filters, run by a small BPF machine: what they allow, on both architectures, without trying it."""

import struct

import pytest

from pot_agent.sandbox.seccomp import ALLOW, ENOSYS, EPERM, ERRNO, KILL_PROCESS, program_filter, zygote_filter
from pot_agent.sandbox.syscall_table import AUDIT_ARCH, NUMBERS, ZYGOTE_ONLY, number

MACHINES = ("x86_64", "aarch64")
REFUSED, UNKNOWN = ERRNO | EPERM, ERRNO | ENOSYS
PID = 4321
FORBIDDEN = {
    "x86_64": {
        "socket": 41, "connect": 42, "bind": 49, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "ptrace": 101,
        "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "memfd_secret": 447, "shmget": 29,
        "msgget": 68, "semget": 64, "io_uring_setup": 425, "add_key": 248, "keyctl": 250, "bpf": 321,
        "userfaultfd": 323, "perf_event_open": 298, "mount": 165, "open_tree": 428, "unshare": 272, "setns": 308,
        "chroot": 161, "pivot_root": 155, "kexec_load": 246, "init_module": 175, "setuid": 105, "capset": 126,
        "chmod": 90, "chown": 92, "utimensat": 280, "setxattr": 188, "unlink": 87, "mkdir": 83, "symlink": 88,
        "rt_sigqueueinfo": 129, "tkill": 200, "setpriority": 141, "sched_setscheduler": 144, "flock": 73,
        "inotify_init1": 294, "kcmp": 312, "pidfd_getfd": 438, "vmsplice": 278, "mlockall": 151, "sync": 162,
    },
    "aarch64": {
        "socket": 198, "connect": 203, "execve": 221, "ptrace": 117, "process_vm_readv": 270, "memfd_create": 279,
        "shmget": 194, "io_uring_setup": 425, "keyctl": 219, "bpf": 280, "userfaultfd": 282, "perf_event_open": 241,
        "mount": 40, "unshare": 97, "setns": 268, "fchmodat": 53, "unlinkat": 35, "setuid": 146, "capset": 91,
    },
}  # fmt: skip


def run(program: list[tuple[int, int, int, int]], machine: str, call: int, *arguments: int) -> int:
    """What a filter returns for a call; a classic BPF machine for the instructions that the filters use."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<iIQ6Q", call, AUDIT_ARCH[machine], 0, *padded)
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, constant = program[position]
        assert max(if_true, if_false) < 256
        position += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, constant)[0]
        elif code == 0x54:
            accumulator &= constant
        else:
            holds = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}
            position += if_true if holds[code] else if_false


def both(machine: str, call: int | None, *arguments: int) -> int:
    """What a program under both filters gets: the stricter of the two."""
    assert call is not None
    first = run(zygote_filter(machine), machine, call, *arguments)
    second = run(program_filter(machine, PID), machine, call, *arguments)
    return first if first != ALLOW else second


@pytest.mark.parametrize("machine", MACHINES)
def test_what_no_program_needs_is_refused(machine: str) -> None:
    for name, call in FORBIDDEN[machine].items():
        assert both(machine, call) == REFUSED, name
    for name in ZYGOTE_ONLY:
        assert both(machine, number(name, machine)) == REFUSED, name


@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_is_not_in_the_table_is_refused(machine: str) -> None:
    known = {number(name, machine) for name in NUMBERS}
    for call in set(range(1024)) - known:
        assert both(machine, call) == REFUSED, call


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_need_is_allowed(machine: str) -> None:
    for name in (
        "read",
        "write",
        "openat",
        "mmap",
        "munmap",
        "brk",
        "futex",
        "getrandom",
        "exit_group",
        "clock_gettime",
    ):
        assert both(machine, number(name, machine)) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_but_no_processes_and_no_namespaces(machine: str) -> None:
    clone = number("clone", machine)
    thread = 0x003D0F00
    assert both(machine, clone, thread) == ALLOW
    assert both(machine, clone, 17) == REFUSED  # fork
    assert both(machine, clone, 0x4111) == REFUSED  # vfork
    assert both(machine, clone, thread | 0x10000000) == REFUSED  # a user namespace
    assert both(machine, clone, thread | 0x80) == REFUSED  # a time namespace
    assert both(machine, number("clone3", machine)) == UNKNOWN


@pytest.mark.parametrize("machine", MACHINES)
def test_signals_and_limits_reach_the_process_itself_alone(machine: str) -> None:
    for name in ("kill", "tgkill"):
        assert both(machine, number(name, machine), PID, 9) == ALLOW
        for other in (0, 1, PID + 1, 2**64 - 1, 2**32 - PID):
            assert both(machine, number(name, machine), other, 9) == REFUSED
    prlimit = number("prlimit64", machine)
    assert both(machine, prlimit, 0) == both(machine, prlimit, PID) == ALLOW
    assert both(machine, prlimit, PID + 1) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_are_checked_where_a_call_can_do_harm(machine: str) -> None:
    socketpair, sendto = number("socketpair", machine), number("sendto", machine)
    unix, stream, datagram = 1, 1 | 0x80000, 2
    assert both(machine, socketpair, unix, stream) == ALLOW
    assert both(machine, socketpair, unix, datagram) == REFUSED
    assert both(machine, socketpair, 2, stream) == REFUSED
    assert both(machine, sendto, 3, 0, 1, 0, 0, 0) == ALLOW
    assert both(machine, sendto, 3, 0, 1, 0, 0x7FFF00000000, 16) == REFUSED
    assert both(machine, sendto, 3, 0, 1, 0, 0x1000, 16) == REFUSED
    assert both(machine, number("fcntl", machine), 0, 1031) == REFUSED  # a larger pipe
    assert both(machine, number("fcntl", machine), 0, 8) == REFUSED  # an owner for signals
    assert both(machine, number("fcntl", machine), 0, 1030) == ALLOW
    assert both(machine, number("ioctl", machine), 0, 0x5412) == REFUSED  # typing into a terminal
    assert both(machine, number("prctl", machine), 4, 1) == REFUSED  # dumpable again
    assert both(machine, number("prctl", machine), 15) == ALLOW


def test_another_architecture_ends_the_process() -> None:
    program = zygote_filter("x86_64")
    assert run(program, "aarch64", 63) == KILL_PROCESS
    assert run(program, "x86_64", 0x40000000 + 39) == KILL_PROCESS
