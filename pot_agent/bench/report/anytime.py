"""Series for the plots: problems solved by what was spent, and how learning went by iteration.

Limits: what a run had spent when it found its answer is known by iteration, from the record's curve. The iteration is
the first whose group holds a full reward; an answer that no group holds (a greedy commit, or a method without
iterations) is counted at the run's end, so a curve may be late and is never early. Runs end when they are solved, so
the groups of late iterations are those of hard problems: `group_reward` falls for that reason too, and `best_so_far`,
which carries each run's best on to the end, does not.
"""

from collections.abc import Callable, Iterable, Sequence
from math import fsum, isfinite
from typing import Literal

from typing_extensions import TypedDict

from pot_agent.bench.record import Curve, Record
from pot_agent.bench.report.methods import total_seconds

Quantity = Literal["tokens", "seconds"]


class Series(TypedDict):
    """Points of a line."""

    x: list[float]
    y: list[float]
    n: list[int]
    """Runs that each point is over."""


def spent(record: Record, quantity: Quantity) -> float:
    """What a whole run spent."""
    return float(record["ledger"]["completion_tokens"]) if quantity == "tokens" else total_seconds(record)


def solved_at(record: Record, quantity: Quantity) -> float:
    """What a run that passed its visible tests had spent when it did."""
    at_end = spent(record, quantity)
    first = next((step for step in record["curve"] if max(step["rewards"], default=0.0) >= 1.0), None)
    return at_end if first is None else min(float(first[quantity]), at_end)


def solved_by(records: Sequence[Record], quantity: Quantity, holds: Callable[[Record], bool]) -> Series:
    """The share of problems for which `holds`, by what a run had spent; it ends at the most that a run spent."""
    tries: dict[str, int] = {}
    for record in records:
        tries[record["problem"]] = tries.get(record["problem"], 0) + 1
    found = sorted((solved_at(r, quantity), 1 / (tries[r["problem"]] * len(tries))) for r in records if holds(r))
    points: dict[float, float] = {}
    risen = 0.0
    for at, weight in found:
        risen += weight
        points[at] = risen
    points[max(spent(record, quantity) for record in records)] = risen
    xs = sorted(points)
    return Series(x=xs, y=[min(1.0, points[x]) for x in xs], n=[len(records)] * len(xs))


def by_iteration(records: Iterable[Record], value: Callable[[Curve], float | None]) -> Series:
    """The mean over runs of a value of each iteration that has it."""
    found: dict[int, list[float]] = {}
    for record in records:
        for step in record["curve"]:
            number = value(step)
            if number is not None and isfinite(number):
                found.setdefault(step["iteration"], []).append(number)
    return _means(found)


def group_reward(step: Curve) -> float | None:
    """The mean reward of the group sampled in an iteration."""
    return fsum(step["rewards"]) / len(step["rewards"]) if step["rewards"] else None


def best_so_far(records: Sequence[Record]) -> Series:
    """The mean over runs of the best reward up to each iteration; a run that has ended keeps its own."""
    last = max((step["iteration"] for record in records for step in record["curve"]), default=0)
    found: dict[int, list[float]] = {}
    for record in records:
        by = {step["iteration"]: max(step["rewards"], default=0.0) for step in record["curve"]}
        best, end = 0.0, max(by, default=0)
        if not by:
            continue
        for iteration in range(1, last + 1):
            best = max(best, by.get(iteration, 0.0))
            if iteration >= end and record["visible_solved"]:
                best = 1.0  # a commit may have found it
            found.setdefault(iteration, []).append(best)
    return _means(found)


def _means(found: dict[int, list[float]]) -> Series:
    xs = sorted(found)
    return Series(
        x=[float(x) for x in xs], y=[fsum(found[x]) / len(found[x]) for x in xs], n=[len(found[x]) for x in xs]
    )
