"""Whether a model fits: figures worked by hand, and what a plan promises of itself."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pot_agent.errors import ConfigError, DoesNotFitError, PotError
from pot_agent.policy.memory_plan import GIB, MARGIN, MemoryPlan, Wish, largest, plan, with_context
from scripts import draw_sizes
from scripts.draw_sizes import CARDS, MODELS, planned

ROOT = Path(__file__).parent.parent.parent
QWEN = MODELS["Qwen3-4B"]
CARD = int(23.6 * GIB)

WISH = Wish(
    model="Qwen3-4B-Instruct-2507",
    footprint=QWEN,
    dtype="bfloat16",
    on_cpu=False,
    total=CARD,
    free=CARD,
    sampler="transformers",
    context_tokens=4096,
    rank=8,
)


def part(found: MemoryPlan, beginning: str) -> int:
    (size,) = [size for name, size in found.parts if name.startswith(beginning)]
    return size


def test_qwen3_4b_counted_by_hand() -> None:
    embedding = 151_936 * 2560
    attention = 2560 * 4096 + 2 * 2560 * 1024 + 4096 * 2560
    gated = 3 * 2560 * 9728
    layer = attention + gated + 2 * 2560 + 2 * 128
    assert QWEN.parameters == embedding + 36 * layer + 2560 == 4_022_468_096
    assert QWEN.weights(2) == 8_044_936_192
    assert QWEN.keys_and_values(1, 2) == 36 * 2 * 8 * 128 * 2 == 147_456
    # q, k, v, o, gate, up, down: inputs and outputs
    assert QWEN.adapter(8) == 36 * 8 * (6656 + 3584 + 3584 + 6656 + 3 * 12288) == 16_515_072


def test_a_token_that_goes_through_with_a_gradient_counted_by_hand() -> None:
    norms, attention = 4 * 2560, 2 * 4096 + (4096 + 1024)
    in_bf16 = 2 * (norms + attention + 3 * 9728)
    small = 4 * (7 * 8 + 2 + 3 * 32)
    assert QWEN.kept(1, 8, 2) == 36 * (in_bf16 + small) == 3_819_168


def test_qwen3_4b_on_24_gb_with_one_copy_of_the_weights() -> None:
    found = plan(WISH)
    assert found.fits
    assert part(found, "weights") == 8_044_936_192
    assert part(found, "keys and values, 3 rows of 4,096") == 3 * 4096 * 147_456
    assert part(found, "adapters of rank 8, 1 sessions") == 16_515_072 * 4 * (5 + 6)
    update = part(found, "an update, 2,048 tokens after 2,048")
    graph = 3_819_168 * 2048 + 3_819_168 * 256 * 35 // 36
    states = 147_456 * (3 * 2048 + 2048 + 3 * 2048)
    logits = 1024 * 151_936 * 16 + 3 * 2048 * 2560 * 2
    assert update == graph + states + logits
    assert found.needed == sum(size for _, size in found.parts) <= CARD
    assert found.needed == GIB // 2 + 8_044_936_192 + 726_663_168 + 1_811_939_328 + update + int(MARGIN * CARD)
    assert found.fraction == 0.0
    assert not plan(replace(WISH, context_tokens=4352)).fits


def test_qwen3_4b_on_24_gb_with_vllm_holds_the_weights_twice_and_says_what_would_fit() -> None:
    found = plan(replace(WISH, sampler="vllm"))
    assert not found.fits
    assert part(found, "weights") == part(found, "vllm: weights") == 8_044_936_192
    assert found.advice[0] == "context_tokens=768 (POT_CONTEXT_TOKENS)"
    assert "sampler=transformers (POT_SAMPLER), which holds the weights once" in found.advice
    with pytest.raises(DoesNotFitError, match=r"needs .* GiB, and 23\.6 of 23\.6 GiB are free.*sampler=transformers"):
        found.check()


def test_the_fraction_is_what_vllm_alone_takes_of_the_whole_card() -> None:
    card = int(79.1 * GIB)
    found = plan(replace(WISH, sampler="vllm", total=card, free=card, context_tokens=8192))
    own = [size for name, size in found.parts if name.startswith("vllm") and name != "vllm: process"]
    assert found.fraction * card >= sum(own) > (found.fraction - 0.001) * card
    assert found.kv_cache_bytes == found.kv_rows * 8192 * 147_456 < sum(own)
    trainer = sum(size for name, size in found.parts if not name.startswith("vllm"))
    assert found.fraction * card + trainer <= card * 1.001


def test_a_plan_that_does_not_fit_is_a_memory_error_with_its_numbers() -> None:
    wish = replace(WISH, free=6 * GIB)
    with pytest.raises(MemoryError) as caught:
        plan(wish).check()
    assert isinstance(caught.value, PotError)
    assert caught.value.value["free"] == 6 * GIB
    assert caught.value.value["needed"] > 8_044_936_192
    assert "a smaller model" in str(caught.value)


def test_the_table_adds_up_and_names_what_has_room() -> None:
    found = plan(WISH)
    lines = found.lines()
    sizes = [float(match[1]) for line in lines if (match := re.search(r"([\d.]+) GiB$", line))]
    assert sum(sizes[:-2]) == pytest.approx(sizes[-2], abs=0.06)
    assert lines[0].startswith("Qwen3-4B-Instruct-2507 in bfloat16, sampler transformers, context 4,096")
    assert lines[-1] == "room for 1 of 64 sessions, and 3 completions at once"


def test_other_programs_on_the_card_count() -> None:
    assert plan(WISH).fits
    assert not plan(replace(WISH, free=CARD - GIB)).fits


def test_on_a_cpu_in_float32_what_is_packed_counts_and_no_cuda_graphs() -> None:
    small = replace(WISH, footprint=MODELS["Qwen3-0.6B"], dtype="float32", on_cpu=True, context_tokens=1024)
    names = [name for name, _ in plan(small).parts]
    assert "weights packed for sampling" in names
    assert "weights packed for sampling" not in [name for name, _ in plan(replace(small, dtype="bfloat16")).parts]
    large = replace(small, footprint=QWEN, total=200 * GIB, free=200 * GIB)
    assert "weights packed for sampling" not in [name for name, _ in plan(large).parts]


wishes = st.builds(
    Wish,
    model=st.just("a model"),
    footprint=st.sampled_from(list(MODELS.values())),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    on_cpu=st.booleans(),
    total=st.just(100 * GIB),
    free=st.integers(0, 100 * GIB),
    sampler=st.sampled_from(["transformers", "vllm"]),
    context_tokens=st.integers(1, 40_960),
    completion_tokens=st.integers(1, 8192),
    width=st.integers(1, 16),
    rank=st.integers(1, 64),
    slots=st.integers(1, 16),
    sessions=st.integers(1, 64),
)


@settings(max_examples=60)
@given(wishes)
def test_a_plan_takes_no_more_than_there_is_and_what_it_advises_helps(wish: Wish) -> None:
    found = plan(wish)
    if found.fits:
        assert found.needed <= wish.free
        assert not found.advice
        assert found.kv_rows >= wish.width
        assert 1 <= found.sessions <= wish.sessions
        assert wish.completion <= found.pass_tokens
        assert plan(replace(wish, free=wish.free + GIB)).fits
    for text in found.advice:
        changes = {
            name: int(match[1])
            for name, pattern in (
                ("context_tokens", r"context_tokens=(\d+)"),
                ("rank", r"max_rank=(\d+)"),
                ("width", r"groups of (\d+)"),
                ("slots", r"lora_slots=(\d+)"),
            )
            if (match := re.search(pattern, text))
        }
        sampler = {"sampler": "transformers"} if "sampler=transformers" in text else {}
        assert plan(replace(wish, **changes, **sampler)).fits, text


@settings(max_examples=30)
@given(wishes, st.integers(512, 40_960))
def test_the_context_that_is_chosen_is_the_longest_that_fits(wish: Wish, most: int) -> None:
    chosen = with_context(wish, most)
    assert chosen.context_tokens <= most
    if plan(chosen).fits and chosen.context_tokens + 256 <= most:
        assert not plan(replace(chosen, context_tokens=chosen.context_tokens + 256)).fits


def test_largest_finds_the_last_good_one() -> None:
    for last in range(-1, 9):
        assert largest(range(9), lambda size, last=last: size <= last) == (None if last < 0 else last)  # type: ignore[misc]


@pytest.mark.parametrize("change", [{"width": 0}, {"context_tokens": 0}, {"dtype": "int8"}, {"sampler": "auto"}])
def test_what_cannot_be_planned_is_an_error_that_names_it(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(change.values())))):
        replace(WISH, **change)  # type: ignore[arg-type]


def test_larger_cards_hold_longer_contexts_and_smaller_models_too() -> None:
    for model in MODELS:
        found = [planned(model, card, "transformers") for card in CARDS]
        lengths = [one.wish.context_tokens * one.wish.together if one.fits else 0 for one in found]
        assert lengths == sorted(lengths), model
    for card in CARDS:
        plans = [planned(model, card, "vllm") for model in MODELS]
        fitting = [one.fits for one in plans]
        assert fitting == sorted(fitting, reverse=True), card


def test_the_table_in_the_document_is_current() -> None:
    text = draw_sizes.DOCUMENT.read_text()
    assert draw_sizes.replaced(text) == text, "run `python -m scripts.draw_sizes`"
    assert draw_sizes.drawing() in text


def test_the_row_in_the_readme_is_what_the_plan_says() -> None:
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| Qwen3-4B-Instruct")]
    assert "calculated, not run" in row
    context = int(re.search(r"--context-tokens (\d+)", row)[1])  # type: ignore[index]
    rank = int(re.search(r"POT_MAX_RANK=(\d+)", row)[1])  # type: ignore[index]
    assert f"| {context:,} |" in row
    there = planned("Qwen3-4B", "24 GB", "transformers", context=context, rank=rank)
    assert (there.fits, there.sessions, there.kv_rows) == (True, 1, 3)
    assert not planned("Qwen3-4B", "24 GB", "transformers", context=context + 256, rank=rank).fits
    assert planned("Qwen3-4B", "24 GB", "transformers", context=3072, rank=rank).sessions == 5
    assert planned("Qwen3-4B", "24 GB", "vllm", rank=rank).wish.context_tokens == 768
