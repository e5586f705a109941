"""What every test may use: one real sandbox for the whole run."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from pot_agent.sandbox.local import LocalSandbox

# The same examples each time, and no test fails because the machine was busy.
settings.register_profile("pot", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pot")

# A shell that runs the tests in the background has SIGINT ignored, also in all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-vllm` asks for it."""
    parser.addoption("--vllm", action="store_true", help="run the policy contract over vLLM, which must be installed")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """The local sandbox, started once."""
    with LocalSandbox() as sandbox:
        yield sandbox
