"""Long runs: thousands of programs leave nothing behind, and a machine under load changes no verdict."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.errors import SandboxUnavailableError
from pot_agent.problem import CallTest, Limits, StdinTest
from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox.tiers import Tier
from tests.sandbox.test_hostile import children_of, programs_of, worker_pids

pytestmark = pytest.mark.long

PROGRAMS = {
    "print(2 * int(input()))": "passed",
    "print(3)": "wrong_answer",
    "raise ValueError": "runtime_error",
    "import os; os._exit(3)": "runtime_error",
    "import threading; [threading.Thread(target=print).start() for _ in range(5)]": "wrong_answer",
    "x = bytearray(1 << 40)": "memory_limit",
    "(": "compile_error",
}
TESTS = [StdinTest(input="1", output="2"), StdinTest(input="2", output="4")]


def held(pid: int) -> tuple[int, int]:
    """Open descriptors and resident KiB of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{pid}/fd")), int(resident.split()[1])


@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_thousands_of_programs_leave_nothing_behind(tier: Tier) -> None:
    with LocalSandbox(workers=1, tier=tier) as sandbox:
        try:
            sandbox.probe()
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        for _ in range(30):
            one_round(sandbox)
        warm = family(sandbox)
        before = [held(pid) for pid in (*warm, os.getpid())]
        for _ in range(400):
            one_round(sandbox)
        after = [held(pid) for pid in (*warm, os.getpid())]
        assert family(sandbox) == warm
        assert programs_of(sandbox) == []
    for (files, resident), (later_files, later_resident) in zip(before, after, strict=True):
        assert later_files == files
        assert later_resident - resident < 4096


def family(sandbox: LocalSandbox) -> list[int]:
    """The worker's process, and the warm one below it where it has namespaces."""
    return [*worker_pids(sandbox), *children_of(worker_pids(sandbox))]


def one_round(sandbox: LocalSandbox) -> None:
    for program, verdict in PROGRAMS.items():
        assert sandbox.judge(program, TESTS).verdict == verdict


@pytest.fixture
def load() -> Iterator[None]:
    """Four busy processes for each core."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("load")
def test_a_loaded_machine_changes_no_verdict() -> None:
    program = (
        "import time\n"
        "def f(n):\n"
        "    start = time.process_time()\n"
        "    while time.process_time() - start < n / 10: pass\n"
        "    return n\n"
    )
    tests = [CallTest(args=(n,), expected=n) for n in (6, 12)]
    limits = Limits(cpu_seconds=1.0, wall_seconds=1.5)
    with LocalSandbox(workers=1) as sandbox:
        verdicts = [result.verdict for result in sandbox.judge(program, tests, entry_point="f", limits=limits).results]
    assert verdicts == ["passed", "time_limit"]
