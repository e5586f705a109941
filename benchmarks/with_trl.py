"""The same update by TRL's GRPOTrainer, from the same ids.

The ids come in through `rollout_func`; generation, logging, saving and checkpointing are off, and the clock runs from
the end of the rollout (log-probabilities of the old policy and the reference are still to be computed) to the end of
the third optimizer step.

Differences of definition, each met by a setting so that the losses agree: TRL adds 1e-4 to a sample standard deviation
(advantages are given as rewards, unscaled); its KL is plain k3 unless `use_bias_correction_kl`; its learning rate
decays unless constant; its loss is per token of the generation batch unless `loss_type="grpo"`. What is left: TRL
computes each token's entropy for its metrics, and knows no reference but the base or a copy of the start.
"""

import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from datasets import Dataset
from naive import peft_config
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from updates import Done, Work, clock, load_into, read_from

from pot_agent.policy.models import load_model


class Clock(TrainerCallback):  # type: ignore[misc]
    """The time of each optimizer step, and the losses."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """After the optimizer's step."""
        self.ends.append(clock(self.device))


class Noted(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that keeps the losses it computes."""

    noted: list[float]

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        self.noted.append(float(loss.detach()))
        return loss


def update_trl(work: Work) -> Callable[[], Done]:
    """One generation batch, three iterations over it."""
    warnings.filterwarnings("ignore", message=".*rollout_func.*")
    device, begun = work.device, [0.0]

    def rollout(prompts: list[Any], _trainer: Any) -> dict[str, list[Any]]:
        begun[0] = clock(device)
        return {"prompt_ids": [work.prompt_ids] * len(prompts), "completion_ids": work.rows, "logprobs": None}  # type: ignore[dict-item]

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        known = {tuple(row): float(a) for row, a in zip(work.rows, work.advantages, strict=True)}
        return [known[tuple(ids)] for ids in completion_ids]

    timer = Clock(device)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Noted(
            model=work.loaded.model,
            reward_funcs=reward,
            args=_arguments(work, folder),
            train_dataset=Dataset.from_dict({"prompt": ["p"]}),
            processing_class=_tokenizer(work),
            callbacks=[timer],
            peft_config=peft_config(work),
            rollout_func=rollout,
        )
    trainer.remove_callback(PrinterCallback)

    def run() -> Done:
        load_into(trainer.model, work.layout, work.parent)
        trainer.optimizer = trainer.lr_scheduler = None
        trainer.noted = []
        timer.ends.clear()
        trainer.train()
        marks = [begun[0], *timer.ends]
        epochs = [after - before for before, after in pairwise(marks)]
        return Done(trainer.noted, read_from(trainer.model, work.layout), marks[-1] - marks[0], epochs)

    return run


def _arguments(work: Work, folder: str) -> GRPOConfig:
    config = work.config
    return GRPOConfig(
        output_dir=folder,
        num_iterations=config.epochs,
        max_steps=config.epochs,
        num_generations=len(work.rows),
        per_device_train_batch_size=len(work.rows),
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        max_completion_length=len(work.rows[0]),
        temperature=work.temperature,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        epsilon=config.clip,
        beta=config.beta,
        use_bias_correction_kl=True,
        scale_rewards="none",
        loss_type="grpo",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=work.device.type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def _tokenizer(work: Work) -> Any:
    """Needed for its special tokens and to decode for the logs; random weights borrow the embedded model's."""
    return work.loaded.tokenizer or load_model("embedded", device="cpu").tokenizer
