"""One GRPO update of a transient LoRA: real peft layers, real autograd, AdamW.

How it is computed, each part exact and tested against the naive way:
- the prompt is run once per epoch; each completion then attends to its keys and values, and the gradient that reaches
  them is added up and sent back through the prompt once (`prompt.py`);
- a pass is one completion, or a few of about one length, right-padded: memory does not grow with the group;
- layers and attention run by hand-written passes that keep what the adapter's gradient needs (`fused.py`,
  `attention.py`);
- logits exist for completion tokens only, a chunk at a time (`head.py`);
- old log-probabilities are those of epoch 1's own forward, so its ratio is exactly 1; where the reference is the very
  version that is trained, they are the reference's too.

An update writes nothing of its session: it returns a new vector and new moments, or a reason why there are none.

Limits: no state of torch's dropout or batch statistics is handled, because the model stays in evaluation mode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pot_agent.config import GrpoConfig
from pot_agent.policy.adapters import Adapters, AdapterSlot
from pot_agent.policy.base import Measure
from pot_agent.policy.clock import Clock
from pot_agent.policy.distillation import divergences
from pot_agent.policy.forward import Forward, Rows
from pot_agent.policy.grpo import GrpoStats, grpo_loss, token_weights
from pot_agent.policy.head import Head
from pot_agent.policy.journal import Sample
from pot_agent.policy.models import LoadedModel


@dataclass(frozen=True)
class Moments:
    """AdamW's state, flat like the adapter."""

    first: Tensor
    second: Tensor
    steps: int


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an update computed; `vector` and `moments` are None where it was given up, and `skipped` says why."""

    vector: Tensor | None = None
    moments: Moments | None = None
    skipped: str | None = None
    losses: tuple[float, ...] = ()
    policy_loss: float = 0.0
    kl_loss: float = 0.0
    distil_loss: float = 0.0
    kl: float = 0.0
    clip_fraction: float = 0.0
    grad_norm: float = 0.0
    sampler_gap: float = 0.0
    sampler_kl: float = 0.0
    noise: float = 0.0
    """Root mean square of what `sampler_gap` is the mean of."""
    tokens: int = 0
    referenced: bool = False
    """Whether a reference other than the version trained was run."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The samples of one prompt with their advantages, and the adapter that they are of."""

    samples: Sequence[Sample]
    advantages: Tensor
    """One for each sample, [G]."""
    parent: Tensor
    reference: Tensor | None
    """The reference's vector; None for the base."""
    parent_is_base: bool
    """Whether the parent's B is zero, so that it is the base exactly."""
    moments: Moments | None
    teachers: Sequence[Sequence[int] | None] = ()
    """For each sample the prompt that its teacher reads, or None; empty where nothing is distilled."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """The prompt, common to all."""
        return self.samples[0].prompt_ids

    @property
    def rows(self) -> Rows:
        """Completion ids."""
        return [sample.ids for sample in self.samples]

    @property
    def temperature(self) -> float:
        """The sampling temperature, common to all."""
        return self.samples[0].temperature


class Trainer:
    """Log-probabilities and updates of one base model. The caller holds the policy's lock."""

    def __init__(
        self,
        loaded: LoadedModel,
        adapters: Adapters,
        head: Head,
        *,
        pass_tokens: int | None = None,
        segment_tokens: int | None = None,
    ) -> None:
        self._device = loaded.device
        self._head = head
        self._forward = Forward(loaded, adapters, head, pass_tokens=pass_tokens, segment_tokens=segment_tokens)

    @torch.no_grad()
    def logprobs(
        self,
        slot: AdapterSlot | None,
        vector: Tensor | None,
        prompt_ids: Sequence[int],
        rows: Rows,
        temperature: float,
        measure: Measure = "logprob",
    ) -> list[Tensor]:
        """Log-probability of each completion token under a version (None: the base), or another measure of it."""
        with self._forward.running(slot, vector):
            states = self._forward.prompts.states(prompt_ids[:-1])
            found: dict[int, Tensor] = {}
            for part in self._forward.passes(rows):
                hidden = self._forward.hidden(states, prompt_ids, rows, part)
                values = self._forward.logprobs(hidden, [rows[i] for i in part], temperature, measure)
                found.update(zip(part, values, strict=True))
        return [found[index] for index in range(len(rows))]

    def update(self, slot: AdapterSlot, group: Group, config: GrpoConfig, check: Callable[[], None]) -> Update:
        """`config.epochs` steps from `group.parent`. `check` is called before each pass, and may raise."""
        mask_GT = self._mask(group, config)
        if not bool(mask_GT.any()):
            return Update(skipped="no tokens to train on: every completion ran out of tokens, and those are masked")
        clock = Clock(self._device)
        with clock.phase("reference"):
            reference = self._reference(slot, group, config)
        with clock.phase("teacher"):
            teachers = self._teachers(slot, group)
        vector = group.parent.clone()
        optimizer = _optimizer(vector, group.moments, config)
        old: list[Tensor] = []
        losses, norms, clipped, stats = [], [], [], None
        for _ in range(config.epochs):
            with clock.phase("epochs"):
                loss, stats, new = self._epoch(slot, vector, group, mask_GT, old, reference, config, check, teachers)
            old = old or new
            gradient = slot.gradient()
            norm = float(gradient.norm())
            if not (_finite(loss) and _finite(norm)):
                return Update(skipped=f"not finite: loss {loss}, gradient norm {norm}; phi_t is kept", losses=(loss,))
            gradient.mul_(min(1.0, config.max_grad_norm / (norm + 1e-6)))
            vector.grad = gradient
            with clock.phase("optimizer"):
                optimizer.step()
            losses.append(loss)
            norms.append(norm)
            clipped.append(stats.clip_fraction)
        slot.clear_gradients()
        vector = vector.detach()
        if not bool(torch.isfinite(vector).all()) or stats is None:
            return Update(skipped="not finite: the adapter after the step; phi_t is kept", losses=tuple(losses))
        return Update(
            vector=vector,
            moments=_moments(optimizer),
            losses=tuple(losses),
            policy_loss=stats.policy_loss,
            kl_loss=stats.kl_loss,
            distil_loss=stats.distil_loss,
            kl=stats.kl_mean,
            clip_fraction=sum(clipped) / len(clipped),
            grad_norm=sum(norms) / len(norms),
            **_against_the_sampler(old, group.samples),
            tokens=int(mask_GT.sum()),
            referenced=reference is not None,
            phases=clock.seconds,
        )

    def _epoch(
        self,
        slot: AdapterSlot,
        vector: Tensor,
        group: Group,
        mask_GT: Tensor,
        old: list[Tensor],
        reference: list[Tensor] | None,
        config: GrpoConfig,
        check: Callable[[], None],
        teachers: Sequence[Tensor | None] = (),
    ) -> tuple[float, GrpoStats, list[Tensor]]:
        """Loss, statistics and log-probabilities of one epoch; the gradient is left in the slot."""
        weights_GT = token_weights(mask_GT, config)
        sampler_GT = self._padded([torch.tensor(sample.logprobs, dtype=torch.float64) for sample in group.samples])
        total, stats = 0.0, GrpoStats(0.0, 0.0, 0.0, 0.0, 0.0)
        new: dict[int, Tensor] = {}
        slot.clear_gradients()
        with self._forward.running(slot, vector.detach()):
            check()
            prompt = self._forward.prompts.differentiable(group.prompt_ids[:-1])
            for part in self._forward.passes(group.rows):
                check()
                hidden = self._forward.hidden(prompt.states, group.prompt_ids, group.rows, part)
                found = self._forward.logprobs(hidden, [group.rows[i] for i in part], group.temperature)
                frozen = [row.detach() for row in found]
                before = [old[i] for i in part] if old else frozen
                length = max(len(row) for row in found)
                loss, seen = grpo_loss(
                    self._padded(found),
                    self._padded(before),
                    self._padded([reference[i] for i in part] if reference is not None else before),
                    group.advantages[part],
                    mask_GT[part, :length],
                    config,
                    sampler_GT[part, :length],
                    weights_GT=weights_GT[part, :length],
                )
                taught = self._distillation(hidden, part, group, teachers, weights_GT, config)
                if taught is not None:
                    loss, seen = loss + taught, replace(seen, distil_loss=float(taught.detach()))
                loss.backward()  # type: ignore[no-untyped-call]
                total, stats = total + float(loss.detach()), stats + seen
                new.update(zip(part, frozen, strict=True))
            prompt.backward()
        return total, stats, [new[index] for index in range(len(group.samples))]

    def _distillation(
        self,
        hidden: Sequence[Tensor],
        part: Sequence[int],
        group: Group,
        teachers: Sequence[Tensor | None],
        weights_GT: Tensor,
        config: GrpoConfig,
    ) -> Tensor | None:
        """The distillation loss of these rows; None where none has a teacher."""
        losses = [
            (
                divergences(row, teacher, self._head, group.temperature, config.distil_divergence)
                * weights_GT[i, : len(row)]
            ).sum()
            for row, i in zip(hidden, part, strict=True)
            if (teacher := teachers[i] if teachers else None) is not None
        ]
        return config.distil * torch.stack(losses).sum() if losses else None

    def _mask(self, group: Group, config: GrpoConfig) -> Tensor:
        kept = [not (config.mask_truncated and sample.finish == "length") for sample in group.samples]
        rows = zip(group.samples, kept, strict=True)
        return self._padded([torch.full((len(s.ids),), float(keep), dtype=torch.float64) for s, keep in rows])

    def _padded(self, rows: Sequence[Tensor]) -> Tensor:
        return pad_sequence(list(rows), batch_first=True).to(self._device)

    def _reference(self, slot: AdapterSlot, group: Group, config: GrpoConfig) -> list[Tensor] | None:
        """Reference log-probabilities; None where they are epoch 1's own (or nothing asks for them)."""
        same = group.parent_is_base if group.reference is None else group.reference is group.parent
        if same or config.beta == 0:
            return None
        return self.logprobs(slot, group.reference, group.prompt_ids, group.rows, group.temperature)

    @torch.no_grad()
    def _teachers(self, slot: AdapterSlot, group: Group) -> list[Tensor | None]:
        """Hidden states of each sample's tokens under its teacher's prompt, at the version being trained."""
        taught: list[Tensor | None] = []
        with self._forward.running(slot, group.parent):
            for sample, prompt_ids in zip(group.samples, group.teachers, strict=False):
                if prompt_ids is None:
                    taught.append(None)
                    continue
                states = self._forward.prompts.states(prompt_ids[:-1])
                taught.append(self._forward.hidden(states, prompt_ids, [sample.ids], [0])[0])
        return taught


def _optimizer(vector: Tensor, moments: Moments | None, config: GrpoConfig) -> torch.optim.AdamW:
    optimizer = torch.optim.AdamW(
        [vector.requires_grad_()],
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
    )
    if moments is not None and config.moments == "keep":
        optimizer.state[vector] = {
            "step": torch.tensor(float(moments.steps)),
            "exp_avg": moments.first.clone(),
            "exp_avg_sq": moments.second.clone(),
        }
    return optimizer


def _moments(optimizer: torch.optim.AdamW) -> Moments:
    (state,) = optimizer.state.values()
    return Moments(first=state["exp_avg"], second=state["exp_avg_sq"], steps=int(state["step"]))


def _against_the_sampler(logprobs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, Any]:
    """How far trainer and sampler are apart on the tokens that the sampler drew, both at the version being trained."""
    trainer = torch.cat([row.double().cpu() for row in logprobs])
    sampler = torch.tensor([value for sample in samples for value in sample.logprobs], dtype=torch.float64)
    delta = trainer - sampler
    return {
        "sampler_gap": float(delta.abs().mean()),
        "sampler_kl": float((torch.expm1(delta) - delta).mean()),
        "noise": float(delta.square().mean().sqrt()),
    }


def _finite(value: float) -> bool:
    return value - value == 0.0
