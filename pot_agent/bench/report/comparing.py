"""Methods in pairs, on the problems that both were tried on.

A problem's difference is that of the two methods' means over seeds. Its interval is the bootstrap over problems; the
p-value is the exact sign test on problems that differ (McNemar's exact test where each was tried once), adjusted by
Holm's rule for the number of pairs in the same table. With fewer than six problems that differ the verdict is
`undetermined`, whatever the rates look like.

Limits: the sign test sees the direction of a difference and not its size, so with several seeds it is the weaker of the
two; the verdict follows it. "No difference shown" is not "equal".
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from math import fsum

from typing_extensions import TypedDict

from pot_agent.bench.record import Record
from pot_agent.bench.report.methods import HEADLINE_TESTS, by_problem, is_headline
from pot_agent.bench.report.reading import Cell, Results
from pot_agent.bench.report.statistics import LEAST_DISCORDANT, bootstrap, holm, sign_test

Keep = Callable[[Cell], bool]
HEADLINE = f"{HEADLINE_TESTS} or more visible tests"


class Comparison(TypedDict):
    """`first` minus `second`, in shares of problems."""

    first: str
    second: str
    on: str
    """Which problems: `all common`, or what they have in common."""
    problems: int
    first_rate: float | None
    second_rate: float | None
    difference: float | None
    low: float | None
    high: float | None
    """Of the difference; None where every problem has the same, since resampling then shows no width at all."""
    wins: int
    """Problems on which `first` does better."""
    losses: int
    p: float
    p_holm: float
    verdict: str


def compare(
    results: Results, first: str, second: str, *, keep: Keep | None = None, on: str = "all common"
) -> Comparison:
    """One pair, on the problems (and with `keep`: the seeds) that both have."""
    one, other = _rates(results.arms[first], keep), _rates(results.arms[second], keep)
    common = [problem for problem in one if problem in other]
    differences = [one[problem] - other[problem] for problem in common]
    varied = len(set(differences)) > 1
    low, high = bootstrap(differences) if varied else (None, None)
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    p = sign_test(wins, losses)
    return Comparison(
        first=first,
        second=second,
        on=on,
        problems=len(common),
        first_rate=_mean([one[problem] for problem in common]),
        second_rate=_mean([other[problem] for problem in common]),
        difference=_mean(differences),
        low=low,
        high=high,
        wins=wins,
        losses=losses,
        p=p,
        p_holm=p,
        verdict=verdict(first, second, wins, losses, p),
    )


def verdict(first: str, second: str, wins: int, losses: int, p: float) -> str:
    """What may be said."""
    if wins + losses < LEAST_DISCORDANT:
        return "undetermined"
    if p >= 0.05:
        return "no difference shown"
    return f"{first if wins > losses else second} higher"


def adjusted(comparisons: list[Comparison]) -> list[Comparison]:
    """The same comparisons as one family: p-values by Holm's rule, and verdicts by those."""
    values = holm([found["p"] for found in comparisons])
    return [
        Comparison(
            **{
                **found,
                "p_holm": p,
                "verdict": verdict(found["first"], found["second"], found["wins"], found["losses"], p),
            }
        )
        for found, p in zip(comparisons, values, strict=True)
    ]


def every_pair(results: Results, baseline: str) -> list[Comparison]:
    """Every pair as one family: each method against the baseline first, then the others among themselves."""
    others = [arm for arm in results.arms if arm != baseline]
    pairs = [(arm, baseline) for arm in others] + [(late, early) for early, late in combinations(others, 2)]
    return adjusted([compare(results, first, second) for first, second in pairs])


def learning_pairs(results: Results) -> list[Comparison]:
    """PoT against search without learning, on the problems and seeds that both have: all of them, those where PoT made
    an update, and by the number of visible tests."""
    found = []
    for pot, mcts in _pot_and_mcts(results):
        cells = {cell: record for cell, record in results.arms[pot].items() if cell in results.arms[mcts]}
        sets: dict[str, Callable[[Record], bool]] = {
            "all common": lambda record: True,
            f"{pot} made an update": lambda record: record["ledger"]["updates"] > 0,
            HEADLINE: is_headline,
        }
        for tests in sorted({record["visible_total"] for record in cells.values() if not is_headline(record)}):
            name = f"{tests} visible test{'s' if tests != 1 else ''}"
            sets[name] = lambda record, tests=tests: record["visible_total"] == tests  # type: ignore[misc]
        for name, holds in sets.items():
            kept = {cell for cell, record in cells.items() if holds(record)}
            found.append(compare(results, pot, mcts, keep=kept.__contains__, on=name))
    return found


def _pot_and_mcts(results: Results) -> list[tuple[str, str]]:
    """Arms with the same knobs where there are such, else every PoT against every MCTS."""
    pots = [arm for arm in results.arms if results.method_of(arm) == "pot"]
    searches = [arm for arm in results.arms if results.method_of(arm) == "mcts"]
    same = [(p, m) for p in pots for m in searches if p.partition(":")[2] == m.partition(":")[2]]
    paired = {pot for pot, _ in same}
    return same + [(pot, mcts) for pot in pots if pot not in paired for mcts in searches]


def _rates(cells: dict[Cell, Record], keep: Keep | None) -> dict[str, float]:
    records: Iterable[Record] = (record for cell, record in cells.items() if keep is None or keep(cell))
    return by_problem(records, lambda record: record["correct"])


def _mean(values: list[float]) -> float | None:
    return fsum(values) / len(values) if values else None
