"""Causal attention of a pass's own rows over what came before them and over themselves, for training.

The rows are the last positions of the keys, and right padding is never looked at, so the mask is always the same:
causal, aligned to the lower right. Said so, torch takes a flash kernel for it on a GPU (an explicit mask forbids that),
and shares key heads between query heads instead of copying them. On a CPU the mask is formed once a pass, not once a
layer.

Limits: every position sees all before it, so models with sliding windows keep their own attention; so do those that are
not loaded with torch's scaled dot product attention. Whether a model computes the same this way is looked at on a few
tokens, with a cache and without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from pot_agent.policy.cache import full_cache

NAME = "lower_right_causal"
_PROBE = (1, 2, 3, 5, 8, 13, 21)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it: heads second, result with heads third. No mask is ever made for this name."""
    rows, keys = query.shape[2], key.shape[2]
    shared = query.shape[1] != key.shape[1]
    if shared and query.device.type == "cuda" and query.dtype == torch.float32:
        key, value, shared = _repeated(key, query.shape[1]), _repeated(value, query.shape[1]), False
    attended = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if rows in (1, keys) else _lower_right(rows, keys, query.device, query.dtype),
        is_causal=rows == keys > 1,
        scale=scaling,
        enable_gqa=shared,
    )
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)


@lru_cache(maxsize=1)
def _lower_right(rows: int, keys: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    if device.type != "cpu":
        bias: Tensor = causal_lower_right(rows, keys)
        return bias
    unseen = torch.ones(rows, keys, dtype=torch.bool).triu(keys - rows + 1)
    return torch.zeros(rows, keys, dtype=dtype).masked_fill_(unseen, float("-inf"))


def _repeated(states: Tensor, heads: int) -> Tensor:
    """Flash kernels, which share heads, know half precision alone; the next best one needs copies."""
    return states.repeat_interleave(heads // states.shape[1], dim=1)


class TrainingAttention:
    """Whether a model can attend this way, and the switch."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        self._config = config
        self.fits = config._attn_implementation == "sdpa" and not _has_windows(config) and self._agrees(model)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The model attends this way inside, where it can."""
        if not self.fits:
            yield
            return
        with self._switched():
            yield

    @contextmanager
    def _switched(self) -> Iterator[None]:
        before = self._config._attn_implementation
        self._config._attn_implementation = NAME
        try:
            yield
        finally:
            self._config._attn_implementation = before
            _lower_right.cache_clear()

    def _agrees(self, model: nn.Module) -> bool:
        wanted = _hidden(model)
        try:
            with self._switched():
                found = _hidden(model)
        except (RuntimeError, TypeError, ValueError):
            return False
        return torch.allclose(
            found.float(), wanted.float(), rtol=1e-2, atol=1e-2 if wanted.element_size() == 2 else 1e-4
        )


def _has_windows(config: Any) -> bool:
    kinds = set(getattr(config, "layer_types", None) or ())
    return bool(kinds - {"full_attention"}) or (not kinds and getattr(config, "sliding_window", None) is not None)


@torch.no_grad()
def _hidden(model: nn.Module) -> Tensor:
    """Hidden states of a few tokens, the later ones by way of the cache."""
    device = next(model.parameters()).device
    ids_1T = torch.tensor([_PROBE], device=device)
    cache = full_cache()
    first = model(input_ids=ids_1T[:, :4], past_key_values=cache, use_cache=True).last_hidden_state
    rest = model(input_ids=ids_1T[:, 4:], past_key_values=cache, use_cache=True).last_hidden_state
    return torch.cat([first, rest], dim=1)
