"""Sampling: the prompt prefilled once, then n rows token by token, stoppable at every one.

The full softmax at the temperature: no top-k, no top-p, no penalties, so the recorded log-probability is that of the
distribution sampled from. Tokens are drawn by inverting the cumulative distribution at uniforms fixed beforehand by
the seed: a row's draws do not depend on when its siblings end. Equal arguments give equal samples on one machine with
one number of threads; a different number of rows may round differently.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pot_agent.errors import PolicyError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.base import FinishReason
from pot_agent.policy.cache import DecodingCache
from pot_agent.policy.decoding import FastForward
from pot_agent.policy.head import Head, backbone_of
from pot_agent.policy.models import LoadedModel
from pot_agent.policy.text import Chat, StopStrings

PREFILL_TOKENS = 512
"""Prompt tokens between two looks at whether the caller has cancelled."""


@dataclass
class Drawn:
    """One completion as it was drawn: `logprobs[j]` is that of `ids[j]` at the sampling temperature (1.0 if greedy)."""

    index: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason = "length"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be drawn. `temperature=0` is greedy."""

    prompt_ids: Sequence[int]
    n: int
    temperature: float
    max_tokens: int
    seed: str
    """Any text; equal text, equal draws."""
    stop: StopStrings
    check: Callable[[], None]
    """Called before each step; raises to end the call."""
    on_tokens: Callable[[int], None] | None = None


class Sampler:
    """Draws completions from a base model and one adapter version. The caller holds the policy's lock."""

    def __init__(self, loaded: LoadedModel, chat: Chat, fast: FastForward, head: Head) -> None:
        self._model = loaded.model
        self._backbone = backbone_of(loaded.model)
        self._layers = loaded.model.config.get_text_config().num_hidden_layers
        self._fast = fast
        self._head = head
        self._end_ids = chat.end_ids

    @torch.no_grad()
    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw `request.n` completions of one prompt."""
        with self._fast.running(layout, vector):
            return self._draw(request)

    def _draw(self, request: Request) -> list[Drawn]:
        cache = DecodingCache(self._layers, len(request.prompt_ids) + request.max_tokens)
        hidden_1H = self._prefill(request, cache)
        cache.widen(request.n)
        uniforms_NT = _uniforms(request).to(self._model.device)
        rows = [Drawn(index) for index in range(request.n)]
        live = rows
        hidden_NH = hidden_1H.expand(request.n, -1)
        for step in range(request.max_tokens):
            request.check()
            uniforms_N = uniforms_NT[[row.index for row in live], step]
            ids_N, logprobs_N = _choose(self._head(hidden_NH), request.temperature, uniforms_N)
            self._append(live, ids_N.tolist(), logprobs_N.tolist(), request)
            if request.on_tokens is not None:
                request.on_tokens(sum(len(row.ids) for row in rows))
            going = [at for at, row in enumerate(live) if row.finish == "length"]
            if not going or step + 1 == request.max_tokens:
                break
            if len(going) < len(live):
                live, ids_N = [live[at] for at in going], ids_N[going]
                cache.keep(going)
            hidden_NH = self._run(ids_N.unsqueeze(1), cache)
        return rows

    def _prefill(self, request: Request, cache: DecodingCache) -> Tensor:
        ids_1P = torch.tensor([list(request.prompt_ids)], device=self._model.device)
        for part in torch.split(ids_1P, PREFILL_TOKENS, dim=1):
            request.check()
            hidden_1H = self._run(part, cache)
        return hidden_1H

    def _run(self, ids_NT: Tensor, cache: DecodingCache) -> Tensor:
        """Hidden state of the last position."""
        hidden: Tensor = self._backbone(input_ids=ids_NT, past_key_values=cache, use_cache=True).last_hidden_state
        return hidden[:, -1]

    def _append(self, live: list[Drawn], ids: list[int], logprobs: list[float], request: Request) -> None:
        for row, token, logprob in zip(live, ids, logprobs, strict=True):
            if logprob != logprob or logprob == float("-inf"):
                raise PolicyError(
                    f"the model's logits are not finite after {len(row.ids)} tokens; load it in float32 or bfloat16",
                    value=str(self._model.dtype),
                )
            row.ids.append(token)
            row.logprobs.append(logprob)
            if token in self._end_ids or request.stop.reached(row.ids):
                row.finish = "stop"


def _uniforms(request: Request) -> Tensor:
    digest = hashlib.sha256(request.seed.encode("utf-8", "surrogatepass")).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.rand(request.n, request.max_tokens, generator=generator, dtype=torch.float64)


def _choose(logits_NV: Tensor, temperature: float, uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens, and their log-probabilities."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    if temperature > 0:
        logits_NV = logits_NV / temperature
    logprobs_NV = logits_NV.log_softmax(1)
    ids_N = logprobs_NV.argmax(1) if temperature == 0 else _invert(logprobs_NV.exp(), uniforms_N)
    return ids_N, logprobs_NV.gather(1, ids_N.unsqueeze(1)).squeeze(1)


def _invert(probabilities_NV: Tensor, uniforms_N: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the uniform; never one of probability zero."""
    cumulative_NV = probabilities_NV.double().cumsum(1)
    wanted_N1 = (uniforms_N.unsqueeze(1) * cumulative_NV[:, -1:]).contiguous()
    found_N = torch.searchsorted(cumulative_NV, wanted_N1, right=True).squeeze(1)
    return found_N.clamp(max=probabilities_NV.shape[1] - 1)
