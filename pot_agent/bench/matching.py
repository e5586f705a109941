"""By what the budgets of methods were matched: what each spent in all, side by side.

Only problems that every method has are summed, so that totals compare. That budgets *allow* equally much is
configuration (`pot_agent/bench/arms.py`); what was *spent* differs where a method solves problems early: here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from pot_agent.bench.record import Ledger, Record

QUANTITIES = ("programs", "tokens", "flops", "seconds")
WITHIN = 1.1
"""Totals whose largest is at most so many times the smallest count as matched."""


class Spent(TypedDict):
    """One method's totals over the problems that all methods have."""

    records: int
    calls: int
    programs: int
    tests: int
    prompt_tokens: int
    completion_tokens: int
    commit_tokens: int
    update_steps: int
    tokens: int
    """Prompt and completion tokens."""
    flops: float | None
    """None where the model's size is unknown."""
    seconds: float
    """Wall seconds, summed over problems (with several at once, more than passed on the clock)."""


class Matching(TypedDict):
    """What `matched_by` finds."""

    problems: int
    """Problems and seeds that every method has."""
    totals: dict[str, Spent]
    ratios: dict[str, float | None]
    """Largest total over the smallest, by quantity; None where one is unknown or zero."""
    matched: list[str]
    """Quantities within `WITHIN` of one another."""


def matched_by(records: Sequence[Record]) -> Matching:
    """Totals by method of programs, tokens, FLOPs and seconds, and by which of them the methods are matched."""
    by_method: dict[str, dict[tuple[str, int], Ledger]] = {}
    for record in records:  # of a problem that was run again, the last counts
        by_method.setdefault(record["method"], {})[record["problem"], record["seed"]] = record["ledger"]
    common = set.intersection(*map(set, by_method.values())) if by_method else set()
    totals = {
        method: spent([ledger for key, ledger in ledgers.items() if key in common])
        for method, ledgers in by_method.items()
    }
    ratios = {quantity: _ratio(totals, quantity) for quantity in QUANTITIES}
    matched = [name for name, ratio in ratios.items() if len(totals) > 1 and ratio is not None and ratio <= WITHIN]
    return Matching(problems=len(common), totals=totals, ratios=ratios, matched=matched)


def spent(ledgers: Sequence[Ledger]) -> Spent:
    """The sum of ledgers."""

    def total(name: str) -> int:
        figures: Sequence[Mapping[str, Any]] = ledgers
        return sum(int(ledger[name]) for ledger in figures)

    flops = [ledger["flops"].get("total") for ledger in ledgers]
    known = [value for value in flops if value is not None]
    return Spent(
        records=len(ledgers),
        calls=total("calls"),
        programs=total("programs"),
        tests=total("tests"),
        prompt_tokens=total("prompt_tokens"),
        completion_tokens=total("completion_tokens"),
        commit_tokens=total("commit_tokens"),
        update_steps=total("update_steps"),
        tokens=total("prompt_tokens") + total("completion_tokens"),
        flops=sum(known) if len(known) == len(flops) else None,
        seconds=sum(ledger["seconds"].get("total", 0.0) for ledger in ledgers),
    )


def _ratio(totals: Mapping[str, Spent], quantity: str) -> float | None:
    values: list[float | None] = [dict(total)[quantity] for total in totals.values()]  # type: ignore[misc]
    if not values or not all(values):
        return None
    known = [float(value) for value in values if value is not None]
    return max(known) / min(known)
