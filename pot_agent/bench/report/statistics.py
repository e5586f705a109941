"""Intervals and tests for benchmarks of tens to hundreds of problems, 95 % throughout.

Limits: problems are taken as a sample of the problems one cares about, and seeds as repeats within a problem, never as
more problems. The bootstrap's interval is the plain percentile one: it is a little narrow for few problems, and has no
width where all values are equal, so a share gets Wilson's interval there. The sign test looks at the direction of each
difference alone. Resampling is seeded and values are taken in the order given, so equal input gives equal output.
"""

import math
from collections.abc import Sequence

from typing_extensions import TypedDict

from pot_agent.errors import MissingExtraError, ReportError

try:
    import numpy as np
except ImportError as error:
    raise MissingExtraError('reports need numpy: pip install "policy-of-thoughts[bench]"') from error

Z_95 = 1.959963984540054
"""The standard normal's 97.5 % quantile."""
LEAST_DISCORDANT = 6
"""With fewer pairs that differ the two-sided sign test cannot go below 0.05: 2 / 2**5 = 0.0625."""
RESAMPLES = 10_000
_CHUNK = 1_000

Interval = tuple[float, float]


class Estimate(TypedDict):
    """A share of problems, with its interval."""

    value: float
    low: float
    high: float
    interval: str
    """Which rule gave `low` and `high`: `wilson`, or `bootstrap` over problems."""
    problems: int


def wilson(successes: float, total: int) -> Interval:
    """Wilson's score interval for a share (Wilson 1927)."""
    if total < 1 or not 0 <= successes <= total:
        raise ReportError(f"a share needs 0 to {total} successes of at least one, got {successes}", value=successes)
    share, z2 = successes / total, Z_95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def bootstrap(values: Sequence[float]) -> Interval:
    """The percentile interval of the mean, values (one a problem) drawn with replacement (Efron 1979)."""
    if not values:
        raise ReportError("a mean needs at least one value, got none", value=values)
    draws, given = np.random.default_rng(0), np.asarray(values, dtype=float)
    means = [
        given[draws.integers(0, len(given), size=(_CHUNK, len(given)))].mean(axis=1) for _ in range(RESAMPLES // _CHUNK)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)


def estimate(values: Sequence[float], *, repeated: bool) -> Estimate:
    """The mean of one value in [0, 1] a problem; `repeated`: whether a value may be an average over seeds.

    Wilson's interval where each problem was tried once (or all values are equal), else the bootstrap over problems.
    """
    if not values:
        raise ReportError("a share needs at least one problem, got none", value=values)
    value = math.fsum(values) / len(values)
    rule = "bootstrap" if repeated and len(set(values)) > 1 else "wilson"
    low, high = bootstrap(values) if rule == "bootstrap" else wilson(value * len(values), len(values))
    return Estimate(value=value, low=low, high=high, interval=rule, problems=len(values))


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided p-value of `wins` against `losses` under a fair coin: McNemar's exact test for pairs."""
    total = wins + losses
    tail = sum(math.comb(total, count) for count in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**total))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (1979): what each p-value is worth among so many comparisons."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
