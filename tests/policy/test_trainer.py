"""The trainer against a naive one: whole sequences, all logits, no cache, no parts, in float64."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError
from pot_agent.policy.adapters import AdapterSlot
from pot_agent.policy.engine import Engine
from pot_agent.policy.grpo import advantages
from pot_agent.policy.head import head_of
from pot_agent.policy.journal import Sample
from pot_agent.policy.trainer import Group, Trainer

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


def naive_logprobs(engine: Engine, vector: Tensor | None, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Tensor:
    """Log-probabilities by the definition, with LoRA added by hand to the base's own weights."""
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
    return (logits[len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(1)[range(len(ids)), list(ids)]


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
        loss.backward()
        torch.nn.utils.clip_grad_norm_([vector], config.max_grad_norm)
        optimizer.step()
        losses.append(loss.item())
    return vector.detach(), losses


CONFIGS = {
    "paper": GrpoConfig(learning_rate=1e-3),
    "corrected": GrpoConfig(learning_rate=1e-2, loss_normalisation="token", importance_cap=2.0),
    "dr-grpo": GrpoConfig(learning_rate=1e-3, loss_normalisation="constant", constant_length=16, kl="k3"),
    "k2": GrpoConfig(learning_rate=1e-3, kl="k2", beta=0.5),
    "k1": GrpoConfig(learning_rate=1e-3, kl="k1", beta=0.5),
    "clipped": GrpoConfig(learning_rate=5e-2, clip=0.05, max_grad_norm=0.01, weight_decay=0.1),
    "truncated-masked": GrpoConfig(learning_rate=1e-3, mask_truncated=True),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_an_update_equals_the_naive_one_in_float64(exact: Engine, name: str) -> None:
    config, group = CONFIGS[name], group_of(exact)
    wanted, losses = naive_update(exact, group, config)
    got = exact._trainer.update(slot_of(exact), group, config, nothing)
    assert got.vector is not None
    assert got.losses == pytest.approx(losses, abs=1e-9)
    assert (got.vector - wanted).abs().max().item() < 1e-9
    assert (got.vector - group.parent).abs().max().item() > config.learning_rate / 2


def test_an_update_in_float32_stays_close_to_float64(exact: Engine, tiny: Any, tmp_path: Any) -> None:
    single = Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path)
    config = GrpoConfig(learning_rate=1e-3)
    moved = {}
    for name, engine in (("exact", exact), ("single", single)):
        group = group_of(engine, parent=adapter(exact, 1).to(engine._like.dtype))
        group = replace(group, reference=adapter(exact, 2).to(engine._like.dtype))
        slot = slot_of(engine)
        trainer = engine._trainer
        trainer._epoch(slot, group.parent, group, trainer._mask(group, config), [], None, config, nothing)
        moved[name] = slot.gradient().double()
    for start in range(0, len(moved["exact"]), 500):
        wanted, got = (moved[name][start : start + 500] for name in ("exact", "single"))
        assert (got - wanted).norm() <= 1e-4 * wanted.norm() + 1e-9


@pytest.mark.parametrize(
    "options", [{"pass_tokens": 14}, {"pass_tokens": 100}, {"segment_tokens": 4}, {"segment_tokens": 5}]
)
def test_neither_batches_nor_segments_change_the_update(exact: Engine, options: dict[str, int]) -> None:
    config = GrpoConfig(learning_rate=1e-3)
    one_by_one = exact._trainer.update(slot_of(exact), group_of(exact), config, nothing)
    other = trainer_of(exact, **options).update(slot_of(exact), group_of(exact), config, nothing)
    assert one_by_one.vector is not None
    assert other.vector is not None
    assert (one_by_one.vector - other.vector).abs().max().item() < 1e-10
    assert other.losses == pytest.approx(one_by_one.losses, abs=1e-10)


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts_train_too(exact: Engine, length: int) -> None:
    group = group_of(exact, PROMPT[:length])
    wanted, _ = naive_update(exact, group, CONFIGS["paper"])
    got = exact._trainer.update(slot_of(exact), group, CONFIGS["paper"], nothing)
    assert got.vector is not None
    assert (got.vector - wanted).abs().max().item() < 1e-9


def test_a_batch_of_one_equals_a_batch_of_three(exact: Engine) -> None:
    vector = adapter(exact, 3)
    batch = trainer_of(exact, pass_tokens=1000)
    together = batch.logprobs(slot_of(exact), vector, PROMPT, ROWS, TEMPERATURE)
    for row, ids in zip(together, ROWS, strict=True):
        (alone,) = batch.logprobs(slot_of(exact), vector, PROMPT, [ids], TEMPERATURE)
        assert torch.allclose(row, alone, atol=1e-12)
        assert torch.allclose(row, naive_logprobs(exact, vector, PROMPT, ids), atol=1e-12)


def test_the_first_epochs_ratio_is_exactly_one(exact: Engine) -> None:
    # With beta 0 and ratio 1 the loss is minus the mean advantage, which is zero to the last bit but for the sum's own.
    config = GrpoConfig(epochs=1, beta=0.0, loss_normalisation="sequence")
    got = exact._trainer.update(slot_of(exact), group_of(exact), config, nothing)
    assert got.losses[0] == pytest.approx(0.0, abs=1e-15)
    assert got.clip_fraction == 0.0


def test_only_b_moves_at_the_first_step(exact: Engine) -> None:
    layout = exact.layout(LORA)
    parent = layout.initial(5, exact._like)
    group = group_of(exact, parent=parent, reference=None, parent_is_base=True)
    got = exact._trainer.update(slot_of(exact), group, GrpoConfig(epochs=1), nothing)
    assert got.vector is not None
    for (_, a_before, b_before), (_, a_after, b_after) in zip(
        layout.views(parent), layout.views(got.vector), strict=True
    ):
        assert torch.equal(a_before, a_after)
        assert not torch.equal(b_before, b_after)


def test_moments_are_kept_between_updates_or_reset(exact: Engine) -> None:
    config = GrpoConfig(learning_rate=1e-3, epochs=2)
    slot = slot_of(exact)
    first = exact._trainer.update(slot, group_of(exact), config, nothing)
    assert first.moments is not None
    assert first.moments.steps == 2
    again = group_of(exact, parent=first.vector, moments=first.moments)
    kept = exact._trainer.update(slot, again, config, nothing)
    reset = exact._trainer.update(slot, again, replace(config, moments="reset"), nothing)
    fresh = exact._trainer.update(slot, replace(again, moments=None), config, nothing)
    assert kept.moments is not None
    assert kept.moments.steps == 4
    assert kept.vector is not None
    assert reset.vector is not None
    assert fresh.vector is not None
    assert torch.equal(reset.vector, fresh.vector)
    assert not torch.equal(kept.vector, fresh.vector)


def test_an_update_that_is_not_finite_is_given_up_and_says_so(exact: Engine) -> None:
    parent = adapter(exact, 1)
    for broken in (float("inf"), float("nan")):
        bad = group_of(exact, advantages=torch.tensor([broken, -1.0, 0.0], dtype=torch.float64), parent=parent)
        got = exact._trainer.update(slot_of(exact), bad, GrpoConfig(), nothing)
        assert got.vector is None
        assert got.moments is None
        assert got.skipped is not None
        assert "not finite" in got.skipped
    assert torch.equal(parent, adapter(exact, 1))
    good = exact._trainer.update(slot_of(exact), group_of(exact, parent=parent), GrpoConfig(), nothing)
    fresh = exact._trainer.update(slot_of(exact), group_of(exact), GrpoConfig(), nothing)
    assert good.vector is not None
    assert fresh.vector is not None
    assert torch.equal(good.vector, fresh.vector)


def test_a_group_whose_every_completion_is_masked_is_skipped(exact: Engine) -> None:
    cut = [replace(sample, finish="length") for sample in samples()]
    got = exact._trainer.update(slot_of(exact), group_of(exact, samples=cut), GrpoConfig(mask_truncated=True), nothing)
    assert got.vector is None
    assert got.skipped is not None
    assert "no tokens" in got.skipped


@pytest.mark.parametrize("after", range(1, 12))
def test_a_cancel_between_passes_leaves_everything_as_it_was(exact: Engine, after: int) -> None:
    calls = 0

    def cancel_later() -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise CancelledError("enough")

    group = group_of(exact)
    with pytest.raises(CancelledError):
        exact._trainer.update(slot_of(exact), group, GrpoConfig(), cancel_later)
    assert torch.equal(group.parent, adapter(exact, 1))
    (base,) = exact._trainer.logprobs(None, None, PROMPT, ROWS[:1], TEMPERATURE)
    assert torch.allclose(base, naive_logprobs(exact, None, PROMPT, ROWS[0]), atol=1e-12)
