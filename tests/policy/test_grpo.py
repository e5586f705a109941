"""GRPO's pure functions against numbers worked by hand, and properties that hold for any input."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.errors import ConfigError
from pot_agent.policy.grpo import advantages, grpo_loss, token_weights

PAPER = GrpoConfig()
PLAIN = GrpoConfig(beta=0.0)
MASK_GT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
ADVANTAGES_G = torch.tensor([1.0, -1.0], dtype=torch.float64)
ratios = st.floats(-3, 3)


def logs(*rows: list[float]) -> Tensor:
    """Logarithms of the given numbers, differentiable."""
    return torch.tensor(rows, dtype=torch.float64).log().requires_grad_()


def zeros() -> Tensor:
    return torch.zeros(2, 3, dtype=torch.float64)


def test_the_papers_example_of_rewards() -> None:
    got = advantages((2 / 3, 1 / 3, 1 / 3), PAPER)
    assert got.tolist() == pytest.approx([math.sqrt(2), -math.sqrt(2) / 2, -math.sqrt(2) / 2], abs=1e-12)


@pytest.mark.parametrize("reward", [0.0, 1.0, 1 / 3, 0.1 + 0.2])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_equal_rewards_have_advantages_that_are_exactly_zero(reward: float, size: int) -> None:
    assert advantages([reward] * size, PAPER).tolist() == [0.0] * size


def test_the_floor_divides_where_the_deviation_is_smaller() -> None:
    got = advantages((0.0, 2e-5), replace(PAPER, advantage_floor=1e-4))
    assert got.tolist() == pytest.approx([-0.1, 0.1], abs=1e-12)  # std is 1e-5; 1e-5 / 1e-4


def test_the_clip_bounds_large_advantages() -> None:
    rewards = [1.0] + [0.0] * 99  # (1 - 0.01) / sqrt(0.01 * 0.99) = 9.9499
    assert advantages(rewards, replace(PAPER, advantage_clip=100.0))[0].item() == pytest.approx(9.949874, abs=1e-6)
    assert advantages(rewards, PAPER)[0].item() == 5.0


def test_the_sample_deviation_is_besselss() -> None:
    got = advantages((1.0, 0.0, 0.0), replace(PAPER, std="sample"))  # std = sqrt(1/3)
    assert got[0].item() == pytest.approx((2 / 3) / math.sqrt(1 / 3), abs=1e-12)


def test_advantages_without_normalisation_are_centred_rewards() -> None:
    got = advantages((1.0, 0.0), replace(PAPER, normalise_advantage=False))
    assert got.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("rewards", [[], [float("nan"), 1.0], [float("inf"), 0.0]])
def test_rewards_that_are_no_numbers_are_refused(rewards: list[float]) -> None:
    with pytest.raises(ConfigError):
        advantages(rewards, PAPER)


@given(st.lists(st.integers(0, 10), min_size=2, max_size=16))
def test_advantages_are_centred_bounded_and_in_the_order_of_rewards(counts: list[int]) -> None:
    config = replace(PAPER, advantage_clip=1e9)
    got = advantages([count / 10 for count in counts], config)
    assert abs(got.sum().item()) < 1e-9
    assert all((got[i] < got[j]).item() for i, a in enumerate(counts) for j, b in enumerate(counts) if a < b)
    assert got.square().mean().item() == pytest.approx(0.0 if len(set(counts)) == 1 else 1.0, abs=1e-9)


@given(st.lists(st.integers(0, 10), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_advantages_do_not_depend_on_the_order_of_the_group(counts: list[int], random: object) -> None:
    order = list(range(len(counts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    got = advantages([float(count) for count in counts], PAPER)
    moved = advantages([float(counts[i]) for i in order], PAPER)
    assert moved.tolist() == pytest.approx([got[i].item() for i in order], abs=1e-12)


def test_on_the_policy_the_loss_is_minus_the_mean_advantage() -> None:
    new = logs([0.5, 0.2, 0.1], [0.4, 1.0, 1.0])
    loss, stats = grpo_loss(new, new.detach(), new.detach(), ADVANTAGES_G, MASK_GT, PAPER)
    assert loss.item() == pytest.approx(0.0, abs=1e-12)  # -(1 - 1) / 2
    (slope,) = torch.autograd.grad(loss, new)
    # Each sequence has weight 1/2, each token of it 1/|tau|; at ratio 1 the gradient is -A times that.
    assert slope.flatten().tolist() == pytest.approx([-0.25, -0.25, 0.0, 0.5, 0.0, 0.0])
    assert (stats.clip_fraction, stats.kl_mean, stats.tokens) == (0.0, 0.0, 3.0)


@pytest.mark.parametrize(
    ("normalisation", "expected"),
    [
        # objectives: row 0 (A = 1): min(2, 1.3), min(0.5, 0.7) = 1.3, 0.5; row 1 (A = -1): min(-2, -1.3) = -2
        ("sequence", -((1.3 + 0.5) / 2 + (-2.0)) / 2),
        ("token", -(1.3 + 0.5 - 2.0) / 3),
        ("constant", -(1.3 + 0.5 - 2.0) / (2 * 4)),
    ],
)
def test_clipping_and_normalisation_by_hand(normalisation: str, expected: float) -> None:
    config = replace(PLAIN, loss_normalisation=normalisation, constant_length=4)
    new = logs([2.0, 0.5, 9.0], [2.0, 9.0, 9.0])
    loss, stats = grpo_loss(new, zeros(), zeros(), ADVANTAGES_G, MASK_GT, config)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert stats.clip_fraction == 1.0
    (slope,) = torch.autograd.grad(loss, new)
    # A clipped token (ratio 2 with A = 1) gets no gradient; an unclipped one gets -A r weight.
    assert slope[0, 0].item() == 0.0
    assert slope[0, 1].item() == pytest.approx(-0.5 * token_weights(MASK_GT, config)[0, 1].item())
    assert slope[1, 0].item() == pytest.approx(2.0 * token_weights(MASK_GT, config)[1, 0].item())


@pytest.mark.parametrize(
    ("kl", "value", "slope"),
    [
        # new = log 0.5, ref = log 0.25, old = log 0.4: delta = -log 2, ratio 1.25, k3 = 1/2 + log 2 - 1
        ("k1", math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, math.log(2)),
        ("k3", math.log(2) - 0.5, 1 - 0.5),
        ("k3_ratio", 1.25 * (math.log(2) - 0.5), 1.25 * (math.log(2) - 0.5) + 1.25 * 0.5),
    ],
)
def test_kl_estimators_by_hand(kl: str, value: float, slope: float) -> None:
    config = replace(PAPER, kl=kl, beta=0.1)
    new, old, ref = logs([0.5]), logs([0.4]).detach(), logs([0.25]).detach()
    mask = torch.ones(1, 1, dtype=torch.float64)
    loss, stats = grpo_loss(new, old, ref, torch.zeros(1, dtype=torch.float64), mask, config)
    assert loss.item() == pytest.approx(0.1 * value, abs=1e-12)
    assert torch.autograd.grad(loss, new)[0].item() == pytest.approx(0.1 * slope, abs=1e-12)
    assert stats.kl_mean == pytest.approx(1.25 * (math.log(2) - 0.5), abs=1e-12)


@pytest.mark.parametrize("off_policy", [0.0, 0.8])
def test_the_gradient_of_k3_ratio_is_that_of_the_reverse_kl(off_policy: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 7, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(1, 7, dtype=torch.float64).log_softmax(1)
    new = logits.log_softmax(1)
    old = (logits.detach() + off_policy * torch.randn(1, 7, dtype=torch.float64)).log_softmax(1)
    (wanted,) = torch.autograd.grad((new.exp() * (new - ref)).sum(), logits, retain_graph=True)
    # The expectation under the old policy, exactly: every token once, weighted by its old probability.
    weights = old.exp()
    config = replace(PAPER, beta=1.0)
    none = torch.zeros(1, dtype=torch.float64)
    loss, _ = grpo_loss(new, old, ref, none, torch.ones_like(new), config, weights_GT=weights)
    (slope,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(slope, wanted, atol=1e-12)


def test_importance_weights_are_truncated_and_spare_the_kl_term() -> None:
    config = replace(PLAIN, importance_cap=2.0, loss_normalisation="token")
    new = logs([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    sampler = logs([0.25, 2.0, 1.0], [1.0, 1.0, 1.0]).detach()  # weights 4 -> 2, 0.5, and 1 in the second row
    loss, _ = grpo_loss(new, zeros(), zeros(), ADVANTAGES_G, MASK_GT, config, sampler)
    assert loss.item() == pytest.approx(-(2.0 + 0.5 - 1.0) / 3, abs=1e-12)
    only_kl = replace(config, beta=0.5, kl="k1")
    shifted, _ = grpo_loss(new, zeros(), zeros() - 1.0, ADVANTAGES_G, MASK_GT, only_kl, sampler)
    assert (shifted - loss).item() == pytest.approx(0.5, abs=1e-12)


def test_missing_sampler_logprobs_are_an_error_where_they_are_needed() -> None:
    with pytest.raises(ConfigError, match="importance_cap"):
        grpo_loss(zeros(), zeros(), zeros(), ADVANTAGES_G, MASK_GT, replace(PAPER, importance_cap=2.0))


@given(st.lists(st.lists(ratios, min_size=3, max_size=3), min_size=2, max_size=2), st.sampled_from(["inf", "nan", "7"]))
def test_what_lies_on_padding_changes_nothing(rows: list[list[float]], filling: str) -> None:
    def run(fill: float) -> tuple[float, Tensor]:
        new = torch.where(MASK_GT.bool(), torch.tensor(rows, dtype=torch.float64), fill).requires_grad_()
        loss, _ = grpo_loss(new, zeros(), zeros() + 0.1, ADVANTAGES_G, MASK_GT, PAPER)
        return loss.item(), torch.autograd.grad(loss, new)[0]

    (loss, slope), (filled, filled_slope) = run(0.0), run(float(filling))
    assert filled == loss
    assert torch.equal(filled_slope, slope)
    assert filled_slope[0, 2].item() == 0.0


@given(st.lists(st.lists(ratios, min_size=3, max_size=3), min_size=2, max_size=2))
@pytest.mark.parametrize("normalisation", ["sequence", "token", "constant"])
def test_the_losses_of_parts_add_up_to_the_loss_of_the_group(normalisation: str, rows: list[list[float]]) -> None:
    config = replace(PAPER, loss_normalisation=normalisation)
    new, ref = torch.tensor(rows, dtype=torch.float64), zeros() - 0.2
    whole, stats = grpo_loss(new, zeros(), ref, ADVANTAGES_G, MASK_GT, config)
    weights = token_weights(MASK_GT, config)
    parts = [
        grpo_loss(
            new[i : i + 1],
            zeros()[:1],
            ref[:1],
            ADVANTAGES_G[i : i + 1],
            MASK_GT[i : i + 1],
            config,
            weights_GT=weights[i : i + 1],
        )
        for i in range(2)
    ]
    assert sum(part.item() for part, _ in parts) == pytest.approx(whole.item(), abs=1e-9)
    added = parts[0][1] + parts[1][1]
    assert (added.tokens, added.clip_fraction) == (stats.tokens, stats.clip_fraction)
    assert added.kl_mean == pytest.approx(stats.kl_mean, abs=1e-9)


def test_a_row_that_is_masked_out_still_counts_as_a_member_of_the_group() -> None:
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    assert token_weights(mask, PAPER).tolist() == [[0.25, 0.25], [0.0, 0.0]]
    assert token_weights(torch.zeros(2, 2), PAPER).sum().item() == 0.0
