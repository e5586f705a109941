"""Every hostile and awkward program gets its right verdict, and the machine is as it was afterwards."""

import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.errors import SandboxUnavailableError
from pot_agent.problem import CallTest, Limits, StdinTest, Test
from pot_agent.sandbox import Judgement, LocalSandbox
from pot_agent.sandbox.feedback import feedback

HERE = Path(__file__).parent
PROGRAMS = [
    program
    for folder in ("hostile", "hostile/more")
    for program in (entry | {"folder": folder} for entry in json.loads((HERE / folder / "index.json").read_text()))
]
VERDICTS = {
    "PASS": "passed",
    "WA": "wrong_answer",
    "TLE": "time_limit",
    "MLE": "memory_limit",
    "OLE": "output_limit",
    "RE": "runtime_error",
    "CE": "compile_error",
}
NUMBERS = (1, 21, -5)
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=5.0, memory_mb=512)
ENDLESS = Limits(cpu_seconds=0.3, wall_seconds=0.8, memory_mb=512)
"""For programs that never end by themselves."""
UNHURRIED = Limits(cpu_seconds=2.0, memory_mb=512)
PLAIN = next(entry for entry in PROGRAMS if entry["file"] == "91_ok_plain.py")
CANARY = Path("/tmp/sandbox_canary")


def right_verdicts(described: str) -> set[str]:
    """`RE or TLE, host unharmed` -> the verdicts that are right."""
    words = re.findall(r"\b(PASS|WA|TLE|MLE|OLE|RE|CE)\b", re.sub(r"never PASS|\(PASS[^)]*\)", "", described))
    return {VERDICTS[word] for word in words}


def doubling_tests(kind: str) -> list[Test]:
    if kind == "stdin":
        return [StdinTest(input=f"{n}\n", output=f"{2 * n}\n", compare="lcb") for n in NUMBERS]
    return [CallTest(args=(n,), expected=2 * n) for n in NUMBERS]


def source_of(entry: dict[str, str]) -> str:
    return (HERE / entry["folder"] / entry["file"]).read_bytes().decode("utf-8", "surrogateescape")


def judge(sandbox: LocalSandbox, entry: dict[str, str], *, isolation: str = "program") -> Judgement:
    right = right_verdicts(entry["verdict"])
    limits = ENDLESS if "time_limit" in right and "memory_limit" not in right else LIMITS
    limits = UNHURRIED if "slow" in entry["file"] or "memory_limit" in right else limits
    return sandbox.judge(
        source_of(entry),
        doubling_tests(entry["kind"])[: 1 if limits is not LIMITS else 3],
        entry_point="solve" if entry["kind"] == "call" else None,
        limits=limits,
        isolation=isolation,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def canaries() -> Iterator[list[str]]:
    """Files and listeners that no program may reach; the list fills with whatever did."""
    CANARY.mkdir(exist_ok=True)
    (CANARY / "file").write_text("canary")
    reached: list[str] = []
    listeners = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    listeners[1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bind(listeners[0], "\0sandbox-canary")
    _bind(listeners[1], ("127.0.0.1", 39999))
    for listener in listeners:
        listener.listen()
        threading.Thread(target=_accept, args=(listener, reached), daemon=True).start()
    yield reached
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    (CANARY / "file").unlink(missing_ok=True)
    CANARY.rmdir()


def _bind(listener: socket.socket, address: str | tuple[str, int]) -> None:
    """Bind, waiting for another run of these tests on the same machine to be done."""
    for _ in range(600):
        try:
            return listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.1)
    raise AssertionError(f"{address!r} stays in use")


def _accept(listener: socket.socket, reached: list[str]) -> None:
    try:
        while True:
            listener.accept()[0].close()
            reached.append(str(listener.family))
    except OSError:
        return


@pytest.fixture(scope="module", params=["T1", "T2", pytest.param("T1n", marks=pytest.mark.long)])
def sandbox(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """One worker of each tier that this machine's kernel offers."""
    with LocalSandbox(workers=1, tier=request.param) as made:
        try:
            made.probe()
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield made


@pytest.mark.parametrize("entry", PROGRAMS, ids=[entry["file"].removesuffix(".py") for entry in PROGRAMS])
def test_a_hostile_program_gets_its_right_verdict(
    sandbox: LocalSandbox, canaries: list[str], entry: dict[str, str]
) -> None:
    judgement = judge(sandbox, entry)
    assert judgement.verdict in right_verdicts(entry["verdict"]), judgement
    assert judgement.tier == sandbox.tier
    assert canaries == []
    assert (CANARY / "file").read_text() == "canary"
    assert programs_of(sandbox) == []
    told = feedback(judgement, max_characters=800)
    assert len(told) <= 800
    assert all(character.isprintable() or character == "\n" for character in told)


def test_the_next_program_is_as_before(sandbox: LocalSandbox) -> None:
    assert judge(sandbox, PLAIN).verdict == "passed"


def worker_pids(sandbox: LocalSandbox) -> list[int]:
    return [worker._process.pid for worker in sandbox._pool._all]


def programs_of(sandbox: LocalSandbox) -> list[int]:
    """Living processes below the warm ones: there must be none between two runs."""
    standing_by = sandbox.tier.startswith(("T2", "T1n"))
    warm = children_of(worker_pids(sandbox)) if standing_by else worker_pids(sandbox)
    return children_of(warm)


def children_of(parents: list[int]) -> list[int]:
    """Living processes whose parent, or session, is one of `parents`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) in parents and fields[0] != "Z":
                found.append(int(entry))
    return found
