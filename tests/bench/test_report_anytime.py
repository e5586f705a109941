"""Curves over tokens, seconds and iterations, by hand; and the figures that are drawn of them."""

import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.bench.record import Record
from pot_agent.bench.report.anytime import best_so_far, by_iteration, group_reward, solved_at, solved_by
from pot_agent.bench.report.methods import method_rows
from pot_agent.bench.report.plots import plots
from pot_agent.bench.report.reading import read_runs
from tests.bench.runs import curve_row, ledger, manifest, plausible, record, write_run


def run(problem: str, tokens: int, *, correct: bool = True, first: int | None = None, seed: int = 0) -> Record:
    """A run that spent so many tokens in all, its first full reward (if any) in iteration `first`."""
    curve = [] if first is None else [curve_row(n, rewards=[0.5]) for n in range(1, first)]
    curve += [] if first is None else [curve_row(first, rewards=[0.5, 1.0])]
    spent = ledger(completion_tokens=tokens, seconds={"total": tokens / 10})
    return record(problem, correct=correct, seed=seed, curve=curve, ledger=spent)


def test_a_problem_is_solved_when_its_first_full_reward_was_seen() -> None:
    assert solved_at(run("p/0", 900, first=2), "tokens") == 200  # curve_row: 100 tokens and a second an iteration
    assert solved_at(run("p/0", 900, first=2), "seconds") == 2.0


def test_an_answer_that_no_group_holds_counts_at_the_end_and_never_later_than_that() -> None:
    assert solved_at(run("p/0", 900), "tokens") == 900
    assert solved_at(run("p/0", 150, first=2), "tokens") == 150


def test_a_curve_rises_by_a_problem_each_and_ends_at_the_most_that_was_spent() -> None:
    records = [run("p/0", 300), run("p/1", 100), run("p/2", 700, correct=False), run("p/3", 300)]
    found = solved_by(records, "tokens", lambda each: each["correct"])
    assert found["x"] == [100, 300, 700]
    assert found["y"] == pytest.approx([0.25, 0.75, 0.75])
    assert found["n"] == [4, 4, 4]


def test_a_curve_averages_seeds_within_a_problem() -> None:
    records = [run("p/0", 100, seed=0), run("p/0", 200, seed=1, correct=False), run("p/1", 300)]
    found = solved_by(records, "tokens", lambda each: each["correct"])
    assert dict(zip(found["x"], found["y"], strict=True)) == pytest.approx({100: 0.25, 300: 0.75})


runs = st.lists(
    st.builds(
        run,
        st.sampled_from(["p/0", "p/1", "p/2"]),
        st.integers(0, 2_000),
        correct=st.booleans(),
        first=st.none() | st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


@given(runs)
def test_every_curve_never_falls_and_ends_at_the_pass_rate(records: list[Record]) -> None:
    found = solved_by(records, "tokens", lambda each: each["correct"])
    assert found["x"] == sorted(set(found["x"]))
    assert found["y"] == sorted(found["y"])
    rates = [
        [each["correct"] for each in records if each["problem"] == problem]
        for problem in {each["problem"] for each in records}
    ]
    assert found["y"][-1] == pytest.approx(sum(sum(own) / len(own) for own in rates) / len(rates))


def test_learning_curves_by_hand() -> None:
    records = [
        record(
            "p/0", correct=False, curve=[curve_row(1, rewards=[0.0, 0.5], kl=0.1), curve_row(2, rewards=[1.0, 0.0])]
        ),
        record("p/1", correct=False, curve=[curve_row(1, rewards=[0.25, 0.25]), curve_row(2, rewards=[])]),
    ]
    reward = by_iteration(records, group_reward)
    assert (reward["x"], reward["y"], reward["n"]) == ([1, 2], pytest.approx([0.25, 0.5]), [2, 1])
    kl = by_iteration(records, lambda step: step["kl"])
    assert (kl["x"], kl["y"], kl["n"]) == ([1], [0.1], [1])


def test_the_best_so_far_never_falls_and_a_run_that_ended_keeps_its_own() -> None:
    solved = record("p/0", curve=[curve_row(1, rewards=[0.5])])  # a commit found it
    other = record("p/1", correct=False, curve=[curve_row(n, rewards=[r]) for n, r in ((1, 0.5), (2, 0.0), (3, 0.75))])
    found = best_so_far([solved, other, record("p/2")])  # the last keeps no curve
    assert found["y"] == pytest.approx([0.75, 0.75, 0.875])
    assert found["n"] == [2, 2, 2]


def drawn(folder: Path) -> dict[str, Any]:
    results = read_runs([folder])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {plot["name"]: plot for plot in plots(results, method_rows(results))}


def test_every_figure_is_drawn_as_svg_whose_colours_are_the_pages(tmp_path: Path) -> None:
    found = drawn(plausible(tmp_path))
    assert list(found) == ["tokens", "seconds", "gap", "best", "reward", "kl", "norm"]
    ids: list[str] = []
    for plot in found.values():
        root = ElementTree.fromstring(plot["svg"])
        assert root.tag.endswith("svg")
        assert "width" not in root.attrib  # as wide as the page lets it be
        ids += re.findall(r'\bid="([^"]+)"', plot["svg"])
        assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", plot["svg"])) <= set(ids)
        assert not re.search(r"(?:fill|stroke|color): ?#(?!fff)", plot["svg"]), plot["name"]
        assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]+"', "", plot["svg"])
        assert "<text" in plot["svg"]
    assert len(ids) == len(set(ids))
    assert set(found["tokens"]["series"]) == {"zero_shot", "best_of_n", "mcts", "pot"}


def test_a_method_has_one_colour_in_every_figure(tmp_path: Path) -> None:
    found = drawn(plausible(tmp_path))
    pot = list(found["tokens"]["series"]).index("pot")
    for name in ("kl", "norm"):
        assert set(re.findall(r"var\(--s(\d)\)", found[name]["svg"])) == {str(pot)}, name


def test_the_norm_of_an_adapter_that_never_learns_is_not_drawn(tmp_path: Path) -> None:
    still = [curve_row(n, adapter_norm=20.0, skipped="learning is off") for n in (1, 2)]
    folder = write_run(tmp_path, manifest(methods=["mcts"]), [record("p/0", "mcts", curve=still)])
    assert "norm" not in drawn(folder)


def test_a_figure_without_data_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, manifest(methods=["zero_shot"]), [record("p/0", "zero_shot")])
    assert list(drawn(folder)) == ["tokens", "seconds", "gap"]


def test_a_method_that_only_failed_and_spent_nothing_is_no_trouble(tmp_path: Path) -> None:
    nothing = ledger(completion_tokens=0, prompt_tokens=0, programs=0, seconds={}, flops={})
    failed = record("p/0", "pot", False, error="WorkerDied: gone", ledger=nothing)
    assert list(drawn(write_run(tmp_path / "a", manifest(methods=["pot"]), [failed]))) == ["gap"]
    both = [failed, record("p/0", "mcts")]
    assert "tokens" in drawn(write_run(tmp_path / "b", manifest(methods=["pot", "mcts"]), both))


def test_names_of_arms_are_text_in_a_figure(tmp_path: Path) -> None:
    name = 'pot:a=$x^2$,<b>&"名\x1b#0a0c00'
    folder = write_run(tmp_path, manifest(methods=[name]), [record("p/0", name)])
    texts = [each.text for each in ElementTree.fromstring(drawn(folder)["gap"]["svg"]).iter() if each.text]
    assert any(text.startswith("pot:a=$x^2$,<b>&") for text in texts)


def test_twelve_arms_are_told_apart_by_dashes_where_colours_end(tmp_path: Path) -> None:
    names = [f"pot:k={number}" for number in range(1, 13)]
    folder = write_run(tmp_path, manifest(methods=names), [record("p/0", name) for name in names])
    lines = re.findall(r'style="fill: none; (stroke[^"]*--s[01]\)[^"]*)"', drawn(folder)["tokens"]["svg"])
    assert len({re.sub("stroke-width.*", "", line) for line in lines}) >= 4
