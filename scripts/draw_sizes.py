"""Put the table of sizes into docs/server.md: `python -m scripts.draw_sizes`; a test checks that it is current.

Calculated by `pot_agent/policy/memory_plan.py`, for cards that nothing else uses; none of it was run.
"""

import re
from pathlib import Path

from pot_agent.policy.footprint import Footprint
from pot_agent.policy.memory_plan import GIB, MemoryPlan, SamplerKind, Wish, plan, with_context

DOCUMENT = Path(__file__).parent.parent / "docs" / "server.md"
BEGIN, END = "<!-- sizes: python -m scripts.draw_sizes -->", "<!-- end of sizes -->"

VOCABULARY, HEAD_SIZE, KEY_HEADS = 151_936, 128, 8
CARDS = {"16 GB": 15.6, "24 GB": 23.6, "48 GB": 44.4, "80 GB": 79.1}
"""GiB that a program finds: a T4 or 4080, a 4090, an L40S, an H100."""
RANK, CONTEXT = 8, 40_960


def qwen3(*, layers: int, hidden: int, gated: int, heads: int, tied: bool, context: int = CONTEXT) -> Footprint:
    """A Qwen3 of these sizes, counted by hand."""
    queries, keys = heads * HEAD_SIZE, KEY_HEADS * HEAD_SIZE
    linear = hidden * (2 * queries + 2 * keys + 3 * gated)
    sides = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + gated)
    norms = 2 * hidden + 2 * HEAD_SIZE
    embeddings = VOCABULARY * hidden * (1 if tied else 2)
    return Footprint(
        parameters=embeddings + layers * (linear + norms) + hidden,
        linear=layers * linear,
        sides=layers * sides,
        layers=layers,
        hidden=hidden,
        gated=gated,
        queries=queries,
        keys=keys,
        heads=heads,
        vocabulary=VOCABULARY,
        norms_heads=True,
        context_tokens=context,
    )


MODELS = {
    "Qwen3-0.6B": qwen3(layers=28, hidden=1024, gated=3072, heads=16, tied=True),
    "Qwen3-1.7B": qwen3(layers=28, hidden=2048, gated=6144, heads=16, tied=True),
    "Qwen3-4B": qwen3(layers=36, hidden=2560, gated=9728, heads=32, tied=True),
    "Qwen3-8B": qwen3(layers=36, hidden=4096, gated=12288, heads=32, tied=False),
}


def planned(model: str, card: str, sampler: SamplerKind, *, context: int | None = None, rank: int = RANK) -> MemoryPlan:
    """The plan in bfloat16 on an empty card; the longest context that fits where none is given."""
    memory = int(CARDS[card] * GIB)
    wish = Wish(
        model=model,
        footprint=MODELS[model],
        dtype="bfloat16",
        on_cpu=False,
        total=memory,
        free=memory,
        sampler=sampler,
        context_tokens=context or CONTEXT,
        rank=rank,
    )
    return plan(wish if context else with_context(wish, CONTEXT))


def drawing() -> str:
    """The table, in Markdown."""
    head = [
        "| card | model | `transformers`: context | sessions | `vllm`: context | sessions | fraction |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_row(card, model) for card in CARDS for model in MODELS)])


def _row(card: str, model: str) -> str:
    once, twice = planned(model, card, "transformers"), planned(model, card, "vllm")
    cells = [card, model, *_cells(once), *_cells(twice), f"{twice.fraction:.3f}" if twice.fits else "–"]
    return f"| {' | '.join(cells)} |"


def _cells(found: MemoryPlan) -> list[str]:
    if not found.fits:
        return ["does not fit", "–"]
    return [f"{found.wish.context_tokens:,}", str(found.wish.together)]


def replaced(text: str) -> str:
    """The document with the table as it is now."""
    return re.sub(f"{BEGIN}\n.*?{END}", lambda _: f"{BEGIN}\n{drawing()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(replaced(DOCUMENT.read_text()))
