"""Linear layers of few rows on a CPU, with weights packed once for oneDNN.

`F.linear` on a handful of float32 rows reads the weights at a fraction of the memory's speed (3 rows through the
output head of a 135M model: 34 ms; packed: 3 ms). Packed weights hold the same numbers in another order; sums are
formed in another order too, so outputs equal those of `F.linear` to float32 rounding (relative 1e-5), not bit for bit.

Limits: float32 on a CPU with oneDNN; the packed copy doubles the memory of the weights, so models above
`PACK_LIMIT_BYTES` are left as they are. The operators are torch's own but private: where they are missing, nothing is
packed.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

PACK_LIMIT_BYTES = 4 * 2**30
"""Weights above this many bytes are not packed."""
FEW_ROWS = 16
"""More rows than this go through `F.linear`, which is as fast for them."""
_TYPICAL_ROWS = 4

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
    """The layer with a packed copy of its weights for few rows. The weights must not change afterwards."""
    weight, bias = layer.weight.detach(), layer.bias
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)
    pointwise = torch.ops.mkldnn._linear_pointwise

    def forward(x: Tensor) -> Tensor:
        if x.numel() > FEW_ROWS * x.shape[-1]:
            return linear(x, weight, bias)
        result: Tensor = pointwise(x, packed, bias, "none", [], "")
        return result

    return forward
