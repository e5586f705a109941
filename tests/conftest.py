"""What every test may use: one real sandbox for the whole run."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from pot_agent.sandbox.local import LocalSandbox

# The same examples each time, and no test fails because the machine was busy.
settings.register_profile("pot", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pot")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-vllm` asks for it."""
    parser.addoption("--vllm", action="store_true", help="run the policy contract over vLLM, which must be installed")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """The local sandbox, started once."""
    with LocalSandbox() as sandbox:
        yield sandbox
