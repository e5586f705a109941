"""A linear layer with a LoRA on top: x W + scale x A^T B^T, in the types that peft's layer uses.

Limits: for sampling only; in place where it can be, so no gradient goes through.
"""

from torch import Tensor
from torch.nn.functional import linear

from pot_agent.policy.cpu_linear import Linear


def add_adapter_(result: Tensor, x: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float) -> None:
    """Add the adapter's part for inputs `x` to their product, in place."""
    if x.dtype == a_RI.dtype:
        rows = x.reshape(-1, x.shape[-1])
        result.view(-1, result.shape[-1]).addmm_(rows.mm(a_RI.t()), b_OR.t(), alpha=scale)
    else:
        result.copy_(result + linear(linear(x.to(a_RI.dtype), a_RI), b_OR) * scale)


def adapted(product: Linear, a_RI: Tensor, b_OR: Tensor, scale: float) -> Linear:
    """The product (whose result is new at each call) plus the adapter's part."""

    def forward(x: Tensor) -> Tensor:
        result = product(x)
        add_adapter_(result, x, a_RI, b_OR, scale)
        return result

    return forward
