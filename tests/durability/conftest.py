"""What the tests of durability share: the tiny model, one nursery, and a story of lives that is told to its end."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.nursery import Nursery, Said
from tests.tiny import make_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder; its context holds a few thoughts with their feedback."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", context=2048)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.durability.child") as nursery:
        yield nursery


@dataclass
class Story:
    """One run through many lives."""

    nursery: Nursery
    job: Said
    deaths: list[str] = field(default_factory=list)
    closings: list[Said] = field(default_factory=list)
    went_on_at: list[str] = field(default_factory=list)

    def live(self, at: int | None = None) -> Said | None:
        """One life, killed at that moment; what it ended with, or None."""
        said, status = self.nursery.life(**self.job, at=at)
        self.deaths += [one["moment"] for one in said if one["kind"] == "died"]
        self.closings += [one for one in said if one["kind"] == "closing"]
        done = [one for one in said if one["kind"] == "done"]
        assert status == (0 if done else -signal.SIGKILL), said
        self.went_on_at += [node for one in done for node in one["went_on_at"]]
        return done[0] if done else None

    def outcome(self, done: Said) -> dict[str, Any]:
        """What two runs that did the same agree in: the solution, the last weights, and every update."""
        solution = {name: value for name, value in done["solution"].items() if name != "seconds"}
        last = {name: self.closings[-1][name] for name in ("version", "steps", "weights", "made")}
        return {"solution": solution, **last}


@pytest.fixture(scope="session")
def undisturbed(nursery: Nursery, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """What a run that nothing happens to ends with, and how many moments it has."""
    folder = tmp_path_factory.mktemp("undisturbed")
    story = Story(nursery, job_in(folder, tiny))
    done = story.live()
    assert done is not None
    return story.outcome(done), done["moments"]


def job_in(folder: Path, tiny: Path, checkpoints: str | None = None) -> Said:
    """A run of its own in a folder."""
    where = checkpoints or str(folder / "checkpoints.sqlite")
    return {"model": str(tiny), "state": str(folder / "state"), "checkpoints": where}
