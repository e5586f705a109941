"""Which sampler, and how large: decided, and shown to fit, before any weight is read.

Limits: `auto` takes vLLM on a GPU alone, where it is installed and a second copy of the weights fits; on a CPU the
transformers sampler is faster (vLLM's CPU build must be asked for by name). Models below `SMALL_BYTES` that need no
second copy are loaded without a plan.
"""

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from pot_agent.policy.decoding import FastForward
from pot_agent.policy.head import Head
from pot_agent.policy.memory_plan import MemoryPlan, SamplerKind, show
from pot_agent.policy.models import LoadedModel
from pot_agent.policy.planning import first_that_fits, plan_for
from pot_agent.policy.sampler import Sampler as TransformersSampler
from pot_agent.policy.samplers import Sampler
from pot_agent.policy.sizes import SamplerName, SamplerSizes
from pot_agent.policy.text import Chat

logger = logging.getLogger(__name__)

SMALL_BYTES = 1024**3
"""Weights of a model that any machine holds, on a CPU."""


@dataclass(frozen=True)
class Choice:
    """A sampler, and the plan that it fits by; None for a small model on a CPU."""

    sampler: SamplerKind
    plan: MemoryPlan | None
    sizes: SamplerSizes

    @property
    def context_tokens(self) -> int | None:
        """The context that there is room for; None: the model's own."""
        return None if self.plan is None else self.plan.wish.context_tokens

    def build(self, loaded: LoadedModel, chat: Chat, linears: Mapping[str, nn.Linear], head: Head) -> Sampler:
        """The sampler, for the model that was loaded meanwhile."""
        if self.sampler == "vllm" and self.plan is not None and loaded.folder is not None:
            return _vllm(loaded, loaded.folder, chat, self.plan, self.sizes)
        return TransformersSampler(loaded, chat, FastForward(loaded.model, linears), head)


def choose(
    wanted: SamplerName,
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    *,
    sizes: SamplerSizes,
    context_tokens: int | None,
    name: str,
) -> Choice:
    """The sampler asked for, or the one that `auto` means here. Raises `DoesNotFitError` with what would fit."""
    on_gpu = device.type != "cpu"
    kinds: list[SamplerKind] = [wanted] if wanted != "auto" else ["transformers"]
    if wanted == "auto" and on_gpu and importlib.util.find_spec("vllm"):
        kinds = ["vllm", "transformers"]
    if kinds == ["transformers"] and not on_gpu and _weights_bytes(folder) < SMALL_BYTES:
        return Choice("transformers", None, sizes)
    plan = first_that_fits(
        plan_for(folder, device, dtype, kind, sizes, context_tokens, sizes.sessions, name=name) for kind in kinds
    )
    show(plan)
    plan.check()
    return Choice(plan.wish.sampler, plan, sizes)


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _vllm(loaded: LoadedModel, folder: Path, chat: Chat, plan: MemoryPlan, sizes: SamplerSizes) -> Sampler:
    from pot_agent.policy.vllm_engine import VllmOptions, rank_for
    from pot_agent.policy.vllm_sampler import VllmSampler

    options = VllmOptions(
        folder=folder,
        dtype=str(loaded.dtype).removeprefix("torch."),
        context_tokens=loaded.context_tokens,
        max_rank=rank_for(sizes.max_rank),
        slots=sizes.lora_slots,
        rows=sizes.rows,
        kv_cache_bytes=plan.kv_cache_bytes,
        memory_fraction=plan.fraction,
        eager=loaded.device.type == "cpu",
    )
    return VllmSampler(options, chat, dtype=loaded.dtype, device=loaded.device)
