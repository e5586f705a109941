"""The hostile suite can fail: against a weaker tier, a weaker comparison and a judge that does not confirm, it does."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import pot_agent
from pot_agent.errors import SandboxUnavailableError
from pot_agent.sandbox import LocalSandbox, worker
from pot_agent.sandbox.compare import Equality
from pot_agent.sandbox.judge import _Course
from tests.sandbox.test_hostile import PROGRAMS, canaries, judge, programs_of, right_verdicts
from tests.sandbox.test_tiers import ends

__all__ = ["canaries"]


PACKAGE = Path(pot_agent.__file__).parent
NO_FILTERS = ("kernel.install_filter(", "len(")
NO_LANDLOCK = ("landlock.restrict(", "int(")
NO_SCRATCH_CHECK = ("return self.scratch >= 0 and", "return False and")


def weaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Have workers run a copy of the package in which a part of the confinement is taken out."""
    shutil.copytree(PACKAGE, tmp_path / "pot_agent", ignore=shutil.ignore_patterns("__pycache__", "policy"))
    changed = tmp_path / "pot_agent" / "sandbox" / "confinement.py"
    text = changed.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    changed.write_text(text)
    monkeypatch.setattr(worker, "__file__", str(changed.with_name("worker.py")))


def entry_of(name: str) -> dict[str, str]:
    return next(entry for entry in PROGRAMS if entry["file"].startswith(name))


def test_without_isolation_the_canary_is_reached(canaries: list[str]) -> None:
    with LocalSandbox(workers=1, unsafe=True) as sandbox:
        judgement = judge(sandbox, entry_of("45_"), isolation="test")
    assert canaries != []
    assert judgement.tier == "unsafe (rlimits only)"


LEAVES_A_CHILD = "import os, time\nif os.fork() == 0: time.sleep(60)\nprint(2 * int(input()))"


def test_without_its_system_call_filters_t2_leaves_survivors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(tmp_path, monkeypatch, NO_FILTERS)
    with LocalSandbox(workers=1, tier="T2") as sandbox:
        skip_where_it_cannot_be_had(sandbox)
        assert sandbox.run(LEAVES_A_CHILD, stdin="1").verdict == "passed"
        survivors = programs_of(sandbox)
        assert len(survivors) == 1
    assert ends(survivors), "closing ends the pid namespace all the same"


def test_without_its_system_call_filters_t1_has_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(tmp_path, monkeypatch, NO_FILTERS)
    with LocalSandbox(workers=1, tier="T1") as sandbox:
        assert sandbox.run("import socket; socket.socket()").verdict == "passed"


def test_without_landlock_t1_is_no_sandbox_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canaries: list[str]
) -> None:
    weaken(tmp_path, monkeypatch, NO_LANDLOCK)
    with LocalSandbox(workers=1, tier="T1") as sandbox:
        assert judge(sandbox, entry_of("39_")).verdict == "wrong_answer"
        assert sandbox.run("print(len(open('/etc/passwd').read()))").verdict == "passed"


def test_a_tier_that_keeps_its_scratch_folder_passes_traces_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(tmp_path, monkeypatch, NO_SCRATCH_CHECK)
    with LocalSandbox(workers=1, tier="T2") as sandbox:
        skip_where_it_cannot_be_had(sandbox)
        program = (
            "import os, tempfile\npath = tempfile.gettempdir() + '/mark'\nprint(os.path.exists(path))\nopen(path, 'w')"
        )
        assert [sandbox.run(program).stdout for _ in range(2)] == ["False\n", "True\n"]


def skip_where_it_cannot_be_had(sandbox: LocalSandbox) -> None:
    try:
        sandbox.probe()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


def test_a_comparison_that_asks_the_object_is_fooled(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(self: Equality, expected: Any, got: Any) -> bool:
        return True

    monkeypatch.setattr(Equality, "same", believing)
    for name in ("57_", "58_", "83_", "213_"):
        entry = entry_of(name)
        assert judge(sandbox, entry).verdict not in right_verdicts(entry["verdict"])


def test_a_judge_that_does_not_confirm_is_fooled(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Course, "_group", lambda self, kind, units: self._run(kind, units, 32))
    assert judge(sandbox, entry_of("219_")).verdict == "passed"
    monkeypatch.undo()
    assert judge(sandbox, entry_of("219_")).verdict == "wrong_answer"
