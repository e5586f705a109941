"""Assertions that have to be run: what the pair of processes, program and assertion, amounts to as a finding.

Limits: the test's CPU limit holds for all its calls together; see `pot_agent.sandbox.assertion` for what an assertion
can do with results that are not plain data.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pot_agent.errors import ProblemError
from pot_agent.sandbox.assertions import bound_names, names_from_program
from pot_agent.sandbox.codec import CodecError, decode
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.reading import FORGED, Finding, error_text, process_end, read, unreadable
from pot_agent.sandbox.text import printable, show
from pot_agent.values import shorten

if TYPE_CHECKING:
    from pot_agent.sandbox.judge import Case


class SetupError(Exception):
    """The problem's own setup code fails in the assertion's process, where nothing of the program runs."""


def job_of(case: "Case", code: str) -> Job:
    """The pair of processes for one assertion."""
    names = names_from_program(code, entry_point=case.entry_point, setup_names=bound_names(case.setup))
    return Job(
        kind="assertion",
        source=code,
        program=case.program,
        setup=case.setup,
        limits=case.limits,
        names=tuple(names),
    )


def finding_of(outcome: Outcome, job: Job) -> Finding:
    """What the assertion's process says, and of the program's process how it ended.

    Raises `SetupError`, and `ProblemError` for a test that held without a word with the program.
    """
    program = outcome.program or outcome
    try:
        finding = _finding(outcome, program, job)
    except (SetupError, ProblemError):
        raise
    except Exception as error:
        finding = unreadable(error)
    return replace(finding, cpu=program.answer.cpu)


def _finding(outcome: Outcome, program: Outcome, job: Job) -> Finding:
    match _only_frame(outcome):
        case ["held", int(calls)] if outcome.exit_code == 0:
            if not calls:
                raise ProblemError(f"the test never calls the program: {shorten(job.source)}", value=job.source)
            return Finding(verdict="passed")
        case ["failed", dict(error), list(call), raised]:
            return _failed(error, call, raised)
        case ["setup", error]:
            raise SetupError(error_text(error))
        case ["opaque", str(name)]:
            shown = printable(name, 100, lines=False)
            return Finding(verdict="wrong_answer", error=f"the assertion looks into {shown}, which is not plain data")
        case ["missing", str(name)]:
            shown = printable(name, 100, lines=False)
            return Finding(verdict="runtime_error", error=f"no function named {shown} in the program")
        case ["large", _]:
            return Finding(verdict="output_limit", error="the value returned is larger than the output limit")
        case ["forged", _]:
            return Finding(verdict="runtime_error", error=FORGED)
        case ["gone", _]:
            return _program_gone(program, job)
    if program.answer.ending != "exited":
        return process_end(program, job) or Finding(verdict="runtime_error")
    if outcome.answer.ending in ("cpu", "wall"):
        return Finding(verdict="time_limit", error="the assertion did not end in time on what the program returned")
    return Finding(verdict="wrong_answer", error="the assertion could not be finished on what the program returned")


def _failed(error: dict[str, Any], call: list[Any], raised: Any) -> Finding:
    if isinstance(raised, dict):
        if raised.get("type") == "MemoryError":
            return Finding(verdict="memory_limit", error="MemoryError")
        return Finding(verdict="runtime_error", error=error_text(raised))
    got = _shown(call)
    text = error_text(error)
    if error.get("type") == "AssertionError":
        return Finding(verdict="wrong_answer", got=got, error=text.removeprefix("AssertionError").removeprefix(": "))
    return Finding(verdict="wrong_answer", got=got, error=f"the assertion raised {text}")


def _shown(call: list[Any]) -> str:
    """The last call that the assertion made, and what it gave."""
    if not call:
        return ""
    _, name, arguments, payload = call
    try:
        args, kwargs = decode(arguments, resolve=lambda index: f"<result {index}>")
        value = show(decode(payload), 500)
    except (CodecError, ValueError, TypeError):
        return ""
    given = [show(argument, 200) for argument in args] + [f"{key}={show(item, 200)}" for key, item in kwargs.items()]
    return printable(f"{name}({', '.join(given)}) returned {value}", lines=False)


def _program_gone(program: Outcome, job: Job) -> Finding:
    """The program's process ended before it had given a result, or before it had loaded."""
    serve = job.processes()[0]
    reading = read(program, serve)
    if reading.setup_error is not None:
        return Finding(verdict="runtime_error", error=reading.setup_error)
    if reading.all_the_same:
        return reading.findings[0]
    early = "the program ended its process (exit status 0) before the function returned"
    return process_end(program, serve) or Finding(verdict="runtime_error", error=early)


def _only_frame(outcome: Outcome) -> list[Any] | None:
    try:
        frames = list(outcome.frames())
    except CodecError:
        return None
    return frames[0] if len(frames) == 1 else None
