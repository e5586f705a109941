"""What each method did: pass@1 with its interval, the visible-hidden gap, and what it spent.

pass@1 is the share of problems whose one answer passes every hidden test and every visible one. A record that ended in
an error counts as not solved. Where there are several seeds, a problem's value is its mean over them.

Limits: peak memory is that of the runner's process so far, so methods that shared a process share it; seconds depend on
what else ran on the machine at the time, other problems of the same run among it. By what budgets were matched is the
sum over common problems (`pot_agent/bench/matching.py`); what is shown as spent is a mean over each method's problems.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

from typing_extensions import TypedDict

from pot_agent.bench.matching import QUANTITIES, matched_by
from pot_agent.bench.record import Record
from pot_agent.bench.report.reading import Cell, Results
from pot_agent.bench.report.statistics import Estimate, estimate

HEADLINE_TESTS = 3
"""Visible tests that a problem of the headline set has at least: with one, nothing can be learned."""

SPENT: dict[str, Callable[[Record], float | None]] = {
    "programs": lambda record: record["ledger"]["programs"],
    "tokens": lambda record: record["ledger"]["prompt_tokens"] + record["ledger"]["completion_tokens"],
    "completion_tokens": lambda record: record["ledger"]["completion_tokens"],
    "prompt_tokens": lambda record: record["ledger"]["prompt_tokens"],
    "seconds": lambda record: total_seconds(record),
    "flops": lambda record: record["ledger"]["flops"].get("total"),
}
"""What a method may spend, by the names that the report uses."""


class MethodRow(TypedDict):
    """One line of the table of methods; what is spent is a mean over problems."""

    arm: str
    method: str
    learns: bool
    problems: int
    records: int
    seeds: list[int]
    missing: int
    """Problems that other methods were tried on, or that the run planned, and this one was not."""
    missing_records: int
    """Pairs of a problem and a seed, likewise."""
    pass_at_1: Estimate
    official: Estimate | None
    """By the benchmark's own grader, over the problems that it graded."""
    visible_solved: Estimate
    gap: Estimate
    """Problems whose answer passes every visible test and not every hidden one."""
    headline: Estimate | None
    """pass@1 on the problems with three or more visible tests."""
    updates: float
    updates_made: int
    """In all."""
    updated_problems: int
    """Problems with at least one update."""
    skipped: dict[str, int]
    """Groups that moved no weight, by the reason."""
    spent: dict[str, float | None]
    peak_mb: float
    errors: int


def total_seconds(record: Record) -> float:
    """Wall seconds of a run, grading not counted."""
    seconds = record["ledger"]["seconds"]
    return seconds["total"] if "total" in seconds else fsum(seconds.values())


def by_problem(records: Iterable[Record], value: Callable[[Record], float | None]) -> dict[str, float]:
    """A value of each problem, averaged over its seeds; problems without one are left out."""
    found: dict[str, list[float]] = {}
    for record in records:
        number = value(record)
        if number is not None:
            found.setdefault(record["problem"], []).append(float(number))
    return {problem: fsum(numbers) / len(numbers) for problem, numbers in found.items()}


def share(records: Sequence[Record], value: Callable[[Record], bool | None]) -> Estimate | None:
    """The share of problems for which it holds; None where it is known for none."""
    known = [record for record in records if value(record) is not None]
    values = by_problem(known, value)
    return estimate(list(values.values()), repeated=len(known) > len(values)) if values else None


def mean(values: Mapping[str, float]) -> float | None:
    """The mean over problems."""
    return fsum(values.values()) / len(values) if values else None


def is_headline(record: Record) -> bool:
    """Whether the problem has as many visible tests as learning needs."""
    return record["visible_total"] >= HEADLINE_TESTS


def method_rows(results: Results) -> list[MethodRow]:
    """A row for each arm, in the runs' order."""
    return [_row(results, arm, _expected(results, arm)) for arm in results.arms]


def _expected(results: Results, arm: str) -> set[Cell]:
    """What the run planned for an arm, and what any arm was tried on, with this one's seeds."""
    planned = results.planned.get(arm, set())
    seeds = {seed for _, seed in (*planned, *results.arms[arm])}
    tried = {problem for cells in results.arms.values() for problem, _ in cells}
    return planned | {(problem, seed) for problem in tried for seed in seeds}


def _row(results: Results, arm: str, expected: set[Cell]) -> MethodRow:
    cells = results.arms[arm]
    records = list(cells.values())
    problems = {problem for problem, _ in cells}
    updates = by_problem(records, lambda record: record["ledger"]["updates"])
    return MethodRow(
        arm=arm,
        method=results.method_of(arm),
        learns=results.learns(arm),
        problems=len(problems),
        records=len(records),
        seeds=sorted({seed for _, seed in cells}),
        missing=len({problem for problem, _ in expected} - problems),
        missing_records=len(expected - cells.keys()),
        pass_at_1=_known(share(records, lambda record: record["correct"])),
        official=share(records, lambda record: record["official"]),
        visible_solved=_known(share(records, lambda record: record["visible_solved"])),
        gap=_known(share(records, lambda record: record["visible_solved"] and not record["correct"])),
        headline=share([record for record in records if is_headline(record)], lambda record: record["correct"]),
        updates=mean(updates) or 0.0,
        updates_made=sum(record["ledger"]["updates"] for record in records),
        updated_problems=sum(count > 0 for count in updates.values()),
        skipped=dict(Counter(_reason(step["skipped"]) for r in records for step in r["curve"] if step["skipped"])),
        spent={name: mean(by_problem(records, value)) for name, value in SPENT.items()},
        peak_mb=max(record["ledger"]["peak_mb"] for record in records),
        errors=sum(record["error"] is not None for record in records),
    )


def _reason(skipped: str | None) -> str:
    """Without the figures of the one case, which come after a colon."""
    return (skipped or "").partition(":")[0].strip()


def _known(found: Estimate | None) -> Estimate:
    if found is None:
        raise AssertionError("an arm without records was not left out")  # read_runs leaves it out
    return found


class Spending(TypedDict):
    """What a method spent in all as a multiple of the baseline's, over the problems and seeds that both have."""

    arm: str
    records: int
    """Problems and seeds that both have."""
    ratios: dict[str, float | None]
    """By quantity of `pot_agent.bench.matching`; None where one is unknown or nothing was spent."""
    matched: list[str]
    """Quantities within 10 % of the baseline's."""


def spending(results: Results, baseline: str) -> list[Spending]:
    """How far the methods' real spending differs from the baseline's."""
    return [_spending(results, arm, baseline) for arm in results.arms]


def _spending(results: Results, arm: str, baseline: str) -> Spending:
    found = matched_by([record for name in dict.fromkeys((arm, baseline)) for record in results.arms[name].values()])
    own, base = dict(found["totals"][arm]), dict(found["totals"][baseline])
    ratios = {name: _ratio(own[name], base[name]) for name in QUANTITIES}
    return Spending(arm=arm, records=found["problems"], ratios=ratios, matched=found["matched"])


def _ratio(own: object, base: object) -> float | None:
    known = isinstance(own, (int, float)) and isinstance(base, (int, float))
    return float(own) / float(base) if known and base else None  # type: ignore[arg-type]
