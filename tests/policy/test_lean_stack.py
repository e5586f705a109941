"""Sessions that are stepped as one stack: a slot has nothing of whoever was in it before."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pot_agent.config import LoraConfig
from pot_agent.policy.engine import Engine
from pot_agent.policy.lean import LeanDecoder

LORA = LoraConfig(rank=3)
PROMPTS = ([5, 6, 7], [8, 9, 10, 11, 12], [13, 14])
TOKENS = ([3, 4], [5, 6], [7, 8])
"""Of each prompt's two rows, at every step."""


@pytest.fixture
def lean(exact: Engine) -> Iterator[Engine]:
    with torch.no_grad(), exact._sampler.together():  # type: ignore[union-attr]
        yield exact


def begun(engine: Engine, at: int, vector: Tensor | None) -> LeanDecoder:
    """Two rows after prompt number `at`."""
    sampler: Any = engine._sampler
    decoder: LeanDecoder = sampler._fast.decoder(engine.layout(LORA), vector, len(PROMPTS[at]))
    decoder.prefill(torch.tensor(PROMPTS[at]), lambda: None)
    decoder.widen(2, 8)
    return decoder


def stepped(*decoders: tuple[LeanDecoder, int]) -> list[Tensor]:
    """One step of them together; each one's hidden states."""
    found = LeanDecoder.step_together([one for one, _ in decoders], [torch.tensor(TOKENS[at]) for _, at in decoders])
    return list(found.split(2))


def alone(engine: Engine, at: int, vector: Tensor | None, steps: int) -> list[Tensor]:
    decoder = begun(engine, at, vector)
    return [decoder.step(torch.tensor(TOKENS[at])) for _ in range(steps)]


@pytest.mark.parametrize("scale", [1.0, float("nan")])
@pytest.mark.parametrize("adapted", [True, False])
def test_a_slot_has_nothing_of_the_session_before(lean: Engine, adapted: bool, scale: float) -> None:
    layout = lean.layout(LORA)
    good, other = lean.noisy(layout, 1, 0.3), lean.noisy(layout, 2, 0.3) if adapted else None
    stays, before = begun(lean, 0, good), begun(lean, 1, lean.noisy(layout, 3, 0.3) * scale)
    kept = [stepped((stays, 0), (before, 1)) for _ in range(3)]
    assert before.stack is stays.stack
    assert bool(kept[0][1].isnan().all()) == (scale != 1.0)
    slot, stack = before.slot, before.stack
    before.stack = None
    comes = begun(lean, 2, other)
    found = [stepped((stays, 0), (comes, 2)) for _ in range(2)]
    assert (comes.stack, comes.slot) == (stack, slot)
    for step, wanted in enumerate(alone(lean, 2, other, 2)):
        assert torch.allclose(found[step][1], wanted, atol=1e-10)
    whole = [pair[0] for pair in (*kept, *found)]
    for here, wanted in zip(whole, alone(lean, 0, good, 5), strict=True):
        assert torch.allclose(here, wanted, atol=1e-10)


def test_sessions_in_a_stack_are_each_what_they_are_alone(lean: Engine) -> None:
    layout = lean.layout(LORA)
    vectors = [lean.noisy(layout, 1, 0.3), None, lean.noisy(layout, 2, 0.3)]
    decoders = [(begun(lean, at, vector), at) for at, vector in enumerate(vectors)]
    first = stepped(*decoders)
    rest = stepped(decoders[2], decoders[0])  # in another order, one of them left out
    for at, vector in enumerate(vectors):
        assert decoders[at][0].stack is not None
        assert torch.allclose(first[at], alone(lean, at, vector, 1)[0], atol=1e-10)
    for here, at in zip(rest, (2, 0), strict=True):
        assert torch.allclose(here, alone(lean, at, vectors[at], 2)[1], atol=1e-10)
