"""Linear layers on a CPU, with weights packed once for oneDNN: few rows above all.

`F.linear` on a handful of float32 rows reads the weights at a fraction of the memory's speed (3 rows through the
output head of a 135M model: 34 ms; packed: 3 ms), and 512 rows are no slower packed (17 ms for 21). Packed weights hold
the same numbers in another order; sums are formed in another order too, so outputs equal those of `F.linear` to float32
rounding (relative 1e-5), not bit for bit.

oneDNN keeps about half a megabyte for every number of rows that a product is ever called with, so many rows are
rounded up, the rest being zeros: a few dozen numbers instead of every prompt's length.

`product` is for training: oneDNN too, over the weights as they are. Hundreds of rows gain nothing by packing, but BLAS
does not use all of every processor (MKL on AMD's: half of it and less).

Limits: float32 on a CPU with oneDNN; the packed copy doubles the memory of the weights, so models above
`PACK_LIMIT_BYTES` are left as they are. The operators are torch's own but private: where they are missing, nothing is
packed, and `product` is torch's own.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from pot_agent.policy.huge_pages import on_huge_pages

PACK_LIMIT_BYTES = 4 * 2**30
"""Weights above this many bytes are not packed."""
FEW_ROWS = 16
BATCH_ROWS = 64
"""More than `FEW_ROWS` rows are rounded up to a multiple of 8 up to this: these are steps of many sessions' rows."""
ROUNDED_ROWS = 32
"""More rows still are rounded up to a multiple of this."""
_TYPICAL_ROWS = 4
"""The order is chosen for so few rows; many are no slower by it."""

Linear = Callable[[Tensor], Tensor]


def can_pack(weights_bytes: int, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packed weights help, and fit, here."""
    return (
        device.type == "cpu"
        and dtype == torch.float32
        and weights_bytes <= PACK_LIMIT_BYTES
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def plain_linear(layer: nn.Linear) -> Linear:
    """The layer itself, without the module around it."""
    weight, bias = layer.weight, layer.bias
    return lambda x: linear(x, weight, bias)


def packed_linear(layer: nn.Linear) -> Linear:
    """The layer with a packed copy of its weights. The weights must not change afterwards."""
    return joined_linear([layer], pack=True)


def joined_linear(layers: Sequence[nn.Linear], *, pack: bool) -> Linear:
    """Layers over the same input, their results side by side; packed, they are one product."""
    if not pack:
        products = [plain_linear(layer) for layer in layers]
        return products[0] if len(products) == 1 else lambda x: torch.cat([product(x) for product in products], -1)
    weights = [layer.weight.detach() for layer in layers]
    packed = _reorder(weights[0] if len(weights) == 1 else torch.cat(weights))
    bias, pointwise = _joined_bias(layers), torch.ops.mkldnn._linear_pointwise

    def forward(x: Tensor) -> Tensor:
        rows = x.numel() // x.shape[-1]
        if rows <= FEW_ROWS:
            result: Tensor = pointwise(x, packed, bias, "none", [], "")
            return result
        many: Tensor = pointwise(_rounded(x.reshape(rows, -1)), packed, bias, "none", [], "")
        return many[:rows].view(*x.shape[:-1], -1)

    return forward


def has_product(weight: Tensor) -> bool:
    """Whether `product` is oneDNN's for such weights."""
    return can_pack(0, weight.device, weight.dtype)


def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b, no gradient. The weight may be a transposed view."""
    if not has_product(weight_OI):
        return linear(x_NI, weight_OI, bias_O)
    result: Tensor = torch.ops.mkldnn._linear_pointwise(_rounded(x_NI), weight_OI, bias_O, "none", [], "")
    return result[: len(x_NI)]


def _rounded(x_NI: Tensor) -> Tensor:
    rows = len(x_NI)
    if rows <= FEW_ROWS:
        return x_NI.contiguous()
    step = 8 if rows <= BATCH_ROWS else ROUNDED_ROWS
    return pad(x_NI, (0, 0, 0, -rows % step)).contiguous()


def _joined_bias(layers: Sequence[nn.Linear]) -> Tensor | None:
    if all(layer.bias is None for layer in layers):
        return None
    return torch.cat(
        [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
    )


def _reorder(weight_OI: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, _TYPICAL_ROWS)
    if hasattr(torch.ops.mkldnn, "data_ptr"):
        on_huge_pages(torch.ops.mkldnn.data_ptr(packed), weight_OI.numel() * weight_OI.element_size())
    return packed
