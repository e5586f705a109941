"""Settings with which a model that does not fit would: found by planning again, not guessed.

Limits: each setting is tried alone first, the others as they are; only where none helps alone are they lowered
together, in one order. There may be other ways.
"""

from dataclasses import replace

from pot_agent.policy.memory_plan import Wish, fits, largest, largest_context

LEAST_RANK = 1
SMALL_RANK = 8


def advice(wish: Wish) -> tuple[str, ...]:
    """Ways to make it fit, each enough by itself; empty where there is none."""
    alone = [way for way in (_context(wish), _sampler(wish), _rank(wish), _width(wish), _sessions(wish)) if way]
    if alone:
        return tuple(alone)
    together = _together(wish)
    return (together,) if together else ()


def _context(wish: Wish) -> str | None:
    found = largest_context(wish, wish.context_tokens)
    return None if found is None else f"context_tokens={found} (POT_CONTEXT_TOKENS)"


def _sampler(wish: Wish) -> str | None:
    if wish.sampler != "vllm":
        return None
    changed = replace(wish, sampler="transformers")
    found = largest_context(changed, wish.context_tokens)
    if found is None:
        return None
    text = "sampler=transformers (POT_SAMPLER), which holds the weights once"
    return text if found == wish.context_tokens else f"{text}, and context_tokens={found}"


def _rank(wish: Wish) -> str | None:
    ranks = range(LEAST_RANK, wish.rank)
    found = largest(ranks, lambda rank: fits(replace(wish, rank=rank)))
    return None if found is None else f"max_rank={found} (POT_MAX_RANK)"


def _width(wish: Wish) -> str | None:
    found = largest(range(1, wish.width), lambda width: fits(replace(wish, width=width)))
    return None if found is None else f"groups of {found} (width)"


def _sessions(wish: Wish) -> str | None:
    found = largest(range(1, wish.slots), lambda slots: fits(replace(wish, slots=slots, together=1)))
    return None if found is None or wish.sampler != "vllm" else f"lora_slots={found} (POT_LORA_SLOTS)"


def _together(wish: Wish) -> str | None:
    """All lowered: the sampler, the slots, the rank, the width; then the context as far as it must."""
    lowered = replace(wish, sampler="transformers", slots=1, together=1)
    for changed in (
        lowered,
        replace(lowered, rank=min(wish.rank, SMALL_RANK)),
        replace(lowered, rank=LEAST_RANK),
        replace(lowered, rank=LEAST_RANK, width=1),
    ):
        found = largest_context(changed, wish.context_tokens)
        if found is not None:
            return (
                f"all of sampler=transformers, max_rank={changed.rank}, groups of {changed.width} and "
                f"context_tokens={found}"
            )
    return None
