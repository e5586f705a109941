"""Small models of every kind that decodes lean, and their logits by the lean decoder and by transformers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from pot_agent.config import LoraConfig
from pot_agent.policy.engine import Engine
from pot_agent.policy.lean import LeanDecoder
from tests.tiny import make_tokenizer

LORA = LoraConfig(rank=4, alpha=12.0)
SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
    },
    "longrope": {
        "short_factor": [1.0] * 6, "long_factor": [3.0] * 6, "original_max_position_embeddings": 24, "factor": 4.0,
    },
}  # fmt: skip
ROPE = {kind: {"rope_type": kind, "rope_theta": 10000.0, **fields} for kind, fields in SCALINGS.items()}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SHAPE),
    "llama, tied, biases everywhere": LlamaConfig(
        **SHAPE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True
    ),
    "llama, a key head for each head": LlamaConfig(**SHAPE | {"num_key_value_heads": 4}),
    "llama, one key head, wide heads": LlamaConfig(**SHAPE | {"num_key_value_heads": 1}, head_dim=20),
    "llama, gelu": LlamaConfig(**SHAPE, hidden_act="gelu"),
    **{
        f"llama, {kind} positions": LlamaConfig(**SHAPE | {"max_position_embeddings": 24}, rope_parameters=fields)
        for kind, fields in ROPE.items()
    },
    "qwen2": Qwen2Config(**SHAPE),
    "qwen2, tied": Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "qwen3, tied, biases": Qwen3Config(**SHAPE, head_dim=12, tie_word_embeddings=True, attention_bias=True),
}
PROMPT = [int(i) for i in torch.randint(5, 300, (11,), generator=torch.Generator().manual_seed(1))]
ROOM = 45
"""With the prompt, beyond the length that some scalings of positions are for, 16 or 24."""


class Made(NamedTuple):
    """An engine, and an adapter on every layer."""

    engine: Engine
    vector: Tensor


def make(config: PretrainedConfig, folder: Path, dtype: str, stored: torch.dtype = torch.float32) -> Made:
    """A model with random weights, biases and norms included; equal arguments, equal weights."""
    tokenizer = make_tokenizer()
    config.vocab_size = len(tokenizer)
    config.eos_token_id = tokenizer.eos_token_id
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_()
        if "norm" in name:
            parameter.data.uniform_(0.5, 1.5)
    model.to(stored).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    engine = Engine(str(folder), device="cpu", dtype=dtype, home=folder)
    if dtype == "float64":
        make_every_norm_exact(engine._loaded.model)
    return with_noise(engine)


def with_noise(engine: Engine, std: float = 0.1) -> Made:
    """The engine, and an adapter on every layer whose B is not zero."""
    layout = engine.layout(LORA)
    vector = layout.initial(0, engine._like)
    noise = torch.Generator().manual_seed(2)
    for _, _, b_OR in layout.views(vector):
        b_OR.normal_(std=std, generator=noise)
    return Made(engine, vector)


def make_every_norm_exact(model: nn.Module) -> None:
    """RMS norms pass through float32 in transformers: a difference of 1e-16 before one can be 1e-7 behind it."""

    def exact(weight: Tensor, epsilon: float, x: Tensor) -> Tensor:
        return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(exact, module.weight, module.variance_epsilon)


def tokens(rows: int, steps: int = ROOM) -> Tensor:
    return torch.randint(5, 300, (rows, steps), generator=torch.Generator().manual_seed(3))


@contextmanager
def decoding(made: Made, vector: Tensor | None) -> Iterator[LeanDecoder]:
    fast = made.engine._sampler._fast
    with torch.no_grad(), fast.running(made.engine.layout(LORA), vector, len(PROMPT)) as decoder:
        assert isinstance(decoder, LeanDecoder)
        yield decoder


def lean_logits(made: Made, vector: Tensor | None, ids_NT: Tensor, *, parts: int = 4) -> Tensor:
    """Logits after the prompt (in parts) and after each token, [N, 1 + T, V]; each row is given its own tokens."""
    head = made.engine._sampler._head
    with decoding(made, vector) as decoder:
        for part_P in torch.tensor(PROMPT).split(parts):
            hidden_1H = decoder.prefill(part_P, lambda: None)
        decoder.widen(ids_NT.shape[0], ids_NT.shape[1])
        hidden = [hidden_1H.expand(ids_NT.shape[0], -1), *(decoder.step(ids_N) for ids_N in ids_NT.t())]
        return torch.stack([head(hidden_NH) for hidden_NH in hidden], 1)


@torch.no_grad()
def transformers_logits(made: Made, vector: Tensor | None, ids_NT: Tensor) -> Tensor:
    """The same by transformers and peft, as `generate` would: a cache that grows, a prompt that each row has."""
    engine, model = made.engine, made.engine._loaded.model
    slot = None if vector is None else engine._adapters.slot(engine.layout(LORA))
    cache = DynamicCache()
    prompt_NP = torch.tensor([PROMPT]).expand(ids_NT.shape[0], -1)
    with engine._adapters.running(slot, vector):
        steps = [prompt_NP, *ids_NT.split(1, 1)]
        return torch.stack([model(input_ids=ids, past_key_values=cache).logits[:, -1] for ids in steps], 1)


def difference(made: Made, vector: Tensor | None, rows: int = 3) -> float:
    ids_NT = tokens(rows)
    return float((lean_logits(made, vector, ids_NT) - transformers_logits(made, vector, ids_NT)).abs().max())
