"""Whether an answer is right: its program on the tests that no solver saw, and on those that it did.

A program cannot make grading fail: whatever it does is a verdict. What is not the program's fault is an error: a task
without hidden tests (`DatasetError`), tests that are broken (`ProblemError`), a sandbox that fails (`SandboxError`).
"""

from collections.abc import Sequence
from threading import Event

from pot_agent.bench.task import Grade, Task
from pot_agent.errors import DatasetError, SandboxError
from pot_agent.problem import Limits, Test
from pot_agent.sandbox.base import Sandbox

NO_TESTS = "no_tests"
"""Verdict on visible tests where a task shows none."""


def grade_hidden(task: Task, program: str, sandbox: Sandbox, cancel: Event | None = None) -> Grade:
    """Run a program on the hidden tests, each in a process of its own wherever it passes them all."""
    tests = tuple(task.hidden)
    if not tests:
        raise DatasetError(f"{task.id} has no hidden tests, so nothing can be said of an answer", value=task.id)
    setup = "\n".join(part for part in (task.problem.setup, task.hidden_setup) if part.strip())
    return _graded(task, program, tests, sandbox, setup=setup, limits=task.hidden_limits, cancel=cancel)


def visible(task: Task, program: str, sandbox: Sandbox, cancel: Event | None = None) -> Grade:
    """Run a program on the visible tests; of none, none is passed."""
    problem = task.problem
    if not problem.tests:
        return Grade(passed=0, total=0, verdict=NO_TESTS)
    limits = problem.limits or Limits()
    return _graded(task, program, problem.tests, sandbox, setup=problem.setup, limits=limits, cancel=cancel)


def official(task: Task, program: str, sandbox: Sandbox, cancel: Event | None = None) -> bool | None:
    """What the benchmark's own grader says; None where it has none but the hidden tests."""
    if task.official is None:
        return None
    grade = task.official(program, sandbox, cancel)
    _check_sandbox(task, grade.verdict)
    return grade.correct


def _graded(
    task: Task,
    program: str,
    tests: Sequence[Test],
    sandbox: Sandbox,
    *,
    setup: str,
    limits: Limits,
    cancel: Event | None,
) -> Grade:
    judgement = sandbox.judge(
        program, tests, entry_point=task.problem.entry_point, setup=setup, limits=limits, cancel=cancel
    )
    for result in judgement.results:
        _check_sandbox(task, result.verdict)
    return Grade(passed=judgement.passed, total=judgement.total, verdict=judgement.verdict)


def _check_sandbox(task: Task, verdict: str) -> None:
    if verdict == "internal":
        raise SandboxError(f"the sandbox failed on {task.id}; nothing was graded: run it again", value=task.id)
