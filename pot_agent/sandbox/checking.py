"""A test's own checker: it decides in a sandboxed process of its own, which never is, or was, the program's.

Limits first: a checker is the problem's code and is believed; it gets the output as text, nothing else of the program.
Whatever it does but return True is no pass: an exception, or too much time on this output, is a wrong answer; a
checker that returns no bool, or does not load, is the problem's fault.
"""

from typing import TYPE_CHECKING

from pot_agent.errors import ProblemError
from pot_agent.problem import StdinTest
from pot_agent.sandbox.encoding import encode
from pot_agent.sandbox.execution import Job
from pot_agent.sandbox.reading import Finding, read
from pot_agent.sandbox.text import printable, show

if TYPE_CHECKING:
    from pot_agent.sandbox.judge import Case

FUNCTION = "check"


def checked(case: "Case", test: StdinTest, output: str) -> Finding:
    """What the checker says of an output."""
    arguments = encode([[test.input, test.output, output], {}])
    operation = ["call", -1, FUNCTION, arguments, False]
    job = Job(kind="calls", source=test.checker, limits=case.limits, operations=(operation,))
    outcome = case.execute(job)
    if outcome.lost:
        return Finding(verdict="internal", error=printable(outcome.answer.reason, 300))
    reading = read(outcome, job)
    finding = reading.findings[0]
    if reading.all_the_same or finding.error.startswith("no function named"):
        raise ProblemError(f"the checker does not load: {finding.error}", value=test.checker)
    if finding.verdict != "passed":
        return Finding(verdict="wrong_answer", error=f"the checker did not finish on it: {finding.error}")
    if not isinstance(finding.value, bool):
        raise ProblemError(f"the checker must return True or False, got {show(finding.value, 100)}", value=test.checker)
    return Finding(verdict="passed" if finding.value else "wrong_answer")
