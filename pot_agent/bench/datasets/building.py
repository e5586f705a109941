"""From tests to a task: what a solver sees, what decides, and that the two have nothing in common.

The firewall stands here: a hidden test that repeats a visible one is dropped, and a task without a hidden test is an
error. Where the visible tests repeat every hidden one, the last hidden test stays hidden and its twin is not shown.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, TypeVar

from pot_agent.bench.datasets.asserts import contradicts, normalised, repeats
from pot_agent.bench.datasets.base import digest_of
from pot_agent.bench.task import Grade
from pot_agent.errors import DatasetError, ProblemError
from pot_agent.problem import AssertTest, CallTest, Evidence, Limits, Problem, StdinTest, Test, parse_tests
from pot_agent.sandbox.base import Sandbox
from pot_agent.testcases import test_to_dict
from pot_agent.values import encode_value

T = TypeVar("T")


@dataclass(frozen=True)
class Whole:
    """A benchmark's published grader: all of its assertions together, in one namespace, pass or fail."""

    code: str
    entry_point: str
    setup: str
    limits: Limits

    def __call__(self, program: str, sandbox: Sandbox, cancel: Event | None) -> Grade:
        """Grade a program."""
        test = AssertTest(code=self.code)
        judgement = sandbox.judge(
            program, [test], entry_point=self.entry_point, setup=self.setup, limits=self.limits, cancel=cancel
        )
        return Grade(passed=judgement.passed, total=judgement.total, verdict=judgement.verdict)


def separate_assertions(
    shown: Sequence[str], graded: Sequence[str], entry_point: str, where: str
) -> tuple[list[str], list[str]]:
    """Visible and hidden assertions: a wrong example is not shown, and what is shown is not hidden as well."""
    visible = [code for code in dict.fromkeys(shown) if not contradicts(code, graded, entry_point)]
    return _separate(visible, _once(graded, normalised), lambda code, others: repeats(code, others, entry_point), where)


def separate_tests(shown: Sequence[Test], graded: Sequence[Test], where: str) -> tuple[list[Test], list[Test]]:
    """Visible and hidden tests of a program's input, or of a call."""
    return _separate(
        shown, _once(graded, _question), lambda test, others: _question(test) in map(_question, others), where
    )


def _once(tests: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """The first of those that ask the same."""
    first: dict[Hashable, T] = {}
    for test in tests:
        first.setdefault(key(test), test)
    return list(first.values())


def _separate(
    shown: Sequence[T], graded: Sequence[T], repeated: Callable[[T, Sequence[T]], bool], where: str
) -> tuple[list[T], list[T]]:
    if not graded:
        raise DatasetError(
            f"{where}: no hidden tests, so nothing decides whether an answer is right; add some, or leave the row out",
            value=where,
        )
    hidden = [test for test in graded if not repeated(test, shown)]
    if hidden:
        return list(shown), hidden
    kept = graded[-1]
    return [test for test in shown if not repeated(test, [kept])], [kept]


def _question(test: Test) -> Hashable:
    """What a test asks, without the answer that it expects."""
    if isinstance(test, StdinTest):
        return "stdin", "\n".join(line.rstrip() for line in test.input.strip().splitlines())
    if isinstance(test, CallTest):
        return "call", digest_of(encode_value(list(test.args)), encode_value(dict(test.kwargs)))
    return "assert", normalised(test.code)


def problem_of(
    text: str,
    visible: Sequence[Any],
    where: str,
    *,
    entry_point: str | None = None,
    starter_code: str = "",
    setup: str = "",
    limits: Limits | None = None,
    evidence: Evidence = "given",
) -> Problem:
    """A problem as the graph will read it. Raises `DatasetError` with where the row stands."""
    given = {"problem": text, "entry_point": entry_point, "starter_code": starter_code, "setup": setup}
    try:
        tests = parse_tests([test if isinstance(test, str) else test_to_dict(test) for test in visible])
        problem = Problem.parse(given, tests=tests or None, limits=limits, evidence=evidence if tests else None)
    except ProblemError as error:
        raise DatasetError(f"{where}: {error}", value=error.value) from error
    # Examples that the statement shows and the data set does not count are no tests of this task.
    return problem if tests else replace(problem, tests=(), evidence="none", entry_point=entry_point)


def assertions(codes: Sequence[str], where: str) -> tuple[Test, ...]:
    """Assertions as tests. Raises `DatasetError` with where the row stands."""
    try:
        return parse_tests(list(codes))
    except ProblemError as error:
        raise DatasetError(f"{where}: {error}", value=error.value) from error
