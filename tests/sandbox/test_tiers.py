"""Tiers: the strongest that works is taken and named; what namespaces add; nothing falls below T1 in silence."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.errors import ConfigError, SandboxUnavailableError
from pot_agent.problem import Limits, StdinTest
from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox.kernel import machine
from pot_agent.sandbox.tiers import NAMES
from tests.sandbox.test_hostile import children_of, programs_of, worker_pids

ROOT = Path(__file__).parents[2]
UNSHARE, CREATE_RULESET = {"x86_64": 272, "aarch64": 97}[machine()], 444
TESTS = [StdinTest(input=f"{n}", output=f"{2 * n}") for n in range(3)]


@pytest.fixture(scope="module", params=["T2", "T1n"])
def spaced(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """One worker of a tier with namespaces, where the kernel offers them."""
    with LocalSandbox(workers=1, tier=request.param) as sandbox:
        try:
            sandbox.probe()
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield sandbox


def zygotes(sandbox: LocalSandbox) -> list[int]:
    """The first process of each worker's pid namespace."""
    return children_of(worker_pids(sandbox))


def test_every_namespace_is_another_than_the_judges(spaced: LocalSandbox) -> None:
    (zygote,) = zygotes(spaced)
    for name in ("mnt", "pid", "net", "ipc", "uts", "user"):
        assert os.readlink(f"/proc/{zygote}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"), name


def test_the_warm_process_is_nobody_and_has_no_capability(spaced: LocalSandbox) -> None:
    (zygote,) = zygotes(spaced)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{zygote}/status").read_text().splitlines())
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["NSpid"].split()[-1] == "1"
    if os.geteuid() == 0:
        assert "0" not in status["Uid"].split()


def test_a_program_finds_a_tiny_root_and_no_name_of_the_machine(spaced: LocalSandbox) -> None:
    program = (
        "import os\n"
        "print(*[os.path.exists(path) for path in ('/proc/self', '/home', '/old', '/etc/passwd')])\n"
        "print(os.uname().nodename)\n"
        "for path in ('/x', '/usr/x', os.path.dirname(os.__file__) + '/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    out = spaced.run(program).stdout.split()
    assert out[:5] == ["False", "False", "False", "False", "sandbox"]
    assert set(out[5:]) <= {"30", "13", "1"}
    assert len(out) == 8


SCRATCH = "import os, tempfile\nfolder = tempfile.gettempdir()\n"


def test_what_a_program_writes_is_gone_before_the_next(spaced: LocalSandbox) -> None:
    writes = "os.mkdir(folder + '/d')\nopen(folder + '/d/f', 'w').write('left')\nprint(open(folder + '/d/f').read())"
    written = spaced.run(SCRATCH + writes)
    assert (written.verdict, written.stdout) == ("passed", "left\n")
    assert spaced.run(f"{SCRATCH}print(os.path.exists(folder + '/d'))").stdout == "False\n"


def test_not_even_the_time_of_a_change_is_left(spaced: LocalSandbox) -> None:
    before = spaced.run(f"{SCRATCH}print(os.stat('/').st_mtime_ns)").stdout
    spaced.run(f"{SCRATCH}open(folder + '/f', 'w').close(); os.unlink(folder + '/f')")
    after = spaced.run(f"{SCRATCH}print(os.stat('/').st_mtime_ns)").stdout
    assert before != after, "the whole root is another: the warm process was replaced"


def test_a_program_that_writes_nothing_keeps_the_warm_process(spaced: LocalSandbox) -> None:
    spaced.run("1")
    before = zygotes(spaced)
    assert [spaced.run("import os, tempfile; print(os.stat('/tmp'))").verdict for _ in range(3)] == ["passed"] * 3
    assert zygotes(spaced) == before


def test_the_scratch_folder_is_bounded(spaced: LocalSandbox) -> None:
    program = (
        f"{SCRATCH}"
        "try:\n"
        "    for n in range(100):\n"
        "        with open(f'{folder}/{n}', 'wb') as file: file.write(bytes(1 << 20))\n"
        "except OSError as error: print(n, error.errno)\n"
    )
    written, errno = spaced.run(program, limits=Limits(output_kb=2048)).stdout.split()
    assert (int(written) <= 16, errno) == (True, "28")
    many = "try:\n    for n in range(10**5): open(f'{folder}/{n}', 'w').close()\nexcept OSError: print(n)"
    assert int(spaced.run(SCRATCH + many).stdout) < 3000


def test_nothing_is_left_once_it_is_closed() -> None:
    sandbox = LocalSandbox(workers=1)
    if not sandbox.tier.startswith("T2"):
        pytest.skip("no namespaces here")
    pids = worker_pids(sandbox) + zygotes(sandbox)
    assert len(pids) == 2
    sandbox.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_judge_that_is_killed_leaves_nothing() -> None:
    script = (
        "from pot_agent.sandbox import LocalSandbox\n"
        "s = LocalSandbox(workers=1)\n"
        "s.run('1')\n"
        "print(*[worker._process.pid for worker in s._pool._all], flush=True)\n"
        "s.run('import time; time.sleep(60)')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT) as judge:
        assert judge.stdout is not None
        worker = int(judge.stdout.readline())
        below = descendants(worker, least=1)
        judge.send_signal(signal.SIGKILL)
    assert ends([worker, *below])


def descendants(pid: int, *, least: int) -> list[int]:
    """All processes below `pid`, once there are so many."""
    for _ in range(200):
        found, front = [], [pid]
        while front:
            front = children_of(front)
            found += front
        if len(found) >= least:
            return found
        time.sleep(0.02)
    raise AssertionError(f"fewer than {least} processes below {pid}")


def ends(pids: list[int]) -> bool:
    """Whether all of them end; they have a while."""
    for _ in range(500):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


def refusing(*numbers: int) -> str:
    """Code that has the kernel refuse these system calls, for this process and all below it."""
    return (
        "from pot_agent.sandbox import kernel, seccomp\n"
        "kernel.set_no_new_privileges()\n"
        "rules = [(0x20, 0, 0, 0)]\n"
        f"for number in {numbers!r}:\n"
        "    rules += [(0x15, 0, 1, number), (6, 0, 0, seccomp.ERRNO | 1)]\n"
        "kernel.install_filter([*rules, (6, 0, 0, seccomp.ALLOW)])\n"
        "from pot_agent.sandbox import LocalSandbox\n"
        "from pot_agent.problem import StdinTest\n"
        "def verdict(**options):\n"
        "    with LocalSandbox(workers=1, **options) as sandbox:\n"
        "        try: return sandbox.judge('print(2)', [StdinTest(input='', output='2')] * 2)\n"
        "        except OSError as error: return error\n"
    )


def answers(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_without_namespaces_it_is_t1_and_says_so() -> None:
    script = refusing(UNSHARE) + (
        "found = verdict(); print(found.verdict, found.tier)\n"
        "error = verdict(tier='T2'); print(type(error).__name__, 'unshare' in str(error), error.value)\n"
    )
    first, second = answers(script)
    assert first == f"passed {NAMES['T1']}"
    assert second.startswith("SandboxUnavailableError True {'T2': ")


def test_without_landlock_namespaces_take_its_place_if_there_are_any(spaced: LocalSandbox) -> None:
    script = refusing(CREATE_RULESET) + "found = verdict(); print(found.verdict, found.tier)\n"
    assert answers(script) == [f"passed {NAMES['T1n']}"]


def test_without_either_it_refuses_and_names_each_reason() -> None:
    script = refusing(CREATE_RULESET, UNSHARE) + (
        "error = verdict(); print(type(error).__name__, sorted(error.value), 'E2B' in str(error))\n"
        "print(verdict(unsafe=True).tier)\n"
    )
    assert answers(script) == ["SandboxUnavailableError ['T1', 'T1n', 'T2'] True", NAMES["unsafe"]]


def test_a_tier_is_asked_for_by_name() -> None:
    with LocalSandbox(workers=1, tier="T1") as sandbox:
        assert sandbox.judge("print(2 * int(input()))", TESTS).tier == NAMES["T1"]
        assert programs_of(sandbox) == []
    for wrong in ("t2", "", 2):
        with pytest.raises(ConfigError, match="T2, T1, T1n"):
            LocalSandbox(tier=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unsafe=True"):
        LocalSandbox(tier="unsafe")
    with pytest.raises(ConfigError, match="one of the two"):
        LocalSandbox(tier="T1", unsafe=True)
