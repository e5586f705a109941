"""The model's layers as the trainer runs them: the same functions, with backward passes written by hand.

Autograd over peft's and transformers' own forward goes over memory once for every small operation, and keeps what it
could form again. Here a linear layer with its LoRA, an RMS norm and a gated unit are one operation each. A LoRA layer
keeps its input and the rank-sized x A^T, a norm its input and one number a row, a gated unit its two halves. peft's
modules stay the owners of the parameters, and their gradients end where autograd's would.

Limits: norms and gated units are replaced only where they are found to compute the same as theirs (RMS norms with one
weight a feature; down(silu(gate) * up)); others run as they are. Forward methods are swapped on the modules themselves,
so callers hold the policy's lock. First derivatives only. On a CPU in float32 the products with the base's weights, the
output head among them, are oneDNN's (`cpu_linear.product`), all others torch's own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from pot_agent.policy.adapters import AdapterSlot
from pot_agent.policy.cpu_linear import has_product, product

Forward = Callable[[Tensor], Tensor]


class FusedLayers:
    """What of one model can be run this way. Build it before any adapter is injected."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._forwards: dict[nn.Module, Forward] = {}
        known: dict[type[nn.Module], bool] = {}
        for module in model.modules():
            made = _norm(module) or _gated_unit(module) or _linear(module)
            if made is None:
                continue
            if type(module) not in known:
                known[type(module)] = _agrees(module, made)
            if known[type(module)]:
                self._forwards[module] = made

    @contextmanager
    def running(self, slot: AdapterSlot | None) -> Iterator[None]:
        """The model runs this way inside, with the adapter that is loaded in the slot; None: the base."""
        forwards = dict(self._forwards)
        if slot is not None:
            for site in slot.layout.sites:
                layer = self._model.get_submodule(site.name)
                forwards[layer] = _adapted(layer, slot)
        before = {module: module.__dict__.get("forward") for module in forwards}
        try:
            for module, forward in forwards.items():
                module.forward = forward
            yield
        finally:
            for module, own in before.items():
                module.__dict__.pop("forward", None)
                if own is not None:
                    module.forward = own


def _adapted(layer: Any, slot: AdapterSlot) -> Forward:
    base = layer.base_layer
    a_RI, b_OR = layer.lora_A[slot.name].weight, layer.lora_B[slot.name].weight
    scale = slot.layout.scale

    def forward(x: Tensor) -> Tensor:
        result: Tensor = _LoraLinear.apply(x, base.weight, base.bias, a_RI, b_OR, scale)  # type: ignore[no-untyped-call]
        return result

    return forward


def _added(result_NO: Tensor, left_NR: Tensor, right_RO: Tensor, scale: float) -> Tensor:
    """result + scale * left @ right, in the adapter's type, given back in the result's, which may be overwritten."""
    if result_NO.dtype == left_NR.dtype:
        is_whole = result_NO.untyped_storage().nbytes() == result_NO.nbytes
        # Of a product whose rows were rounded up, the few more would be kept for the backward pass.
        return (result_NO.addmm_ if is_whole else result_NO.addmm)(left_NR, right_RO, alpha=scale)
    return torch.addmm(result_NO.to(left_NR.dtype), left_NR, right_RO, alpha=scale).to(result_NO.dtype)


class _LoraLinear(torch.autograd.Function):
    """x W^T + b + scale * (x A^T) B^T, where W and b are frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None, a_RI: Tensor, b_OR: Tensor, scale: float
    ) -> Tensor:
        x_NI = x.reshape(-1, x.shape[-1])
        inner_NR = linear(x_NI.to(a_RI.dtype), a_RI)
        result_NO = _added(product(x_NI, weight_OI, bias_O), inner_NR, b_OR.t(), scale)
        ctx.save_for_backward(x_NI, weight_OI, a_RI, b_OR, inner_NR)
        ctx.scale, ctx.shape = scale, x.shape
        return result_NO.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI, a_RI, b_OR, inner_NR = ctx.saved_tensors
        slope_NO = gradients[0].reshape(-1, weight_OI.shape[0])
        wide_NO = slope_NO.to(a_RI.dtype)
        # Each product in the orientation that BLAS is quick at: the others take up to five times as long.
        inner_slope_NR = linear(wide_NO, b_OR.t().contiguous()).mul_(ctx.scale)
        a_slope_RI = inner_slope_NR.t() @ x_NI.to(a_RI.dtype)
        b_slope_OR = (inner_NR.t() @ wide_NO).mul_(ctx.scale).t()
        x_slope = None
        if ctx.needs_input_grad[0]:
            x_slope = _added(product(slope_NO, weight_OI.t()), inner_slope_NR, a_RI, 1.0).view(ctx.shape)
        return x_slope, None, None, a_slope_RI, b_slope_OR, None


def _linear(module: nn.Module) -> Forward | None:
    if type(module) is not nn.Linear or not has_product(module.weight):
        return None
    layer = module

    def forward(x: Tensor) -> Tensor:
        result: Tensor = _FrozenLinear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
        return result

    return forward


class _FrozenLinear(torch.autograd.Function):
    """x W^T + b, where W and b are frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight_OI)
        ctx.shape = x.shape
        return product(x.reshape(-1, x.shape[-1]), weight_OI, bias_O).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weight_OI,) = ctx.saved_tensors
        slope_NO = gradients[0].reshape(-1, weight_OI.shape[0])
        return product(slope_NO, weight_OI.t()).view(ctx.shape), None, None


def _norm(module: nn.Module) -> Forward | None:
    weight_H = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight_H, Tensor) or epsilon is None:
        return None

    def forward(x: Tensor) -> Tensor:
        result: Tensor = _RmsNorm.apply(x, weight_H, epsilon)  # type: ignore[no-untyped-call]
        return result

    return forward


class _RmsNorm(torch.autograd.Function):
    """w * x / sqrt(mean(x^2) + epsilon), in float32 at least; w is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_H: Tensor, epsilon: float) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        scale = wide.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight_H, scale)
        return (wide * scale).to(x.dtype).mul_(weight_H)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_H, scale = ctx.saved_tensors
        slope = (gradients[0] * weight_H).to(scale.dtype)
        wide = x.to(scale.dtype)
        along = torch.linalg.vecdot(slope, wide).unsqueeze(-1) * scale.pow(3) / x.shape[-1]
        return slope.mul_(scale).addcmul_(wide, along, value=-1.0).to(x.dtype), None, None


def _gated_unit(module: nn.Module) -> Forward | None:
    parts = ("gate_proj", "up_proj", "down_proj", "act_fn")
    if not all(isinstance(getattr(module, part, None), nn.Module) for part in parts):
        return None
    unit: Any = module

    def forward(x: Tensor) -> Tensor:
        result: Tensor = unit.down_proj(_SiluProduct.apply(unit.gate_proj(x), unit.up_proj(x)))  # type: ignore[no-untyped-call]
        return result

    return forward


class _SiluProduct(torch.autograd.Function):
    """silu(gate) * up, with silu(gate) formed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        slope = gradients[0]
        up_slope = silu(gate).mul_(slope)
        gate_slope = torch.ops.aten.silu_backward(slope * up, gate)
        return gate_slope, up_slope


@torch.no_grad()
def _agrees(module: nn.Module, forward: Forward) -> bool:
    """Whether a few random rows come out as the module's own forward gives them."""
    weight = next(module.parameters())
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(4, weight.shape[-1], generator=draw).to(device=weight.device, dtype=weight.dtype)
    tolerance = 1e-5 if weight.dtype in (torch.float32, torch.float64) else 1e-2
    try:
        return torch.allclose(forward(rows), module(rows), rtol=tolerance, atol=tolerance)
    except (RuntimeError, TypeError):
        return False
