"""Numbers of the system calls that the filters name, for x86_64 and aarch64. Nothing else is known here.

Source: the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h. A call that is not in
this table is refused by the filter, whatever it does, also one that a newer kernel adds.
"""

# fmt: off
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # files, within what Landlock lets them reach
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "pwrite64": (18, 68),
    "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286), "pwritev2": (328, 287), "close": (3, 57),
    "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "lseek": (8, 62),
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getdents": (78, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166),
    "statfs": (137, 43), "fstatfs": (138, 44), "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83),
    "fadvise64": (221, 223), "readahead": (187, 213),
    # waiting, and channels of a process to itself
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441), "eventfd2": (290, 19), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "pipe": (22, None), "pipe2": (293, 59), "recvfrom": (45, 207), "shutdown": (48, 210),
    "getsockopt": (55, 209), "getsockname": (51, 204), "getpeername": (52, 205),
    # memory
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226),
    "madvise": (28, 233), "mincore": (27, 232), "msync": (26, 227),
    # threads
    "futex": (202, 98), "futex_waitv": (449, 449), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "rseq": (334, 293), "set_tid_address": (218, 96), "membarrier": (324, 283), "getcpu": (309, 168),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    # signals and timers of the process itself
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "pause": (34, None), "alarm": (37, None), "setitimer": (38, 103),
    "getitimer": (36, 102), "timer_create": (222, 107), "timer_settime": (223, 110), "timer_gettime": (224, 108),
    "timer_getoverrun": (225, 109), "timer_delete": (226, 111),
    # clocks and facts
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "getrusage": (98, 165), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "sysinfo": (99, 179), "uname": (63, 160), "getrandom": (318, 278), "getpid": (39, 172),
    "gettid": (186, 178), "getppid": (110, 173), "getpgid": (121, 155), "getpgrp": (111, None), "getsid": (124, 156),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148),
    "getresgid": (120, 150), "getgroups": (115, 158), "getpriority": (140, 141), "capget": (125, 90),
    "arch_prctl": (158, None),
    # the end
    "wait4": (61, 260), "waitid": (247, 95), "exit": (60, 93), "exit_group": (231, 94),
    # allowed with some arguments only (see the rules below)
    "ioctl": (16, 29), "fcntl": (72, 25), "socketpair": (53, 199), "sendto": (44, 206), "clone": (56, 220),
    "kill": (62, 129), "tgkill": (234, 131), "prctl": (157, 167), "prlimit64": (302, 261),
    # for the zygote alone: the second filter takes them from a program
    "sendmsg": (46, 211), "recvmsg": (47, 212), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "setsid": (112, 157), "seccomp": (317, 277), "landlock_restrict_self": (446, 446),
    # answered with ENOSYS, so that the C library falls back to clone
    "clone3": (435, 435),
}
SCRATCH_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # files in /tmp, where a program has one of its own
    "mkdir": (83, None), "mkdirat": (258, 34), "unlink": (87, None), "unlinkat": (263, 35), "rmdir": (84, None),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "truncate": (76, 45), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "flock": (73, 32), "sendfile": (40, 71), "copy_file_range": (326, 285), "creat": (85, None),
}
PROCESS_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # where programs may start processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "setpgid": (109, 154),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    # for the zygote alone
    "unshare": (272, 97), "capset": (126, 91),
}
# fmt: on
"""name -> (x86_64, aarch64); None where the architecture has no such call."""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What the kernel calls each architecture in `seccomp_data.arch`."""

COLUMN = {"x86_64": 0, "aarch64": 1}

ZYGOTE_ONLY = (
    "sendmsg", "recvmsg", "pidfd_open", "pidfd_send_signal", "setsid", "seccomp", "landlock_restrict_self",
)  # fmt: skip


def number(name: str, machine: str) -> int | None:
    """The number of a call on `machine`, None where it has none."""
    found = next(table[name] for table in (NUMBERS, SCRATCH_NUMBERS, PROCESS_NUMBERS) if name in table)
    return found[COLUMN[machine]]
