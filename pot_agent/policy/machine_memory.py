"""How much memory a device has: a GPU's own figures; for a CPU the machine's, or those of the container it is in.

Limits: Linux (`/proc/meminfo`, control groups of version 2; others count as unlimited). Free is what it is now: another
program may take it a moment later. Pages that only cache files count as free.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MachineMemory:
    """Bytes of a device, and those of it that nobody holds."""

    total: int
    free: int


def memory_of(device: str) -> MachineMemory:
    """Of a torch device by name: `cpu`, `cuda`, `cuda:1`."""
    if device.split(":")[0] == "cpu":
        return cpu_memory()
    import torch

    free, total = torch.cuda.mem_get_info(torch.device(device))
    return MachineMemory(total=total, free=free)


def cpu_memory(proc: Path = PROC, groups: Path = GROUPS) -> MachineMemory:
    """Of this machine, as far as the process's control group and those above it allow."""
    figures = _meminfo(proc / "meminfo")
    total, free = figures["MemTotal"], figures.get("MemAvailable", figures.get("MemFree", 0))
    for group in _groups(proc / "self/cgroup", groups):
        limit = _number(group / "memory.max")
        if limit is not None:
            used = (_number(group / "memory.current") or 0) - _cached(group / "memory.stat")
            total, free = min(total, limit), min(free, max(0, limit - max(0, used)))
    return MachineMemory(total=total, free=free)


def _meminfo(path: Path) -> dict[str, int]:
    """Lines such as `MemTotal:  24689764 kB`, in bytes."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if len(words) > 2 and words[2] == "kB"}


def _groups(path: Path, root: Path) -> list[Path]:
    """The process's group and all above it; inside a container its own is the root."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), None)
    if own is None:
        return []
    group = root / own
    return [place for place in (group, *group.parents) if place == root or root in place.parents]


def _number(path: Path) -> int | None:
    """None where there is no such file, or it says `max`."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cached(path: Path) -> int:
    """Bytes of files' pages, which the kernel drops when memory is asked for."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(words[1]) for words in lines if words[0] in ("active_file", "inactive_file"))
