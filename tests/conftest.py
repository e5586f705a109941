"""What every test may use: one real sandbox for the whole run."""

from collections.abc import Iterator

import pytest

from pot_agent.sandbox.local import LocalSandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """The local sandbox, started once."""
    with LocalSandbox() as sandbox:
        yield sandbox
