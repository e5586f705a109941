"""The sandbox contract: programs and inputs go in; outputs, values and resource use come out.

Expected values never enter a program's process. A sandbox *runs* (`run`); the judge, which alone holds expected values,
stands outside and *judges* (`judge`), by the same code for every sandbox.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from threading import Event
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pot_agent.problem import Limits, Test

Verdict = Literal[
    "passed",
    "wrong_answer",
    "time_limit",
    "memory_limit",
    "output_limit",
    "runtime_error",
    "compile_error",
    "internal",
]
"""`internal` is the sandbox's own failure: retried, and never scored against a program."""

Isolation = Literal["program", "test"]
"""`program`: all tests of a program in one process first (a full pass is confirmed with a process per test);
`test`: a process per test from the start."""


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """What one test found. All text is bounded, printable and escaped: a program's output is data, never a message."""

    __test__ = False  # not a test case, whatever pytest thinks of its name

    index: int
    verdict: Verdict
    cpu_seconds: float = 0.0
    input: str = ""
    """What the program was given: standard input, the call, or the assertion's text."""
    expected: str = ""
    got: str = ""
    error: str = ""
    """Exception type and message, and the last frames of the program itself, where it failed with one."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A program's result over a list of tests."""

    verdict: Verdict
    """`passed`, or the verdict of the first test that did not pass."""
    passed: int
    total: int
    tier: str
    """The isolation tier that it ran under."""
    results: tuple[TestResult, ...] = ()
    wall_seconds: float = 0.0

    @property
    def first_failure(self) -> TestResult | None:
        """The first test that did not pass, if any."""
        return next((result for result in self.results if result.verdict != "passed"), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one program did with one standard input; nothing was judged."""

    verdict: Verdict
    """`passed` here means: exited with status 0 within its limits."""
    stdout: str
    stderr: str
    exit_code: int | None
    """Exit status; negative for a signal; None where the program never started."""
    cpu_seconds: float
    wall_seconds: float
    tier: str
    truncated: bool = field(default=False)
    """Whether stdout or stderr was cut at the output limit."""


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs nobody trusts. Thread-safe: calls from several threads run side by side. A context manager."""

    @property
    def tier(self) -> str:
        """Name of the isolation tier, such as `T1 (landlock + seccomp + rlimits)`."""
        ...

    @property
    def workers(self) -> int:
        """How many programs it runs side by side."""
        ...

    def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        limits: Limits | None = None,
        isolation: Isolation = "program",
        cancel: Event | None = None,
    ) -> Judgement:
        """Run `program` on every test and compare outside. An empty list of tests is a `ProblemError`."""
        ...

    def run(
        self, program: str, *, stdin: str = "", limits: Limits | None = None, cancel: Event | None = None
    ) -> RunResult:
        """Run `program` once as a script."""
        ...

    def close(self) -> None:
        """End all helper processes. Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
