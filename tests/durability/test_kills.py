"""kill -9 at any moment of any node: the run goes on from its checkpoint and ends as if nothing had happened."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.durability.conftest import Story, job_in
from tests.nursery import Nursery

Undisturbed = tuple[dict[str, Any], int]


def test_the_undisturbed_run_learns_so_that_a_lost_step_would_show(undisturbed: Undisturbed) -> None:
    outcome, moments = undisturbed
    assert outcome["version"] >= 3
    assert outcome["steps"] > outcome["version"]
    assert [version for version, _ in outcome["made"]] == list(range(1, outcome["version"] + 1))
    assert moments > 100


def test_a_run_killed_three_times_ends_as_it_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    outcome, moments = undisturbed
    story = Story(nursery, job_in(tmp_path, tiny))
    for at in (moments // 4, moments // 3, moments // 6):
        assert story.live(at) is None
    done = story.live()
    assert done is not None
    assert len(story.deaths) == 3
    assert story.outcome(done) == outcome


@pytest.mark.parametrize("moment", ["after internalize", "before close", "after close"])
def test_a_run_killed_where_the_adapter_changes_ends_as_it_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed, moment: str
) -> None:
    story = Story(nursery, {**job_in(tmp_path, tiny), "only": moment})
    assert story.live(1) is None
    assert story.deaths == [moment]
    del story.job["only"]
    done = story.live()
    assert done is not None
    assert story.outcome(done) == undisturbed[0]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_runs_killed_at_random_moments_end_as_they_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    kill_at_random(nursery, job_in(tmp_path, tiny), undisturbed, seed=seed, kills=10)


ASYNC = {"form": "async"}


@pytest.mark.parametrize("moment", ["after internalize", "before aput"])
def test_an_async_run_killed_once_ends_as_a_sync_one_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed, moment: str
) -> None:
    story = Story(nursery, {**job_in(tmp_path, tiny), **ASYNC, "only": moment})
    assert story.live(2) is None
    assert story.deaths == [moment]
    del story.job["only"]
    done = story.live()
    assert done is not None
    assert story.outcome(done) == undisturbed[0]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_async_runs_killed_at_random_moments_end_as_they_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    kill_at_random(nursery, {**job_in(tmp_path, tiny), **ASYNC}, undisturbed, seed=40 + seed, kills=10)


def kill_at_random(nursery: Nursery, job: dict[str, Any], undisturbed: Undisturbed, *, seed: int, kills: int) -> None:
    """Threads of one database, one after the other, until so many lives were killed."""
    rng, (outcome, moments), deaths, thread = random.Random(seed), undisturbed, 0, 0
    while deaths < kills:
        thread += 1
        story = Story(nursery, {**job, "thread": f"{seed}-{thread}"})
        done = None
        while done is None:
            done = story.live(rng.randint(1, moments if deaths + len(story.deaths) < kills else 10 * moments))
        deaths += len(story.deaths)
        assert story.outcome(done) == outcome, story.deaths
