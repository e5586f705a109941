"""kill -9 at any moment leaves the last good version, and a killed session goes on bit for bit."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nursery import Nursery
from tests.policy.durable_child import Event, comparable


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.policy.durable_child") as nursery:
        yield nursery


class Story:
    """One session through many lives: what was answered, and what each new life found."""

    def __init__(self, nursery: Nursery, model: Path, state: Path) -> None:
        self._nursery = nursery
        self._job = {"model": str(model), "state": str(state)}
        self.log: list[Event] = []
        self.digest = ""
        self.deaths: list[str] = []
        self.found: list[int] = []
        """The version at which each life found the session."""

    def live(self, steps: int, **death: Any) -> int:
        """One life, checked against what was answered before; its exit status."""
        events, status = self._nursery.life(**self._job, steps=steps, log=self.log, **death)
        self._check(events)
        return status

    def live_for(self, seconds: float, steps: int) -> int:
        """One life that is killed from outside after so many seconds."""
        timers: list[threading.Timer] = []
        events: list[Event] = []
        for event in self._nursery.said(**self._job, steps=steps, log=self.log):
            if event["kind"] == "born":
                timers.append(threading.Timer(seconds, os.kill, (event["pid"], signal.SIGKILL)))
                timers[0].start()
            events.append(event)
        timers[0].cancel()
        self._check(events[1:-1])
        return int(events[-1]["status"])

    def _check(self, events: list[Event]) -> None:
        answered = [event for event in self.log if event["kind"] == "learned"]
        version = answered[-1]["receipt"]["version"] if answered else 0
        for event in events:
            if event["kind"] == "died":
                self.deaths.append(event["call"])
            elif event["kind"] == "opened":
                self.found.append(event["version"])
                assert event["version"] in (version, version + 1), "neither the answered version nor the next"
                sampled = {name for old in self.log if old["kind"] == "sampled" for name in old["ids"]}
                assert sampled <= set(event["samples"]), "a sample that was answered is gone"
                assert event["receipts"] >= len(answered)
            elif event["kind"] == "repeated":
                assert {"receipt": event["receipt"]} in [{"receipt": old["receipt"]} for old in answered]
            elif event["kind"] == "done":
                self.digest = event["digest"]
            else:
                self.log.append(event)

    def told(self) -> list[Any]:
        """The answers, as two runs can be compared."""
        sampled = {event["step"]: event["told"] for event in self.log if event["kind"] == "sampled"}
        learned = {event["step"]: comparable(event["receipt"]) for event in self.log if event["kind"] == "learned"}
        return [*sorted(sampled.items()), *sorted(learned.items())]


def undisturbed(nursery: Nursery, model: Path, steps: int) -> tuple[list[Any], str]:
    """The same steps in one life, in memory alone."""
    story = Story(nursery, model, Path())
    story._job["state"] = None  # type: ignore[assignment]
    assert story.live(steps) == 0
    return story.told(), story.digest


def test_a_session_killed_in_three_writes_goes_on_bit_for_bit(nursery: Nursery, tiny: Path, tmp_path: Path) -> None:
    story = Story(nursery, tiny, tmp_path / "state")
    for call, at, how in (
        ("pwrite", 5, "half"),  # after session.json, a group and the two files of version 1: half of the second group
        ("rename", 1, "before"),  # version 2 is written, and has no name yet
        ("rename", 1, "after"),  # version 2 is there, and nobody was told
    ):
        assert story.live(7, call=call, at=at, how=how) == -signal.SIGKILL
    assert story.live(7) == 0
    assert story.deaths == ["half pwrite", "before rename", "after rename"]
    assert story.found == [0, 1, 1, 2]
    assert (story.told(), story.digest) == undisturbed(nursery, tiny, 7)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_session_killed_at_random_points_goes_on_bit_for_bit(
    nursery: Nursery, tiny: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    steps, kills = 40, 0
    story = Story(nursery, tiny, tmp_path / "state")
    while kills < 20:
        if rng.random() < 0.25:
            status = story.live_for(rng.uniform(0.1, 1.5), steps)
        else:
            status = story.live(steps, at=rng.randint(1, 45), how=rng.choice(("before", "half", "after")))
        assert status in (0, -signal.SIGKILL)
        kills += status != 0
        steps += 0 if status else 20  # a machine that is quick enough to end the story gets a longer one
    assert story.live(steps) == 0
    assert (story.told(), story.digest) == undisturbed(nursery, tiny, steps)
    assert not list((tmp_path / "state").rglob(".*.part"))
