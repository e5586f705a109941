"""What each method did and spent: the table of methods, by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pot_agent.bench.record import Record
from pot_agent.bench.report.findings import Findings, findings_of
from pot_agent.bench.report.methods import MethodRow, method_rows
from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.report.statistics import bootstrap, wilson
from pot_agent.bench.report.tables import methods_table, spending_table, updates_table
from pot_agent.bench.report.words import matched_words
from tests.bench.runs import curve_row, ledger, manifest, record, write_run


def found_in(tmp_path: Path, records: Sequence[Record], **changes: Any) -> Findings:
    methods = list(dict.fromkeys(each["method"] for each in records))
    return findings_of(read_runs([write_run(tmp_path / "run", manifest(methods=methods, **changes), records)]))


def row_of(found: Findings, arm: str) -> MethodRow:
    return next(row for row in found["methods"] if row["arm"] == arm)


def test_pass_at_1_is_on_hidden_tests_with_wilsons_interval_and_the_official_number_beside_it(tmp_path: Path) -> None:
    records = [record("p/0"), record("p/1", official=False), record("p/2", correct=False, official=None)]
    found = found_in(tmp_path, records)
    row = row_of(found, "pot")
    assert (row["pass_at_1"]["value"], row["pass_at_1"]["interval"]) == (pytest.approx(2 / 3), "wilson")
    assert (row["pass_at_1"]["low"], row["pass_at_1"]["high"]) == wilson(2, 3)
    assert row["official"] is not None
    assert (row["official"]["value"], row["official"]["problems"]) == (0.5, 2)  # of the problems that it graded
    assert "Wilson's rule" in methods_table(found).note


def test_with_several_seeds_the_interval_is_the_bootstrap_over_problems(tmp_path: Path) -> None:
    records = [record(f"p/{index}", correct=index + seed > 2, seed=seed) for index in range(4) for seed in range(2)]
    found = found_in(tmp_path, records, seeds=[0, 1])
    rate = row_of(found, "pot")["pass_at_1"]
    assert (rate["value"], rate["interval"], rate["problems"]) == (0.375, "bootstrap", 4)
    assert (rate["low"], rate["high"]) == bootstrap([0.0, 0.0, 0.5, 1.0])
    assert "bootstrap over problems" in methods_table(found).note
    assert methods_table(found).rows[0][1] == "4 × 2 seeds"


def test_the_gap_is_what_passes_visible_tests_and_fails_hidden_ones(tmp_path: Path) -> None:
    records = [record("p/0"), record("p/1", correct=False, visible_solved=True), record("p/2", correct=False)]
    row = row_of(found_in(tmp_path, records), "pot")
    assert row["visible_solved"]["value"] == pytest.approx(2 / 3)
    assert row["gap"]["value"] == pytest.approx(1 / 3)


def test_the_headline_set_has_three_or_more_visible_tests(tmp_path: Path) -> None:
    records = [record(f"p/{tests}", correct=tests > 3, visible_total=tests) for tests in (1, 2, 3, 4)]
    head = row_of(found_in(tmp_path, records), "pot")["headline"]
    assert head is not None
    assert (head["value"], head["problems"]) == (0.5, 2)


def test_updates_are_counted_in_all_and_by_problem(tmp_path: Path) -> None:
    made = [record("p/0", ledger=ledger(updates=3)), record("p/1"), record("p/2", ledger=ledger(updates=1))]
    made.append(record("p/3", curve=[curve_row(1, skipped="all rewards are equal"), curve_row(2, skipped=None)]))
    made.append(record("p/4", curve=[curve_row(1, skipped="not finite: loss nan, gradient norm 3.1")]))
    found = found_in(tmp_path, [*made, record("p/0", "zero_shot")])
    row = row_of(found, "pot")
    assert (row["updates_made"], row["updated_problems"], row["updates"]) == (4, 2, pytest.approx(0.8))
    assert row["skipped"] == {"all rewards are equal": 1, "not finite": 1}
    assert [cells[7] for cells in methods_table(found).rows] == ["4 on 2 problems", "–"]
    assert updates_table(found).rows == (
        ("pot", "2 of 5", "4", "0.80", "1 × all rewards are equal; 1 × not finite"),
    )  # fmt: skip


def test_a_learner_that_made_no_update_is_in_the_table_of_updates(tmp_path: Path) -> None:
    found = found_in(tmp_path, [record("p/0"), record("p/0", "mcts")])
    assert [row[:3] for row in updates_table(found).rows] == [("pot", "0 of 1", "0")]


def test_errors_and_missing_records_are_counted_and_said(tmp_path: Path) -> None:
    records = [record("p/0"), record("p/1", correct=False, error="PolicyError: gone"), record("p/0", "mcts")]
    found = found_in(tmp_path, records, ids=["p/0", "p/1", "p/2"], seeds=[0, 1])
    pot, mcts = row_of(found, "pot"), row_of(found, "mcts")
    assert (pot["errors"], pot["missing"], pot["missing_records"]) == (1, 1, 4)
    assert (mcts["errors"], mcts["missing"], mcts["missing_records"]) == (0, 2, 5)
    notes = " ".join(found["notes"])
    assert "records are missing, of pot (4), mcts (5):" in notes
    assert "pot ended in an error 1 time; that counts as not solved" in notes
    assert [cells[-2:] for cells in methods_table(found).rows] == [("1", "4"), ("0", "5")]


def test_a_seed_that_no_arm_has_begun_is_missing_too(tmp_path: Path) -> None:
    found = found_in(tmp_path, [record("p/0")], ids=["p/0"], seeds=[0, 1])
    assert row_of(found, "pot")["missing_records"] == 1


def test_a_problem_that_another_method_was_tried_on_is_missing_where_no_plan_says_so(tmp_path: Path) -> None:
    found = found_in(tmp_path, [record("p/0"), record("p/1"), record("p/0", "mcts")])
    assert row_of(found, "mcts")["missing_records"] == 1


def test_different_seeds_are_said(tmp_path: Path) -> None:
    found = found_in(tmp_path, [record("p/0"), record("p/0", seed=1), record("p/0", "mcts")])
    assert any("different seeds" in note for note in found["notes"])


def spent(programs: int, tokens: int, seconds: float, flops: float | None) -> Any:
    return ledger(
        programs=programs, prompt_tokens=10, completion_tokens=tokens - 10, seconds={"total": seconds},
        flops={} if flops is None else {"total": flops},
    )  # fmt: skip


def test_what_is_matched_is_said_by_what_was_spent(tmp_path: Path) -> None:
    records = [record(f"p/{n}", "mcts", ledger=spent(10, 100, 4.0, 1e12)) for n in range(2)]
    records += [record(f"p/{n}", "pot", ledger=spent(10, 105, 8.0, 1.05e12)) for n in range(2)]
    records += [record("p/2", "pot", ledger=spent(1000, 9999, 99.0, 9e12))]  # mcts does not have it
    found = found_in(tmp_path, records)
    pot = next(each for each in found["spending"] if each["arm"] == "pot")
    assert pot["records"] == 2
    assert pot["ratios"] == {"programs": 1.0, "tokens": 1.05, "flops": pytest.approx(1.05), "seconds": 2.0}
    assert pot["matched"] == ["programs", "tokens", "flops"]
    assert "within 10 % of one another: programs, tokens, flops" in matched_words(found)
    row = next(cells for cells in spending_table(found).rows if cells[0] == "pot")
    assert row[1] == "340 of 24 (×1.00)"
    assert row[-1] == "programs, tokens, flops"


def test_flops_that_are_not_known_are_no_number(tmp_path: Path) -> None:
    records = [record("p/0", arm, ledger=spent(1, 20, 1.0, None)) for arm in ("pot", "mcts")]
    found = found_in(tmp_path, records)
    assert found["spending"][0]["ratios"]["flops"] is None
    assert row_of(found, "pot")["spent"]["flops"] is None
    assert spending_table(found).rows[0][5] == "– (–)"


def test_different_budgets_versions_and_machines_are_said(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    changed = manifest(methods=["mcts"], versions={"pot": "9"}, machine={"host": "x"}, budget={"name": "paper"})
    other = write_run(tmp_path / "b", changed, [record("p/0", "mcts")])
    notes = " ".join(findings_of(read_runs([one, other]))["notes"])
    assert "2 different budgets" in notes
    assert "differ in versions" in notes
    assert "differ in machine" in notes


def test_rows_are_in_the_order_of_the_manifests(tmp_path: Path) -> None:
    results = read_runs(
        [write_run(tmp_path, manifest(methods=["mcts", "pot"]), [record("p/0"), record("p/0", "mcts")])]
    )
    assert [row["arm"] for row in method_rows(results)] == ["mcts", "pot"]
