"""The tiny model, and policies over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pot_agent.policy.base import Policy
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.engine import Engine
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import serving
from tests.tiny import make_norms_exact, make_tiny_model

MANY = 1000
"""Sessions that the shared policies hold: tests of the contract leave theirs open."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The tiny model gains nothing from a second thread, and waits for it where others use the processor."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama")


@pytest.fixture(scope="session")
def local(tiny: Path) -> Iterator[LocalPolicy]:
    """The policy in this process."""
    with LocalPolicy(str(tiny), threads=1, max_sessions=MANY, batch=False) as policy:
        yield policy


@pytest.fixture(scope="session")
def http(tiny: Path) -> Iterator[HttpPolicy]:
    """The HTTP client of a real server on this machine."""
    local = LocalPolicy(str(tiny), threads=1, max_sessions=MANY, batch=False)
    with serving(local) as url, HttpPolicy(url) as policy:
        yield policy


@pytest.fixture(scope="session")
def durable(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPolicy]:
    """The policy in this process, with a state folder."""
    state = tmp_path_factory.mktemp("state")
    with LocalPolicy(str(tiny), threads=1, max_sessions=MANY, batch=False, state_dir=state) as policy:
        yield policy


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where a state folder is to be."""
    return tmp_path / "state"


@pytest.fixture(scope="session")
def vllm() -> Iterator[LocalPolicy]:
    """The embedded model here, vLLM drawing its samples; it has fewer slots than the tests have sessions."""
    with LocalPolicy(sampler="vllm", context_tokens=512, lora_slots=2, threads=1, max_sessions=MANY) as policy:
        yield policy


@pytest.fixture(scope="session")
def vllm_http(vllm: LocalPolicy) -> Iterator[HttpPolicy]:
    """The same behind HTTP."""
    with serving(vllm) as url, HttpPolicy(url) as policy:
        yield policy


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every implementation of the contract; with --vllm, those over vLLM instead."""
    if "policy" in metafunc.fixturenames:
        with_vllm = metafunc.config.getoption("--vllm")
        names = ["vllm", "vllm_http"] if with_vllm else ["local", "http", "durable"]
        metafunc.parametrize("policy", names, indirect=True)


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    """Every implementation of the contract."""
    found: Policy = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def exact(tiny: Path, tmp_path: Path) -> Engine:
    """The tiny model in float64, to be compared with exact numbers: its norms too, which always round to float32."""
    engine = Engine(str(tiny), device="cpu", dtype="float64", home=tmp_path)
    make_norms_exact(engine._loaded.model)
    return engine
