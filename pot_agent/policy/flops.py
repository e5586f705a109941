"""How much arithmetic an update is, and a call of the sampler: estimates in FLOPs, stated so that they can be checked.

With P the parameters of the backbone's linear layers, H those of the output head, A those of the adapter, L layers
whose attention heads together are D wide, p tokens of the prompt but its last (which begins each completion's row) and
c of all completions (c_i of each):

    forward   = 2 (P + A) (p + c) + 2 H c + 4 L D pairs,    pairs = p^2 / 2 + sum_i (p c_i + c_i^2 / 2)
    backward  = 2 (P + 2 A) (p + c) + 2 H c + 8 L D pairs
    update    = epochs x (forward + backward) + one forward for a reference that is not the version trained
    teachers  = 2 (P + A) t + 4 L D t^2 / 2 for each teacher's row of t tokens
    sampling  = forward, with A = 0: the prompt once for all completions of a call, then each token once
    sampling  = 2 N (p + c) where only the number N of all parameters is known: no attention, and the head (and an
                embedding of its own) counted for the prompt's tokens too

A frozen layer's backward pass has the input's gradient alone (2 P); attention's has four products for the forward's
two. The prompt counts once for a group, and what is computed again to save memory does not count: these are the FLOPs
that the update needs, by which model FLOPs utilisation is reckoned.

Limits: norms, activations, softmax, the optimizer and the canary are left out (under 2% for the models here), and so
is the adapter's own part of sampling (2 A for each token: about 2% at rank 8 of a small model).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelShape:
    """What the estimate needs to know of a model."""

    linear: int
    """Parameters of the backbone's linear layers, P."""
    head: int
    """Parameters of the output head, H."""
    layers: int
    attention_width: int
    """Heads times their size, D."""

    @classmethod
    def of(cls, config: Any, linears: "Sequence[nn.Linear]", head: "nn.Module") -> "ModelShape":
        """The shape of a transformers model with these linear layers (the head not among them)."""
        text = config.get_text_config()
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return cls(
            linear=sum(layer.weight.numel() for layer in linears),
            head=sum(parameter.numel() for parameter in head.parameters()),
            layers=text.num_hidden_layers,
            attention_width=text.num_attention_heads * size,
        )

    @classmethod
    def read(cls, plain: Mapping[str, int] | None) -> "ModelShape | None":
        """The shape that `Capabilities.shape` names; None where it does not, or not all of it."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: plain[name] for name in names}) if plain and set(names) <= set(plain) else None


def update_flops(
    shape: ModelShape,
    *,
    adapter: int,
    prompt: int,
    completions: Sequence[int],
    epochs: int,
    reference: bool = False,
    teachers: Sequence[int] = (),
) -> float:
    """FLOPs of one update, by the module's formula; lengths in tokens, a teacher's with its own prompt."""
    shared, written = prompt - 1, sum(completions)
    tokens, pairs = shared + written, _pairs(shared, completions)
    attention = shape.layers * shape.attention_width
    forward = 2 * (shape.linear + adapter) * tokens + 2 * shape.head * written + 4 * attention * pairs
    backward = 2 * (shape.linear + 2 * adapter) * tokens + 2 * shape.head * written + 8 * attention * pairs
    taught = sum(2 * (shape.linear + adapter) * t + 2 * attention * t**2 for t in teachers)
    return float(epochs * (forward + backward) + reference * forward + taught)


def sampling_flops(
    *, prompt: int, completions: Sequence[int], shape: ModelShape | None = None, parameters: int | None = None
) -> float | None:
    """FLOPs of sampling (or scoring) these completions of one prompt; None where nothing of the model is known."""
    shared, written = max(0, prompt - 1), sum(completions)
    if shape is not None:
        attention = 4 * shape.layers * shape.attention_width * _pairs(shared, completions)
        return float(2 * shape.linear * (shared + written) + 2 * shape.head * written + attention)
    return None if parameters is None else float(2 * parameters * (shared + written))


def _pairs(shared: int, completions: Sequence[int]) -> float:
    """Pairs of tokens of which one attends to the other."""
    return shared**2 / 2 + sum(shared * length + length**2 / 2 for length in completions)
