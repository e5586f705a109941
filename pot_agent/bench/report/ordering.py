"""Whether the order of the paper's ablation held: zero-shot < PoT with k = 1 < MCTS < PoT.

The claim is three steps, each a paired comparison on the problems that all four arms have, their p-values adjusted by
Holm's rule as one family. It held where each later arm is higher; it did not hold where one is lower; else it is
undetermined, whatever order the rates happen to be in.

Limits: an arm stands for a role by its method and width alone (where there are several, the one of that plain name,
else the run's first), so a role may be played by an arm that the paper did not have. PoT with k = 1 cannot learn: its
group has no second thought to be compared with.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from typing_extensions import TypedDict

from pot_agent.bench.report.comparing import HEADLINE, Comparison, adjusted, compare
from pot_agent.bench.report.methods import is_headline, share
from pot_agent.bench.report.reading import Results
from pot_agent.bench.report.statistics import Estimate


class Ordering(TypedDict):
    """The claim on a set of problems."""

    on: str
    arms: list[str]
    """In the order that the paper found, the lowest first."""
    problems: int
    """Those that all of the arms have."""
    rates: list[Estimate]
    """pass@1 of the arms on these problems."""
    in_order: bool
    """Whether these rates rise, intervals apart."""
    steps: list[Comparison]
    """Each arm against the one before it."""
    verdict: Literal["held", "not held", "undetermined"]


def orderings(results: Results) -> list[Ordering]:
    """On all common problems, and on the headline set where that is another; nothing where an arm is missing."""
    arms = roles(results)
    if arms is None:
        return []
    common = set.intersection(*({problem for problem, _ in results.arms[arm]} for arm in arms))
    headline = {problem for (problem, _), record in results.arms[arms[0]].items() if is_headline(record)} & common
    sets = {"all common": common} | ({HEADLINE: headline} if headline != common else {})
    return [_ordering(results, arms, problems, on) for on, problems in sets.items() if problems]


def roles(results: Results) -> list[str] | None:
    """The arms that stand for zero-shot, k = 1, MCTS and PoT; None where one of them is not there."""
    of = results.method_of
    found = [
        _chosen(results, "zero_shot", lambda arm: of(arm) == "zero_shot"),
        _chosen(results, "pot:k=1", lambda arm: of(arm) == "pot" and results.width_of(arm) == 1),
        _chosen(results, "mcts", lambda arm: of(arm) == "mcts"),
        _chosen(results, "pot", lambda arm: of(arm) == "pot" and results.width_of(arm) != 1),
    ]
    known = [arm for arm in found if arm is not None]
    return known if len(known) == len(found) else None


def _chosen(results: Results, plain: str, fits: Callable[[str], bool]) -> str | None:
    fitting = [arm for arm in results.arms if fits(arm)]
    return plain if plain in fitting else next(iter(fitting), None)


def _ordering(results: Results, arms: list[str], problems: set[str], on: str) -> Ordering:
    steps = adjusted(
        [
            compare(results, later, earlier, keep=lambda cell: cell[0] in problems, on=on)
            for earlier, later in pairwise(arms)
        ]
    )
    kept = [[record for (problem, _), record in results.arms[arm].items() if problem in problems] for arm in arms]
    rates = [rate for own in kept if (rate := share(own, lambda record: record["correct"])) is not None]
    values = [rate["value"] for rate in rates]
    return Ordering(
        on=on,
        arms=arms,
        problems=len(problems),
        rates=rates,
        in_order=all(low < high for low, high in pairwise(values)),
        steps=steps,
        verdict=_verdict(steps),
    )


def _verdict(steps: list[Comparison]) -> Literal["held", "not held", "undetermined"]:
    if all(step["verdict"] == f"{step['first']} higher" for step in steps):
        return "held"
    if any(step["verdict"] == f"{step['second']} higher" for step in steps):
        return "not held"
    return "undetermined"
