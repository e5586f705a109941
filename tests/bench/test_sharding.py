"""Which problems a run is of, and which part of them one process does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.sharding import Shard, choose, units
from pot_agent.errors import ConfigError, RunFolderError
from tests.bench.running import SteadyPolicy, arm, comparable, plan, read, run, task, tasks

ARMS = [arm("zero_shot"), arm("pot")]


@given(st.integers(1, 40), st.integers(1, 9))
def test_parts_are_disjoint_even_and_together_everything(problems: int, count: int) -> None:
    whole = list(range(problems))
    parts = [Shard(index=index, count=count).of(whole) for index in range(1, count + 1)]  # type: ignore[arg-type]
    assert sorted(number for part in parts for number in part) == whole  # type: ignore[type-var]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_parts_of_one_run_share_a_folder_and_are_reported_on_together(sandbox: Any, tmp_path: Path) -> None:
    expected = comparable(run(plan(tmp_path / "whole", ARMS), SteadyPolicy(), sandbox))
    for text in ("1/2", "2/2"):
        part = run(plan(tmp_path / "parts", ARMS, shard=Shard.parse(text)), SteadyPolicy(), sandbox)
        assert 0 < len(part) < 6
    assert comparable(read(tmp_path / "parts")) == expected
    together = read_runs([tmp_path / "parts"])
    assert {name: set(cells) for name, cells in together.arms.items()} == together.planned


def test_parts_in_folders_of_their_own_are_reported_on_together(sandbox: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, text in zip(folders, ("1/2", "2/2"), strict=True):
        run(plan(folder, ARMS, shard=Shard.parse(text)), SteadyPolicy(), sandbox)
    together = read_runs(folders)
    assert {name: set(cells) for name, cells in together.arms.items()} == together.planned


def test_a_part_is_gone_on_with_and_refused_twice(sandbox: Any, tmp_path: Path) -> None:
    first = Shard.parse("1/2")
    records = run(plan(tmp_path / "r", ARMS, shard=first), SteadyPolicy(), sandbox)
    with pytest.raises(RunFolderError, match="go on with --resume"):
        run(plan(tmp_path / "r", ARMS, shard=first), SteadyPolicy(), sandbox)
    assert run(plan(tmp_path / "r", ARMS, shard=first, resume=True), SteadyPolicy(), sandbox) == records


@pytest.mark.parametrize("other", ["1/1", "1/3"])
def test_a_folder_holds_one_way_of_parting(sandbox: Any, tmp_path: Path, other: str) -> None:
    run(plan(tmp_path / "r", ARMS, shard=Shard.parse("1/2")), SteadyPolicy(), sandbox)
    with pytest.raises(RunFolderError, match="together they would count problems twice"):
        run(plan(tmp_path / "r", ARMS, shard=Shard.parse(other), resume=True), SteadyPolicy(), sandbox)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/2/3"])
def test_a_part_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--shard must be such as"):
        Shard.parse(text)


def test_problems_come_in_the_order_of_the_data_with_every_arm_before_the_next() -> None:
    order = [unit[0].key for unit in units(tasks(2), ARMS, [0, 1])]
    assert order[:4] == [("add/0", "zero_shot", 0), ("add/0", "pot", 0), ("add/1", "zero_shot", 0), ("add/1", "pot", 0)]
    assert {key[2] for key in order[4:]} == {1}


def test_a_chain_is_one_unit_a_seed_and_comes_first() -> None:
    made = units(tasks(3), [arm("zero_shot"), arm("persistent")], [0, 1])
    assert [[trial.task.id for trial in unit] for unit in made[:2]] == [["add/0", "add/1", "add/2"]] * 2
    assert all(len(unit) == 1 for unit in made[2:])


def test_a_choice_says_in_words_how_it_was_made() -> None:
    given = [*tasks(3), task(3, visible=["assert add(1, 1) == 2"])]
    choice = choose(given, only=["add/3", "add/1", "add/2"], min_visible_tests=2, limit=1)
    assert [one.id for one in choice.tasks] == ["add/1"]
    assert choice.how == (
        "3 named ones, in the order of the data; of these those 2 with 2 or more visible tests; of these the first 1"
    )
    assert choose(given).tasks == tuple(given)


def test_a_choice_of_nothing_and_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no problem is left"):
        choose(tasks(3), min_visible_tests=9)
    with pytest.raises(ConfigError, match="no problem is called 'add/9'; did you mean add/"):
        choose(tasks(3), only=["add/9"])
    with pytest.raises(ConfigError, match=r"there are add/0, add/1, add/2, \.\.\."):
        choose(tasks(3), only=["zzz"])
