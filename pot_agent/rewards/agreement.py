"""What a group is trained on where the model wrote tests of its own: visible tests first, agreement on the rest second.

A generated test is a guess, and a small model's guesses are often wrong. As in CodeT (arXiv 2207.10397) nobody vouches
for a test but the programs: it counts only while some program of the run passes it and some program does not. That
keeps out what everybody passes (it says nothing) and what nobody passes (nonsense, most often).

Limits: a wrong test that a wrong program happens to agree with still counts, so the weight must stay small; which tests
count can change as programs come, so rewards are formed anew for a whole group, never patched.
"""

from collections.abc import Sequence

from pot_agent.sandbox.base import Judgement

Marks = Sequence[bool | None]
"""One program's outcome on each generated test; None where the sandbox itself failed. Empty: not graded."""

DIGITS = 12
"""Rewards are rounded so that equal pass counts give bit-equal rewards, in whatever order they are summed: a difference
of one unit in the last place would be a group to learn from."""


def marks_of(judgement: Judgement) -> list[bool | None]:
    """The outcome on each test."""
    return [None if result.verdict == "internal" else result.verdict == "passed" for result in judgement.results]


def separating(marks: Sequence[Marks]) -> list[int]:
    """Indices of the tests that some program passed and some program did not."""
    graded = [row for row in marks if row]
    columns = range(len(graded[0])) if graded else range(0)
    return [test for test in columns if {True, False} <= {row[test] for row in graded}]


def share(marks: Marks, counting: Sequence[int]) -> float | None:
    """The share that one program passes of the tests that count; None where none does or it was not graded."""
    known = [marks[test] for test in counting if marks and marks[test] is not None]
    return sum(mark is True for mark in known) / len(known) if known else None


def shares_of(marks: Sequence[Marks]) -> list[float | None]:
    """The share of each program."""
    counting = separating(marks)
    return [share(row, counting) for row in marks]


def training_reward(visible: float, generated: float | None, weight: float) -> float:
    """`(1 - weight) * visible + weight * generated`; the visible share alone where no generated test counts."""
    return visible if generated is None else round((1.0 - weight) * visible + weight * generated, DIGITS)
