"""What this machine's kernel can do for the sandbox, and what to do where it cannot.

`missing` asks the kernel a few questions and starts nothing; `LocalSandbox.probe` is the whole truth: it starts a
worker, which puts everything on.
"""

import os
import sys
from dataclasses import dataclass

from pot_agent.sandbox import kernel, landlock, seccomp
from pot_agent.sandbox.syscall_table import AUDIT_ARCH
from pot_agent.sandbox.tiers import Tier, has_landlock

WAYS_OUT = (
    'Ways out: E2B\'s cloud sandboxes, from any system (pip install "policy-of-thoughts[e2b]", then '
    "pot_agent.sandbox.E2BSandbox()); a Linux VM, or a Docker container on a Linux host (kernel 5.13 or newer, booted "
    "with Landlock); or, on Linux and for programs that you trust, LocalSandbox(unsafe=True)"
)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the kernel said."""

    available: bool
    reason: str
    """Why tier T1 cannot be had, and the ways out; empty where nothing speaks against it."""
    landlock_abi: int
    """0: none."""
    seccomp: bool
    machine: str


def probe() -> Probe:
    """Ask the kernel; starts nothing."""
    reason = missing()
    linux = sys.platform == "linux"
    return Probe(
        available=reason is None,
        reason="" if reason is None else f"{reason}. {WAYS_OUT}",
        landlock_abi=_landlock_abi() if linux else 0,
        seccomp=linux and kernel.seccomp_knows(seccomp.ERRNO),
        machine=kernel.machine(),
    )


def _landlock_abi() -> int:
    try:
        return landlock.abi()
    except OSError:
        return 0


def not_linux() -> str | None:
    """Why no tier, `unsafe` included, can be had here."""
    system: str = sys.platform
    return (
        None if system == "linux" else f"Landlock, seccomp and memory files are features of Linux, and this is {system}"
    )


def missing(tier: Tier = "T1") -> str | None:
    """Why a tier cannot be had here; None where nothing speaks against it. For namespaces only trying them tells."""
    if (reason := not_linux()) is not None or tier == "unsafe":
        return reason
    if kernel.machine() not in AUDIT_ARCH:
        known = " and ".join(AUDIT_ARCH)
        return f"the system call filter knows {known}, and this is {kernel.machine()}"
    try:
        if has_landlock(tier):
            landlock.abi()
    except OSError as error:
        return f"the kernel has no Landlock (Linux 5.13 or newer, built and booted with it): {error}"
    if not kernel.seccomp_knows(seccomp.ERRNO):
        return "the kernel has no seccomp filters"
    if not hasattr(os, "pidfd_open"):
        return "the kernel has no pidfd_open (Linux 5.3)"
    return None
