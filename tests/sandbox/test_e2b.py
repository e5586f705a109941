"""E2B by its real SDK, against a small server that speaks its protocol and really runs what it is given."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.errors import CancelledError, ConfigError, MissingExtraError, SandboxError, SandboxUnavailableError
from pot_agent.problem import AssertTest, CallTest, Limits, StdinTest
from pot_agent.sandbox import Sandbox, e2b
from pot_agent.sandbox import machine as machine_module
from pot_agent.sandbox.e2b import E2BSandbox
from pot_agent.sandbox.encoding import encode
from tests.sandbox.e2b_server import KEY, E2BServer
from tests.sandbox.test_hostile import PROGRAMS, judge, right_verdicts
from tests.sandbox.test_tiers import CREATE_RULESET, ROOT, UNSHARE, refusing

DOUBLE = "print(2 * int(input()))"
TESTS = [StdinTest(input=f"{n}", output=f"{2 * n}") for n in (3, 5)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BServer]:
    pytest.importorskip("e2b_code_interpreter")
    made = E2BServer(tmp_path)
    made.environment["PATH"] = f"{Path(sys.executable).parent}:{made.environment['PATH']}"
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.setenv(name, made.url)
    monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")
    monkeypatch.setenv("E2B_API_KEY", KEY)
    monkeypatch.setattr(machine_module, "SPARE_SECONDS", 20.0)
    yield made
    made.close()


@pytest.fixture
def sandbox(server: E2BServer) -> Iterator[E2BSandbox]:
    with E2BSandbox(retry_seconds=0.01) as made:
        yield made
    assert server.alive == {}, "every machine is ended"


def test_it_judges_as_the_local_one_does(sandbox: E2BSandbox) -> None:
    assert isinstance(sandbox, Sandbox)
    judgement = sandbox.judge(DOUBLE, TESTS)
    assert (judgement.verdict, judgement.passed) == ("passed", 2)
    assert judgement.tier.startswith("E2B, T")
    assert sandbox.tier == judgement.tier
    program = "def f(x): return [x] if x else 1 // 0"
    tests = [
        CallTest(args=(1,), expected=[1]),
        CallTest(args=(0,), expected=[0]),
        AssertTest(code="y = 2\nassert f(y) == [2]"),
    ]
    results = sandbox.judge(program, tests, entry_point="f").results
    assert [result.verdict for result in results] == ["passed", "runtime_error", "passed"]
    assert "ZeroDivisionError" in results[1].error


def test_run_says_what_a_program_did(sandbox: E2BSandbox) -> None:
    result = sandbox.run("print(input()); exit(4)", stdin="hello")
    assert (result.stdout, result.exit_code) == ("hello\n", 4)
    limits = Limits(cpu_seconds=0.3, wall_seconds=1)
    assert sandbox.run("while True: pass", limits=limits).verdict == "time_limit"


@pytest.mark.parametrize("name", ["63_", "219_"])
def test_hostile_programs_have_their_verdicts_there_too(sandbox: E2BSandbox, name: str) -> None:
    entry = next(entry for entry in PROGRAMS if entry["file"].startswith(name))
    assert judge(sandbox, entry).verdict in right_verdicts(entry["verdict"])  # type: ignore[arg-type]


def test_expected_values_are_never_uploaded(sandbox: E2BSandbox, server: E2BServer) -> None:
    tests = [StdinTest(input="given", output="needle"), AssertTest(code="assert f(1) == 'needle'")]
    sandbox.judge("def f(x): pass", [*tests, CallTest(args=("given",), expected="needle")], entry_point="f")
    uploads = [upload for upload in server.uploads if not upload.startswith(b"PK")]
    assert any(b"given" in upload for upload in uploads)
    assert not any(b"needle" in upload for upload in uploads)
    assert not any("needle" in command for command in server.commands)


def test_machines_have_no_internet_and_a_lifetime(sandbox: E2BSandbox, server: E2BServer) -> None:
    sandbox.run("1")
    assert [(made["allow_internet_access"], made["timeout"]) for made in server.created] == [(False, 900)]


def test_one_machine_serves_many_programs_and_is_ended_at_the_end(server: E2BServer) -> None:
    with E2BSandbox() as sandbox:
        assert [sandbox.judge(DOUBLE, TESTS).verdict for _ in range(3)] == ["passed"] * 3
        assert len(server.created) == 1
        assert server.killed == []
    assert server.killed == ["sandbox0"]
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("1")


def test_where_the_inner_tier_is_weak_each_program_has_its_own_machine(server: E2BServer) -> None:
    script = refusing(UNSHARE, CREATE_RULESET).split("from pot_agent.sandbox import LocalSandbox")[0]
    server.wrapper = [
        sys.executable,
        "-c",
        f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\n{script}os.execvp(sys.argv[1], sys.argv[1:])",
    ]
    with E2BSandbox(retry_seconds=0.01) as sandbox:
        judgement = sandbox.judge(DOUBLE, TESTS)
        assert (judgement.verdict, judgement.tier) == ("passed", "E2B, unsafe (rlimits only)")
        assert sandbox.judge(DOUBLE, TESTS).verdict == "passed"
        assert (len(server.created), server.killed) == (2, ["sandbox0", "sandbox1"])
        checker = "def check(input, expected, output): return output.strip() == expected"
        checked = [StdinTest(input="3", output="6", checker=checker)]
        assert sandbox.judge(DOUBLE, checked).verdict == "passed"
        assert len(server.created) == 4, "a checker does not run where the program did"
    assert server.alive == {}


@pytest.mark.parametrize(
    ("where", "faults"),
    [
        ("create", [503]),
        ("upload", [500]),
        ("start", [None, "cut"]),
        ("read", [404]),
        pytest.param("create", [429, 500], marks=pytest.mark.long),
        pytest.param("upload", [507], marks=pytest.mark.long),
        pytest.param("start", [502], marks=pytest.mark.long),
        pytest.param("start", [None, 503], marks=pytest.mark.long),
        pytest.param("read", [500], marks=pytest.mark.long),
    ],
)
def test_what_goes_wrong_with_e2b_is_retried_and_never_a_verdict(
    sandbox: E2BSandbox, server: E2BServer, where: str, faults: list[object]
) -> None:
    server.faults[where] += faults
    assert sandbox.judge(DOUBLE, TESTS[:1]).verdict == "passed"
    assert server.faults[where] == []
    assert len(server.alive) == 1


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("create", 503),
        pytest.param("start", 502, marks=pytest.mark.long),
        pytest.param("read", 500, marks=pytest.mark.long),
    ],
)
def test_what_goes_on_going_wrong_is_internal(sandbox: E2BSandbox, server: E2BServer, where: str, status: int) -> None:
    server.faults[where] += [status] * 30
    result = sandbox.judge(DOUBLE, TESTS[:1]).results[0]
    assert result.verdict == "internal"
    assert result.error
    assert server.alive == {}


@pytest.mark.long
def test_a_command_that_hangs_ends_its_machine(
    sandbox: E2BSandbox, server: E2BServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.run("1")
    server.faults["start"] += ["hang"]
    monkeypatch.setattr(machine_module, "SPARE_SECONDS", 3.0)
    assert sandbox.judge(DOUBLE, TESTS[:1], limits=Limits(cpu_seconds=0.3)).verdict == "passed"
    assert server.killed == ["sandbox0"]


def test_a_machine_that_is_gone_is_replaced(sandbox: E2BSandbox, server: E2BServer) -> None:
    sandbox.run("1")
    server.alive.clear()
    assert sandbox.judge(DOUBLE, TESTS).verdict == "passed"
    assert len(server.created) == 2


def test_a_machine_near_the_end_of_its_lifetime_is_replaced(server: E2BServer) -> None:
    with E2BSandbox(lifetime_seconds=60) as sandbox:
        assert sandbox.run("1").verdict == "passed"
        next(iter(sandbox._all))._ends -= 40
        assert sandbox.run("1").verdict == "passed"
    assert server.killed == ["sandbox0", "sandbox1"]


@pytest.mark.parametrize(
    "data",
    [
        b"junk",
        encode(["T1 (x)", [b"", False, [b"", False], [], [], None]]),
        pytest.param(b"", marks=pytest.mark.long),
        pytest.param(encode(["T1", []]), marks=pytest.mark.long),
        pytest.param(encode([1, 2, 3]), marks=pytest.mark.long),
    ],
    ids=["junk", "no answer", "nothing", "no outcome", "numbers"],
)
def test_an_outcome_that_is_none_is_internal(sandbox: E2BSandbox, server: E2BServer, data: bytes) -> None:
    server.on_read = lambda _: data
    assert sandbox.judge(DOUBLE, TESTS[:1]).verdict == "internal"


def test_a_key_that_is_not_accepted_says_what_to_do(server: E2BServer) -> None:
    with E2BSandbox(api_key="e2b_" + "1" * 40) as sandbox, pytest.raises(SandboxUnavailableError, match="E2B_API_KEY"):
        sandbox.judge(DOUBLE, TESTS)


def test_without_a_key_it_says_what_to_do(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY")
    with E2BSandbox() as sandbox, pytest.raises(SandboxUnavailableError, match="E2B_API_KEY"):
        sandbox.run("1")


def test_a_template_without_python_says_what_to_do(sandbox: E2BSandbox, server: E2BServer) -> None:
    server.faults["start"] += ["no python"]
    with pytest.raises(SandboxUnavailableError, match=r"Python 3\.11"):
        sandbox.run("1")
    assert server.alive == {}


def test_cancelling_ends_the_machine(sandbox: E2BSandbox, server: E2BServer) -> None:
    cancel = threading.Event()
    threading.Timer(1.5, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        sandbox.run("import time; time.sleep(60)", limits=Limits(cpu_seconds=60), cancel=cancel)
    assert time.monotonic() - started < 30
    assert server.alive == {}


def test_no_more_machines_at_once_than_workers(server: E2BServer) -> None:
    server.most = 1
    with E2BSandbox(workers=1) as sandbox:
        threads = [threading.Thread(target=sandbox.run, args=("1",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.created) == 1


def test_a_machine_that_cannot_be_ended_is_no_error(server: E2BServer, caplog: pytest.LogCaptureFixture) -> None:
    with E2BSandbox() as sandbox:
        assert sandbox.run("1").verdict == "passed"
        server.faults["kill"] += [500] * 10
    assert "lifetime" in caplog.text


def test_bad_arguments_are_errors_at_the_door(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="workers"):
        E2BSandbox(workers=0)
    with pytest.raises(ConfigError, match="lifetime_seconds"):
        E2BSandbox(lifetime_seconds=5)
    monkeypatch.setattr(e2b, "available", lambda: False)
    with pytest.raises(MissingExtraError, match=r"policy-of-thoughts\[e2b\]"):
        E2BSandbox()
