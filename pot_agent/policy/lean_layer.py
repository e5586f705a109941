"""One decoder layer of the Llama family, in as few operators as it needs: rows in, rows out.

Layers over the same input (q, k and v; gate and up) are one product each, and so are their LoRA's A; their B stand in
one matrix, zero where an A meets another layer's B. Rows are tokens: of one prompt, or one of each completion.

Limits: no gradient, and the parts that `LeanLayer.of` takes from the module; whether there are others is not for here.
Norms in float32 are torch's own operator; in other types they are the model's modules, which round to float32 in
between, as transformers does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pot_agent.policy.cpu_linear import Linear, joined_linear
from pot_agent.policy.lean_attention import Attention, PromptAttention
from pot_agent.policy.low_rank import add_adapter_

Norm = Callable[[Tensor], Tensor]
Factors = Mapping[str, tuple[Tensor, Tensor]]
"""A [rank, inputs] and B [outputs, rank] by the name of the layer."""
Spans = Sequence[slice]
"""Where each call's rows lie among all."""
PRODUCTS = ("qkv", "out", "gate_up", "down")
"""The joined layers of a `LeanLayer`."""


class Rotation(NamedTuple):
    """Cosines and sines of positions, [N, 1, D]; the sines of the first half have their sign turned."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, rotary: Callable[..., tuple[Tensor, Tensor]], like_NH: Tensor, positions_N: Tensor) -> "Rotation":
        """By the model's own rotary module, so that every scaling of positions is the model's."""
        cos_1ND, sin_1ND = rotary(like_NH.unsqueeze(0), positions_N.unsqueeze(0))
        half = sin_1ND.shape[-1] // 2
        signed = torch.cat((-sin_1ND[..., :half], sin_1ND[..., half:]), -1)
        return cls(cos_1ND[0].unsqueeze(1), signed[0].unsqueeze(1))

    @classmethod
    def joined(cls, parts: "Sequence[Rotation]") -> "Rotation":
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(torch.cat([part.cos for part in parts]), torch.cat([part.sin for part in parts]))

    def of_rows(self, rows: int) -> "Rotation":
        """Of one position, for so many rows."""
        return Rotation(self.cos.expand(rows, -1, -1), self.sin.expand(rows, -1, -1))

    def turn_(self, heads_NQD: Tensor) -> None:
        """x cos + (-x2, x1) sin, in place."""
        turned = heads_NQD.roll(heads_NQD.shape[-1] // 2, -1)
        heads_NQD.mul_(self.cos).addcmul_(turned, self.sin)


class Joined:
    """Linear layers over the same input as one product, perhaps with an adapter on it."""

    def __init__(
        self, sizes: Mapping[str, int], product: Linear, factors: tuple[Tensor, Tensor, float] | None = None
    ) -> None:
        self._sizes = sizes
        self.product = product
        """On the base."""
        self.factors = factors
        """A and B of all the layers, and what to multiply with."""

    @classmethod
    def of(cls, layers: Mapping[str, nn.Linear], *, pack: bool) -> "Joined":
        """On the base's weights."""
        sizes = {name: layer.out_features for name, layer in layers.items()}
        return cls(sizes, joined_linear(list(layers.values()), pack=pack))

    @staticmethod
    def together(joined: "Sequence[Joined]", x_NI: Tensor, spans: Spans) -> Tensor:
        """One product for all rows, and on each span's rows its own adapter; all are over the same base."""
        result = joined[0].product(x_NI)
        for each, span in zip(joined, spans, strict=True):
            if each.factors is not None:
                a_RI, b_OR, scale = each.factors
                add_adapter_(result[span], x_NI[span], a_RI, b_OR, scale)
        return result

    def adapted(self, factors: Factors, scale: float) -> "Joined":
        """The same with those of the factors that are of its layers."""
        here = [name for name in self._sizes if name in factors]
        if not here:
            return self
        a_RI = torch.cat([factors[name][0] for name in here])
        b_OR = a_RI.new_zeros(sum(self._sizes.values()), a_RI.shape[0])
        row, column = 0, 0
        for name, outputs in self._sizes.items():
            if name in factors:
                part = factors[name][1]
                b_OR[row : row + outputs, column : column + part.shape[1]] = part
                column += part.shape[1]
            row += outputs
        return Joined(self._sizes, self.product, (a_RI, b_OR, scale))


@dataclass(frozen=True, kw_only=True)
class LeanLayer:
    """The parts of one layer."""

    qkv: Joined
    out: Joined
    gate_up: Joined
    down: Joined
    before_attention: Norm
    before_mlp: Norm
    head_norms: tuple[Norm, ...]
    """Of queries and of keys, where the model has them."""
    activation: Norm
    heads: int
    key_heads: int
    size: int
    scaling: float

    @classmethod
    def of(cls, layer: Any, names: Mapping[nn.Module, str], *, pack: bool) -> "LeanLayer":
        """A layer of the model, by the names of its linear layers."""
        attention, mlp = layer.self_attn, layer.mlp

        def joined(*modules: nn.Module) -> Joined:
            layers = [unwrapped(module) for module in modules]
            return Joined.of({names[layer]: layer for layer in layers}, pack=pack)

        return cls(
            qkv=joined(attention.q_proj, attention.k_proj, attention.v_proj),
            out=joined(attention.o_proj),
            gate_up=joined(mlp.gate_proj, mlp.up_proj),
            down=joined(mlp.down_proj),
            before_attention=norm_of(layer.input_layernorm),
            before_mlp=norm_of(layer.post_attention_layernorm),
            head_norms=tuple(norm_of(getattr(attention, n)) for n in ("q_norm", "k_norm") if hasattr(attention, n)),
            activation=mlp.act_fn,
            heads=unwrapped(attention.q_proj).out_features // attention.head_dim,
            key_heads=unwrapped(attention.k_proj).out_features // attention.head_dim,
            size=attention.head_dim,
            scaling=attention.scaling,
        )

    def adapted(self, factors: Factors, scale: float) -> "LeanLayer":
        """The layer with this adapter on its products."""
        return replace(
            self,
            qkv=self.qkv.adapted(factors, scale),
            out=self.out.adapted(factors, scale),
            gate_up=self.gate_up.adapted(factors, scale),
            down=self.down.adapted(factors, scale),
        )

    def run(self, x_NH: Tensor, rotation: Rotation, attention: Attention, at: int) -> Tensor:
        """The layer's output for rows whose keys and values go to position `at` on."""
        return self.run_rows(x_NH, rotation, OneByOne([self], [attention], [at], [slice(None)]))

    def run_rows(self, x_NH: Tensor, rotation: Rotation, company: "Company") -> Tensor:
        """The layer's output for the rows of several calls."""
        qkv = company.product("qkv", self.before_attention(x_NH))
        qkv_NAD = qkv.view(x_NH.shape[0], -1, self.size)
        queries, keys, values = torch.split(qkv_NAD, [self.heads, self.key_heads, self.key_heads], 1)
        for norm, part in zip(self.head_norms, (queries, keys), strict=False):
            part.copy_(norm(part))
        rotation.turn_(qkv_NAD[:, : self.heads + self.key_heads])
        x_NH = x_NH + company.product("out", company.attend(queries, keys, values))
        gate, up = company.product("gate_up", self.before_mlp(x_NH)).chunk(2, 1)
        return x_NH + company.product("down", self.activation(gate) * up)

    def prompt_attention(self, like: Tensor, tokens: int) -> PromptAttention:
        """An empty one for a prompt of so many tokens."""
        return PromptAttention(like, heads=self.key_heads, tokens=tokens, size=self.size, scaling=self.scaling)


class Company(Protocol):
    """The calls whose rows go through one layer together, each with its own adapter and its own prompt."""

    def product(self, name: str, x_NI: Tensor) -> Tensor:
        """One of `PRODUCTS` of all rows, their adapters' part with it."""
        ...

    def attend(self, queries_NQD: Tensor, keys_NKD: Tensor, values_NKD: Tensor) -> Tensor:
        """Each row over what its call has kept, and over itself: [N, Q * D]."""
        ...


@dataclass(frozen=True)
class OneByOne:
    """Calls that share the base's products, and attend one after the other; `layers` are the same one of each."""

    layers: Sequence[LeanLayer]
    attentions: Sequence[Attention]
    ats: Sequence[int]
    spans: Spans

    def product(self, name: str, x_NI: Tensor) -> Tensor:
        return Joined.together([getattr(layer, name) for layer in self.layers], x_NI, self.spans)

    def attend(self, queries_NQD: Tensor, keys_NKD: Tensor, values_NKD: Tensor) -> Tensor:
        found = [
            attention.attend(queries_NQD[span], keys_NKD[span], values_NKD[span], at)
            for attention, at, span in zip(self.attentions, self.ats, self.spans, strict=True)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)


def unwrapped(module: Any) -> nn.Linear:
    """The linear layer itself, where peft has put an adapter around it."""
    return getattr(module, "base_layer", module)  # type: ignore[no-any-return]


def norm_of(module: Any) -> Norm:
    """An RMSNorm module as an operator."""
    weight, epsilon = module.weight, module.variance_epsilon
    if weight.dtype != torch.float32:
        return module  # type: ignore[no-any-return]
    return lambda x: torch.rms_norm(x, weight.shape, weight, epsilon)
