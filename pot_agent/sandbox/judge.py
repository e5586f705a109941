"""The judge: runs a program's tests through any executor, compares outside, and says what each test found.

It alone holds expected values; what comes back from a program is plain data. The course of a judgement:
1. All tests of a kind run in one process first (isolation `program`). At the first abnormal end the rest runs in a
   fresh process. After `PATIENCE` tests in a row that hit a time limit, the others count as such without a run.
2. The first failure that was seen in a process that had run other tests is tried again alone; if it was the company
   that made it fail, everything is run again with a process per test.
3. A full pass is confirmed with a process per test, on idle workers side by side, before it is called one.
4. A failure of the sandbox itself is tried `ATTEMPTS` times, then it is `internal`.

Limit: when some tests fail, the passes of the others are those of the shared process; state kept between tests can then
help a right answer along, but only right answers count.
"""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, cast, get_args

from pot_agent.errors import CancelledError, ConfigError, PotError, ProblemError
from pot_agent.problem import AssertTest, CallTest, Limits, StdinTest, Test
from pot_agent.sandbox.assertions import bound_names, take_apart
from pot_agent.sandbox.base import Isolation, Judgement, RunResult, TestResult, Verdict
from pot_agent.sandbox.checking import checked
from pot_agent.sandbox.execution import Executor, Job, Outcome
from pot_agent.sandbox.reading import Finding, Reading, read, unreadable
from pot_agent.sandbox.separately import SetupError, finding_of, job_of
from pot_agent.sandbox.text import printable, show
from pot_agent.sandbox.units import Unit, call_unit, check_stdin, check_unit, stdin_unit

ATTEMPTS = 3
PATIENCE = 3
BATCH = 32
"""Tests that share a process at most: each needs three descriptors."""
BATCH_BYTES = 64 << 20
"""Output limits of the tests that share a process, together: what the judge may have to hold."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What all processes of one judgement have in common."""

    executor: Executor
    program: str
    setup: str
    entry_point: str | None
    limits: Limits
    cancel: Event | None = None

    def job(self, kind: Any, units: Sequence[Unit]) -> Job:
        """One process for these units."""
        if kind == "stdin":
            inputs = tuple(unit.stdin for unit in units)
            return Job(kind=kind, source=self.source, limits=self.limits, inputs=inputs)
        operations = tuple(list(unit.operation) for unit in units)
        return self.calls(operations)

    def calls(self, operations: Sequence[list[Any]]) -> Job:
        """One process that makes these calls."""
        return Job(
            kind="calls", source=self.program, setup=self.setup, limits=self.limits, operations=tuple(operations)
        )

    @property
    def source(self) -> str:
        """The program as a script, setup first."""
        return f"{self.setup}\n{self.program}" if self.setup.strip() else self.program

    def execute(self, job: Job) -> Outcome:
        """Run a job, again when the sandbox failed."""
        outcome = self.executor.execute(job, self.cancel)
        for _ in range(ATTEMPTS - 1):
            if not outcome.lost:
                break
            outcome = self.executor.execute(job, self.cancel)
        return outcome


def judge(
    executor: Executor,
    program: str,
    tests: Sequence[Test],
    *,
    entry_point: str | None,
    setup: str,
    limits: Limits,
    isolation: Isolation,
    cancel: Event | None,
) -> Judgement:
    """Run the tests and say what each found; see the module docstring."""
    _check(program, tests, isolation)
    if cancel is not None and cancel.is_set():
        raise CancelledError("judging was cancelled by its caller")
    started = time.monotonic()
    case = Case(executor=executor, program=program, setup=setup, entry_point=entry_point, limits=limits, cancel=cancel)
    results = _Course(case, tests, isolation).results()
    first: Verdict = next((result.verdict for result in results if result.verdict != "passed"), "passed")
    return Judgement(
        verdict=first,
        passed=sum(result.verdict == "passed" for result in results),
        total=len(results),
        tier=executor.tier,
        results=tuple(results),
        wall_seconds=time.monotonic() - started,
    )


def _check(program: str, tests: Sequence[Test], isolation: str) -> None:
    if not isinstance(program, str):
        raise ProblemError(f"program must be text, got {type(program).__name__}", value=program)
    if not tests:
        raise ProblemError("there are no tests to judge by; give at least one", value=tests)
    wrong = next((test for test in tests if not isinstance(test, (StdinTest, CallTest, AssertTest))), None)
    if wrong is not None:
        raise ProblemError(f"not a test: {wrong!r}; read tests with pot_agent.problem.parse_tests", value=wrong)
    if isolation not in get_args(Isolation):
        raise ConfigError(f"isolation must be one of {', '.join(get_args(Isolation))}, got {isolation!r}")


class _Course:
    """One judgement under way."""

    def __init__(self, case: Case, tests: Sequence[Test], isolation: Isolation) -> None:
        self.case, self.tests, self.isolation = case, tests, isolation
        self.in_a_row = 0
        setup_names = bound_names(case.setup)
        self.groups: dict[str, list[Unit]] = {"stdin": [], "calls": []}
        self.separate: list[int] = []
        for index, test in enumerate(tests):
            self._plan(index, test, setup_names)

    def _plan(self, index: int, test: Test, setup_names: frozenset[str]) -> None:
        if isinstance(test, StdinTest):
            self.groups["stdin"].append(stdin_unit(index, test))
        elif isinstance(test, CallTest):
            self.groups["calls"].append(call_unit(index, test, self.case.entry_point))
        else:
            check = take_apart(test.code, entry_point=self.case.entry_point, setup_names=setup_names)
            if check is None:
                self.separate.append(index)
            else:
                self.groups["calls"].append(check_unit(index, check))

    def results(self) -> list[TestResult]:
        found: dict[int, TestResult] = {}
        for kind, units in self.groups.items():
            if units:
                for unit, finding in zip(units, self._group(kind, units), strict=True):
                    found[unit.test] = _result(unit, finding)
        for index in self.separate:
            found[index] = self._run_separately(index)
        return [found[index] for index in range(len(self.tests))]

    def _run_separately(self, index: int) -> TestResult:
        code = cast(AssertTest, self.tests[index]).code
        unit = Unit(test=index, shown=printable(code), expected="", accepts=bool)
        if self.in_a_row >= PATIENCE:
            return _result(unit, _not_run(self.in_a_row))
        finding = self._separate(job_of(self.case, code))
        self._count(finding)
        return _result(unit, finding)

    def _separate(self, job: Job) -> Finding:
        outcome = self.case.execute(job)
        if outcome.lost:
            reason = outcome.answer.reason or (outcome.program.answer.reason if outcome.program is not None else "")
            return Finding(verdict="internal", error=printable(reason, 300))
        try:
            return finding_of(outcome, job)
        except SetupError as error:
            raise ProblemError(f"the problem's setup code fails: {error}", value=self.case.setup) from error

    def _group(self, kind: str, units: list[Unit]) -> list[Finding]:
        """Findings of one kind of unit, by the course that the module docstring describes."""
        if self.isolation == "test" or len(units) == 1:
            return self._run(kind, units, 1)
        before = self.in_a_row
        together = max(1, min(BATCH, BATCH_BYTES // self.case.job(kind, units[:1]).output_bytes))
        findings = self._run(kind, units, together)
        failed = next((n for n, finding in enumerate(findings) if finding.verdict != "passed"), None)
        if failed is not None:
            if failed == 0 or findings[failed].verdict in ("compile_error", "internal"):
                return findings
            after, self.in_a_row = self.in_a_row, 0
            again = self._run(kind, units[failed : failed + 1], 1)
            if again[0].verdict == findings[failed].verdict:
                self.in_a_row = after
                return findings
        self.in_a_row = before
        return self._confirm(kind, units) if failed is None else self._run(kind, units, 1)

    def _confirm(self, kind: str, units: list[Unit]) -> list[Finding]:
        """A process per test, as many at once as there are idle workers."""
        helpers = self.case.executor.spare(len(units) - 1)
        if helpers < 1:
            return self._run(kind, units, 1)
        from concurrent.futures import ThreadPoolExecutor  # a cold start has no use for it

        with ThreadPoolExecutor(1 + helpers, "confirm") as threads:
            findings = list(threads.map(lambda unit: copy(self)._run(kind, [unit], 1)[0], units))
        for finding in findings:
            self._count(finding)
        return findings

    def _run(self, kind: str, units: list[Unit], together: int) -> list[Finding]:
        findings: list[Finding] = []
        while len(findings) < len(units):
            if self.in_a_row >= PATIENCE:
                return findings + [_not_run(self.in_a_row)] * (len(units) - len(findings))
            batch = units[len(findings) : len(findings) + together]
            job = self.case.job(kind, batch)
            outcome = self.case.execute(job)
            if outcome.lost:
                lost = Finding(verdict="internal", error=printable(outcome.answer.reason, 300))
                return findings + [lost] * (len(units) - len(findings))
            reading = read(outcome, job)
            if reading.setup_error is not None:
                reading = self._setup_failed(reading.setup_error, kind)
            if reading.all_the_same:
                return findings + reading.findings * (len(units) - len(findings))
            findings += self._compared(reading.findings, batch, outcome, kind)
        return findings

    def _setup_failed(self, error: str, kind: str) -> Reading:
        """The setup is to blame only if it fails without the program too."""
        alone = replace(self.case, program="").calls([])
        again = read(self.case.execute(alone), alone)
        if again.setup_error is not None:
            raise ProblemError(f"the problem's setup code fails before any program runs: {again.setup_error}")
        return Reading(findings=[Finding(verdict="runtime_error", error=error)], all_the_same=True)

    def _compared(self, found: list[Finding], batch: list[Unit], outcome: Outcome, kind: str) -> list[Finding]:
        findings = []
        for position, (finding, unit) in enumerate(zip(found, batch, strict=False)):
            cpu = outcome.answer.cpu if len(batch) == 1 else _within(finding.cpu, outcome.answer.cpu)
            if kind == "stdin":
                data = outcome.stdouts[position].data
                finding = replace(finding, value=data.decode("utf-8", "surrogateescape"))
            finding = _safely_compared(replace(finding, cpu=cpu), unit, self.case)
            self._count(finding)
            findings.append(finding)
        return findings

    def _count(self, finding: Finding) -> None:
        self.in_a_row = self.in_a_row + 1 if finding.verdict == "time_limit" else 0


def _within(said: float, measured: float) -> float:
    """CPU seconds as the program's process said, as far as they can be true."""
    return max(0.0, min(said, measured)) if said == said else measured


def _safely_compared(finding: Finding, unit: Unit, case: Case) -> Finding:
    try:
        return _compare(finding, unit, case)
    except PotError:
        raise
    except Exception as error:
        return replace(unreadable(error), cpu=finding.cpu)


def _compare(finding: Finding, unit: Unit, case: Case) -> Finding:
    if finding.verdict != "passed":
        got = printable(finding.value) if isinstance(finding.value, str) and not unit.operation else ""
        return replace(finding, got=got)
    most = case.limits.cpu_seconds
    if finding.cpu > most:
        return replace(finding, verdict="time_limit", error=f"more than {most:g} s of CPU time")
    if unit.checked is not None:
        said = checked(case, unit.checked, str(finding.value))
        return replace(finding, verdict=said.verdict, error=said.error, got=printable(finding.value))
    got = show(finding.value) if unit.operation else printable(finding.value)
    return replace(finding, verdict="passed" if unit.accepts(finding.value) else "wrong_answer", got=got)


def _not_run(times: int) -> Finding:
    return Finding(verdict="time_limit", error=f"not run: the {times} tests before it hit a time limit")


def _result(unit: Unit, finding: Finding) -> TestResult:
    return TestResult(
        index=unit.test,
        verdict=finding.verdict,
        cpu_seconds=finding.cpu,
        input=unit.shown,
        expected=unit.expected,
        got=finding.got,
        error=finding.error,
    )


def run_once(executor: Executor, program: str, *, stdin: str, limits: Limits, cancel: Event | None) -> RunResult:
    """Run a program as a script, nothing judged."""
    check_stdin(stdin, "stdin")
    case = Case(executor=executor, program=program, setup="", entry_point=None, limits=limits, cancel=cancel)
    job = Job(kind="stdin", source=program, limits=limits, inputs=(stdin,))
    outcome = case.execute(job)
    if outcome.lost:
        finding = Finding(verdict="internal", error=printable(outcome.answer.reason, 300))
    else:
        finding = read(outcome, job).findings[0]
    stdout, stderr = outcome.stdouts[0] if outcome.stdouts else None, outcome.stderrs[0] if outcome.stderrs else None
    error = stderr.text if stderr is not None else ""
    return RunResult(
        verdict=finding.verdict,
        stdout=stdout.text if stdout is not None else "",
        stderr=error or finding.error,
        exit_code=None if finding.verdict in ("internal", "compile_error") else outcome.exit_code,
        cpu_seconds=outcome.answer.cpu,
        wall_seconds=outcome.answer.wall,
        tier=executor.tier,
        truncated=any(stream is not None and stream.over for stream in (stdout, stderr)),
    )
