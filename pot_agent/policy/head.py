"""From hidden states to log-probabilities of given tokens, never holding a whole group's logits.

Each token's log-probability depends on its own hidden state alone, so d logprob / d hidden can be had in the forward
pass, chunk by chunk; the backward pass multiplies by the incoming gradient. Kept: one hidden-sized row for each token,
instead of one as large as the vocabulary.

Limits: the head itself gets no gradient (it is frozen). Heads are a linear layer, times a scale, under a soft cap, as
in Llama, Qwen, Gemma, Cohere and Granite; another kind is a `ConfigError` when the model is loaded, found by comparing
with the model's own logits.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pot_agent.errors import ConfigError

CHUNK_TOKENS = 128
"""Tokens whose logits exist at one time: on a CPU few enough for its cache."""
GPU_CHUNK_TOKENS = 1024
"""On a GPU as many as make reading the head's weights worth it."""
_PROBE = (1, 2, 3, 5)

Head = Callable[[Tensor], Tensor]


def backbone_of(model: PreTrainedModel) -> nn.Module:
    """The model without its output head: ids to hidden states."""
    backbone = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    return backbone if isinstance(backbone, nn.Module) else model.base_model


def head_of(model: PreTrainedModel) -> Head:
    """Hidden states to logits, as the model forms them; checked against the model itself on a few tokens."""
    linear: Any = model.get_output_embeddings()
    config = model.config
    scale = getattr(config, "logit_scale", None) or 1.0
    scale = scale / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def head(hidden: Tensor) -> Tensor:
        logits: Tensor = linear(hidden)
        logits = logits if scale == 1.0 else logits * scale
        return logits if cap is None else torch.tanh(logits / cap) * cap

    _check(model, head)
    return head


@torch.no_grad()
def _check(model: PreTrainedModel, head: Head) -> None:
    ids = torch.tensor([_PROBE], device=model.device).clamp(max=model.config.vocab_size - 1)
    whole = model(input_ids=ids, use_cache=False).logits
    ours = head(backbone_of(model)(input_ids=ids, use_cache=False).last_hidden_state)
    if whole.shape != ours.shape or not torch.allclose(whole.float(), ours.float(), rtol=1e-3, atol=1e-3):
        kind = getattr(model.config, "model_type", "unknown")
        raise ConfigError(
            f"models of type {kind!r} form their logits in a way that is not known here; choose another model",
            value=kind,
        )


def token_logprobs(hidden_NH: Tensor, targets_N: Tensor, head: Head, temperature: float) -> Tensor:
    """log softmax(logits / temperature) of each target, in float32 (float64 where the model is)."""

    def chunk(hidden_CH: Tensor, targets_C: Tensor) -> Tensor:
        result: Tensor = _Logprobs.apply(wide_logits(hidden_CH, head, temperature), targets_C)  # type: ignore[no-untyped-call]
        return result

    return by_chunks(chunk, hidden_NH, targets_N)


def token_certainties(hidden_NH: Tensor, targets_N: Tensor, head: Head, temperature: float) -> Tensor:
    """KL(uniform || p), p = softmax(logits / temperature), where each target was chosen; the targets do not matter."""

    def chunk(hidden_CH: Tensor, _: Tensor) -> Tensor:
        logits_CV = wide_logits(hidden_CH, head, temperature)
        return logits_CV.logsumexp(1) - logits_CV.mean(1) - math.log(logits_CV.shape[1])

    return by_chunks(chunk, hidden_NH, targets_N)


def wide_logits(hidden_CH: Tensor, head: Head, temperature: float) -> Tensor:
    """Logits over the temperature, in float32 at least."""
    logits_CV = head(hidden_CH)
    return (logits_CV if logits_CV.dtype == torch.float64 else logits_CV.float()) / temperature


def by_chunks(function: Callable[[Tensor, Tensor], Tensor], hidden_NH: Tensor, other_N: Tensor) -> Tensor:
    """`function` of hidden states and of something else for each token, a chunk of tokens at a time: one value a token.

    A token's value must depend on its own hidden state alone. The gradient reaches `hidden_NH`; `other_N` gets none.
    """
    result: Tensor = _ByChunks.apply(hidden_NH, other_N, function)  # type: ignore[no-untyped-call]
    return result


class _Logprobs(torch.autograd.Function):
    """log softmax of each target: what is as wide as the vocabulary is gone over once forward and twice back."""

    @staticmethod
    def forward(ctx: Any, logits_CV: Tensor, targets_C: Tensor) -> Tensor:
        logprobs_CV = logits_CV.log_softmax(1)
        ctx.save_for_backward(logprobs_CV, targets_C)
        return logprobs_CV.gather(1, targets_C.unsqueeze(1)).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logprobs_CV, targets_C = ctx.saved_tensors
        slope_C1 = gradients[0].unsqueeze(1)
        slopes_CV = logprobs_CV.exp().mul_(-slope_C1)  # each target's own: 1 - p
        return slopes_CV.scatter_add_(1, targets_C.unsqueeze(1), slope_C1), None


class _ByChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, other_N: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        needed = bool(ctx.needs_input_grad[0])
        values, slopes = [], []
        size = CHUNK_TOKENS if hidden_NH.device.type == "cpu" else GPU_CHUNK_TOKENS
        chunks = zip(torch.split(hidden_NH, size), torch.split(other_N, size), strict=True)
        for hidden_CH, other_C in chunks:
            with torch.set_grad_enabled(needed):
                leaf_CH = hidden_CH.detach().requires_grad_(needed)
                values_C = function(leaf_CH, other_C)
                if needed:
                    slopes.append(torch.autograd.grad(values_C.sum(), leaf_CH)[0])
            values.append(values_C.detach())
        if needed:
            ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slopes_NH,) = ctx.saved_tensors
        return (gradients[0].unsqueeze(1) * slopes_NH).to(slopes_NH.dtype), None, None
