"""GRPO in four pure functions, as Policy of Thoughts uses it (arXiv 2601.20379, section 3.3).

Shapes: G completions of one prompt, T tokens at most; `mask_GT` is 1 on the tokens that count and 0 on padding.

Deviations from the paper's text, each an option of `GrpoConfig`:
- the printed loss is negated (it is to be maximised, the paper says minimised);
- the KL term is r * k3 with the gradient through the ratio r too (`k3_ratio`): at each token, given those before it,
  its expected gradient is that of the reverse KL(new || ref), on the policy and off it. The plain losses have no ratio:
  on the policy `k3` has the gradient of the forward KL(ref || new) and `k2` that of the reverse, off it neither has
  either; the gradient of `k1` does not know the reference (zero on the policy, off it away from the old version), so
  it measures and does not regularise;
- `importance_cap` weighs the clipped objective, not the KL term, by min(pi_old / pi_sampler, cap), without gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.errors import ConfigError

MAX_REWARD = 1e150
"""Squares of larger rewards do not fit into float64, and their deviation would be infinite."""


@dataclass(frozen=True)
class GrpoStats:
    """What one evaluation of the loss saw; sums are over the tokens that count, so that parts add up to the whole."""

    tokens: float
    clipped: float
    """Tokens whose ratio left [1 - eps, 1 + eps]."""
    kl: float
    """Sum of r * k3, k3 = exp(ref - new) - (ref - new) - 1, whatever estimator the loss uses. The tokens were drawn
    from the old policy: without the ratio r this would not estimate KL(new || ref), and one token that has become
    unlikely would outweigh all others."""
    policy_loss: float
    kl_loss: float
    distil_loss: float = 0.0

    @property
    def clip_fraction(self) -> float:
        """Share of tokens whose ratio left the interval."""
        return self.clipped / self.tokens if self.tokens else 0.0

    @property
    def kl_mean(self) -> float:
        """KL(new || ref), mean per token, in nats."""
        return self.kl / self.tokens if self.tokens else 0.0

    def __add__(self, other: "GrpoStats") -> "GrpoStats":
        return GrpoStats(
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            kl=self.kl + other.kl,
            policy_loss=self.policy_loss + other.policy_loss,
            kl_loss=self.kl_loss + other.kl_loss,
            distil_loss=self.distil_loss + other.distil_loss,
        )


def advantages(rewards_G: Sequence[float] | Tensor, config: GrpoConfig) -> Tensor:
    """A_i = clip((R_i - mean R) / max(std R, eta), -C, C), in float64; exactly zero where all rewards are equal.

    A floor under the standard deviation, not a constant added to it. Rewards (2/3, 1/3, 1/3) give
    (+1.41421, -0.70711, -0.70711).
    """
    values_G = torch.as_tensor(rewards_G, dtype=torch.float64)
    if values_G.ndim != 1 or values_G.numel() == 0:
        raise ConfigError(f"rewards must be a list of numbers, got shape {tuple(values_G.shape)}", value=rewards_G)
    if not bool((values_G.abs() <= MAX_REWARD).all()):  # NaN fails too
        rule = f"rewards must be finite and at most {MAX_REWARD:g} in size"
        raise ConfigError(f"{rule}, got {values_G.tolist()}; scale them down", value=values_G.tolist())
    if bool((values_G == values_G[0]).all()):
        return torch.zeros_like(values_G)
    centred_G = values_G - values_G.mean()
    if config.normalise_advantage:
        std = values_G.std(correction=1 if config.std == "sample" else 0)
        centred_G = centred_G / std.clamp(min=config.advantage_floor)
    return centred_G.clamp(-config.advantage_clip, config.advantage_clip)


def token_weights(mask_GT: Tensor, config: GrpoConfig) -> Tensor:
    """The weight of each token in the loss, zero on padding; the loss is the weighted sum of `token_losses`."""
    mask_GT = mask_GT.to(torch.get_default_dtype() if mask_GT.dtype == torch.bool else mask_GT.dtype)
    if config.loss_normalisation == "token":
        return mask_GT / mask_GT.sum().clamp(min=1)
    if config.loss_normalisation == "constant":
        return mask_GT / (mask_GT.shape[0] * config.constant_length)
    return mask_GT / mask_GT.sum(1, keepdim=True).clamp(min=1) / mask_GT.shape[0]


def kl_losses(logprobs_GT: Tensor, old_logprobs_GT: Tensor, ref_logprobs_GT: Tensor, config: GrpoConfig) -> Tensor:
    """The KL term of each token, before beta."""
    delta_GT = ref_logprobs_GT - logprobs_GT
    if config.kl == "k1":
        return -delta_GT
    if config.kl == "k2":
        return 0.5 * delta_GT.square()
    k3_GT = torch.expm1(delta_GT) - delta_GT
    return k3_GT if config.kl == "k3" else (logprobs_GT - old_logprobs_GT).exp() * k3_GT


def importance_weights(
    old_logprobs_GT: Tensor, sampler_logprobs_GT: Tensor | None, config: GrpoConfig
) -> Tensor | None:
    """min(pi_old / pi_sampler, cap) for each token, without gradient; None where no correction is asked for."""
    if config.importance_cap is None:
        return None
    if sampler_logprobs_GT is None:
        raise ConfigError(
            "importance_cap needs the sampler's log-probabilities, and there are none; set importance_cap=None, or "
            "sample from a policy that records them",
            value=config.importance_cap,
        )
    return (old_logprobs_GT - sampler_logprobs_GT).exp().clamp(max=config.importance_cap).detach()


def grpo_loss(
    logprobs_GT: Tensor,
    old_logprobs_GT: Tensor,
    ref_logprobs_GT: Tensor,
    advantages_G: Tensor,
    mask_GT: Tensor,
    config: GrpoConfig,
    sampler_logprobs_GT: Tensor | None = None,
    *,
    weights_GT: Tensor | None = None,
) -> tuple[Tensor, GrpoStats]:
    """The loss to minimise (a scalar) and what it saw.

    `weights_GT` is for a caller that goes through the group in parts: rows of `token_weights` of the whole group. The
    losses of the parts then add up to the loss of the whole.
    """
    weights_GT = token_weights(mask_GT, config) if weights_GT is None else weights_GT
    counts_GT = mask_GT.bool()

    def kept(values_GT: Tensor) -> Tensor:
        # Padding may hold anything, infinities too; multiplied by zero those would be NaN, here and in the gradient.
        return torch.where(counts_GT, values_GT, values_GT.new_zeros(()))

    new_GT, old_GT, ref_GT = kept(logprobs_GT), kept(old_logprobs_GT), kept(ref_logprobs_GT)
    ratio_GT = (new_GT - old_GT).exp()
    advantages_G1 = advantages_G.to(ratio_GT.dtype).unsqueeze(1)
    clipped_GT = ratio_GT.clamp(1 - config.clip, 1 + config.clip)
    objective_GT = torch.minimum(ratio_GT * advantages_G1, clipped_GT * advantages_G1)
    sampler_GT = None if sampler_logprobs_GT is None else kept(sampler_logprobs_GT)
    importance_GT = importance_weights(old_GT, sampler_GT, config)
    if importance_GT is not None:
        objective_GT = objective_GT * importance_GT
    policy_loss = -(objective_GT * weights_GT).sum()
    kl_loss = config.beta * (kl_losses(new_GT, old_GT, ref_GT, config) * weights_GT).sum()
    outside_GT = (ratio_GT < 1 - config.clip) | (ratio_GT > 1 + config.clip)
    delta_GT = (ref_GT - new_GT).detach()
    stats = GrpoStats(
        tokens=float(counts_GT.sum()),
        clipped=float((outside_GT & counts_GT).sum()),
        kl=float((ratio_GT.detach() * (torch.expm1(delta_GT) - delta_GT)).sum()),
        policy_loss=float(policy_loss.detach()),
        kl_loss=float(kl_loss.detach()),
    )
    return policy_loss + kl_loss, stats
