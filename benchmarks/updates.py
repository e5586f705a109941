"""One GRPO update as a piece of work: a model, a group of token ids, an adapter to start from; and our way of doing it.

Limits: token ids are random (the arithmetic does not depend on what they mean), all completions of a group are of one
length, and the adapter starts as after a few updates: B is not zero, so the reference, the base, is another policy.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3Config

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.adapters import AdapterLayout, Adapters, layout_of, linear_layers
from pot_agent.policy.flops import ModelShape, update_flops
from pot_agent.policy.grpo import advantages
from pot_agent.policy.head import head_of
from pot_agent.policy.journal import Sample
from pot_agent.policy.memory import give_back_free_memory
from pot_agent.policy.models import LoadedModel, load_model
from pot_agent.policy.trainer import Group, Trainer

REWARDS = (2 / 3, 1 / 3, 1 / 3)
TEMPERATURE = 0.7
CONFIG = GrpoConfig(reference="base")
"""The profile `paper`: three epochs, clip 0.3, beta 0.02, each sequence's mean."""
B_STD = 0.005
QWEN3_4B = {
    "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e6}, "tie_word_embeddings": True,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """Tokens of the prompt and of each completion."""

    prompt: int
    completion: int

    def __str__(self) -> str:
        return f"{self.prompt}:{self.completion}"


@dataclass
class Work:
    """What every way of updating gets."""

    loaded: LoadedModel
    layout: AdapterLayout
    parent: Tensor
    prompt_ids: list[int]
    rows: list[list[int]]
    config: GrpoConfig = CONFIG
    temperature: float = TEMPERATURE

    @property
    def advantages(self) -> Tensor:
        """One for each row."""
        return advantages(REWARDS, self.config)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.loaded.device


@dataclass
class Done:
    """What an update came to."""

    losses: list[float]
    vector: Tensor
    seconds: float
    epoch_seconds: list[float] = field(default_factory=list)


def prepare(model: str, shape: Shape, *, device: str | None, layers: int | None) -> Work:
    """The model, the ids and the adapter: equal in every process."""
    loaded = random_qwen3(device, layers) if model == "qwen3-4b" else load_model(model, device=device)
    layout = layout_of(linear_layers(loaded.model), LoraConfig())
    parent = layout.initial(0, torch.empty(0, device=loaded.device))
    noise = torch.Generator().manual_seed(1)
    for _, _, b_OR in layout.views(parent):
        b_OR.copy_(torch.randn(b_OR.shape, generator=noise) * B_STD)
    return Work(loaded, layout, parent, *random_ids(shape))


def random_ids(shape: Shape) -> tuple[list[int], list[list[int]]]:
    """A prompt and its completions, below the smallest vocabulary and above the special tokens."""
    draw = torch.Generator().manual_seed(2)
    flat = torch.randint(100, 40_000, (shape.prompt + len(REWARDS) * shape.completion,), generator=draw).tolist()
    rest = flat[shape.prompt :]
    return flat[: shape.prompt], [rest[i * shape.completion :][: shape.completion] for i in range(len(REWARDS))]


def random_qwen3(device: str | None, layers: int | None) -> LoadedModel:
    """Random weights in the shape of Qwen3-4B, made on the device: bf16 on a GPU, float32 on a CPU."""
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    config = Qwen3Config(**{**QWEN3_4B, **({"num_hidden_layers": layers} if layers else {})})
    config._attn_implementation = "sdpa"
    dtype = torch.float32 if target.type == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    with target:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to(target).eval().requires_grad_(False)
    return LoadedModel(model, None, "random Qwen3-4B", 4096, model.num_parameters())  # type: ignore[arg-type]


def update_ours(work: Work) -> Callable[[], Done]:
    """As the policy in this process does it."""
    network = work.loaded.model
    adapters = Adapters(network)
    trainer = Trainer(work.loaded, adapters, head_of(network))
    slot = adapters.slot(work.layout)
    epochs = _timed_epochs(trainer, work.device)

    def run() -> Done:
        epochs.clear()
        started = clock(work.device)
        update = trainer.update(slot, group_of(work), work.config, lambda: None)
        give_back_free_memory()
        seconds = clock(work.device) - started
        if update.vector is None:
            raise RuntimeError(f"the update was skipped: {update.skipped}")
        return Done(list(update.losses), update.vector, seconds, list(epochs))

    return run


def group_of(work: Work) -> Group:
    """The group as the journal would give it; nothing here needs the sampler's log-probabilities."""
    samples = [
        Sample(
            sample_id=str(index),
            version=1,
            prompt_ids=tuple(work.prompt_ids),
            prompt_digest="",
            ids=tuple(row),
            logprobs=(-1.0,) * len(row),
            temperature=work.temperature,
            finish="length",
        )
        for index, row in enumerate(work.rows)
    ]
    return Group(
        samples=samples,
        advantages=work.advantages.to(work.device),
        parent=work.parent,
        reference=None,
        parent_is_base=False,
        moments=None,
    )


def _timed_epochs(trainer: Trainer, device: torch.device) -> list[float]:
    """Let the trainer note the seconds of each epoch."""
    seconds: list[float] = []
    epoch = trainer._epoch

    def timed(*arguments: Any, **options: Any) -> Any:
        started = clock(device)
        result = epoch(*arguments, **options)
        seconds.append(clock(device) - started)
        return result

    trainer._epoch = timed  # type: ignore[method-assign]
    return seconds


def clock(device: torch.device) -> float:
    """Seconds, after all that the device was given is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def load_into(model: torch.nn.Module, layout: AdapterLayout, vector: Tensor) -> None:
    """Copy a vector into a peft model's adapter, by name."""
    with torch.no_grad():
        for parameter, view in _pairs(model, layout, vector):
            parameter.copy_(view)


def read_from(model: torch.nn.Module, layout: AdapterLayout) -> Tensor:
    """A peft model's adapter as a vector."""
    vector = torch.zeros(layout.size)
    for parameter, view in _pairs(model, layout, vector):
        view.copy_(parameter.detach().cpu())
    return vector


def _pairs(model: torch.nn.Module, layout: AdapterLayout, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
    found = []
    for name, a_RI, b_OR in layout.views(vector):
        module = model.get_submodule(f"base_model.model.{name}")
        found += [(module.lora_A["default"].weight, a_RI), (module.lora_B["default"].weight, b_OR)]
    return found


def publish(layout: AdapterLayout, vector: Tensor, folder: Path) -> float:
    """Seconds to make a version servable: a copy of the vector, and a folder that peft and vLLM read."""
    started = clock(vector.device)
    copy = vector.detach().cpu().clone()
    tensors = {}
    for name, a_RI, b_OR in layout.views(copy):
        tensors[f"base_model.model.{name}.lora_A.weight"] = a_RI
        tensors[f"base_model.model.{name}.lora_B.weight"] = b_OR
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    targets = sorted({site.name.rsplit(".", 1)[-1] for site in layout.sites})
    config = {"peft_type": "LORA", "r": layout.lora.rank, "lora_alpha": layout.lora.alpha, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return time.perf_counter() - started


def epoch_flops(work: Work) -> float:
    """Model FLOPs of one epoch by the formula of `pot_agent.policy.flops`."""
    network = work.loaded.model
    linears = [_base(network.get_submodule(site.name)) for site in work.layout.sites]
    shape = ModelShape.of(network.config, linears, network.get_output_embeddings())
    lengths = [len(row) for row in work.rows]
    return update_flops(shape, adapter=work.layout.size, prompt=len(work.prompt_ids), completions=lengths, epochs=1)


def _base(module: Any) -> torch.nn.Linear:
    layer: torch.nn.Linear = getattr(module, "base_layer", module)
    return layer
