"""Right programs pass and wrong ones do not; all a program does is a verdict; nothing passes by having no tests."""

from dataclasses import replace

import pytest

from pot_agent.bench.grading import NO_TESTS, grade_hidden, official, visible
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError, SandboxError
from pot_agent.programs import extract_program
from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox.base import Judgement, TestResult
from tests.bench.rows import all_tasks, solutions

TASKS = all_tasks()
SOLUTIONS = solutions()


def passes(task: Task, program: str, sandbox: LocalSandbox) -> tuple[bool, bool, bool | None]:
    shown, hidden = visible(task, program, sandbox), grade_hidden(task, program, sandbox)
    return shown.correct, hidden.correct, official(task, program, sandbox)


@pytest.mark.parametrize("name", TASKS)
def test_a_published_solution_passes_the_visible_the_hidden_and_the_official_tests(
    sandbox: LocalSandbox, name: str
) -> None:
    shown, hidden, said = passes(TASKS[name], SOLUTIONS[name], sandbox)
    assert (shown, hidden) == (True, True)
    assert said is True or (said is None and TASKS[name].official is None)


@pytest.mark.parametrize("name", TASKS)
def test_a_published_solution_is_found_in_an_answer_with_fences(sandbox: LocalSandbox, name: str) -> None:
    task = TASKS[name]
    answer = f"Sure!\n\n```python\n{SOLUTIONS[name].strip()}\n```\n\nFor example:\n```\n>>> 1\n```\n"
    program = extract_program(answer, task.problem).program
    assert "```" not in program
    assert visible(task, program, sandbox).correct


@pytest.mark.parametrize("number", [10, 32, 38, 50])
def test_a_function_without_the_helpers_above_its_stub_gets_them_back(sandbox: LocalSandbox, number: int) -> None:
    task = TASKS[f"HumanEval/{number}"]
    program = SOLUTIONS[task.id]
    alone = program[program.index(f"def {task.problem.entry_point}(") :]
    assert not grade_hidden(task, alone, sandbox).correct
    completed = extract_program(f"```python\n{alone}\n```", task.problem).program
    assert grade_hidden(task, completed, sandbox).correct


def test_an_import_before_the_docstring_leaves_the_stub_readable(sandbox: LocalSandbox) -> None:
    task = TASKS["HumanEval/115"]
    assert task.problem.entry_point == "max_fill"
    body = "    return sum(math.ceil(sum(row) / capacity) for row in grid)"
    answer = f"```python\ndef max_fill(grid, capacity):\n    import math\n{body}\n```"
    assert grade_hidden(task, extract_program(answer, task.problem).program, sandbox).correct


def test_several_right_answers_are_right(sandbox: LocalSandbox) -> None:
    task = TASKS["HumanEval/32"]
    other = SOLUTIONS[task.id].replace("begin, end = -1., 1.", "begin, end = -1.5, 1.25")
    assert other != SOLUTIONS[task.id]
    assert grade_hidden(task, other, sandbox).correct
    assert official(task, other, sandbox)


def test_an_entry_point_called_check_is_the_programs_own(sandbox: LocalSandbox) -> None:
    task = TASKS["MBPP/56"]
    assert passes(task, "def check(n): return 2 * int(str(n)[::-1]) - 1 == n", sandbox) == (True, True, True)
    assert passes(task, "def check(candidate): return None", sandbox) == (False, False, False)


@pytest.mark.parametrize("kind", ["sorted", "reversed", "set"])
def test_the_order_of_a_set_does_not_matter(sandbox: LocalSandbox, kind: str) -> None:
    call = {"sorted": "sorted({})", "reversed": "sorted({}, reverse=True)", "set": "{}"}[kind]
    program = f"def extract_singly(lists): return {call.format('{x for one in lists for x in one}')}"
    assert passes(TASKS["MBPP/140"], program, sandbox) == (True, True, True)


def test_floats_are_compared_as_each_benchmark_says(sandbox: LocalSandbox) -> None:
    sphere = "def volume_sphere(r): return 4.18879020 * r ** 3"
    assert passes(TASKS["MBPP/82"], sphere, sandbox) == (True, True, True)
    assert not passes(TASKS["MBPP/82"], sphere.replace("4.18", "4.28"), sandbox)[1]
    name = next(name for name in TASKS if "infinity_area" in name)
    assert grade_hidden(TASKS[name], SOLUTIONS[name].replace(".6f", ".9f"), sandbox).correct
    assert not grade_hidden(TASKS[name], SOLUTIONS[name].replace(".6f", ".1f"), sandbox).correct


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("", "runtime_error"),
        ("def remove_Occ(s:", "compile_error"),
        ("def remove_Occ(s, ch): raise SystemExit(0)", "runtime_error"),
        ("import os\nos._exit(0)", "runtime_error"),
        ("def remove_Occ(s, ch): return 9 ** 9999", "wrong_answer"),
        ("def remove_Occ(s\x00): pass", "compile_error"),
        ("class A:\n  def __eq__(self, o): return True\ndef remove_Occ(s, ch): return A()", "wrong_answer"),
    ],
)
def test_whatever_a_program_does_is_a_verdict_and_no_error(sandbox: LocalSandbox, program: str, verdict: str) -> None:
    task = TASKS["MBPP/11"]
    grade = grade_hidden(task, program, sandbox)
    assert (grade.correct, grade.total) == (False, len(task.hidden))
    assert grade.verdict == verdict
    assert official(task, program, sandbox) is False


def test_a_program_cannot_pass_by_what_the_visible_tests_tell(sandbox: LocalSandbox) -> None:
    program = 'def remove_Occ(s, ch): return "heo"'
    assert passes(TASKS["MBPP/11"], program, sandbox) == (True, False, False)


def test_an_empty_suite_is_an_error_and_not_a_pass(sandbox: LocalSandbox) -> None:
    with pytest.raises(DatasetError, match="no hidden tests"):
        grade_hidden(replace(TASKS["MBPP/11"], hidden=()), SOLUTIONS["MBPP/11"], sandbox)


def test_of_no_visible_tests_none_is_passed(sandbox: LocalSandbox) -> None:
    task = TASKS["MBPP/11"]
    task = replace(task, problem=replace(task.problem, tests=()))
    assert visible(task, SOLUTIONS[task.id], sandbox).verdict == NO_TESTS


class FailingSandbox(LocalSandbox):
    """Stands for a machine on which the sandbox itself fails."""

    def judge(self, program: str, tests: object, **options: object) -> Judgement:  # type: ignore[override]
        return Judgement(
            verdict="internal", passed=0, total=1, tier="none", results=(TestResult(index=0, verdict="internal"),)
        )


def test_a_failure_of_the_sandbox_is_never_a_grade() -> None:
    task, program = TASKS["MBPP/11"], SOLUTIONS["MBPP/11"]
    for grade in (grade_hidden, visible, official):
        with pytest.raises(SandboxError, match="run it again"):
            grade(task, program, FailingSandbox())
