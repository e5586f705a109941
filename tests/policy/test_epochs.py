"""The parts of an update that can be worked out from outside: the first ratio, the end token, the reference."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.policy.base import Completion
from pot_agent.policy.journal import Sample
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.session import Session
from pot_agent.policy.trainer import Moments
from tests.policy.inside import draw, inner, learn, opened

PLAIN = GrpoConfig(learning_rate=3e-3, epochs=1, beta=0.0, loss_normalisation="token")


@pytest.fixture
def own(tiny: Path) -> Iterator[LocalPolicy]:
    """A policy of float32, with a session at version 1: its adapter is not the base."""
    with LocalPolicy(str(tiny), threads=1) as policy:
        learn(policy, opened(policy, "s"), 0, PLAIN)
        yield policy


def sample_of(policy: LocalPolicy, completion: Completion) -> Sample:
    return inner(policy, "s").journal.get([completion.sample_id])[0]


def token_logprobs(policy: LocalPolicy, vector: Tensor | None, sample: Sample) -> Tensor:
    """Log-probability of each token under a version, by the trainer."""
    layout = inner(policy, "s").layout
    assert layout is not None
    slot = policy._engine._adapters.slot(layout)
    rows = policy._engine._trainer.logprobs(slot, vector, sample.prompt_ids, [sample.ids], sample.temperature)
    return rows[0].double()


def test_in_float32_the_first_epochs_ratio_is_exactly_one_and_the_second_is_not(own: LocalPolicy) -> None:
    # The interval is narrower than any step of float32 around 1: whatever is not 1 is outside.
    narrow = replace(PLAIN, clip=1e-9)
    assert torch.tensor(1.0) + narrow.clip == 1.0
    first = learn(own, "s", 1, narrow)
    second = learn(own, "s", 2, replace(narrow, epochs=2))
    assert first.clip_fraction == 0.0
    assert second.clip_fraction is not None
    assert 0.25 < second.clip_fraction <= 0.5  # the mean of none and of nearly all


def ended_and_cut(policy: LocalPolicy) -> tuple[Completion, Completion]:
    """A completion that ended by itself after some tokens, and one that did not, of one version."""
    found: dict[str, Completion] = {}
    for seed in range(100):
        for completion in draw(policy, "s", seed, n=32, max_tokens=12, temperature=1.0):
            if completion.tokens > 1:
                found.setdefault(completion.finish_reason, completion)
        if len(found) == 2:
            return found["stop"], found["length"]
    raise AssertionError("no completion ended by itself")


@pytest.mark.parametrize("normalisation", ["token", "sequence", "constant"])
def test_the_end_token_is_counted_in_the_loss_and_learned(own: LocalPolicy, normalisation: Any) -> None:
    ended, cut = ended_and_cut(own)
    sample = sample_of(own, ended)
    assert sample.ids[-1] in own._engine.chat.end_ids
    assert not set(sample_of(own, cut).ids) & set(own._engine.chat.end_ids)
    assert len(sample.ids) == ended.tokens
    before = inner(own, "s").vector_of(1)
    config = replace(PLAIN, loss_normalisation=normalisation, constant_length=64)
    rewards = {ended.sample_id: 1.0, cut.sample_id: 0.0}
    receipt = own.internalize("s", version=1, rewards=rewards, grpo=config)
    # Advantages are 1 and -1 and every ratio is 1, so the loss is a count of tokens, the end token among them.
    one, other = ended.tokens, cut.tokens
    by_hand = {"token": -(one - other) / (one + other), "sequence": 0.0, "constant": -(one - other) / (2 * 64)}
    assert receipt.tokens == one + other
    assert receipt.loss == pytest.approx(by_hand[normalisation], abs=1e-12)
    gain = token_logprobs(own, inner(own, "s").vector_of(2), sample) - token_logprobs(own, before, sample)
    assert gain[-1] > 0.01


def test_the_end_token_alone_is_a_completion_that_is_learned(own: LocalPolicy) -> None:
    ended, cut = ended_and_cut(own)
    journal = inner(own, "s").journal
    whole = sample_of(own, ended)
    alone = replace(whole, sample_id="alone", ids=whole.ids[-1:], logprobs=whole.logprobs[-1:])
    journal.add(alone)
    before = token_logprobs(own, inner(own, "s").vector_of(1), alone)
    receipt = own.internalize("s", version=1, rewards={"alone": 1.0, cut.sample_id: 0.0}, grpo=PLAIN)
    assert receipt.tokens == 1 + cut.tokens
    assert token_logprobs(own, inner(own, "s").vector_of(2), alone)[0] - before[0] > 0.01


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("base", [0, 0, 0, 0, 0, 0, 0]),
        ("current", [0, 1, 2, 3, 4, 5, 6]),
        ("synced", [0, 0, 0, 3, 3, 3, 6]),
    ],
)
def test_the_kl_is_to_the_very_version_that_the_mode_names(tiny: Path, reference: Any, expected: list[int]) -> None:
    one = GrpoConfig(learning_rate=3e-3, epochs=1, beta=0.05, reference=reference, reference_sync_steps=3)
    with LocalPolicy(str(tiny), threads=1) as policy:
        session = inner(policy, opened(policy, "s"))
        frozen: list[Tensor | None] = [None]
        for version, which in enumerate(expected):
            # The first epoch's KL, by hand, from a copy made when that version was new.
            group = draw(policy, "s", version)
            total, tokens = 0.0, 0
            for completion in group:
                sample = sample_of(policy, completion)
                delta = token_logprobs(policy, frozen[which], sample) - token_logprobs(policy, frozen[version], sample)
                total, tokens = total + (torch.expm1(delta) - delta).sum().item(), tokens + len(delta)
            rewards = {completion.sample_id: float(at == 0) for at, completion in enumerate(group)}
            receipt = policy.internalize("s", version=version, rewards=rewards, grpo=one)
            assert receipt.kl == pytest.approx(total / tokens, rel=1e-3, abs=1e-9), version
            assert (total == 0.0) == (which == version)
            newest = session.vector_of(version + 1)
            assert newest is not None
            frozen.append(newest.clone())


@pytest.mark.parametrize(
    ("epochs", "boundaries"),
    [(1, [10, 20]), (2, [5, 10]), (3, [4, 8]), (4, [3, 6]), (5, [2, 4]), (7, [2, 4]), (10, [1, 2]), (11, [1, 2])],
)
def test_the_sync_is_at_the_first_boundary_at_or_after_ten_steps(epochs: int, boundaries: list[int]) -> None:
    session, synced = Session(name="s", lora=None, seed=0, layout=None), []
    moments = Moments(torch.zeros(1), torch.zeros(1), 0)
    for version in range(1, boundaries[1] + 1):
        before = session.reference
        session.commit(torch.full((1,), float(version)), moments, epochs, GrpoConfig(epochs=epochs))
        if session.reference is not before:
            assert session.reference is session.vectors[version]
            synced.append(version)
    assert synced == boundaries
    assert math.ceil(10 / epochs) == boundaries[0]
