"""One call of `internalize`: checks, the update, the commit to the session, the receipt.

The session changes in one place, `Session.commit`, after all that can fail has been done. The caller holds the policy's
lock and has looked for a receipt of the same digest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pot_agent.config import GrpoConfig
from pot_agent.errors import CannotLearnError
from pot_agent.policy.base import Receipt
from pot_agent.policy.journal import trainable_group
from pot_agent.policy.sessions import Session

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
) -> Receipt:
    """Train on the group, or say in the receipt why not."""
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
    skipped, update = _nothing_to_learn(values), None
    if skipped is None:
        update = engine.update(session, samples, advantages, grpo, check)
        skipped = update.skipped
        if update.vector is not None and update.moments is not None:
            session.commit(update.vector, update.moments, len(update.losses), grpo)
    return Receipt(
        digest=digest,
        version=session.version,
        parent_version=version,
        skipped=skipped,
        total_steps=session.steps,
        adapter_norm=engine.norm(session),
        seconds=time.monotonic() - started,
        rewards=dict(zip(ids, values, strict=True)),
        advantages=dict(zip(ids, advantages, strict=True)),
        **({} if update is None or skipped else _measured(update)),
    )


def _nothing_to_learn(rewards: Sequence[float]) -> str | None:
    if len(rewards) < 2:
        return "fewer than two samples"
    return "all rewards are equal" if all(reward == rewards[0] for reward in rewards) else None


def _measured(update: "Update") -> dict[str, Any]:
    return {
        "steps": len(update.losses),
        "loss": update.losses[0],
        "loss_last": update.losses[-1],
        "kl": update.kl,
        "clip_fraction": update.clip_fraction,
        "grad_norm": update.grad_norm,
        "sampler_gap": update.sampler_gap,
        "tokens": update.tokens,
    }
