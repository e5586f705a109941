"""A linear layer with a LoRA on top: x W + scale x A^T B^T, in the types that peft's layer uses.

Limits: for sampling only; in place where it can be, so no gradient goes through.
"""

from torch import Tensor
from torch.nn.functional import linear

from pot_agent.policy.cpu_linear import Linear


def adapted(product: Linear, a_RI: Tensor, b_OR: Tensor, scale: float) -> Linear:
    """The product (whose result is new at each call) plus the adapter's part."""
    a_IR, b_RO = a_RI.t(), b_OR.t()

    def in_place(x: Tensor) -> Tensor:
        result = product(x)
        result.view(-1, result.shape[-1]).addmm_(x.reshape(-1, x.shape[-1]).mm(a_IR), b_RO, alpha=scale)
        return result

    def cast(x: Tensor) -> Tensor:
        result = product(x)
        return (result + linear(linear(x.to(a_RI.dtype), a_RI), b_OR) * scale).to(result.dtype)

    def forward(x: Tensor) -> Tensor:
        return in_place(x) if x.dtype == a_RI.dtype else cast(x)

    return forward
