"""The local sandbox as its users meet it: verdicts, limits, cancelling, threads, forks, closing."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pot_agent.errors import CancelledError, ConfigError, ProblemError, SandboxError, SandboxUnavailableError
from pot_agent.problem import AssertTest, CallTest, Limits, StdinTest
from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox import pool as pool_module
from pot_agent.sandbox.base import Sandbox
from pot_agent.sandbox.probe import probe
from pot_agent.sandbox.tiers import NAMES

DOUBLE = "print(2 * int(input()))"
TESTS = [StdinTest(input=f"{n}\n", output=f"{2 * n}\n") for n in range(4)]
SHORT = Limits(cpu_seconds=0.3, wall_seconds=1.0)


def test_it_keeps_the_contract(sandbox: LocalSandbox) -> None:
    assert isinstance(sandbox, Sandbox)
    assert sandbox.tier in NAMES.values()
    assert sandbox.tier == sandbox.probe()
    assert probe().available


def test_all_kinds_of_test_in_one_judgement_keep_their_order(sandbox: LocalSandbox) -> None:
    program = "def f(x): return x + 1\nif __name__ == '__main__':\n    print(f(int(input())))"
    tests = [
        AssertTest(code="assert f(1) == 3"),
        StdinTest(input="1", output="2"),
        AssertTest(code="y = 4\nassert f(3) == y"),
        CallTest(args=(1,), expected=5),
        CallTest(kwargs={"x": 1}, expected=2),
    ]
    judgement = sandbox.judge(program, tests, entry_point="f")
    assert [result.verdict for result in judgement.results] == [
        "wrong_answer",
        "passed",
        "passed",
        "wrong_answer",
        "passed",
    ]
    assert [result.index for result in judgement.results] == [0, 1, 2, 3, 4]
    assert (judgement.passed, judgement.total, judgement.verdict) == (3, 5, "wrong_answer")
    first = judgement.first_failure
    assert first is not None
    assert (first.input, first.expected, first.got) == ("f(1)", "3", "2")


@pytest.mark.parametrize("isolation", ["program", "test"])
def test_both_isolations_give_the_same_verdicts(sandbox: LocalSandbox, isolation: Any) -> None:
    program = "n = int(input())\nprint(2 * n if n != 2 else 1 // 0)"
    judgement = sandbox.judge(program, TESTS, isolation=isolation)
    assert [result.verdict for result in judgement.results] == ["passed", "passed", "runtime_error", "passed"]
    assert judgement.results[2].error == (
        "ZeroDivisionError: integer division or modulo by zero\n  line 2: print(2 * n if n != 2 else 1 // 0)"
    )


def test_a_failure_that_only_company_caused_is_not_held_against_a_program(sandbox: LocalSandbox) -> None:
    program = "import math\nassert not hasattr(math, 'mark')\nmath.mark = 1\n" + DOUBLE
    assert sandbox.judge(program, TESTS).verdict == "passed"


def test_after_three_time_limits_in_a_row_the_rest_is_not_run(sandbox: LocalSandbox) -> None:
    judgement = sandbox.judge("while True: pass", TESTS * 5, limits=SHORT)
    assert [result.verdict for result in judgement.results] == ["time_limit"] * 20
    assert "CPU time" in judgement.results[2].error
    assert "not run" in judgement.results[3].error
    assert judgement.wall_seconds < 3 * 2 * SHORT.cpu_seconds + 3


def test_every_limit_has_its_verdict_and_its_reason(sandbox: LocalSandbox) -> None:
    cases = {
        "while True: pass": ("time_limit", "CPU"),
        "import time; time.sleep(60)": ("time_limit", "1 s"),
        "x = [bytearray(16 << 20) for _ in range(1 << 20)]": ("memory_limit", "MemoryError"),
        "while True: print('x' * 1000)": ("output_limit", "64 KiB"),
        "import sys\nwhile True: sys.stderr.write('x' * 1000)": ("output_limit", "64 KiB"),
        "import os; os.abort()": ("runtime_error", "SIGABRT"),
        "raise SystemExit(3)": ("runtime_error", "3"),
        "import sys; sys.exit('sorry')": ("runtime_error", "sorry"),
        "import os; os._exit(7)": ("runtime_error", "exit status 7"),
        "print(": ("compile_error", "SyntaxError"),
        "x = 1\n\x00": ("compile_error", "null bytes"),
        "def f(): return f()\nf()": ("runtime_error", "RecursionError"),
        "import socket; socket.socket()": ("runtime_error", "PermissionError"),
        "import os; os.fork()": ("runtime_error", "PermissionError"),
        "open('/etc/passwd')": ("runtime_error", "Error"),
        "open('x', 'w')": ("runtime_error", "Error"),
    }
    short = {"CPU": {"cpu_seconds": 0.5}, "1 s": {"wall_seconds": 1.0}}  # one at a time: a busy machine is slow to any
    for program, (verdict, reason) in cases.items():
        given = {"cpu_seconds": 10.0, "wall_seconds": 30.0, **short.get(reason, {})}
        limits = Limits(memory_mb=200, output_kb=64, **given)
        result = sandbox.judge(program, TESTS[:1], limits=limits).results[0]
        assert (result.verdict, reason in result.error) == (verdict, True), (program, result)


def test_too_many_threads_are_a_runtime_error(sandbox: LocalSandbox) -> None:
    program = "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(9,)).start()"
    limits = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=4096)
    result = sandbox.judge(program, TESTS[:1], limits=limits).results[0]
    assert result.verdict == "runtime_error"
    assert "threads" in result.error


def test_memory_is_the_programs_own_again_at_each_test(sandbox: LocalSandbox) -> None:
    program = "x = bytearray(60 << 20)\n" + DOUBLE
    assert sandbox.judge(program, TESTS, limits=Limits(memory_mb=200)).verdict == "passed"


def test_a_program_sees_no_environment_file_process_or_descriptor(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "needle")
    program = (
        "import os, sys\n"
        "print(sorted(os.environ), sys.argv, __file__)\n"
        "pip = os.path.dirname(os.__file__) + '/site-packages/pip/__init__.py'\n"
        "for path in ('/', '/proc', '/root', '/home', pip):\n"
        "    try: print(os.listdir(path) if os.path.isdir(path) else open(path).read())\n"
        "    except OSError as error: print(type(error).__name__)\n"
        "held = []\n"
        "for fd in range(256):\n"
        "    try: held.append((fd, os.fstat(fd).st_mode >> 12))\n"
        "    except OSError: pass\n"
        "print({mode for fd, mode in held})\n"
    )
    with LocalSandbox(workers=1) as fresh:
        out = fresh.run(program).stdout.splitlines()
    assert out[0] == "['MKL_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'] ['main.py'] main.py"
    assert set(out[1:6]) <= {"PermissionError", "FileNotFoundError"}
    assert out[6] == "{8}", "only memory files (regular) are open, no socket, pipe or device"


def test_numpy_is_there_where_it_is_installed(sandbox: LocalSandbox) -> None:
    pytest.importorskip("numpy")
    program = "import numpy as np\ndef f(n): return np.arange(n) @ np.arange(n)"
    assert sandbox.judge(program, [CallTest(args=(4,), expected=14)], entry_point="f").verdict == "passed"


def test_other_installed_packages_stay_closed(sandbox: LocalSandbox) -> None:
    result = sandbox.run("import hypothesis")
    assert result.verdict == "runtime_error"
    assert "Error" in result.stderr


def test_the_standard_library_is_there(sandbox: LocalSandbox) -> None:
    program = (
        "import asyncio, bz2, csv, ctypes, dataclasses, datetime, decimal, email, enum, fractions, hashlib, json\n"
        "import lzma, multiprocessing, queue, sqlite3, ssl, statistics, string, tempfile, unittest, uuid, xml.etree\n"
        "import zlib, zoneinfo; zoneinfo.available_timezones(); print('ok')"
    )
    assert sandbox.run(program).stdout == "ok\n"


def test_run_says_what_a_program_did(sandbox: LocalSandbox) -> None:
    result = sandbox.run("import sys\nprint(input())\nsys.stderr.write('warn')\nsys.exit(4)", stdin="hello\n")
    assert (result.stdout, result.exit_code, result.verdict) == ("hello\n", 4, "runtime_error")
    assert result.stderr == "warn"
    assert "ZeroDivisionError" in sandbox.run("1 / 0").stderr
    assert sandbox.run("import os, signal; os.kill(os.getpid(), 11)").exit_code == -11
    flood = sandbox.run("print('x' * 10**6)", limits=Limits(output_kb=1))
    assert (flood.truncated, len(flood.stdout), flood.verdict) == (True, 1024, "output_limit")


def test_two_runs_agree_on_the_order_of_sets(sandbox: LocalSandbox) -> None:
    program = "print({str(i) for i in range(50)})"
    with LocalSandbox(workers=1) as other:
        assert sandbox.run(program).stdout == other.run(program).stdout


class CountingSandbox(LocalSandbox):
    """Counts how many jobs run at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lock, self.now, self.most, self.jobs = threading.Lock(), 0, 0, 0

    def execute(self, job: Any, cancel: Any = None) -> Any:
        with self.lock:
            self.now, self.jobs = self.now + 1, self.jobs + 1
            self.most = max(self.most, self.now)
        try:
            return super().execute(job, cancel)
        finally:
            with self.lock:
                self.now -= 1


def test_a_full_pass_is_confirmed_on_idle_workers_side_by_side() -> None:
    slow = "import time; time.sleep(0.2)\n" + DOUBLE
    with CountingSandbox(workers=2) as sandbox:
        sandbox.judge(DOUBLE, TESTS)
        while len(sandbox._pool._idle) < 2:  # the second is started for later
            time.sleep(0.01)
        sandbox.jobs = 0
        judgement = sandbox.judge(slow, TESTS)
    assert (judgement.verdict, judgement.passed) == ("passed", 4)
    assert (sandbox.most, sandbox.jobs) == (2, 5)


def test_cancelling_ends_the_program_at_once(sandbox: LocalSandbox) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        sandbox.run("import time; time.sleep(60)", limits=Limits(cpu_seconds=60), cancel=cancel)
    assert time.monotonic() - started < 5
    with pytest.raises(CancelledError):
        sandbox.judge(DOUBLE, TESTS, cancel=cancel)
    assert sandbox.judge(DOUBLE, TESTS).verdict == "passed"


def test_cancelling_does_not_wait_for_a_free_worker() -> None:
    cancel = threading.Event()
    with LocalSandbox(workers=1) as sandbox:
        busy = threading.Thread(target=sandbox.run, args=("import time; time.sleep(1.5)",))
        busy.start()
        time.sleep(0.3)
        cancel.set()
        with pytest.raises(CancelledError):
            sandbox.execute(_job(), cancel)
        assert busy.is_alive()
        busy.join()


def _job() -> Any:
    from pot_agent.sandbox.execution import Job

    return Job(kind="stdin", source=DOUBLE, limits=Limits(), inputs=("1",))


def test_nothing_is_left_after_closing() -> None:
    sandbox = LocalSandbox(workers=2)
    threads = [threading.Thread(target=sandbox.judge, args=(DOUBLE, TESTS)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pids = [worker._process.pid for worker in sandbox._pool._all]
    assert 1 <= len(pids) <= 2
    sandbox.close()
    sandbox.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("1")


def test_closing_ends_a_program_under_way() -> None:
    sandbox = LocalSandbox(workers=1)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            sandbox.run("import time; time.sleep(60)", limits=Limits(cpu_seconds=60))
        except SandboxError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    sandbox.close()
    thread.join(10)
    assert not thread.is_alive()
    assert "closed" in str(raised[0])


def test_a_worker_that_died_is_replaced(sandbox: LocalSandbox) -> None:
    with LocalSandbox(workers=1) as own:
        own.run("1")
        for worker in own._pool._all:
            os.kill(worker._process.pid, 9)
        assert own.judge(DOUBLE, TESTS).verdict == "passed"


def test_a_worker_that_dies_under_a_program_is_replaced_and_the_program_run_again() -> None:
    with LocalSandbox(workers=1) as own:
        own.run("1")
        victim = next(iter(own._pool._all))._process.pid
        threading.Timer(0.3, os.kill, (victim, 9)).start()
        program = "import time; time.sleep(0.8)\n" + DOUBLE
        assert own.judge(program, TESTS[:1]).verdict == "passed"


def test_a_sandbox_that_fails_always_is_internal_and_never_a_verdict(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pot_agent.sandbox.worker import Worker, WorkerLostError

    def lost(self: Worker, job: Any, cancel: Any) -> Any:
        raise WorkerLostError("gone")

    with LocalSandbox(workers=1) as own:
        monkeypatch.setattr(Worker, "run", lost)
        judgement = own.judge(DOUBLE, TESTS)
        assert [result.verdict for result in judgement.results] == ["internal"] * 4
        assert own.judge("def f(x): return x", [AssertTest(code="y = 1\nassert f(y) == y")]).verdict == "internal"


def test_it_works_in_a_forked_child_of_a_process_that_used_it(sandbox: LocalSandbox) -> None:
    sandbox.run("1")
    child = os.fork()
    if child == 0:
        verdict = sandbox.judge(DOUBLE, TESTS).verdict
        sandbox.close()
        os._exit(0 if verdict == "passed" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sandbox.judge(DOUBLE, TESTS).verdict == "passed"


def test_it_works_from_threads_of_an_event_loop(sandbox: LocalSandbox) -> None:
    async def judged() -> list[str]:
        calls = [asyncio.to_thread(sandbox.judge, DOUBLE, TESTS) for _ in range(6)]
        return [judgement.verdict for judgement in await asyncio.gather(*calls)]

    assert asyncio.run(judged()) == ["passed"] * 6


def test_an_interpreter_that_never_closes_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "from pot_agent.sandbox import LocalSandbox\n"
        "s = LocalSandbox(workers=1)\n"
        "s.run('1')\n"
        "print(*[worker._process.pid for worker in s._pool._all])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not any(Path(f"/proc/{pid}").exists() for pid in done.stdout.split())


def test_where_the_kernel_cannot_isolate_it_refuses_and_names_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "missing", lambda tier: "the kernel has no Landlock")
    with LocalSandbox() as sandbox, pytest.raises(SandboxUnavailableError) as refused:
        sandbox.judge(DOUBLE, TESTS)
    for word in ("no Landlock", "E2B", "Docker", "Linux VM", "unsafe=True"):
        assert word in str(refused.value)


def test_on_another_system_it_imports_and_then_refuses() -> None:
    script = (
        "import sys\n"
        "sys.modules.update(resource=None, fcntl=None)\n"
        "sys.platform = 'win32'\n"
        "from pot_agent.problem import StdinTest\n"
        "from pot_agent.sandbox import LocalSandbox\n"
        "for unsafe in (False, True):\n"
        "    try: LocalSandbox(unsafe=unsafe).judge('1', [StdinTest(input='', output='')])\n"
        "    except OSError as error: print(type(error).__name__, 'features of Linux' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SandboxUnavailableError", "True"] * 2


def test_unsafe_says_so_in_every_result() -> None:
    with LocalSandbox(workers=1, unsafe=True) as sandbox:
        assert sandbox.judge(DOUBLE, TESTS).tier == "unsafe (rlimits only)"
        assert sandbox.run("1").tier == "unsafe (rlimits only)"
        assert sandbox.judge("while True: pass", TESTS[:1], limits=SHORT).verdict == "time_limit"


def test_bad_arguments_are_errors_at_the_door(sandbox: LocalSandbox) -> None:
    with pytest.raises(ConfigError, match="workers"):
        LocalSandbox(workers=0)
    with pytest.raises(ProblemError, match="no tests"):
        sandbox.judge(DOUBLE, [])
    with pytest.raises(ProblemError, match="not a test"):
        sandbox.judge(DOUBLE, ["assert 1"])  # type: ignore[list-item]
    with pytest.raises(ProblemError, match="entry_point"):
        sandbox.judge("def f(): pass", [CallTest(expected=1)])
    with pytest.raises(ProblemError, match="text"):
        sandbox.judge(None, TESTS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="isolation"):
        sandbox.judge(DOUBLE, TESTS, isolation="process")  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_it_needs_no_privilege(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = _python_for_anybody()
    if python is None:
        pytest.skip("no Python 3.11 that an unprivileged user can run")
    root = str(Path(__file__).parents[2])
    script = (
        f"import sys; sys.path[:0] = [{root!r}]\n"
        "from pot_agent.sandbox import LocalSandbox\n"
        "from pot_agent.problem import StdinTest, AssertTest\n"
        "with LocalSandbox(workers=1) as s:\n"
        "    print(s.judge('print(2 * int(input()))', [StdinTest(input='2', output='4')] * 2).verdict)\n"
        "    print(s.judge('def f(x): return x', [AssertTest(code='y = 1\\nassert f(y) == y')]).verdict)\n"
        "    for code in ('open(\"/etc/passwd\")', 'import socket; socket.socket()', 'import os; os.fork()',\n"
        "                 'import os; os.kill(os.getppid(), 9)', 'open(\"/root/x\", \"w\")'):\n"
        "        print(s.run(code).stderr.splitlines()[-1].split(':')[0])\n"
    )
    done = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, user=65534, group=65534, extra_groups=[]
    )
    errors = ["PermissionError", "FileNotFoundError", "OSError"]
    answers = done.stdout.split()
    assert answers[:2] == ["passed"] * 2, done.stderr
    assert len(answers) == 7
    assert set(answers[2:]) <= set(errors)


def _python_for_anybody() -> str | None:
    """An interpreter, and this package, that user 65534 can read."""
    root = str(Path(__file__).parents[2])
    check = f"import sys; assert sys.version_info >= (3, 11); open({root + '/pot_agent/problem.py'!r})"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run([python, "-c", check], capture_output=True, user=65534, group=65534, extra_groups=[])
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None


def test_arguments_that_are_not_plain_data_are_the_problems_fault(sandbox: LocalSandbox) -> None:
    with pytest.raises(ProblemError, match="not plain data"):
        sandbox.judge("def f(x): return 1", [CallTest(args=([object()],), expected=1)], entry_point="f")
