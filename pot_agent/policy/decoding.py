"""The model as the sampler runs it: frozen linear layers by the shortest way, one adapter version on top.

peft's forward costs more Python than arithmetic when there are three rows. Here each linear layer's forward is
replaced, for the duration of a call, by its (packed) product plus x A^T B^T * scale, in the types that peft's layer
uses. That sampler and trainer agree is tested, never assumed.

Limits: the forward methods are swapped on the modules themselves, so only one thread may be inside at a time, and
nothing may train meanwhile: callers hold the policy's lock.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.cpu_linear import Linear, can_pack, packed_linear, plain_linear


class FastForward:
    """The linear layers of one model, packed at first use where that helps."""

    def __init__(self, model: PreTrainedModel, linears: Mapping[str, nn.Linear]) -> None:
        self._model = model
        self._linears = dict(linears)
        head = model.get_output_embeddings()
        if isinstance(head, nn.Linear):
            self._linears[_name_of(model, head)] = head
        bytes_ = sum(layer.weight.numel() * layer.weight.element_size() for layer in self._linears.values())
        self.packs = can_pack(bytes_, model.device, model.dtype)
        self._products: dict[str, Linear] = {}

    @contextmanager
    def running(self, layout: AdapterLayout | None, vector: Tensor | None) -> Iterator[None]:
        """The model runs this adapter version inside, or the base where either is None."""
        if not self._products:
            pack = packed_linear if self.packs else plain_linear
            self._products = {name: pack(layer) for name, layer in self._linears.items()}
        forwards = dict(self._products)
        if layout is not None and vector is not None:
            for name, a_RI, b_OR in layout.views(vector):
                forwards[name] = _adapted(self._products[name], a_RI, b_OR, layout.scale)
        modules = [self._model.get_submodule(name) for name in forwards]
        try:
            for module, forward in zip(modules, forwards.values(), strict=True):
                module.forward = forward
            yield
        finally:
            for module in modules:
                module.__dict__.pop("forward", None)


def _adapted(product: Linear, a_RI: Tensor, b_OR: Tensor, scale: float) -> Linear:
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


def _name_of(model: nn.Module, wanted: nn.Module) -> str:
    return next(str(name) for name, module in model.named_modules() if module is wanted)
