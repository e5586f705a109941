"""Free memory, as the kernel's files say it: real ones, and written ones for what this machine has not."""

from pathlib import Path

import pytest

from pot_agent.policy.machine_memory import MachineMemory, cpu_memory, memory_of

KIB, GIB = 1024, 1024**3


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A machine of 16 GiB, 12 of them free, and this process in a group without limits."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    lines = (
        f"MemTotal: {16 * GIB // KIB} kB\nMemFree: 1024 kB\nMemAvailable: {12 * GIB // KIB} kB\nHugePages_Total: 0\n"
    )
    (proc / "meminfo").write_text(lines)
    (proc / "self/cgroup").write_text("1:name=systemd:/x\n0::/outer/inner\n")
    (groups / "outer/inner").mkdir(parents=True)
    return proc, groups


def limit(group: Path, most: str, used: int, cached: int = 0) -> None:
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 5\nactive_file {cached // 2}\ninactive_file {cached - cached // 2}\n")


def test_without_limits_it_is_the_machines(machine: tuple[Path, Path]) -> None:
    assert cpu_memory(*machine) == MachineMemory(16 * GIB, 12 * GIB)


def test_a_groups_limit_counts_less_what_it_uses_but_for_cached_files(machine: tuple[Path, Path]) -> None:
    limit(machine[1] / "outer/inner", str(4 * GIB), 3 * GIB, cached=2 * GIB)
    assert cpu_memory(*machine) == MachineMemory(4 * GIB, 3 * GIB)


def test_the_limit_of_a_group_above_counts_too(machine: tuple[Path, Path]) -> None:
    limit(machine[1] / "outer", str(2 * GIB), GIB)
    limit(machine[1] / "outer/inner", "max", GIB // 2)
    assert cpu_memory(*machine) == MachineMemory(2 * GIB, GIB)


def test_a_container_sees_its_own_group_as_the_root(machine: tuple[Path, Path]) -> None:
    (machine[0] / "self/cgroup").write_text("0::/\n")
    limit(machine[1], str(GIB), 2 * GIB)
    assert cpu_memory(*machine) == MachineMemory(GIB, 0)


def test_a_machine_without_control_groups_is_its_own_limit(machine: tuple[Path, Path]) -> None:
    (machine[0] / "self/cgroup").unlink()
    assert cpu_memory(*machine) == MachineMemory(16 * GIB, 12 * GIB)


def test_this_machine_has_some() -> None:
    found = memory_of("cpu")
    assert 0 < found.free <= found.total
