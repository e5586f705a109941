"""One method on one problem: what is recorded, what is raised, and what a method can be given at all."""

from dataclasses import replace
from threading import Event
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from pot_agent import create_pot_agent
from pot_agent.bench.record import Record
from pot_agent.bench.trial import OF_THE_MACHINE, Trial, attempt, graded, lost, title_of
from pot_agent.errors import (
    CancelledError,
    ConfigError,
    DatasetError,
    DiskFullError,
    PolicyBusyError,
    PolicyUnavailableError,
    SandboxError,
    SandboxUnavailableError,
)
from pot_agent.methods.parts.passing import PassingSandbox
from pot_agent.problem import Problem
from tests.bench.running import CONFIG, GOOD, HALF, ZERO, arm, own_arm, task
from tests.fakes import ScriptedPolicy, block

PROBLEM = task(0).problem


class Broken:
    """A graph that raises."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def stream(self, *given: Any, **options: Any) -> Any:
        raise self._error


def raising(error: BaseException) -> Any:
    return lambda policy, sandbox, config: Broken(error)


def tried(sandbox: Any, *script: str, name: str = "zero_shot", **of_task: Any) -> Record:
    """A method on a task with this model, graded."""
    trial = Trial(task=task(0, **of_task), arm=arm(name), seed=0)
    made = attempt(trial.task.problem, trial.arm.method.build, trial.config, ScriptedPolicy(script), sandbox)
    return graded(trial, made, sandbox)


def test_a_method_can_be_given_a_problem_and_no_task(sandbox: Any) -> None:
    assert get_type_hints(attempt)["problem"] is Problem
    with pytest.raises(ConfigError, match="a Problem and nothing else, got Task"):
        attempt(task(0), raising(ValueError()), CONFIG, ScriptedPolicy([GOOD]), sandbox)  # type: ignore[arg-type]


def test_an_error_of_the_method_is_recorded_and_counts_as_wrong(sandbox: Any) -> None:
    made = attempt(PROBLEM, raising(ValueError("no idea")), CONFIG, ScriptedPolicy([GOOD]), sandbox)
    assert (made["error"], made["stop_reason"]) == ("ValueError: no idea", "error")
    right = {**made, "program": "def add(a, b):\n    return a + b"}
    found = graded(Trial(task=task(0), arm=arm(), seed=0), right, sandbox)  # type: ignore[arg-type]
    assert (found["hidden_passed"], found["hidden_total"]) == (2, 2)
    assert not found["correct"]
    assert not found["visible_solved"]


@pytest.mark.parametrize("error", [PolicyUnavailableError, PolicyBusyError, SandboxUnavailableError, DiskFullError])
def test_an_error_of_the_machine_is_raised(sandbox: Any, error: Any) -> None:
    assert issubclass(error, OF_THE_MACHINE)
    with pytest.raises(error):
        attempt(PROBLEM, raising(error("gone")), CONFIG, ScriptedPolicy([GOOD]), sandbox)


def test_memory_that_runs_out_is_the_machines(sandbox: Any) -> None:
    with pytest.raises(MemoryError):
        attempt(PROBLEM, raising(MemoryError()), CONFIG, ScriptedPolicy([GOOD]), sandbox)


def test_what_a_method_answers_after_it_was_cancelled_is_not_its_answer(sandbox: Any) -> None:
    cancel = Event()

    def build(policy: Any, sandbox: Any, config: Any) -> Any:
        cancel.set()
        return create_pot_agent(policy, sandbox, config=config)

    with pytest.raises(CancelledError):
        attempt(PROBLEM, build, CONFIG, ScriptedPolicy([GOOD]), sandbox, cancel)


def test_a_method_without_a_solution_is_an_error_that_says_so(sandbox: Any) -> None:
    class Silent:
        def stream(self, *given: Any, **options: Any) -> Any:
            yield "values", {"problem": "x"}

    made = attempt(PROBLEM, lambda *parts: Silent(), CONFIG, ScriptedPolicy([GOOD]), sandbox)
    assert "ended without a `solution`" in str(made["error"])


def test_right_is_what_passes_both_kinds_of_tests(sandbox: Any) -> None:
    assert tried(sandbox, GOOD)["correct"]
    fitted = tried(sandbox, block("def add(a, b):\n    return {1: 3, 2: 4}.get(a)"))
    assert fitted["visible_solved"]
    assert (fitted["correct"], fitted["hidden_passed"], fitted["verdict"]) == (False, 0, "wrong_answer")
    unseen = tried(sandbox, block("def add(a, b):\n    return a + b if a != 1 else 9"))
    assert (unseen["hidden_passed"], unseen["hidden_total"]) == (2, 2)
    assert not unseen["correct"]


def test_an_answer_without_a_program_is_wrong_and_nothing_is_run(sandbox: Any) -> None:
    class Unused(PassingSandbox):
        def judge(self, *given: Any, **asked: Any) -> Any:
            raise AssertionError("a program was run")

    trial = Trial(task=task(0), arm=arm(), seed=0)
    found = graded(trial, lost(PROBLEM, "WorkerCrashedError: killed"), Unused(sandbox))
    assert (found["verdict"], found["correct"], found["visible_total"], found["hidden_total"]) == (
        "nothing_written",
        False,
        2,
        2,
    )
    assert found["error"] == "WorkerCrashedError: killed"
    assert found["ledger"]["programs"] == 0


def test_an_answer_that_cannot_be_graded_is_an_error_and_not_a_wrong_answer(sandbox: Any) -> None:
    class Failing(PassingSandbox):
        def judge(self, *given: Any, **asked: Any) -> Any:
            raise SandboxError("it broke")

    trial = Trial(task=task(0), arm=arm("zero_shot"), seed=0)
    made = attempt(PROBLEM, trial.arm.method.build, trial.config, ScriptedPolicy([GOOD]), sandbox)
    found = graded(trial, made, Failing(sandbox))
    assert (found["error"], found["verdict"]) == ("SandboxError: it broke", "not_graded")
    nothing_to_decide = Trial(task=replace(task(0), hidden=()), arm=arm(), seed=0)
    assert str(graded(nothing_to_decide, made, sandbox)["error"]).startswith(DatasetError.__name__)


def test_a_sandbox_that_is_gone_when_an_answer_is_graded_ends_the_run(sandbox: Any) -> None:
    class Gone(PassingSandbox):
        def judge(self, *given: Any, **asked: Any) -> Any:
            raise SandboxUnavailableError("gone")

    trial = Trial(task=task(0), arm=arm("zero_shot"), seed=0)
    made = attempt(PROBLEM, trial.arm.method.build, trial.config, ScriptedPolicy([GOOD]), sandbox)
    with pytest.raises(SandboxUnavailableError):
        graded(trial, made, Gone(sandbox))


def test_a_record_has_every_field_that_the_report_reads(sandbox: Any) -> None:
    for found in (tried(sandbox, ZERO, HALF, ZERO, name="pot"), tried(sandbox, GOOD)):
        assert TypeAdapter(Record).validate_python(found) == found
    trial = Trial(task=task(0), arm=own_arm("own", raising(ValueError("x"))), seed=0)
    for made in (
        attempt(PROBLEM, trial.arm.method.build, CONFIG, ScriptedPolicy([GOOD]), sandbox),
        lost(PROBLEM, "gone"),
    ):
        TypeAdapter(Record).validate_python(graded(trial, made, sandbox))


def test_a_title_is_the_first_line_of_prose() -> None:
    text = 'import math\n\ndef area(r):\n    """ Area of a circle. """\n'
    assert title_of(Problem.parse({"problem": text})) == "Area of a circle."
    assert len(title_of(Problem.parse({"problem": "x" * 500}))) == 80
