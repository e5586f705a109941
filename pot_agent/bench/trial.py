"""One method on one problem with one seed: what is asked, what came back, and the record that is kept of it.

The firewall is here, in signatures: `attempt` takes a `Problem` (statement and visible tests) and never a `Task`, so
what runs inside it (graph, policy, sandbox, another machine) cannot be handed a hidden test. `graded` takes the task,
after `attempt` has returned, with a sandbox of its own whose processes no method ever uses.

Limits: a method that raises is an attempt with `error`; errors that would befall every problem alike (no policy, no
sandbox, a full disk, no memory) are raised instead, so that a broken machine is not recorded as a wrong answer.
"""

import logging
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any

from pot_agent.bench.arms import Arm
from pot_agent.bench.ledger import Meter
from pot_agent.bench.record import RECORD_VERSION, Attempt, Ledger, Record
from pot_agent.bench.task import Grade, Task
from pot_agent.bench.watching import Watched, watch
from pot_agent.config import PotConfig
from pot_agent.errors import (
    CancelledError,
    CannotLearnError,
    ClusterError,
    ConfigError,
    DiskFullError,
    DoesNotFitError,
    MissingExtraError,
    PermissionDeniedError,
    PolicyBusyError,
    PolicyUnavailableError,
    PotError,
    SandboxUnavailableError,
)
from pot_agent.methods.base import Build
from pot_agent.policy.base import Policy
from pot_agent.problem import Problem
from pot_agent.sandbox.base import Sandbox

log = logging.getLogger(__name__)

OF_THE_MACHINE = (
    CannotLearnError,
    ClusterError,
    DiskFullError,
    DoesNotFitError,
    MemoryError,
    MissingExtraError,
    PermissionDeniedError,
    PolicyBusyError,
    PolicyUnavailableError,
    SandboxUnavailableError,
)
"""Errors that say nothing of the method: they end the run, and nothing is recorded."""
NOTHING_WRITTEN = "nothing_written"
"""Verdict on an answer without a program."""
_TITLE_CHARACTERS = 80
_ERROR_CHARACTERS = 2_000

Key = tuple[str, str, int]
"""Problem, arm, seed: what a record is of. One record a key."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An entry of the plan."""

    task: Task
    arm: Arm
    seed: int

    @property
    def key(self) -> Key:
        """Problem, arm, seed."""
        return (self.task.id, self.arm.name, self.seed)

    @property
    def config(self) -> PotConfig:
        """The arm's configuration with this seed."""
        return self.arm.config.change(seed=self.seed)


def attempt(
    problem: Problem, build: Build, config: PotConfig, policy: Policy, sandbox: Sandbox, cancel: Event | None = None
) -> Attempt:
    """Run a method on a problem, counted at its two doors.

    Raises `CancelledError` when `cancel` was set (whatever the method answered then is not its answer), and the errors
    of the machine; any other error of the method is in the attempt.
    """
    if not isinstance(problem, Problem):  # the type says so too; this stands where nobody checks types
        raise ConfigError(f"a method is given a Problem and nothing else, got {type(problem).__name__}")
    meter, started = Meter(policy, sandbox), datetime.now(UTC)
    watched, error = Watched(), None
    try:
        watch(build(meter.policy, meter.sandbox, config), problem, watched, cancel=cancel)
    except (CancelledError, *OF_THE_MACHINE):
        raise
    except Exception as raised:
        log.warning("a method raised: %s", raised, exc_info=not isinstance(raised, PotError))
        error = f"{type(raised).__name__}: {raised}"[:_ERROR_CHARACTERS]
    if cancel is not None and cancel.is_set():
        raise CancelledError("cancelled; the problem is not recorded", value=title_of(problem))
    return _attempt(problem, watched, error, meter.ledger(), started)


def _attempt(problem: Problem, watched: Watched, error: str | None, ledger: Ledger, started: datetime) -> Attempt:
    solution = watched.solution
    return Attempt(
        program=str(solution.get("program", "")),
        evidence=problem.evidence,
        stop_reason="error" if error else str(solution.get("stop_reason", "")),
        iterations=int(solution.get("iterations", 0)),
        error=error,
        warnings=[str(warning) for warning in solution.get("warnings", ())],
        ledger=ledger,
        curve=watched.curve,
        tree=watched.tree,
        programs=watched.programs,
        committed_path=watched.committed_path,
        started=started.isoformat(timespec="seconds"),
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )


def lost(problem: Problem, reason: str) -> Attempt:
    """The attempt of a worker that never answered: nothing is known of it but why."""
    nothing: Any = {name: {} if name in ("seconds", "flops") else 0 for name in Ledger.__annotations__}
    return _attempt(problem, Watched(), reason[:_ERROR_CHARACTERS], nothing, datetime.now(UTC))


def graded(trial: Trial, made: Attempt, sandbox: Sandbox, cancel: Event | None = None) -> Record:
    """The record of an attempt: its answer on visible tests, on hidden ones, and by the benchmark's own grader.

    An answer that could not be graded (the sandbox failed, a test is broken) makes a record with `error`.
    """
    task = trial.task
    try:
        visible, hidden, official = _grades(task, made["program"], sandbox, cancel)
    except OF_THE_MACHINE:
        raise
    except PotError as raised:
        log.warning("%s: %s", task.id, raised)
        made = {**made, "error": made["error"] or f"{type(raised).__name__}: {raised}"[:_ERROR_CHARACTERS]}
        visible, hidden, official = _nothing(task, "not_graded")
    if cancel is not None and cancel.is_set():
        raise CancelledError("cancelled while grading; the problem is not recorded", value=task.id)
    failed = made["error"] is not None
    return Record(
        record_version=RECORD_VERSION,
        problem=task.id,
        benchmark=task.benchmark,
        title=title_of(task.problem),
        method=trial.arm.name,
        seed=trial.seed,
        digest=task.digest,
        visible_total=visible.total,
        visible_passed=visible.passed,
        visible_solved=visible.total > 0 and visible.correct and not failed,
        hidden_passed=hidden.passed,
        hidden_total=hidden.total,
        correct=visible.correct and hidden.correct and not failed,
        official=None if official is None else official and not failed,
        verdict=hidden.verdict,
        **made,
    )


Grades = tuple[Grade, Grade, bool | None]


def _grades(task: Task, program: str, sandbox: Sandbox, cancel: Event | None) -> Grades:
    from pot_agent.bench.grading import grade_hidden, official, visible

    if not program.strip():
        return _nothing(task, NOTHING_WRITTEN)
    seen = visible(task, program, sandbox, cancel)
    hidden = grade_hidden(task, program, sandbox, cancel)
    return seen, hidden, official(task, program, sandbox, cancel)


def _nothing(task: Task, verdict: str) -> Grades:
    visible, hidden = (
        Grade(passed=0, total=len(tests), verdict=verdict) for tests in (task.problem.tests, task.hidden)
    )
    return visible, hidden, None if task.official is None else False


def title_of(problem: Problem) -> str:
    """First line of the statement that is neither an import nor a signature, shortened."""
    lines = [line.strip(" #*`\t\"'") for line in problem.text.splitlines()]
    said = [line for line in lines if len(line) > 1]
    prose = [line for line in said if not line.startswith(("import ", "from ", "def ", "class ", "@"))]
    title = (prose or said or [""])[0]
    return title if len(title) <= _TITLE_CHARACTERS else title[: _TITLE_CHARACTERS - 1] + "…"
