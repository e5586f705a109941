"""Adapters: a LoRA's weights as one flat vector, and the peft modules that the trainer runs it through.

One flat float32 vector per version: keeping, swapping, clipping and stepping an adapter are then single operations,
and a version is immutable because nobody writes to its vector. The trainer copies a vector into a *slot*: a real peft
LoRA, injected once per distinct configuration. The sampler reads views of the vector and needs no slot.

Limits: linear layers only, never the output head (its gradient is formed in chunks); no dropout, because a ratio of two
different dropout masks is not a ratio of policies.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from pot_agent.config import LoraConfig
from pot_agent.errors import ConfigError

SPARE_SLOTS = 4
"""Slots kept although no session uses them: building one costs about a second on a large model."""


@dataclass(frozen=True)
class Site:
    """One adapted linear layer and where its A [rank, inputs] and B [outputs, rank] lie in the flat vector."""

    name: str
    inputs: int
    outputs: int
    start: int


@dataclass(frozen=True)
class AdapterLayout:
    """Where each layer's A and B lie in a version's vector."""

    lora: LoraConfig
    sites: tuple[Site, ...]
    size: int

    @property
    def scale(self) -> float:
        """What the adapter's output is multiplied by."""
        return self.lora.alpha / self.lora.rank

    def views(self, vector: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(layer name, A, B) for each site: views, not copies."""
        rank = self.lora.rank
        for site in self.sites:
            middle = site.start + rank * site.inputs
            end = middle + rank * site.outputs
            yield (
                site.name,
                vector[site.start : middle].view(rank, site.inputs),
                vector[middle:end].view(site.outputs, rank),
            )

    def initial(self, seed: int, like: Tensor) -> Tensor:
        """Version 0: A uniform in +-1/sqrt(inputs) (peft's initialisation), from the seed alone; B zero."""
        digest = hashlib.sha256(f"adapter:{seed}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        vector = torch.zeros(self.size)
        for _, a_RI, _ in self.views(vector):
            bound = a_RI.shape[1] ** -0.5
            a_RI.uniform_(-bound, bound, generator=generator)
        return vector.to(device=like.device, dtype=adapter_dtype(like.dtype))


def linear_layers(model: PreTrainedModel) -> dict[str, nn.Linear]:
    """Every linear layer by name, but the output head. Call it before any adapter is injected."""
    head = model.get_output_embeddings()
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}


def layout_of(linears: Mapping[str, nn.Linear], lora: LoraConfig) -> AdapterLayout:
    """The layout of such an adapter on these layers.

    Raises `ConfigError` for targets that are not there, and for a rank beyond the smallest side of those that are.
    """
    if lora.dropout:
        raise ConfigError(
            f"dropout must be 0, got {lora.dropout}: the update compares two policies token by token, and two dropout "
            "masks are two policies",
            value=lora.dropout,
        )
    names = _targets(linears, lora)
    _check_rank(lora.rank, {name: linears[name] for name in names})
    sites, start = [], 0
    for name in names:
        layer = linears[name]
        sites.append(Site(name, layer.in_features, layer.out_features, start))
        start += lora.rank * (layer.in_features + layer.out_features)
    return AdapterLayout(lora=lora, sites=tuple(sites), size=start)


def _targets(linears: Mapping[str, nn.Linear], lora: LoraConfig) -> list[str]:
    """All names, or those that are, or end in, one of the targets. No patterns: one can run for ever."""
    if lora.targets == "all-linear":
        return list(linears)
    kinds = sorted({name.rsplit(".", 1)[-1] for name in linears})
    fits = {target: [n for n in linears if n == target or n.endswith(f".{target}")] for target in lora.targets}
    missing = [target for target, names in fits.items() if not names]
    if missing:
        raise ConfigError(
            f"targets: no linear layer of the model fits {', '.join(missing[:5])[:200]}; there are {', '.join(kinds)} "
            "(or `all-linear`; the output head cannot be adapted)",
            value=lora.targets,
        )
    chosen = {name for names in fits.values() for name in names}
    return [name for name in linears if name in chosen]


def _check_rank(rank: int, layers: Mapping[str, nn.Linear]) -> None:
    """A rank beyond a layer's smaller side adds parameters and nothing that they could express."""
    most, name = min((min(layer.in_features, layer.out_features), name) for name, layer in layers.items())
    if rank > most:
        raise ConfigError(
            f"rank must be at most {most}, the smaller side of {name}, got {rank}; lower it, or leave such layers out "
            "of targets",
            value=rank,
        )


def adapter_dtype(base: torch.dtype) -> torch.dtype:
    """Adapters are float32 whatever the base is; those of a float64 base, for exact checks, are float64."""
    return torch.float64 if base == torch.float64 else torch.float32


class AdapterSlot:
    """One peft LoRA in the model, its parameters being views of one flat buffer."""

    def __init__(self, model: PreTrainedModel, layout: AdapterLayout, name: str) -> None:
        self.layout = layout
        self.name = name
        config = PeftLoraConfig(
            r=layout.lora.rank,
            lora_alpha=layout.lora.alpha,
            lora_dropout=0.0,
            bias="none",
            target_modules=[site.name for site in layout.sites],
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")  # several slots are the point
            inject_adapter_in_model(config, model, adapter_name=name)
        self._flat = torch.zeros(layout.size, device=model.device, dtype=adapter_dtype(model.dtype))
        self._parameters: list[nn.Parameter] = []
        for layer, a_RI, b_OR in layout.views(self._flat):
            module = model.get_submodule(layer)
            for half, view in ((module.lora_A, a_RI), (module.lora_B, b_OR)):
                parameter = half[name].weight
                parameter.data = view
                self._parameters.append(parameter)

    def load(self, vector: Tensor) -> None:
        """Run this version from now on."""
        self._flat.copy_(vector)

    def clear_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def gradient(self) -> Tensor:
        """The gradient, flat, in the layout's order."""
        return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self._parameters])


class Adapters:
    """The slots of one model. Not thread-safe: peft's active adapter is global, so callers hold the policy's lock."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._slots: dict[LoraConfig, AdapterSlot] = {}
        self._made = 0

    def slot(self, layout: AdapterLayout) -> AdapterSlot:
        """The slot of this configuration, built where there is none; the one longest unused makes room."""
        slot = self._slots.pop(layout.lora, None)
        if slot is None:
            if len(self._slots) >= SPARE_SLOTS:
                self._delete(self._slots.pop(next(iter(self._slots))))
            slot = AdapterSlot(self._model, layout, f"slot{self._made}")
            self._made += 1
            self._model.eval()
            self._freeze()
        self._slots[layout.lora] = slot
        return slot

    @contextmanager
    def running(self, slot: AdapterSlot | None, vector: Tensor | None) -> Iterator[None]:
        """The model runs this version inside; the base where either is None, and the base again afterwards."""
        if slot is not None and vector is not None:
            slot.load(vector)
            for layer in self._layers():
                layer.set_adapter(slot.name)
                layer.enable_adapters(True)
        try:
            yield
        finally:
            self._freeze()

    def _freeze(self) -> None:
        for layer in self._layers():
            layer.enable_adapters(False)

    def _delete(self, slot: AdapterSlot) -> None:
        for layer in self._layers():
            layer.delete_adapter(slot.name)
        self._model.peft_config.pop(slot.name)

    def _layers(self) -> list[BaseTunerLayer]:
        return [module for module in self._model.modules() if isinstance(module, BaseTunerLayer)]
