"""Resource limits of one process, set inside the fork just before the program runs.

Limits first: RLIMIT_AS counts address space, the interpreter's own (about 30 MiB) included, and not what the kernel
keeps for pipes and sockets; those are bounded by the number of descriptors. RLIMIT_CPU counts whole seconds and is a
backstop: the zygote watches the CPU clock itself. RLIMIT_NPROC is not used: it counts the user's other processes too;
the zygote counts threads instead.
"""

import math
import resource

STACK_BYTES = 512 << 20
"""Stack of the main thread where the hard limit allows: deep recursion through C (lru_cache, sort keys) needs it."""
THREAD_STACK_BYTES = 8 << 20
"""Stack of every other thread, unless the program asks for another size."""
SPARE_DESCRIPTORS = 48
"""Files a program may open beside those it is given."""
OUTPUT_MARGIN = 1
"""A stream may grow one byte beyond its limit: a longer file then says that the limit was passed."""


def lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, never above the hard limit in force."""
    _, ceiling = resource.getrlimit(kind)
    hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        hard = min(hard, ceiling)
    resource.setrlimit(kind, (min(soft, hard), hard))


def apply(*, cpu_seconds: float, memory_bytes: int, file_bytes: int, descriptors: int) -> None:
    """Put the calling process under its limits, for good."""
    whole = math.ceil(cpu_seconds)
    lower(resource.RLIMIT_CPU, whole + 1, whole + 2)
    lower(resource.RLIMIT_FSIZE, file_bytes + OUTPUT_MARGIN)
    lower(resource.RLIMIT_NOFILE, descriptors)
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_MEMLOCK, 0)
    lower(resource.RLIMIT_STACK, stack_bytes())
    lower(resource.RLIMIT_AS, memory_bytes)


def stack_bytes() -> int:
    """Stack of the main thread under the hard limit in force."""
    _, ceiling = resource.getrlimit(resource.RLIMIT_STACK)
    return STACK_BYTES if ceiling == resource.RLIM_INFINITY else min(STACK_BYTES, ceiling)
