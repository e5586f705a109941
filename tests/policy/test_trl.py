"""The update against TRL's GRPOTrainer: its own code on the same weights, ids and rewards.

TRL says the same as this project about: clipping (`epsilon` = `clip`), the temperature in the logits, old
log-probabilities of the version before the first step, k3 (`use_bias_correction_kl=False`) and r * k3 with its gradient
through r (`True`, its default: `kl="k3_ratio"`), token-wise truncated importance weights that spare the KL term
(`token_truncate`, `importance_cap`), truncated completions masked, and the normalisers
`grpo` = `sequence`, `bnpo` = `token`, `dr_grpo` = `constant` with `max_completion_length` as `constant_length`.

Where the definitions differ, the part that coincides is compared:
- TRL adds 1e-4 to a sample standard deviation, here it is a floor under the population's: equal for `std="sample"`
  where the deviation is far above both, and without normalisation;
- TRL's `dapo` divides by the tokens of the whole generation batch, all prompts and all processes: equal to `token`
  where the batch is one group, as it is here;
- TRL syncs its reference by steps of its callback, and not at all with peft: the reference here is a given adapter;
- TRL sums in float32 what its reward functions give, and its kernel gives float32 log-probabilities.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trl import GRPOTrainer  # type: ignore[attr-defined]

from pot_agent.config import GrpoConfig
from pot_agent.policy.engine import Engine
from pot_agent.policy.grpo import advantages
from pot_agent.policy.journal import Sample
from pot_agent.policy.trainer import Group, Update
from tests.policy import blackboard as board
from tests.policy import trl_oracle as oracle

REWARDS = (1.0, 0.125, 0.375)
"""Exact in float32, their mean too; none has an advantage of zero."""
STEP = 5e-4
"""Large enough that some ratios of the second epoch are clipped, and some are not."""
NORMALISERS = {"grpo": "sequence", "bnpo": "token", "dapo": "token", "dr_grpo": "constant"}
pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning")

KLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no kl": ({"beta": 0.0}, {"beta": 0.0}),
    "k3": ({"beta": 0.02, "use_bias_correction_kl": False}, {"beta": 0.02, "kl": "k3"}),
    "k3_ratio": ({"beta": 0.02, "use_bias_correction_kl": True}, {"beta": 0.02, "kl": "k3_ratio"}),
}


def samples(temperature: float = board.TEMPERATURE) -> list[Sample]:
    """The group, with sampler log-probabilities that float32 holds exactly."""
    return [
        replace(sample, temperature=temperature, logprobs=tuple(-3.0 - 0.25 * (i + j) for j in range(len(sample.ids))))
        for i, sample in enumerate(board.samples())
    ]


def group_of(engine: Engine, **changes: Any) -> Group:
    plain = advantages(REWARDS, GrpoConfig(normalise_advantage=False))
    return board.group_of(engine, **{"samples": samples(), "advantages": plain, **changes})


def ours(engine: Engine, group: Group, config: GrpoConfig) -> tuple[Update, Tensor, dict[str, Tensor]]:
    """An update of two epochs, the adapter after the first, and the gradient of each A and B in the second."""
    config = replace(config, learning_rate=STEP)
    update, gradient = board.last_epoch(engine._trainer, board.slot_of(engine), group, replace(config, epochs=2))
    first, _ = board.last_epoch(engine._trainer, board.slot_of(engine), group, replace(config, epochs=1))
    assert first.vector is not None
    return update, first.vector, board.tensors(engine, gradient)


def theirs(
    engine: Engine, folder: Path, output: Path, group: Group, moved: Tensor, *, correct: bool = False, **options: Any
) -> tuple[float, dict[str, Tensor], GRPOTrainer]:
    """The second epoch by TRL: its old and reference log-probabilities, its loss at the moved adapter."""
    layout = engine.layout(board.LORA)
    model = oracle.peft_model(folder, layout, group.parent)
    with oracle.trainer(
        model, folder, output, group.samples, REWARDS, num_iterations=3, scale_rewards="none", **options
    ) as trl:
        if "ref" in model.peft_config:
            assert group.reference is not None
            oracle.load(model, layout, group.reference, "ref")
        trl.use_vllm, trl._last_loaded_step = correct, 0  # the correction runs for samples of vLLM only
        inputs = trl._generate_and_score_completions([{"prompt": "whatever"}] * len(group.samples))
        assert inputs["advantages"].tolist() == group.advantages.tolist()
        oracle.load(model, layout, moved, "default")
        loss = trl.compute_loss(model, inputs)
        loss.backward()
        return loss.item(), oracle.gradients(model, layout), trl


def assert_close(got: dict[str, Tensor], wanted: dict[str, Tensor], relative: float) -> None:
    assert list(got) == list(wanted)
    for name, tensor in wanted.items():
        assert tensor.norm() > 0, name
        assert (got[name] - tensor).norm() <= relative * tensor.norm(), name


@pytest.mark.parametrize("correct", [False, True], ids=["uncorrected", "importance-weighted"])
@pytest.mark.parametrize("kl", KLS)
@pytest.mark.parametrize("loss_type", NORMALISERS)
def test_loss_and_every_gradient_equal_those_of_trl(
    exact: Engine, tiny: Path, tmp_path: Path, loss_type: str, kl: str, correct: bool
) -> None:
    their_kl, our_kl = KLS[kl]
    config = GrpoConfig(
        clip=0.1, loss_normalisation=NORMALISERS[loss_type], constant_length=16,  # type: ignore[arg-type]
        importance_cap=0.5 if correct else None, **our_kl,
    )  # fmt: skip
    group = group_of(exact)
    update, moved, gradient = ours(exact, group, config)
    their_loss, their_gradient, trl = theirs(
        exact, tiny, tmp_path, group, moved, correct=correct, epsilon=0.1, loss_type=loss_type, **their_kl,
        vllm_importance_sampling_mode="token_truncate", vllm_importance_sampling_clip_max=0.5,
    )  # fmt: skip
    assert update.losses[1] == pytest.approx(their_loss, rel=1e-11)
    assert_close(gradient, their_gradient, 1e-10)
    assert 0.1 < 2 * update.clip_fraction < 0.9  # the first epoch clips nothing
    if correct:
        ratios = trl._metrics["train"]
        assert ratios["sampling/importance_sampling_ratio/max"][-1] == 0.5
        assert ratios["sampling/importance_sampling_ratio/min"][-1] < 0.4
        untruncated, _, _ = ours(exact, group, replace(config, importance_cap=1e9))
        assert abs(untruncated.losses[1] - update.losses[1]) > 1e-3
    if kl == "k3_ratio":
        assert update.kl == pytest.approx(trl._metrics["train"]["kl"][-1], rel=1e-6)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 1.6])
def test_the_temperature_means_the_same(exact: Engine, tiny: Path, tmp_path: Path, temperature: float) -> None:
    group = group_of(exact, samples=samples(temperature))
    update, moved, gradient = ours(exact, group, GrpoConfig(beta=0.02))
    their_loss, their_gradient, _ = theirs(
        exact, tiny, tmp_path, group, moved, epsilon=0.3, loss_type="grpo", beta=0.02, temperature=temperature
    )
    assert update.losses[1] == pytest.approx(their_loss, rel=1e-11)
    assert_close(gradient, their_gradient, 1e-10)


@pytest.mark.parametrize("loss_type", NORMALISERS)
def test_truncated_completions_are_masked_alike(exact: Engine, tiny: Path, tmp_path: Path, loss_type: str) -> None:
    normalisation = NORMALISERS[loss_type]
    config = GrpoConfig(mask_truncated=True, loss_normalisation=normalisation, constant_length=16)  # type: ignore[arg-type]
    group = group_of(exact)
    assert [sample.finish for sample in group.samples] == ["stop", "length", "stop"]
    update, moved, gradient = ours(exact, group, config)
    their_loss, their_gradient, _ = theirs(
        exact,
        tiny,
        tmp_path,
        group,
        moved,
        epsilon=0.3,
        loss_type=loss_type,
        beta=0.02,
        mask_truncated_completions=True,
    )
    assert update.tokens == 6
    assert update.losses[1] == pytest.approx(their_loss, rel=1e-11)
    assert_close(gradient, their_gradient, 1e-10)


@pytest.mark.parametrize("kl", KLS)
def test_with_trls_own_kernel_they_are_equal_to_its_float32(exact: Engine, tiny: Path, tmp_path: Path, kl: str) -> None:
    their_kl, our_kl = KLS[kl]
    group = group_of(exact)
    update, moved, gradient = ours(exact, group, GrpoConfig(**our_kl))
    their_loss, their_gradient, _ = theirs(
        exact, tiny, tmp_path, group, moved, kind=GRPOTrainer, epsilon=0.3, loss_type="grpo", **their_kl
    )
    assert update.losses[1] == pytest.approx(their_loss, abs=1e-7)  # of terms as large as 0.25
    assert_close(gradient, their_gradient, 5e-6)


UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "paper": ({"loss_type": "grpo"}, {}),
    "token mean": ({"loss_type": "dapo"}, {"loss_normalisation": "token"}),
    "dr. grpo": ({"loss_type": "dr_grpo"}, {"loss_normalisation": "constant", "constant_length": 16}),
    "plain k3": ({"loss_type": "grpo", "use_bias_correction_kl": False}, {"kl": "k3"}),
    "small norm": ({"loss_type": "grpo", "max_grad_norm": 0.01}, {"max_grad_norm": 0.01}),
    "decay": ({"loss_type": "bnpo", "weight_decay": 0.1}, {"loss_normalisation": "token", "weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", UPDATES)
def test_three_epochs_give_the_adapter_that_trl_trains(exact: Engine, tiny: Path, tmp_path: Path, name: str) -> None:
    their_options, our_options = UPDATES[name]
    config = GrpoConfig(learning_rate=5e-3, clip=0.05, beta=0.02, epochs=3, **our_options)
    group, layout = group_of(exact), exact.layout(board.LORA)
    got = exact._trainer.update(board.slot_of(exact), group, config, board.nothing)
    model = oracle.peft_model(tiny, layout, group.parent)
    options = {
        "num_iterations": 3, "max_steps": 3, "learning_rate": 5e-3, "epsilon": 0.05, "beta": 0.02, "logging_steps": 1,
        "scale_rewards": "none", "lr_scheduler_type": "constant", "optim": "adamw_torch", **their_options,
    }  # fmt: skip
    with oracle.trainer(model, tiny, tmp_path, group.samples, REWARDS, **options) as trl:
        assert group.reference is not None
        oracle.load(model, layout, group.reference, "ref")
        trl.train()
    logged = [entry for entry in trl.state.log_history if "loss" in entry]
    trained = torch.cat([p.detach().reshape(-1) for _, p in oracle.halves(model, layout, "default")])
    assert got.vector is not None
    assert (got.vector - trained).abs().max().item() < 1e-9
    assert (got.vector - group.parent).abs().max().item() > 5e-3
    assert got.losses == pytest.approx([entry["loss"] for entry in logged], rel=1e-6)
    assert got.grad_norm == pytest.approx(sum(entry["grad_norm"] for entry in logged) / 3, rel=1e-6)
    assert logged[0]["clip_ratio/region_mean"] == 0.0
    assert logged[2]["clip_ratio/region_mean"] > 0.0


def their_advantages(
    engine: Engine, folder: Path, output: Path, rewards: Sequence[float], **options: Any
) -> list[float]:
    layout = engine.layout(board.LORA)
    model = oracle.peft_model(folder, layout, board.adapter(engine, 1))
    with oracle.trainer(model, folder, output, samples(), rewards, beta=0.0, **options) as trl:
        found: list[float] = trl._generate_and_score_completions([{"prompt": "whatever"}] * 3)["advantages"].tolist()
    return found


@pytest.mark.parametrize("rewards", [(2 / 3, 1 / 3, 1 / 3), (1.0, 0.25, 0.5), (0.0, 1.0, 1.0)])
def test_advantages_equal_those_of_trl_where_neither_epsilon_counts(
    exact: Engine, tiny: Path, tmp_path: Path, rewards: tuple[float, ...]
) -> None:
    config = GrpoConfig(std="sample")
    thousands = [1000 * reward for reward in rewards]
    got = their_advantages(exact, tiny, tmp_path, thousands)
    assert advantages(rewards, config).tolist() == pytest.approx(got, rel=1e-6)
    # With rewards in [0, 1] TRL's 1e-4 shows, as a factor that all share.
    std = torch.tensor(rewards, dtype=torch.float64).std().item()
    shrunk = advantages(rewards, config) * std / (std + 1e-4)
    assert shrunk.tolist() == pytest.approx(their_advantages(exact, tiny, tmp_path, rewards), rel=1e-6)
    # And the default differs by the estimator of the deviation alone: sqrt(G / (G - 1)).
    population = advantages(rewards, GrpoConfig()) * (2 / 3) ** 0.5
    assert population.tolist() == pytest.approx(got, rel=1e-6)


def test_unscaled_and_equal_rewards_give_the_advantages_of_trl(exact: Engine, tiny: Path, tmp_path: Path) -> None:
    plain = GrpoConfig(normalise_advantage=False)
    got = their_advantages(exact, tiny, tmp_path, REWARDS, scale_rewards="none")
    assert advantages(REWARDS, plain).tolist() == got
    assert their_advantages(exact, tiny, tmp_path, (0.25,) * 3) == advantages((0.25,) * 3, GrpoConfig()).tolist()
