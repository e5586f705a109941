"""Packed linear layers: the same numbers, whatever the number of rows, and little kept for it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pot_agent.policy.cpu_linear import BATCH_ROWS, FEW_ROWS, ROUNDED_ROWS, can_pack, joined_linear, product

pytestmark = pytest.mark.skipif(
    not can_pack(0, torch.device("cpu"), torch.float32), reason="this torch packs nothing on this processor"
)


ROWS = [1, FEW_ROWS, FEW_ROWS + 1, ROUNDED_ROWS, BATCH_ROWS, BATCH_ROWS + 1, 100]


def layers(bias: bool) -> list[nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [nn.Linear(48, 24, bias=bias), nn.Linear(48, 8, bias=False)]


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_any_number_of_rows_gives_what_the_layers_give(rows: int, bias: bool) -> None:
    own = layers(bias)
    x: Tensor = torch.randn(1, rows, 48, generator=torch.Generator().manual_seed(rows))
    got = joined_linear(own, pack=True)(x)
    assert torch.allclose(got, torch.cat([layer(x) for layer in own], -1), rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_a_product_for_training_is_torchs_own_and_so_is_the_one_back(rows: int, bias: bool) -> None:
    layer = layers(bias)[0]
    x, slope = (torch.randn(rows, size, generator=torch.Generator().manual_seed(rows)) for size in (48, 24))
    assert torch.allclose(product(x, layer.weight, layer.bias), layer(x), rtol=1e-5, atol=1e-6)
    assert torch.allclose(product(slope, layer.weight.t()), slope @ layer.weight, rtol=1e-5, atol=1e-6)
    wide = torch.randn(rows, 96)[:, ::2]  # not contiguous
    assert torch.allclose(product(wide, layer.weight), wide @ layer.weight.t(), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_prompt_of_every_length_keeps_little_memory() -> None:
    product = joined_linear([nn.Linear(576, 1536, bias=False)], pack=True)

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    for rows in range(16, 513, 16):
        product(torch.randn(rows, 576))
    before = resident()
    for rows in range(17, 513):
        product(torch.randn(rows, 576))
    assert resident() - before < 60  # without rounding: more than 200
