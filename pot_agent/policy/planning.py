"""A memory plan for a model's folder on this machine, from its configuration alone: before any weight is read.

Limits: a model is built on torch's meta device for its sizes (a second or so); one that transformers does not know by
itself cannot be planned, and is refused by the loader too.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from pot_agent.errors import ModelNotFoundError
from pot_agent.policy.footprint import Footprint, footprint_of
from pot_agent.policy.machine_memory import MachineMemory, memory_of
from pot_agent.policy.memory_plan import (
    AMPLE_CONTEXT,
    LONGEST_COMPLETION,
    PROCESS_BYTES,
    MemoryPlan,
    SamplerKind,
    Wish,
    plan,
    with_context,
)
from pot_agent.policy.sizes import SamplerSizes

logger = logging.getLogger(__name__)


def plan_for(
    model: Footprint | Path,
    device: torch.device,
    dtype: torch.dtype,
    sampler: SamplerKind,
    sizes: SamplerSizes,
    context_tokens: int | None,
    max_sessions: int,
    *,
    name: str | None = None,
    width: int = 3,
    completion_tokens: int = LONGEST_COMPLETION,
    memory: MachineMemory | None = None,
) -> MemoryPlan:
    """What this model takes here with this sampler. Logs nothing and raises only where the folder cannot be read.

    `context_tokens=None`: the longest that fits, up to the model's own. `plan.check()` raises, `show(plan)` logs it.
    """
    footprint = read_footprint(model) if isinstance(model, Path) else model
    there = memory or own_memory(device)
    most = footprint.context_tokens
    wish = Wish(
        model=name or (model.name if isinstance(model, Path) else "the model"),
        footprint=footprint,
        dtype=str(dtype).removeprefix("torch."),
        on_cpu=device.type == "cpu",
        total=there.total,
        free=there.free,
        sampler=sampler,
        context_tokens=min(most, context_tokens or most),
        completion_tokens=completion_tokens,
        width=width,
        rank=_rank(sizes.max_rank, sampler),
        slots=sizes.lora_slots,
        rows=sizes.rows,
        sessions=max_sessions,
    )
    return plan(wish if context_tokens else with_context(wish, most))


def first_that_fits(plans: Iterable[MemoryPlan]) -> MemoryPlan:
    """What `auto` means: the first of these plans that fits with an ample context; else that with the longest.

    Where none fits, the last. Give them lazily; there must be one.
    """
    scarce: list[MemoryPlan] = []
    for found in plans:
        if found.fits and found.wish.context_tokens >= min(AMPLE_CONTEXT, found.wish.footprint.context_tokens):
            return found
        scarce += [found] if found.fits else []
        logger.info("the sampler %s %s", found.wish.sampler, "has little room" if found.fits else "does not fit")
    return max(scarce, key=lambda one: one.wish.context_tokens) if scarce else found


def read_footprint(folder: Path) -> Footprint:
    """The footprint of the model in a folder. Raises `ModelNotFoundError` where it has no configuration to go by."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return footprint_of(config)
    except Exception as error:  # whatever a reader raises for a broken folder, the folder is what is wrong
        reason = " ".join(str(error).split())[:300]
        raise ModelNotFoundError(
            f"the model folder {folder} has no configuration that can be read ({type(error).__name__}: {reason}); "
            "give a hub id, a model folder, a GGUF file, or `embedded`",
            value=str(folder),
        ) from error


def own_memory(device: torch.device) -> MachineMemory:
    """What the device has for a process that has loaded nothing: its own context, there by now, is in the plan."""
    found = memory_of(str(device))
    return replace(found, free=min(found.total, found.free + PROCESS_BYTES))


def _rank(rank: int, sampler: SamplerKind) -> int:
    """vLLM has room for ranks of a fixed list only; the larger counts."""
    if sampler != "vllm":
        return rank
    from pot_agent.policy.vllm_engine import rank_for

    return rank_for(rank)
