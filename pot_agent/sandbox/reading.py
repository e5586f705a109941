"""What an outcome says about each test of a job, before anything is compared.

How the verdicts of abnormal ends are decided, in this order:
* `output_limit`: a stream, or the results, are longer than the limit (or SIGXFSZ, the signal for that);
* `time_limit`: ended by the zygote at the CPU or wall limit, or by SIGXCPU;
* `memory_limit`: an uncaught MemoryError; all processes of a program together beyond the limit; or ended by SIGKILL,
  SIGSEGV, SIGBUS or SIGABRT that the sandbox did not send while the resident size had reached `MEMORY_SHARE` of it;
* `runtime_error`: any other uncaught exception, exit status but 0, or signal; more threads than allowed; results that
  are not results.
"""

import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pot_agent.sandbox.base import Verdict
from pot_agent.sandbox.codec import CodecError, decode
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.text import printable
from pot_agent.sandbox.wire import EXIT_MEMORY, MAX_THREADS

MEMORY_SHARE = 0.8
_DEADLY = (signal.SIGSEGV, signal.SIGABRT)
FORGED = "the program wrote into the channel that carries its results"
_STATUSES = range(-(2**31), 2**31)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one test found, before the comparison (`passed`: there is something to compare) or after it."""

    verdict: Verdict
    cpu: float = 0.0
    got: str = ""
    error: str = ""
    value: Any = None
    """What a call gave, or the text of standard output."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Findings for the first tests of a job, in order; the others have to run in another process."""

    findings: list[Finding] = field(default_factory=list)
    all_the_same: bool = False
    """The one finding holds for every test: the program does not compile or load."""
    setup_error: str | None = None
    """The problem's own setup code failed, or so the process says."""


def unreadable(error: Exception) -> Finding:
    """What came from a program made its reader fail: the net under all that is read, shown or compared."""
    _log.warning("what a program left cannot be read: %s", type(error).__name__, exc_info=error)
    return Finding(verdict="runtime_error", error=FORGED)


def read(outcome: Outcome, job: Job) -> Reading:
    """Read the outcome of a `stdin` or `calls` job."""
    try:
        return _read(outcome, job)
    except Exception as error:
        return Reading(findings=[unreadable(error)])


def _read(outcome: Outcome, job: Job) -> Reading:
    frames, broken = _frames(outcome)
    match frames[0][:2] if frames else []:
        case ["compile", error]:
            return _for_all(Finding(verdict="compile_error", error=error_text(error), cpu=outcome.answer.cpu))
        case ["setup", error]:
            return Reading(setup_error=error_text(error))
        case ["crash", error]:
            return _for_all(_failed(error, outcome.answer.cpu))
    reader = _stdin_findings if job.kind == "stdin" else _call_findings
    findings, intact = reader(frames, outcome)
    if frames and frames[-1][0] == "large" and len(findings) > 1:
        return Reading(findings=findings[:-1])  # alone it may have the room that it has to share here
    findings = _with_the_end(findings, outcome, job, broken or not intact)
    return Reading(findings=findings or [Finding(verdict="runtime_error", error=FORGED)])


def _for_all(finding: Finding) -> Reading:
    return Reading(findings=[finding], all_the_same=True)


def _frames(outcome: Outcome) -> tuple[list[list[Any]], bool]:
    """The frames up to the first bytes that are none, and whether there were such bytes."""
    frames: list[list[Any]] = []
    try:
        for frame in outcome.frames():
            frames.append(frame)
    except CodecError:
        return frames, True
    return frames, False


def _stdin_findings(frames: Sequence[list[Any]], outcome: Outcome) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    for frame in frames:
        test = len(findings)
        match frame:
            case ["end", int(index), int(status), error, float(cpu)] if (
                index == test < len(outcome.stdouts) and status in _STATUSES
            ):
                if outcome.stdouts[test].over or outcome.stderrs[test].over:
                    findings.append(Finding(verdict="output_limit", cpu=cpu))
                elif status:
                    findings.append(_failed(error, cpu, status))
                else:
                    findings.append(Finding(verdict="passed", cpu=cpu))
            case _:
                return findings, False
    return findings, True


def _call_findings(frames: Sequence[list[Any]], outcome: Outcome) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    if not frames:
        return findings, True
    if frames[0] != ["loaded"]:
        return findings, False
    for frame in frames[1:]:
        if len(frame) < 2 or type(frame[1]) is not int or frame[1] != len(findings):
            return findings, False
        found = _call_finding(frame)
        if found is None:
            return findings, False
        findings.append(found)
    return findings, True


def _call_finding(frame: list[Any]) -> Finding | None:
    match frame:
        case ["value", int(), bytes(payload), bytes() | None, float(cpu)]:
            try:
                value = decode(payload)
            except CodecError:
                return None
            return Finding(verdict="passed", value=value, cpu=cpu)
        case ["raised", int(), dict(error), float(cpu)]:
            return _failed(error, cpu)
        case ["missing", int(), str(name)]:
            shown = printable(name, 100, lines=False)
            return Finding(verdict="runtime_error", error=f"no function named {shown} in the program")
        case ["large", int()]:
            return Finding(verdict="output_limit", error="the value returned is larger than the output limit")
    return None


def _failed(error: Any, cpu: float, status: int = 1) -> Finding:
    """A failure that the program's process described."""
    if isinstance(error, dict) and _kind(error) == "MemoryError":
        return Finding(verdict="memory_limit", cpu=cpu, error="MemoryError")
    text = error_text(error)
    if not text or text.startswith("SystemExit"):
        text = f"exit status {status}" if not text else f"{text} (the program ended itself)"
    return Finding(verdict="runtime_error", cpu=cpu, error=text)


def _with_the_end(findings: list[Finding], outcome: Outcome, job: Job, forged: bool) -> list[Finding]:
    """Charge an abnormal end to the test that was running, or to the last when all had reported."""
    missing = len(findings) < job.tests
    failed = bool(findings) and findings[-1].verdict != "passed"
    if failed and (job.kind == "stdin" or not missing):
        return findings  # a script's process ends at its first failure: that was the end
    end = process_end(outcome, job, test=min(len(findings), job.tests - 1))
    if end is None and forged:
        end = Finding(verdict="runtime_error", error=FORGED)
    if end is None and missing:
        end = _left_early(findings, outcome, job)
    if end is None:
        return findings
    return [*findings, end] if missing else [*findings[:-1], end]


def _left_early(findings: list[Finding], outcome: Outcome, job: Job) -> Finding | None:
    """The process ended with exit status 0 before all tests had reported."""
    if job.kind == "calls":
        if findings and findings[-1].verdict == "output_limit":
            return None
        return Finding(
            verdict="runtime_error",
            cpu=outcome.answer.cpu,
            error="the program ended its process (exit status 0) before the function returned",
        )
    if findings:
        return None  # threads were left over, say: the next test starts afresh
    return Finding(verdict="passed", cpu=outcome.answer.cpu)


def process_end(outcome: Outcome, job: Job, *, test: int = 0) -> Finding | None:
    """What the end of the process says of the test that ran; None where it ended by itself with exit status 0."""
    answer, code, cpu = outcome.answer, outcome.exit_code, outcome.answer.cpu
    streams = test if job.kind == "stdin" else 0
    over = outcome.result.over or outcome.stdouts[streams].over or outcome.stderrs[streams].over
    if over or code == -signal.SIGXFSZ:
        return Finding(verdict="output_limit", cpu=cpu, error=f"more than {job.limits.output_kb} KiB of output")
    if answer.ending == "cpu" or code == -signal.SIGXCPU:
        return Finding(verdict="time_limit", cpu=cpu, error=f"more than {job.limits.cpu_seconds:g} s of CPU time")
    if answer.ending == "wall":
        return Finding(verdict="time_limit", cpu=cpu, error=f"not done after {job.limits.wall:g} s")
    if answer.ending == "memory":
        most = f"more than {job.limits.memory_mb:g} MiB of memory, all processes together"
        return Finding(verdict="memory_limit", cpu=cpu, error=most)
    if answer.ending == "threads":
        return Finding(verdict="runtime_error", cpu=cpu, error=f"more than {MAX_THREADS} threads at once")
    if code < 0:
        return _signalled(outcome, job)
    if code:
        verdict: Literal["memory_limit", "runtime_error"] = "memory_limit" if code == EXIT_MEMORY else "runtime_error"
        return Finding(verdict=verdict, cpu=cpu, error=f"exit status {code}")
    return None


def _signalled(outcome: Outcome, job: Job) -> Finding:
    answer, code = outcome.answer, outcome.exit_code
    if code == -signal.SIGKILL and answer.cpu >= job.limits.cpu_seconds * job.tests:
        return Finding(
            verdict="time_limit", cpu=answer.cpu, error=f"more than {job.limits.cpu_seconds:g} s of CPU time"
        )
    large = answer.peak >= MEMORY_SHARE * job.limits.memory_mb * 2**20
    if large and -code in (*_DEADLY, signal.SIGKILL, getattr(signal, "SIGBUS", 7)):
        return Finding(verdict="memory_limit", cpu=answer.cpu, error=f"ended by {outcome.signal_name}, out of memory")
    return Finding(verdict="runtime_error", cpu=answer.cpu, error=f"ended by {outcome.signal_name}")


def error_text(error: Any) -> str:
    """An error description from a program's process as bounded text: type, message, lines of the program."""
    if not isinstance(error, dict):
        return ""
    kind = printable(_kind(error)[:120], 120, lines=False)
    message = error.get("message", "")
    text = f"{kind}: {printable(message, 500, lines=False)}" if isinstance(message, str) and message else kind
    frames = error.get("frames", [])
    for frame in frames[:8] if isinstance(frames, list) else []:
        match frame:
            case [int(number), str(name), str(line)] if 0 <= number < 10**7:
                where = f" in {printable(name, 80, lines=False)}" if name and name != "<module>" else ""
                text += f"\n  line {number}{where}: {printable(line, 160, lines=False)}"
    return text


def _kind(error: dict[Any, Any]) -> str:
    kind = error.get("type")
    return kind if isinstance(kind, str) else "Exception"
