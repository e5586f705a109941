"""What the tests of the update share: a group of samples, and the update as one would write it on a blackboard."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.adapters import AdapterSlot
from pot_agent.policy.engine import Engine
from pot_agent.policy.grpo import advantages
from pot_agent.policy.head import head_of
from pot_agent.policy.journal import Sample
from pot_agent.policy.trainer import Group, Trainer, Update

LORA = LoraConfig(rank=3, alpha=6.0)
PROMPT = (1, 40, 41, 42, 60, 61, 7, 8, 9, 100, 101, 5)
ROWS = ((50, 51, 52, 2), (70, 71, 72, 73, 74, 75, 76), (90, 2))
TEMPERATURE = 0.7
REWARDS = (2 / 3, 1 / 3, 0.0)


def nothing() -> None:
    """Nobody cancels."""


def samples(prompt: tuple[int, ...] = PROMPT) -> list[Sample]:
    return [
        Sample(
            sample_id=str(index), version=0, prompt_ids=prompt, prompt_digest="p", ids=ids,
            logprobs=tuple(-4.0 - 0.1 * j for j in range(len(ids))), temperature=TEMPERATURE,
            finish="stop" if ids[-1] == 2 else "length",
        )
        for index, ids in enumerate(ROWS)
    ]  # fmt: skip


def adapter(engine: Engine, seed: int, *, trained: bool = True) -> Tensor:
    """A version's vector; a trained one has a B that is not zero."""
    layout = engine.layout(LORA)
    vector = layout.initial(seed, engine._like)
    noise = torch.Generator().manual_seed(seed)
    for _, _, b_OR in layout.views(vector):
        if trained:
            b_OR.normal_(std=0.05, generator=noise)
    return vector


def group_of(engine: Engine, prompt: tuple[int, ...] = PROMPT, **changes: Any) -> Group:
    fields = {
        "samples": samples(prompt),
        "advantages": advantages(REWARDS, GrpoConfig()),
        "parent": adapter(engine, 1),
        "reference": adapter(engine, 2),
        "parent_is_base": False,
        "moments": None,
    }
    return Group(**{**fields, **changes})


def slot_of(engine: Engine) -> AdapterSlot:
    return engine._adapters.slot(engine.layout(LORA))


def trainer_of(engine: Engine, **options: Any) -> Trainer:
    return Trainer(engine._loaded, engine._adapters, head_of(engine._loaded.model), **options)


def last_epoch(trainer: Trainer, slot: AdapterSlot, group: Group, config: GrpoConfig) -> tuple[Update, Tensor]:
    """The update, and the gradient of its last epoch: with beta1 = 0 that is Adam's first moment."""
    update = trainer.update(slot, group, replace(config, adam_betas=(0.0, 0.999), max_grad_norm=1e12), nothing)
    assert update.moments is not None
    return update, update.moments.first


def tensors(engine: Engine, vector: Tensor) -> dict[str, Tensor]:
    """Each A and B of a vector, or of a gradient, by name."""
    views = engine.layout(LORA).views(vector)
    return {f"{name}.{half}": tensor for name, a_RI, b_OR in views for half, tensor in (("A", a_RI), ("B", b_OR))}


def naive_logprobs(engine: Engine, vector: Tensor | None, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Tensor:
    """Log-probabilities by the definition."""
    return naive_logits(engine, vector, prompt, ids).log_softmax(1)[range(len(ids)), list(ids)]


def naive_logits(engine: Engine, vector: Tensor | None, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Tensor:
    """Logits of each completion token over the temperature, [T, V], with LoRA added by hand to the base's weights."""
    model = engine._loaded.model
    linears = {name: model.get_submodule(name) for name in engine._linears}
    weights = {name: getattr(module, "base_layer", module).weight for name, module in linears.items()}
    if vector is not None:
        for name, a_RI, b_OR in engine.layout(LORA).views(vector):
            weights[name] = weights[name] + (LORA.alpha / LORA.rank) * b_OR @ a_RI
    originals = {name: module.forward for name, module in linears.items()}
    try:
        for name, module in linears.items():
            module.forward = lambda x, w=weights[name]: x @ w.T
        logits = model(input_ids=torch.tensor([prompt + ids]), use_cache=False).logits[0]
    finally:
        for name, module in linears.items():
            del module.__dict__["forward"]
            assert module.forward == originals[name]
    scaled_TV: Tensor = logits[len(prompt) - 1 : -1] / TEMPERATURE
    return scaled_TV


def naive_update(engine: Engine, group: Group, config: GrpoConfig) -> tuple[Tensor, list[float]]:
    """The update as one would write it on a blackboard."""
    vector = group.parent.clone().requires_grad_()
    optimizer = torch.optim.AdamW([vector], lr=config.learning_rate, weight_decay=config.weight_decay)
    prompt = tuple(group.prompt_ids)
    rows = [tuple(row) for row in group.rows]
    with torch.no_grad():
        old = [naive_logprobs(engine, group.parent, prompt, row) for row in rows]
        ref = [naive_logprobs(engine, group.reference, prompt, row) for row in rows]
    kept = [not (config.mask_truncated and sample.finish == "length") for sample in group.samples]
    total = sum(len(row) for row, keep in zip(rows, kept, strict=True) if keep)
    losses = []
    for _ in range(config.epochs):
        loss = torch.zeros((), dtype=torch.float64)
        for i, row in enumerate(rows):
            if not kept[i]:
                continue
            new = naive_logprobs(engine, vector, prompt, row)
            ratio = (new - old[i]).exp()
            surrogate = torch.min(
                ratio * group.advantages[i], ratio.clamp(1 - config.clip, 1 + config.clip) * group.advantages[i]
            )
            if config.importance_cap is not None:
                sampler = torch.tensor(group.samples[i].logprobs, dtype=torch.float64)
                surrogate = surrogate * (old[i] - sampler).exp().clamp(max=config.importance_cap)
            delta = ref[i] - new
            kl = {
                "k1": -delta,
                "k2": delta**2 / 2,
                "k3": delta.exp() - delta - 1,
                "k3_ratio": ratio * (delta.exp() - delta - 1),
            }[config.kl]
            divisor = {
                "sequence": len(rows) * len(row),
                "token": total,
                "constant": len(rows) * config.constant_length,
            }[config.loss_normalisation]
            loss = loss - (surrogate - config.beta * kl).sum() / divisor
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([vector], config.max_grad_norm)
        optimizer.step()
        losses.append(loss.item())
    return vector.detach(), losses
