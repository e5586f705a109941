"""allow_processes=True: programs may start processes; nothing survives a run, and the limits hold for all together."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pot_agent.errors import ConfigError, SandboxUnavailableError
from pot_agent.problem import AssertTest, Limits, StdinTest
from pot_agent.sandbox import LocalSandbox
from tests.sandbox.test_hostile import PROGRAMS, children_of, judge, right_verdicts, source_of, worker_pids
from tests.sandbox.test_tiers import ROOT, UNSHARE, refusing

TESTS = [StdinTest(input=f"{n}\n", output=f"{2 * n}\n") for n in (1, 21, -5)]
SHORT = Limits(cpu_seconds=0.5, wall_seconds=1.5, memory_mb=300)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox(workers=1, allow_processes=True) as made:
        try:
            made.probe()
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield made


@pytest.fixture(autouse=True)
def nothing_survives(sandbox: LocalSandbox) -> Iterator[None]:
    yield
    assert children_of(children_of(worker_pids(sandbox))) == []


def entry_of(name: str) -> dict[str, str]:
    return next(entry for entry in PROGRAMS if entry["file"].startswith(name))


@pytest.mark.parametrize("name", ["35_", "27_", "29_"], ids=["a shell", "a daemon", "a late writer"])
def test_a_program_that_starts_processes_passes(sandbox: LocalSandbox, name: str) -> None:
    entry = entry_of(name)
    judgement = judge(sandbox, entry)
    assert (judgement.verdict, judgement.passed) == ("passed", 3)


@pytest.mark.long
@pytest.mark.parametrize("entry", PROGRAMS, ids=[entry["file"].removesuffix(".py") for entry in PROGRAMS])
def test_every_hostile_program_has_its_right_verdict_here_too(sandbox: LocalSandbox, entry: dict[str, str]) -> None:
    right = {"passed"} if entry["file"].startswith("35_") else right_verdicts(entry["verdict"])
    assert judge(sandbox, entry).verdict in right


PYTHON = """
import subprocess, sys
n = input()
done = subprocess.run([sys.executable, '-c', 'print(2 * int(input()))'], input=n, text=True, capture_output=True)
print(done.stdout, end='')
"""
POOL = """
import multiprocessing
def double(n): return 2 * n
if __name__ == '__main__':
    with multiprocessing.Pool(3) as pool: print(pool.map(double, [int(input())])[0])
"""
EXECUTORS = """
from concurrent.futures import ProcessPoolExecutor
def double(n): return 2 * n
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as pool: print(pool.submit(double, int(input())).result())
"""
COPY = """
import os
n = int(input())
if os.fork() == 0:
    print(2 * n)
else:
    os.wait()
"""
BECOMES = "import os\nos.execv('/bin/sh', ['sh', '-c', 'read n; echo $((2 * n))'])"


@pytest.mark.parametrize(
    "program", [PYTHON, POOL, EXECUTORS, COPY, BECOMES], ids=["python", "pool", "executor", "fork", "exec"]
)
def test_the_usual_ways_to_start_processes_work(sandbox: LocalSandbox, program: str) -> None:
    assert [result.verdict for result in sandbox.judge(program, TESTS).results] == ["passed"] * 3


def test_an_assertion_may_call_what_starts_processes(sandbox: LocalSandbox) -> None:
    program = "import os\ndef f(n): return os.popen(f'echo {n}').read()"
    assert sandbox.judge(program, [AssertTest(code="y = 3\nassert f(y) == '3\\n'")]).verdict == "passed"


def test_a_program_ends_as_it_would_without(sandbox: LocalSandbox) -> None:
    for program, code in (("import os; os.kill(os.getpid(), 9)", -9), ("import os; os.abort()", -6), ("exit(3)", 3)):
        assert sandbox.run(program).exit_code == code


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("import os\nfor _ in range(3): os.fork()\nwhile True: pass", "time_limit"),
        ("import os\nif os.fork() == 0:\n    while True: pass\nos.wait()", "time_limit"),
        ("import os\nwhile os.fork() == 0: os.setsid()\nimport time; time.sleep(9)", "time_limit"),
        (
            "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * (100 << 20)\n"
            "        time.sleep(5)\ntime.sleep(5)",
            "memory_limit",
        ),
        ("import os\nwhile True:\n    if os.fork() == 0:\n        while True: pass", "runtime_error time_limit"),
        ("import os, signal\nos.kill(0, signal.SIGKILL)", "runtime_error"),
        ("import os, signal\nos.kill(-1, signal.SIGKILL)", "runtime_error"),
        ("import os, signal\nfor n in range(1, 60):\n    try: os.kill(n, 19)\n    except OSError: pass", "time_limit"),
    ],
    ids=["many busy", "busy child", "chain", "memory", "bomb", "kill group", "kill all", "stop all"],
)
def test_limits_hold_for_all_processes_together(sandbox: LocalSandbox, program: str, verdict: str) -> None:
    limits = replace(SHORT, cpu_seconds=5) if verdict == "memory_limit" else SHORT
    assert sandbox.judge(program, TESTS[:1], limits=limits).verdict in verdict.split()


def test_processes_that_nobody_waits_for_end_by_the_wall_limit(sandbox: LocalSandbox) -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        end = time.process_time() + 0.02\n"
        "        while time.process_time() < end: pass\n"
        "        os._exit(0)\n"
        "    time.sleep(0.02)\n"
    )
    assert sandbox.judge(program, TESTS[:1], limits=SHORT).verdict in ("time_limit", "runtime_error")


def test_no_process_gets_out_or_up(sandbox: LocalSandbox) -> None:
    program = (
        "import ctypes, os, socket, subprocess\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.unshare(0x10000000), libc.unshare(0x20000000), libc.syscall(101, 16, 1, 0, 0))\n"
        "print(os.getpid(), os.getppid(), os.path.exists('/proc/1'))\n"
        "try: socket.socket()\n"
        "except OSError as error: print(error.errno)\n"
        "print(subprocess.run(['cat', '/etc/shadow'], capture_output=True).returncode)\n"
        "print(subprocess.run(['su'], capture_output=True).returncode != 0)\n"
    )
    assert sandbox.run(program).stdout.split() == ["-1"] * 3 + ["2", "1", "False", "1", "1", "True"]


def test_it_needs_namespaces_and_says_so() -> None:
    for other in ({"tier": "T1"}, {"tier": "T1n"}, {"unsafe": True}):
        with pytest.raises(ConfigError, match="needs tier T2"):
            LocalSandbox(allow_processes=True, **other)  # type: ignore[arg-type]
    script = refusing(UNSHARE) + "print(verdict(allow_processes=True))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert "allow_processes=True needs T2" in done.stdout
    assert "unshare" in done.stdout


def test_it_is_off_unless_it_is_asked_for() -> None:
    with LocalSandbox(workers=1) as plain:
        assert plain.judge(source_of(entry_of("35_")), TESTS).verdict == "runtime_error"
        assert Path("/bin/sh").exists()
