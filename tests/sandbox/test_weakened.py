"""The hostile suite can fail: against a weaker tier, a weaker comparison and a judge that does not confirm, it does."""

from typing import Any

import pytest

from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox.compare import Equality
from pot_agent.sandbox.judge import _Course
from tests.sandbox.test_hostile import PROGRAMS, canaries, judge, right_verdicts

__all__ = ["canaries"]


def entry_of(name: str) -> dict[str, str]:
    return next(entry for entry in PROGRAMS if entry["file"].startswith(name))


def test_without_isolation_the_canary_is_reached(canaries: list[str]) -> None:
    with LocalSandbox(workers=1, unsafe=True) as sandbox:
        judgement = judge(sandbox, entry_of("45_"), isolation="test")
    assert canaries != []
    assert judgement.tier == "unsafe (rlimits only)"


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
