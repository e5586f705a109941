"""What a base model, its adapters and an update take of memory, in bytes: formulas over numbers, nothing is loaded.

With b bytes a number, H the hidden size, F that of the gated unit, Q and K the sizes of all queries and of all keys
(the values' too), R the rank, and L layers, an update keeps for every token that goes through with a gradient

    of a layer = b (4 H + 2 Q + 3 F, and Q + K more where queries and keys are normed) + 4 (7 R + norms and softmax)
    keys and values = 2 b K L for each row's prompt and completion together, and twice for the prompt itself

(a norm's input and a linear layer's for H, the rotated queries and what attention found for Q, the gated unit's halves
and their product for F: see `fused.py`; `prompt.py` keeps the graph of one segment of the prompt). On top comes what is
there for a moment: logits of one chunk of tokens, or one layer's gradients.
On a CPU these sums lie 2 to 20% above what torch allocates, in small models of several shapes and the embedded one.

Limits: reckoned for models of the Llama family (`lean.py` names them); others are taken for one of equal sizes, and
those whose layers are not fused keep more. What allocators lose comes on top (`memory_plan.py`). No GPU has been asked.
"""

from dataclasses import dataclass
from typing import Any

from pot_agent.policy.session import KEPT_VERSIONS

ADAPTER_BYTES = 4
"""Adapters are float32 in the trainer."""
VECTORS_OF_A_SESSION = KEPT_VERSIONS + 3
"""Versions, a reference that is none of them, two moments."""
VECTORS_OF_AN_UPDATE = 6
"""The slot, gradients as parameters have them and flat, the new vector, two new moments."""
CPU_HEAD_BYTES, GPU_HEAD_BYTES = 12, 16
"""Of each logit of a chunk: log-probabilities, their gradients, and those over the temperature; a GPU's with some
allowance."""
CPU_CHUNK_TOKENS, GPU_CHUNK_TOKENS = 128, 1024
"""`head.py`'s; a test compares them."""
PREFILL_TOKENS = 512
"""`sampler.py`'s."""
SCORE_BYTES = 12
"""Of each score of the prompt's attention while it is run for sampling, where torch knows no kernel for it."""
CHOICE_BYTES = 24
"""Of each logit of a step: as they come, probabilities, their sums in float64."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """The sizes of a model that its memory follows from."""

    parameters: int
    """All of them, tied ones once."""
    linear: int
    """Of these, in the backbone's linear layers, which adapters go on."""
    sides: int
    """Inputs and outputs of those layers, added up: the parameters of an adapter of rank 1."""
    layers: int
    hidden: int
    gated: int
    """F, the inner size of the gated unit."""
    queries: int
    """Q, all heads together."""
    keys: int
    """K, all key heads together."""
    heads: int
    """Of queries."""
    vocabulary: int
    norms_heads: bool
    """Whether queries and keys are normed, as in Qwen3."""
    context_tokens: int
    """The longest that the model was made for."""

    def weights(self, number: int) -> int:
        """The base model, at so many bytes a number."""
        return self.parameters * number

    def packed(self, number: int) -> int:
        """The copy of the linear layers and of the output head that the CPU's sampler packs."""
        return (self.linear + self.vocabulary * self.hidden) * number

    def adapter(self, rank: int) -> int:
        """Parameters of an adapter on all linear layers."""
        return rank * self.sides

    def sessions(self, rank: int, sessions: int) -> int:
        """Adapters of so many sessions, and what one update of one of them needs beside."""
        return self.adapter(rank) * ADAPTER_BYTES * (sessions * VECTORS_OF_A_SESSION + VECTORS_OF_AN_UPDATE)

    def keys_and_values(self, tokens: int, number: int) -> int:
        """Keys and values of so many tokens, in all layers."""
        return 2 * self.keys * self.layers * tokens * number

    def kept(self, tokens: int, rank: int, number: int) -> int:
        """What the backward pass needs of so many tokens that go through together, without keys and values."""
        normed = self.queries + self.keys if self.norms_heads else 0
        numbers = 4 * self.hidden + 2 * self.queries + 3 * self.gated + normed
        small = 7 * rank + 2 + (3 if self.norms_heads else 1) * self.heads
        return tokens * self.layers * (numbers * number + small * ADAPTER_BYTES)

    def moment(self, tokens: int, number: int) -> int:
        """One layer's gradients, and copies in the adapter's type where that is not the model's."""
        copies = 2 * self.gated * ADAPTER_BYTES if number < ADAPTER_BYTES else 0
        return tokens * (4 * self.gated * number + copies)

    def head(self, tokens: int, number: int, *, cpu: bool) -> int:
        """Logits of one chunk of tokens, and the hidden states' gradient of all."""
        chunk, bytes_ = (CPU_CHUNK_TOKENS, CPU_HEAD_BYTES) if cpu else (GPU_CHUNK_TOKENS, GPU_HEAD_BYTES)
        return min(chunk, tokens) * self.vocabulary * bytes_ + 3 * tokens * self.hidden * number

    def update(self, *, prompt: int, own: int, rows: int, segment: int, rank: int, number: int, cpu: bool) -> int:
        """Peak of one pass after a prompt: `own` tokens in at most so many rows. Without the adapters themselves."""
        kept = min(prompt, segment)
        last = self.layers - 1  # of the prompt's last layer, keys and values alone are looked at
        states = rows * prompt + own + (2 if prompt <= segment else 3) * prompt
        mask = (number + 1) * own * (prompt + own) if cpu and prompt > 1 else 0
        moment = max(self.head(own, number, cpu=cpu), self.moment(max(own, kept), number))
        graph = self.kept(own, rank, number) + self.kept(kept, rank, number) * last // self.layers
        return graph + self.keys_and_values(states, number) + mask + moment

    def rows(self, *, rows: int, tokens: int, number: int, shared: int = 0) -> int:
        """Keys and values of rows of so many tokens each, of which `shared` are held once for all."""
        return self.keys_and_values(rows * (tokens - shared) + shared, number)

    def sampling(self, *, context: int, rows: int, number: int) -> int:
        """What sampling takes for a moment: a part of a prompt, or a step's logits."""
        prefill = min(PREFILL_TOKENS, context)
        prompt = prefill * (self.heads * context * SCORE_BYTES + 3 * self.gated * number)
        return max(prompt, rows * self.vocabulary * CHOICE_BYTES)


def footprint_of(config: Any) -> Footprint:
    """The footprint of a transformers configuration, from a model on torch's meta device, which holds no numbers."""
    import torch
    from transformers import AutoModelForCausalLM

    from pot_agent.policy.adapters import linear_layers

    text = config.get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    linears = linear_layers(model)
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return Footprint(
        parameters=model.num_parameters(),
        linear=sum(layer.weight.numel() for layer in linears.values()),
        sides=sum(layer.in_features + layer.out_features for layer in linears.values()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        gated=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        queries=text.num_attention_heads * size,
        keys=(getattr(text, "num_key_value_heads", None) or text.num_attention_heads) * size,
        heads=text.num_attention_heads,
        vocabulary=text.vocab_size,
        norms_heads=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        context_tokens=getattr(text, "max_position_embeddings", None) or 2048,
    )
