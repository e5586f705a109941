"""Methods in pairs: what is averaged, what is paired, and when nothing may be said."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pot_agent.bench.report.comparing import adjusted, compare, every_pair, learning_pairs
from pot_agent.bench.report.findings import findings_of
from pot_agent.bench.report.ordering import orderings
from pot_agent.bench.report.reading import Results, read_runs
from pot_agent.bench.report.statistics import bootstrap, sign_test
from pot_agent.bench.report.words import sentences
from pot_agent.errors import ReportError
from tests.bench.runs import ledger, manifest, record, write_run


def results(tmp_path: Path, outcomes: Mapping[str, Sequence[bool]], **changes: Any) -> Results:
    """Problem i of each arm is right where the arm's list says so."""
    records = [
        record(f"p/{index}", arm, right, **changes)
        for arm, rights in outcomes.items()
        for index, right in enumerate(rights)
    ]
    return read_runs([write_run(tmp_path / "run", manifest(methods=list(outcomes)), records)])


def rights(text: str) -> list[bool]:
    return [letter == "1" for letter in text]


def test_a_pair_by_hand(tmp_path: Path) -> None:
    found = compare(results(tmp_path, {"pot": rights("1111111100"), "mcts": rights("1000000010")}), "pot", "mcts")
    assert (found["problems"], found["wins"], found["losses"]) == (10, 7, 1)
    assert (found["first_rate"], found["second_rate"], found["difference"]) == (0.8, 0.2, pytest.approx(0.6))
    assert found["p"] == pytest.approx(18 / 256) == pytest.approx(sign_test(7, 1))
    assert (found["low"], found["high"]) == bootstrap([0, 1, 1, 1, 1, 1, 1, 1, -1, 0])
    assert found["verdict"] == "no difference shown"


def test_fewer_than_six_problems_that_differ_determine_nothing(tmp_path: Path) -> None:
    five = compare(
        results(tmp_path / "5", {"pot": rights("11111" + "0" * 90), "mcts": rights("0" * 95)}), "pot", "mcts"
    )
    six = compare(
        results(tmp_path / "6", {"pot": rights("111111" + "0" * 90), "mcts": rights("0" * 96)}), "pot", "mcts"
    )
    assert five["verdict"] == "undetermined"
    assert six["verdict"] == "pot higher"
    assert compare(read_runs([tmp_path / "6" / "run"]), "mcts", "pot")["verdict"] == "pot higher"


def test_seeds_are_averaged_within_a_problem_and_are_no_more_problems(tmp_path: Path) -> None:
    records = [record("p/0", "pot", seed != 1, seed=seed) for seed in range(3)]
    records += [record("p/0", "mcts", seed == 0, seed=seed) for seed in range(3)]
    records += [record("p/1", arm, True, seed=seed) for arm in ("pot", "mcts") for seed in range(3)]
    made = read_runs([write_run(tmp_path, manifest(methods=["pot", "mcts"], seeds=[0, 1, 2]), records)])
    found = compare(made, "pot", "mcts")
    assert (found["problems"], found["wins"], found["losses"]) == (2, 1, 0)
    assert found["first_rate"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["difference"] == pytest.approx((1 / 3) / 2)


def test_only_problems_that_both_were_tried_on_are_compared(tmp_path: Path) -> None:
    found = compare(results(tmp_path, {"pot": rights("11"), "mcts": rights("0111111")}), "pot", "mcts")
    assert (found["problems"], found["wins"], found["losses"], found["second_rate"]) == (2, 1, 0, 0.5)


def test_methods_without_a_common_problem_are_not_compared(tmp_path: Path) -> None:
    records = [record("p/0", "pot"), record("p/1", "mcts")]
    found = compare(read_runs([write_run(tmp_path, manifest(methods=["pot", "mcts"]), records)]), "pot", "mcts")
    assert (found["problems"], found["difference"], found["low"]) == (0, None, None)
    assert (found["p"], found["verdict"]) == (1.0, "undetermined")


def test_a_difference_that_is_the_same_everywhere_has_no_interval(tmp_path: Path) -> None:
    found = compare(results(tmp_path, {"pot": rights("11"), "mcts": rights("00")}), "pot", "mcts")
    assert (found["difference"], found["low"], found["high"]) == (1.0, None, None)


def test_a_record_that_ended_in_an_error_counts_as_not_solved(tmp_path: Path) -> None:
    records = [record("p/0", "pot", False, error="PolicyError: gone"), record("p/0", "mcts", True)]
    found = compare(read_runs([write_run(tmp_path, manifest(methods=["pot", "mcts"]), records)]), "pot", "mcts")
    assert (found["problems"], found["losses"]) == (1, 1)


def test_many_pairs_are_judged_as_one_family(tmp_path: Path) -> None:
    made = results(
        tmp_path, {"zero_shot": rights("0" * 20), "mcts": rights("1" * 6 + "0" * 14), "pot": rights("1" * 20)}
    )
    alone = compare(made, "zero_shot", "mcts")
    assert (alone["p"], alone["verdict"]) == (0.03125, "mcts higher")
    pairs = every_pair(made, "mcts")
    assert [(c["first"], c["second"]) for c in pairs] == [("zero_shot", "mcts"), ("pot", "mcts"), ("pot", "zero_shot")]
    assert pairs[0]["p_holm"] == 0.03125  # the largest of the three keeps its own
    doubled = adjusted([alone, alone])
    assert (doubled[0]["p_holm"], doubled[0]["verdict"]) == (0.0625, "no difference shown")


def test_the_baseline_is_mcts_then_zero_shot_then_the_first_unless_it_is_named(tmp_path: Path) -> None:
    made = results(tmp_path / "a", {"zero_shot": rights("01"), "pot": rights("11"), "mcts": rights("01")})
    assert findings_of(made)["baseline"] == "mcts"
    assert findings_of(made, "pot")["baseline"] == "pot"
    assert findings_of(results(tmp_path / "b", {"pot": [True], "zero_shot": [True]}))["baseline"] == "zero_shot"
    assert findings_of(results(tmp_path / "c", {"pot": [True], "best_of_n": [True]}))["baseline"] == "pot"
    with pytest.raises(ReportError, match=r"'tot'.*choose one of zero_shot, pot, mcts"):
        findings_of(made, "tot")


def learned(tmp_path: Path) -> Results:
    """PoT and MCTS on problems with one to five visible tests; PoT updates where there are three or more."""
    records = []
    for tests in (1, 2, 3, 5):
        for arm in ("mcts", "pot"):
            updates = 2 if arm == "pot" and tests >= 3 else 0
            records.append(
                record(
                    f"p/{tests}", arm, arm == "pot" or tests == 1, visible_total=tests, ledger=ledger(updates=updates)
                )
            )
    return read_runs([write_run(tmp_path, manifest(methods=["mcts", "pot"]), records)])


def test_pot_against_mcts_is_also_shown_where_an_update_was_made_and_by_visible_tests(tmp_path: Path) -> None:
    found = learning_pairs(learned(tmp_path))
    shown = {c["on"]: (c["problems"], c["wins"]) for c in found}
    assert shown == {
        "all common": (4, 3),
        "pot made an update": (2, 2),
        "3 or more visible tests": (2, 2),
        "1 visible test": (1, 0),
        "2 visible tests": (1, 1),
    }
    assert list(shown)[:3] == ["all common", "pot made an update", "3 or more visible tests"]


def test_learning_is_judged_on_problems_and_seeds_that_both_have(tmp_path: Path) -> None:
    records = [record("p/0", "mcts", False, seed=0), record("p/0", "pot", False, seed=0, ledger=ledger(updates=1))]
    records += [record("p/0", "pot", True, seed=1, ledger=ledger(updates=1))]  # mcts is not there yet
    made = read_runs([write_run(tmp_path, manifest(methods=["mcts", "pot"], seeds=[0, 1]), records)])
    assert [(c["problems"], c["wins"]) for c in learning_pairs(made)[:2]] == [(1, 0), (1, 0)]


def test_a_pot_is_compared_with_the_mcts_of_its_own_knobs(tmp_path: Path) -> None:
    outcomes = {name: [True] for name in ("mcts", "mcts:k=8", "pot", "pot:k=8", "pot:rank=4")}
    pairs = {(c["first"], c["second"]) for c in learning_pairs(results(tmp_path, outcomes))}
    assert pairs == {
        ("pot", "mcts"), ("pot:k=8", "mcts:k=8"), ("pot:rank=4", "mcts"), ("pot:rank=4", "mcts:k=8"),
    }  # fmt: skip


LADDER = ("zero_shot", "pot:k=1", "mcts", "pot")


def ladder(tmp_path: Path, *outcomes: str) -> Results:
    return results(tmp_path, dict(zip(LADDER, map(rights, outcomes), strict=True)))


def test_the_papers_ordering_held_where_every_step_is_shown(tmp_path: Path) -> None:
    rise = ["1" * count + "0" * (40 - count) for count in (0, 10, 20, 30)]
    found = orderings(ladder(tmp_path, *rise))[0]
    assert found["arms"] == list(LADDER)
    assert (found["verdict"], found["in_order"], found["problems"]) == ("held", True, 40)
    assert [(step["first"], step["second"]) for step in found["steps"]] == [
        ("pot:k=1", "zero_shot"), ("mcts", "pot:k=1"), ("pot", "mcts"),
    ]  # fmt: skip
    assert [rate["value"] for rate in found["rates"]] == [0.0, 0.25, 0.5, 0.75]


def test_the_papers_ordering_did_not_hold_where_one_step_is_shown_the_other_way(tmp_path: Path) -> None:
    found = orderings(ladder(tmp_path, "0" * 40, "1" * 10 + "0" * 30, "1" * 30 + "0" * 10, "1" * 10 + "0" * 30))[0]
    assert (found["verdict"], found["in_order"]) == ("not held", False)


def test_the_papers_ordering_is_undetermined_where_rates_merely_happen_to_rise(tmp_path: Path) -> None:
    made = ladder(tmp_path, "0000", "1000", "1100", "1110")
    found = orderings(made)[0]
    assert (found["verdict"], found["in_order"]) == ("undetermined", True)
    said = sentences(findings_of(made))[0]
    assert "zero_shot < pot:k=1 < mcts < pot on 4 problems" in said
    assert "undetermined" in said
    assert "zero_shot 0.0\N{NO-BREAK SPACE}% (0.0–49.0)" in said


def test_the_three_steps_of_the_ordering_are_one_family(tmp_path: Path) -> None:
    # each step differs on six problems, all one way: p = 1/32 alone and 3/32 among three
    found = orderings(ladder(tmp_path, *("1" * count + "0" * (18 - count) for count in (0, 6, 12, 18))))[0]
    assert {step["p"] for step in found["steps"]} == {0.03125}
    assert found["verdict"] == "undetermined"


def test_nothing_is_said_of_the_ordering_without_all_four_arms(tmp_path: Path) -> None:
    made = results(tmp_path, {"zero_shot": [True], "mcts": [True], "pot": [True]})
    assert orderings(made) == []
    assert not any("ordering" in text for text in sentences(findings_of(made)))


def test_the_ordering_is_on_problems_that_all_four_have_and_on_the_headline_set_too(tmp_path: Path) -> None:
    records = [
        record(f"p/{index}", arm, visible_total=1 if index == 0 else 3)
        for arm in LADDER
        for index in range(3 if arm == "pot" else 4)
    ]
    made = read_runs([write_run(tmp_path, manifest(methods=list(LADDER)), records)])
    found = orderings(made)
    assert [(each["on"], each["problems"]) for each in found] == [("all common", 3), ("3 or more visible tests", 2)]
    assert all(step["problems"] == 3 for step in found[0]["steps"])
