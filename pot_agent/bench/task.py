"""One problem of a benchmark: what a solver may see, and what only the runner's process may.

`Task.problem` goes to the graph. `Task.hidden` and `Task.official` never do: they are run on the answer after the graph
has ended, and neither is shown by `repr`, so that a log line cannot carry them out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

from pot_agent.problem import Limits, Problem, Test
from pot_agent.sandbox.base import Sandbox

Kind = Literal["function", "stdin"]


@dataclass(frozen=True, kw_only=True)
class Grade:
    """What hidden tests found of one answer."""

    passed: int
    total: int
    """At least 1: an empty suite is an error, never a pass."""
    verdict: str
    """`passed`, or the verdict of the first test that did not pass."""

    @property
    def correct(self) -> bool:
        """Whether every hidden test passed."""
        return self.passed == self.total


Grader = Callable[[str, Sandbox, Event | None], Grade]
"""Grades a program by a benchmark's own published rule."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A problem, the tests that decide whether its answer is right, and where it comes from."""

    id: str
    """As the benchmark names it, such as `HumanEval/16`."""
    benchmark: str
    """Name of the data set in `pot_agent.bench.datasets`, such as `humaneval`."""
    kind: Kind
    problem: Problem
    """Statement and visible tests: all that a method sees."""
    hidden: Sequence[Test] = field(repr=False)
    """Tests that decide; none of them is also visible. A large suite is read when it is asked for, and not kept."""
    hidden_setup: str = field(default="", repr=False)
    """Code that hidden tests need before the program (imports, mostly)."""
    hidden_limits: Limits = field(default_factory=Limits)
    official: Grader | None = field(default=None, repr=False)
    """The benchmark's own grader, where it differs from running `hidden`."""
    tags: tuple[str, ...] = ()
    digest: str
    """SHA-256 of the row that it was read from, hexadecimal."""
    note: str = ""
