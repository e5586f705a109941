"""What holds of advantages, masks and KL estimators for any numbers, found by hypothesis in float64."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.errors import ConfigError
from pot_agent.policy.grpo import advantages, grpo_loss, token_weights

NORMALISATIONS = ("sequence", "token", "constant")
UNBOUNDED = GrpoConfig(advantage_clip=1e30)

rewards_lists = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)
deviations = st.sampled_from(["population", "sample"])


def spread(rewards: list[float], std: str) -> float:
    return torch.tensor(rewards, dtype=torch.float64).std(correction=int(std == "sample")).item()


@given(rewards_lists, deviations, st.booleans())
def test_advantages_sum_to_zero_where_nothing_is_clipped(rewards: list[float], std: Any, normalise: bool) -> None:
    config = replace(UNBOUNDED, std=std, normalise_advantage=normalise, advantage_floor=1.0)
    assert abs(advantages(rewards, config).sum().item()) <= 1e-12 * (1 + sum(map(abs, rewards)))


@given(rewards_lists, deviations, st.booleans(), st.floats(1e-3, 10), st.floats(1e-6, 1e3))
def test_advantages_never_leave_the_clip_and_have_the_sign_of_their_reward(
    rewards: list[float], std: Any, normalise: bool, clip: float, floor: float
) -> None:
    config = GrpoConfig(std=std, normalise_advantage=normalise, advantage_clip=clip, advantage_floor=floor)
    found = advantages(rewards, config)
    assert found.abs().max().item() <= clip
    mean = torch.tensor(rewards, dtype=torch.float64).mean().item()
    for reward, advantage in zip(rewards, found.tolist(), strict=True):
        if abs(reward - mean) > 1e-9:
            assert advantage * (reward - mean) > 0


@given(rewards_lists, deviations, st.floats(-1e3, 1e3))
def test_a_constant_added_to_all_rewards_changes_no_advantage(rewards: list[float], std: Any, shift: float) -> None:
    config = replace(UNBOUNDED, std=std, advantage_floor=1.0)
    shifted = [reward + shift for reward in rewards]
    assert torch.allclose(advantages(shifted, config), advantages(rewards, config), rtol=0, atol=1e-11)


@given(rewards_lists, deviations, st.floats(1e-3, 1e3))
def test_a_positive_scale_changes_no_advantage_above_the_floor_and_all_below(
    rewards: list[float], std: Any, scale: float
) -> None:
    scaled = [reward * scale for reward in rewards]
    least, most = sorted((spread(rewards, std), spread(scaled, std)))
    if least > 1e-6:  # both above the floor
        config = replace(UNBOUNDED, std=std, advantage_floor=least / 2)
        assert torch.allclose(advantages(scaled, config), advantages(rewards, config), rtol=1e-6, atol=1e-9)
    config = replace(UNBOUNDED, std=std, advantage_floor=2 * most + 1)  # both below it
    assert torch.allclose(advantages(scaled, config), scale * advantages(rewards, config), rtol=1e-6, atol=1e-9)


@given(rewards_lists, st.permutations(range(12)))
def test_advantages_follow_their_rewards_through_any_permutation(rewards: list[float], order: list[int]) -> None:
    order = [at for at in order if at < len(rewards)]
    config = GrpoConfig(advantage_floor=1.0)
    moved = advantages([rewards[at] for at in order], config)
    assert torch.allclose(moved, advantages(rewards, config)[order], rtol=0, atol=1e-11)


@pytest.mark.parametrize("rewards", [[1e308, 1e308, 0.0], [1e308, -1e308, 0.0], [1e200, 0.0]])
def test_rewards_too_large_to_be_squared_are_refused(rewards: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"at most 1e\+150"):
        advantages(rewards, GrpoConfig())


@dataclass(frozen=True)
class Case:
    """A group with any mask: whole rows and single tokens may be left out."""

    new: Tensor
    old: Tensor
    ref: Tensor
    sampler: Tensor
    advantages: Tensor
    mask: Tensor
    config: GrpoConfig

    def loss(self, new: Tensor, rows: slice = slice(None), *, mask: Tensor | None = None, **kept: Any) -> Tensor:
        whole = self.mask if mask is None else mask
        old, ref, sampler = self.old[rows], self.ref[rows], self.sampler[rows]
        return grpo_loss(new[rows], old, ref, self.advantages[rows], whole[rows], self.config, sampler, **kept)[0]

    def gradient(self, new: Tensor, **options: Any) -> Tensor:
        leaf = new.clone().requires_grad_()
        return torch.autograd.grad(self.loss(leaf, **options), leaf)[0]

    def padded_with(self, filling: float) -> "Case":
        new, old, ref, sampler = (
            torch.where(self.mask.bool(), tensor, filling) for tensor in (self.new, self.old, self.ref, self.sampler)
        )
        return replace(self, new=new, old=old, ref=ref, sampler=sampler)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    group, length = draw(st.integers(2, 4)), draw(st.integers(1, 4))

    def matrix(values: st.SearchStrategy[Any]) -> Tensor:
        flat = draw(st.lists(values, min_size=group * length, max_size=group * length))
        return torch.tensor(flat, dtype=torch.float64).view(group, length)

    config = GrpoConfig(
        loss_normalisation=draw(st.sampled_from(NORMALISATIONS)),
        kl=draw(st.sampled_from(["k3_ratio", "k3", "k2", "k1"])),
        beta=draw(st.sampled_from([0.0, 0.5])),
        importance_cap=draw(st.sampled_from([None, 0.8])),
        constant_length=7,
    )
    new, old, ref, sampler = (matrix(st.floats(-2, 0)) for _ in range(4))
    signed = torch.tensor(draw(st.lists(st.floats(-2, 2), min_size=group, max_size=group)), dtype=torch.float64)
    mask = matrix(st.booleans()).double()
    return Case(new=new, old=old, ref=ref, sampler=sampler, advantages=signed, mask=mask, config=config)


@given(cases(), st.sampled_from([float("inf"), float("-inf"), float("nan"), 1e30]))
def test_whatever_lies_on_padding_reaches_neither_loss_nor_gradient(case: Case, filling: float) -> None:
    filled = case.padded_with(filling)
    assert torch.equal(filled.loss(filled.new), case.loss(case.new))
    slope = filled.gradient(filled.new)
    assert torch.equal(slope, case.gradient(case.new))
    assert slope[case.mask == 0].count_nonzero() == 0


@given(cases(), cases())
def test_what_a_masked_row_holds_changes_no_other_gradient(case: Case, other: Case) -> None:
    mask = case.mask.clone()
    mask[0] = 0
    width = case.new.shape[1]
    changed = case.new.clone()
    changed[0] = other.new.flatten()[:1].expand(width)
    flipped = replace(case, advantages=torch.cat([-case.advantages[:1] + 1, case.advantages[1:]]))
    assert torch.equal(flipped.gradient(changed, mask=mask), case.gradient(case.new, mask=mask))


@given(cases())
def test_masking_a_row_rescales_the_others_by_what_the_normaliser_says(case: Case) -> None:
    mask = case.mask.clone()
    mask[0] = 0
    group, tokens = len(mask), case.mask.sum().clamp(min=1)
    by_token = case.config.loss_normalisation == "token"
    factor = (tokens / mask.sum().clamp(min=1)).item() if by_token else 1.0
    wanted = case.gradient(case.new)[1:] * factor
    assert torch.allclose(case.gradient(case.new, mask=mask)[1:], wanted, rtol=1e-12, atol=1e-14)
    # Against the group without the row: it still counts as a member, but where the mean is over tokens.
    removed = torch.autograd.grad(case.loss(leaf := case.new.clone().requires_grad_(), slice(1, None)), leaf)[0][1:]
    share = 1.0 if by_token else (group - 1) / group
    assert torch.allclose(case.gradient(case.new, mask=mask)[1:], removed * share, rtol=1e-12, atol=1e-14)


@given(cases(), st.integers(1, 3))
def test_parts_of_a_group_add_up_to_the_whole_in_loss_and_gradient(case: Case, at: int) -> None:
    weights = token_weights(case.mask, case.config)
    parts = (slice(0, at), slice(at, None))
    leaf = case.new.clone().requires_grad_()
    losses = [case.loss(leaf, rows, weights_GT=weights[rows]) for rows in parts if len(weights[rows])]
    assert torch.allclose(sum(losses, torch.zeros(())), case.loss(case.new), rtol=1e-12, atol=1e-14)
    added = torch.autograd.grad(sum(losses, torch.zeros(())), leaf)[0]
    assert torch.allclose(added, case.gradient(case.new), rtol=1e-12, atol=1e-14)


@given(cases())
def test_weights_sum_to_what_the_normalisation_says(case: Case) -> None:
    weights = token_weights(case.mask, case.config)
    group, tokens = len(weights), case.mask.sum().item()
    wanted = {
        "sequence": (case.mask.sum(1) > 0).sum().item() / group,
        "token": float(tokens > 0),
        "constant": tokens / (group * 7),
    }
    assert weights.sum().item() == pytest.approx(wanted[case.config.loss_normalisation], abs=1e-12)
    assert weights.min().item() >= 0
    assert weights[case.mask == 0].count_nonzero() == 0
    if case.config.loss_normalisation == "sequence":  # within a row all tokens weigh the same
        assert all(len(set(row[row > 0].tolist())) <= 1 for row in weights)


def expected(kl: Any, leaf: Tensor, old: Tensor, ref: Tensor) -> Tensor:
    """The estimator's gradient, its expectation over the old policy taken exactly: each token once, so weighted."""
    new = leaf.log_softmax(1)
    none, config = torch.zeros(1, dtype=torch.float64), GrpoConfig(kl=kl, beta=1.0)
    loss, _ = grpo_loss(new, old, ref, none, torch.ones_like(new), config, weights_GT=old.exp())
    return torch.autograd.grad(loss, leaf)[0]


def divergence(leaf: Tensor, other: Tensor, direction: str) -> Tensor:
    """The gradient of KL(new || other), of KL(other || new), or of minus the latter."""
    new = leaf.log_softmax(1)
    reverse, forward = (new.exp() * (new - other)).sum(), (other.exp() * (other - new)).sum()
    return torch.autograd.grad({"reverse": reverse, "forward": forward, "away": -forward}[direction], leaf)[0]


five_tokens = st.lists(st.floats(-2, 2), min_size=5, max_size=5).map(
    lambda logits: torch.tensor([logits], dtype=torch.float64)
)


@given(five_tokens, five_tokens, five_tokens)
def test_the_estimators_have_the_gradients_that_are_said_of_them(new: Tensor, ref: Tensor, old: Tensor) -> None:
    leaf, old, ref = new.requires_grad_(), old.log_softmax(1), ref.log_softmax(1)
    on = leaf.detach().log_softmax(1)
    reverse, forward = (divergence(leaf, ref, direction) for direction in ("reverse", "forward"))
    for kl, sampled_from, wanted in (
        ("k3_ratio", on, reverse),
        ("k3_ratio", old, reverse),
        ("k3", on, forward),
        ("k2", on, reverse),
        ("k1", on, torch.zeros_like(reverse)),
        ("k1", old, divergence(leaf, old, "away")),
    ):
        assert torch.allclose(expected(kl, leaf, sampled_from, ref), wanted, rtol=0, atol=1e-12), kl


@pytest.mark.parametrize("kl", ["k3", "k2", "k1"])
def test_off_the_policy_the_plain_estimators_have_the_gradient_of_neither_kl(kl: str) -> None:
    leaf = torch.tensor([[0.5, -1.0, 0.3, 1.1, 0.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[1.0, 0.2, -0.9, 0.1, 0.7]], dtype=torch.float64).log_softmax(1)
    ref = torch.tensor([[-0.3, 0.8, 0.4, -1.2, 0.6]], dtype=torch.float64).log_softmax(1)
    found = expected(kl, leaf, old, ref)
    for direction in ("reverse", "forward"):
        assert (found - divergence(leaf, ref, direction)).abs().max().item() > 0.05
