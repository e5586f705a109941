"""The tiny model, and policies over it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pot_agent.policy.base import Policy
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.engine import Engine
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import serving
from tests.tiny import make_tiny_model


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
    with LocalPolicy(str(tiny), threads=1) as policy:
        yield policy


@pytest.fixture(scope="session")
def http(tiny: Path) -> Iterator[HttpPolicy]:
    """The HTTP client of a real server on this machine."""
    with serving(LocalPolicy(str(tiny), threads=1)) as url, HttpPolicy(url) as policy:
        yield policy


@pytest.fixture(params=["local", "http"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """Every implementation of the contract."""
    found: Policy = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def exact(tiny: Path, tmp_path: Path) -> Engine:
    """The tiny model in float64, to be compared with exact numbers: its norms too, which always round to float32."""
    engine = Engine(str(tiny), device="cpu", dtype="float64", home=tmp_path)
    for module in engine._loaded.model.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = partial(_exact_norm, module.weight, module.variance_epsilon)
    return engine


def _exact_norm(weight_H: Tensor, epsilon: float, x_NTH: Tensor) -> Tensor:
    return weight_H * x_NTH * torch.rsqrt(x_NTH.square().mean(-1, keepdim=True) + epsilon)
