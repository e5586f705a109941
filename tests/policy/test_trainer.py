"""The trainer against a naive one: whole sequences, all logits, no cache, no parts, in float64."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.errors import CancelledError
from pot_agent.policy.engine import Engine
from pot_agent.policy.grpo import grpo_loss
from tests.policy.blackboard import (
    LORA,
    PROMPT,
    ROWS,
    TEMPERATURE,
    adapter,
    group_of,
    last_epoch,
    naive_logprobs,
    naive_update,
    nothing,
    samples,
    slot_of,
    tensors,
    trainer_of,
)

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


def test_float32_gives_each_tensor_of_the_gradient_and_each_logprob_of_float64(
    exact: Engine, tiny: Path, tmp_path: Path
) -> None:
    single = Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path)
    config = GrpoConfig(epochs=1, beta=0.1)
    gradients, logprobs = {}, {}
    for engine in (exact, single):
        dtype = engine._like.dtype
        group = group_of(engine, parent=adapter(exact, 1).to(dtype), reference=adapter(exact, 2).to(dtype))
        gradients[dtype] = tensors(engine, last_epoch(engine._trainer, slot_of(engine), group, config)[1])
        logprobs[dtype] = engine._trainer.logprobs(slot_of(engine), group.parent, PROMPT, ROWS, TEMPERATURE)
    assert len(gradients[torch.float64]) == 28  # A and B of seven layers in two blocks
    for name, wanted in gradients[torch.float64].items():
        assert wanted.norm() > 0, name
        assert (gradients[torch.float32][name].double() - wanted).norm() <= 1e-4 * wanted.norm(), name
    for row, wanted in zip(logprobs[torch.float32], logprobs[torch.float64], strict=True):
        assert row.dtype == torch.float32
        assert (row.double() - wanted).norm() <= 1e-5 * wanted.norm()


def left_padded_logprobs(engine: Engine) -> Tensor:
    """The group as whole sequences in one left-padded batch through transformers and peft; [G, T], right-aligned."""
    rows = [torch.tensor(PROMPT + row) for row in ROWS]
    length = max(len(row) for row in rows)
    ids_GS = torch.stack([torch.nn.functional.pad(row, (length - len(row), 0)) for row in rows])
    mask_GS = torch.stack([(torch.arange(length) >= length - len(row)).long() for row in rows])
    positions_GS = (mask_GS.cumsum(1) - 1).clamp(min=0)
    logits_GSV: Tensor = engine._loaded.model(ids_GS, attention_mask=mask_GS, position_ids=positions_GS).logits
    logprobs_GSV = (logits_GSV[:, :-1] / TEMPERATURE).log_softmax(-1)
    return logprobs_GSV.gather(2, ids_GS[:, 1:, None]).squeeze(2)[:, -max(map(len, ROWS)) :]


@pytest.mark.parametrize("epochs", [1, 2])
def test_left_and_right_padding_give_equal_logprobs_and_gradients(exact: Engine, epochs: int) -> None:
    right, slot, group = trainer_of(exact, pass_tokens=1000), slot_of(exact), group_of(exact)
    assert len(right._forward.passes(ROWS)) == 1  # three lengths in one pass: padding does enter
    config = GrpoConfig(epochs=epochs, beta=0.1)
    update, gradient = last_epoch(right, slot, group, config)
    trained = group.parent if epochs == 1 else last_epoch(right, slot, group, replace(config, epochs=1))[0].vector
    found = right.logprobs(slot, trained, PROMPT, ROWS, TEMPERATURE)

    with torch.no_grad(), exact._adapters.running(slot, group.parent):
        old_GT = left_padded_logprobs(exact)
    with torch.no_grad(), exact._adapters.running(slot, group.reference):
        reference_GT = left_padded_logprobs(exact)
    slot.clear_gradients()
    with exact._adapters.running(slot, trained):
        new_GT = left_padded_logprobs(exact)
        counts_GT = torch.stack([(torch.arange(-new_GT.shape[1], 0) >= -len(row)).double() for row in ROWS])
        loss, _ = grpo_loss(new_GT, old_GT, reference_GT, group.advantages, counts_GT, config)
        loss.backward()  # type: ignore[no-untyped-call]
    for row_T, left_T in zip(found, new_GT.detach(), strict=True):
        assert (row_T - left_T[-len(row_T) :]).abs().max() < 1e-10
    assert update.losses[-1] == pytest.approx(loss.item(), abs=1e-10)
    assert gradient.norm() > 0.1
    assert (gradient - slot.gradient()).abs().max() < 1e-10


@pytest.mark.parametrize(
    "options", [{"pass_tokens": 14}, {"pass_tokens": 100}, {"segment_tokens": 4}, {"segment_tokens": 5}]
)
def test_neither_batches_nor_segments_change_the_update(exact: Engine, options: dict[str, int]) -> None:
    config = GrpoConfig(learning_rate=1e-3)
    one_by_one = trainer_of(exact, pass_tokens=1).update(slot_of(exact), group_of(exact), config, nothing)
    other = trainer_of(exact, **options).update(slot_of(exact), group_of(exact), config, nothing)
    assert one_by_one.vector is not None
    assert other.vector is not None
    assert (one_by_one.vector - other.vector).abs().max().item() < 1e-10
    assert other.losses == pytest.approx(one_by_one.losses, abs=1e-10)


def test_what_is_left_of_a_prompt_comes_first_so_that_a_whole_segments_graph_is_kept(exact: Engine) -> None:
    prompts = trainer_of(exact, segment_tokens=4)._forward.prompts
    assert prompts._segments(range(10)) == [range(2), range(2, 6), range(6, 10)]
    assert prompts._segments(range(8)) == [range(4), range(4, 8)]
    assert prompts._segments(range(3)) == [range(3)]


def test_only_rows_of_about_one_length_share_a_pass(exact: Engine) -> None:
    rows = [[5] * length for length in (100, 10, 110, 300, 12, 105)]
    assert trainer_of(exact, pass_tokens=384)._forward.passes(rows) == [[1, 4], [0, 5, 2], [3]]
    assert trainer_of(exact, pass_tokens=1)._forward.passes(rows) == [[1], [4], [0], [5], [2], [3]]


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

    group, one_by_one = group_of(exact), trainer_of(exact, pass_tokens=1)
    with pytest.raises(CancelledError):
        one_by_one.update(slot_of(exact), group, GrpoConfig(), cancel_later)
    assert torch.equal(group.parent, adapter(exact, 1))
    (base,) = exact._trainer.logprobs(None, None, PROMPT, ROWS[:1], TEMPERATURE)
    assert torch.allclose(base, naive_logprobs(exact, None, PROMPT, ROWS[0]), atol=1e-12)
