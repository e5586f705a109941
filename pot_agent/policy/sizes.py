"""How large a sampler is, and which it is: plain values, so that nobody needs torch to name them."""

from dataclasses import dataclass
from typing import Literal

SamplerName = Literal["auto", "transformers", "vllm"]


@dataclass(frozen=True, kw_only=True)
class SamplerSizes:
    """How large a vLLM sampler is built."""

    max_rank: int = 16
    """Largest rank of an adapter."""
    lora_slots: int = 8
    """Adapters in one batch; those of more sessions take turns."""
    rows: int = 64
    """Completions in one batch; more wait."""
    sessions: int = 64
    """Sessions open at once."""
