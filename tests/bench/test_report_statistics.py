"""The report's intervals and tests, against figures worked by hand and against code that shares none with them."""

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.bench.report.statistics import Z_95, bootstrap, estimate, holm, sign_test, wilson
from pot_agent.errors import ReportError


def binomial_quantile(total: int, share: Fraction, at: Fraction) -> int:
    """The least count whose probability of that many or fewer reaches `at`, in exact fractions."""
    below = Fraction(0)
    for count in range(total + 1):
        below += math.comb(total, count) * share**count * (1 - share) ** (total - count)
        if below >= at:
            return count
    return total


def test_wilson_agrees_with_published_figures() -> None:
    low, high = wilson(81, 263)  # Newcombe 1998, table I: 0.2553 to 0.3662
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    low, high = wilson(15, 148)  # 0.0624 to 0.1605
    assert (round(low, 4), round(high, 4)) == (0.0624, 0.1605)
    low, high = wilson(0, 20)  # 0 to 0.1611
    assert (low, round(high, 4)) == (0.0, 0.1611)
    low, high = wilson(1, 29)  # 0.0061 to 0.1718
    assert (round(low, 4), round(high, 4)) == (0.0061, 0.1718)


@given(st.integers(1, 400).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilsons_bounds_are_the_shares_whose_score_test_is_just_rejected(drawn: tuple[int, int]) -> None:
    successes, total = drawn
    share = successes / total
    low, high = wilson(successes, total)
    assert 0.0 <= low <= share <= high <= 1.0
    for bound in (low, high):
        if 0.0 < bound < 1.0 and not math.isclose(bound, share):
            z = abs(share - bound) / math.sqrt(bound * (1 - bound) / total)
            assert math.isclose(z, Z_95, rel_tol=1e-6)


@given(st.integers(1, 200).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilson_treats_failures_as_it_treats_successes(drawn: tuple[int, int]) -> None:
    successes, total = drawn
    low, high = wilson(successes, total)
    mirrored = wilson(total - successes, total)
    assert (1 - high, 1 - low) == pytest.approx(mirrored)


@pytest.mark.parametrize("drawn", [(-1, 3), (4, 3), (0, 0), (math.nan, 3)])
def test_a_share_that_cannot_be_is_refused(drawn: tuple[float, int]) -> None:
    with pytest.raises(ReportError, match="a share needs"):
        wilson(*drawn)


@pytest.mark.parametrize(("right", "total"), [(5, 10), (3, 10), (12, 40), (39, 40)])
def test_the_bootstrap_of_a_share_is_the_binomials_quantiles(right: int, total: int) -> None:
    low, high = bootstrap([1.0] * right + [0.0] * (total - right))
    share = Fraction(right, total)
    for found, at in ((low, Fraction(25, 1000)), (high, Fraction(975, 1000))):
        assert abs(found * total - binomial_quantile(total, share, at)) <= 1  # ten thousand draws of a whole number


def test_the_bootstrap_is_of_the_mean_and_shrinks_with_the_root_of_the_number() -> None:
    values = [0.0, 0.25, 0.5, 1.0]
    deviation = math.sqrt(sum((value - 0.4375) ** 2 for value in values) / 4)
    low, high = bootstrap(values * 100)
    expected = 2 * Z_95 * deviation / math.sqrt(400)
    assert (high - low) == pytest.approx(expected, rel=0.05)
    assert (low + high) / 2 == pytest.approx(0.4375, abs=0.005)


def test_equal_values_give_an_equal_interval_each_time() -> None:
    assert bootstrap([0.0, 1.0, 1.0]) == bootstrap([0.0, 1.0, 1.0])


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ReportError, match="at least one"):
        bootstrap([])
    with pytest.raises(ReportError, match="at least one"):
        estimate([], repeated=True)


@pytest.mark.parametrize("total", range(1, 11))
def test_the_sign_test_counts_every_outcome_of_fair_coins(total: int) -> None:
    outcomes = [sum(coins) for coins in product((0, 1), repeat=total)]
    for wins in range(total + 1):
        far = abs(wins - total / 2)
        as_far = sum(abs(count - total / 2) >= far for count in outcomes)
        assert sign_test(wins, total - wins) == pytest.approx(as_far / len(outcomes))


def test_the_sign_test_by_hand() -> None:
    assert sign_test(0, 0) == 1.0
    assert sign_test(5, 0) == 0.0625  # so five pairs that differ can never show a difference
    assert sign_test(6, 0) == 0.03125
    assert sign_test(2, 10) == pytest.approx(2 * (1 + 12 + 66) / 4096)
    assert sign_test(3, 3) == 1.0


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_sign_test_has_no_side(wins: int, losses: int) -> None:
    assert sign_test(wins, losses) == sign_test(losses, wins)
    assert 0.0 <= sign_test(wins, losses) <= 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values: list[float]) -> None:
    adjusted = holm(values)
    for level in (0.01, 0.05, 0.2):
        rejected: set[int] = set()
        for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
            if (len(values) - rank) * values[index] > level:
                break
            rejected.add(index)
        assert {index for index, value in enumerate(adjusted) if value <= level} == rejected
    assert all(value <= after <= 1.0 for value, after in zip(values, adjusted, strict=True))


def test_a_share_has_wilsons_interval_and_a_mean_over_seeds_the_bootstraps() -> None:
    once = estimate([1.0, 0.0, 1.0, 1.0], repeated=False)
    assert (once["value"], once["interval"], once["problems"]) == (0.75, "wilson", 4)
    assert (once["low"], once["high"]) == wilson(3, 4)
    often = estimate([1.0, 0.5, 0.0], repeated=True)
    assert (often["interval"], often["low"], often["high"]) == ("bootstrap", *bootstrap([1.0, 0.5, 0.0]))
    assert estimate([1.0, 1.0], repeated=True)["interval"] == "wilson"  # no width by resampling
