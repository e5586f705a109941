"""From hidden states to log-probabilities of given tokens, never holding a whole group's logits.

Each token's log-probability depends on its own hidden state alone, so d logprob / d hidden can be had in the forward
pass, chunk by chunk; the backward pass multiplies by the incoming gradient. Kept: one hidden-sized row for each token,
instead of one as large as the vocabulary.

Limits: the head itself gets no gradient (it is frozen). Heads are a linear layer, times a scale, under a soft cap, as
in Llama, Qwen, Gemma, Cohere and Granite; another kind is a `ConfigError` when the model is loaded, found by comparing
with the model's own logits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pot_agent.errors import ConfigError

CHUNK_TOKENS = 128
"""Tokens whose logits exist at one time."""
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
    result: Tensor = _TokenLogprobs.apply(hidden_NH, targets_N, head, temperature)  # type: ignore[no-untyped-call]
    return result


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, targets_N: Tensor, head: Head, temperature: float) -> Tensor:
        needed = bool(ctx.needs_input_grad[0])
        logprobs, slopes = [], []
        chunks = zip(torch.split(hidden_NH, CHUNK_TOKENS), torch.split(targets_N, CHUNK_TOKENS), strict=True)
        for hidden_CH, targets_C in chunks:
            with torch.set_grad_enabled(needed):
                leaf_CH = hidden_CH.detach().requires_grad_(needed)
                logprobs_C = _chunk(leaf_CH, targets_C, head, temperature)
                if needed:
                    slopes.append(torch.autograd.grad(logprobs_C.sum(), leaf_CH)[0])
            logprobs.append(logprobs_C.detach())
        if needed:
            ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(logprobs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slopes_NH,) = ctx.saved_tensors
        return (gradients[0].unsqueeze(1) * slopes_NH).to(slopes_NH.dtype), None, None, None


def _chunk(hidden_CH: Tensor, targets_C: Tensor, head: Head, temperature: float) -> Tensor:
    logits_CV = head(hidden_CH)
    logits_CV = logits_CV if logits_CV.dtype == torch.float64 else logits_CV.float()
    logits_CV = logits_CV / temperature
    return logits_CV.gather(1, targets_C.unsqueeze(1)).squeeze(1) - logits_CV.logsumexp(1)
