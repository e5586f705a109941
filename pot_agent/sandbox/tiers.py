"""The isolation tiers, strongest first. Standard library only: judge and zygote both read this.

`T2` is T1 inside namespaces of its own. `T1n` is for kernels without Landlock: files that are not to be read are not
there. `unsafe` is never chosen for anybody.
"""

from typing import Literal, get_args

Tier = Literal["T2", "T1", "T1n", "unsafe"]

TIERS: tuple[Tier, ...] = get_args(Tier)
SAFE: tuple[Tier, ...] = ("T2", "T1", "T1n")
"""In the order in which they are tried."""
NAMES: dict[Tier, str] = {
    "T2": "T2 (namespaces + landlock + seccomp + rlimits)",
    "T1": "T1 (landlock + seccomp + rlimits)",
    "T1n": "T1n (namespaces + seccomp + rlimits)",
    "unsafe": "unsafe (rlimits only)",
}
"""What results, `pot doctor` and events call them."""
PROCESSES = "processes"
"""What a zygote is told where programs may start processes."""


def has_landlock(tier: Tier) -> bool:
    """Whether files are closed by Landlock."""
    return tier in ("T2", "T1")


def has_namespaces(tier: Tier) -> bool:
    """Whether programs have a root directory, process ids, a network and so on of their own."""
    return tier in ("T2", "T1n")
