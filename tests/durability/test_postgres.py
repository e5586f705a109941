"""The same kills over a real PostgreSQL server, where one is installed (Debian's package `postgresql`)."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durability.conftest import job_in
from tests.durability.postgres import postgres, programs
from tests.durability.test_kills import Undisturbed, kill_at_random
from tests.nursery import Nursery

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL here; Debian, Ubuntu: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="pot-"))  # pytest's own folders are closed to other accounts
    folder.chmod(0o755)
    try:
        with postgres(folder / "server") as url:
            yield url
    finally:
        shutil.rmtree(folder)


def test_runs_killed_at_random_moments_over_postgresql_end_as_they_would_have(
    nursery: Nursery, tiny: Path, tmp_path: Path, undisturbed: Undisturbed, url: str
) -> None:
    kill_at_random(nursery, job_in(tmp_path, tiny, checkpoints=url), undisturbed, seed=99, kills=10)
