"""One call of `internalize`: checks, the update, the commit to the session, the receipt.

The session changes in one place, `Session.commit`, after all that can fail has been done. The caller holds the policy's
lock and has looked for a receipt of the same digest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pot_agent.config import GrpoConfig
from pot_agent.errors import CannotLearnError, NotFiniteError
from pot_agent.policy.base import Receipt
from pot_agent.policy.journal import trainable_group
from pot_agent.policy.session import Session

if TYPE_CHECKING:
    from pot_agent.policy.engine import Engine
    from pot_agent.policy.trainer import Update


def learn(
    engine: "Engine",
    session: Session,
    version: int,
    rewards: Mapping[str, float],
    grpo: GrpoConfig,
    digest: str,
    check: Callable[[], None],
    teachers: Mapping[str, Sequence[int]] | None = None,
) -> Receipt:
    """Train on the group, or say in the receipt why not. `teachers` gives the ids of teachers' prompts by sample."""
    started = time.monotonic()
    if session.layout is None:
        raise CannotLearnError(
            f"session {session.name!r} was opened without an adapter; open it with lora=LoraConfig() to learn",
            value=session.name,
        )
    session.check_newest(version)
    samples = trainable_group(session.journal.in_order(rewards), version)
    ids = [sample.sample_id for sample in samples]
    values = [float(rewards[sample_id]) for sample_id in ids]
    advantages = engine.advantages(values, grpo)
    taught = [(teachers or {}).get(sample_id) for sample_id in ids] if grpo.distil else []
    for sample, prompt_ids in zip(samples, taught, strict=False):
        engine.check_context(len(prompt_ids or ()), len(sample.ids))
    skipped, update, canary = _nothing_to_learn(values, taught), None, None
    flops, phases = None, {}
    if skipped is None:
        update = engine.update(session, samples, advantages, grpo, check, taught)
        skipped, phases = update.skipped, update.phases
        if update.vector is not None and update.moments is not None:
            before = time.monotonic()
            try:
                canary = engine.canary(session, update, samples[0], check)
            except NotFiniteError:
                skipped = "not finite: what the model says under the adapter after the step; phi_t is kept"
            else:
                phases = {**phases, "canary": time.monotonic() - before}
                flops = engine.flops(session, samples, update, taught)
                session.commit(update.vector, update.moments, len(update.losses), grpo)
    return Receipt(
        digest=digest,
        version=session.version,
        parent_version=version,
        skipped=skipped,
        total_steps=session.steps,
        adapter_norm=engine.norm(session),
        canary=None if canary is None else canary.verdict,
        canary_gap=None if canary is None else canary.gap,
        flops=flops,
        seconds=time.monotonic() - started,
        phases=phases,
        rewards=dict(zip(ids, values, strict=True)),
        advantages=dict(zip(ids, advantages, strict=True)),
        **({} if update is None or skipped else _measured(update)),
    )


def _nothing_to_learn(rewards: Sequence[float], taught: Sequence[Sequence[int] | None]) -> str | None:
    if any(prompt_ids is not None for prompt_ids in taught):
        return None
    if len(rewards) < 2:
        return "fewer than two samples"
    return "all rewards are equal" if all(reward == rewards[0] for reward in rewards) else None


def _measured(update: "Update") -> dict[str, Any]:
    same = ("policy_loss", "kl_loss", "distil_loss", "kl", "clip_fraction", "grad_norm", "sampler_gap", "sampler_kl")
    return {
        "steps": len(update.losses),
        "loss": update.losses[0],
        "loss_last": update.losses[-1],
        **{name: getattr(update, name) for name in (*same, "tokens")},
    }
