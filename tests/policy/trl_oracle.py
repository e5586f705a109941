"""TRL's own GRPOTrainer over the tiny model: its rollout is given the ids, everything else it does itself.

Only the log-probabilities are ever replaced, in `ExactTrainer`: TRL's kernel forms them in float32 whatever the model
is, so the comparison in float64 hands TRL's loss those of the same peft model by plain log-softmax.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.journal import Sample
from tests.tiny import make_norms_exact


class ExactTrainer(GRPOTrainer):
    """TRL's trainer with log-probabilities in float64."""

    def _get_per_token_logps_and_entropies(
        self, model: nn.Module, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor, None]:
        logits = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        logprobs = (logits[:, -logits_to_keep - 1 : -1] / self.temperature).log_softmax(-1)
        taken = logprobs.gather(2, input_ids[:, -logits_to_keep:].unsqueeze(2)).squeeze(2)
        return taken, -(logprobs.exp() * logprobs).sum(-1).detach(), None


def peft_model(folder: Path, layout: AdapterLayout, vector: Tensor, dtype: torch.dtype = torch.float64) -> PeftModel:
    """The tiny model under peft's own wrapper, its LoRA holding this version."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if dtype == torch.float64:
        make_norms_exact(base)
    targets = [site.name for site in layout.sites]
    config = PeftLoraConfig(r=layout.lora.rank, lora_alpha=layout.lora.alpha, target_modules=targets, lora_dropout=0.0)
    model = get_peft_model(base, config)
    load(model, layout, vector, "default")
    return model


def halves(model: PeftModel, layout: AdapterLayout, adapter: str) -> Iterator[tuple[str, nn.Parameter]]:
    """(name, parameter) of each A and B in the order of a version's vector."""
    for site in layout.sites:
        layer = model.base_model.model.get_submodule(site.name)
        yield f"{site.name}.A", layer.lora_A[adapter].weight
        yield f"{site.name}.B", layer.lora_B[adapter].weight


def gradients(model: PeftModel, layout: AdapterLayout) -> dict[str, Tensor]:
    """The gradient of each A and B of the adapter that is trained."""
    return {name: p.grad for name, p in halves(model, layout, "default") if p.grad is not None}


def load(model: PeftModel, layout: AdapterLayout, vector: Tensor, adapter: str) -> None:
    """Put a version into one of the wrapper's adapters."""
    views = [half for _, a_RI, b_OR in layout.views(vector) for half in (a_RI, b_OR)]
    for (_, parameter), half in zip(halves(model, layout, adapter), views, strict=True):
        parameter.data = half.to(parameter.dtype).clone()


@contextmanager
def trainer(
    model: PeftModel,
    folder: Path,
    output: Path,
    samples: Sequence[Sample],
    rewards: Sequence[float],
    *,
    kind: type[GRPOTrainer] = ExactTrainer,
    **options: Any,
) -> Iterator[GRPOTrainer]:
    """A GRPOTrainer whose group is these samples, and nothing else of it changed; torch's seed is put back."""

    def rollout(prompts: list[str], _: GRPOTrainer) -> dict[str, list[list[Any]]]:
        return {
            "prompt_ids": [list(sample.prompt_ids) for sample in samples],
            "completion_ids": [list(sample.ids) for sample in samples],
            "logprobs": [list(sample.logprobs) for sample in samples],
        }

    group = len(samples)
    fixed = {
        "output_dir": str(output),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": group,
        "num_generations": group,
        "temperature": samples[0].temperature,
        "max_completion_length": 16,
        "shuffle_dataset": False,
    }
    with torch.random.fork_rng(devices=[]):
        made = kind(
            model=model,
            args=GRPOConfig(**{**fixed, **options}),
            reward_funcs=lambda completions, **_: list(rewards),
            train_dataset=Dataset.from_list([{"prompt": "whatever"}] * group),
            processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
            rollout_func=rollout,
        )
        made.current_gradient_accumulation_steps = 1
        yield made
