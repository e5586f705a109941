"""The trainer's passes through the model: which rows go together, and how they are run.

A pass is one completion, or a few of about one length, right-padded: memory does not grow with the group. All attend to
the prompt's keys and values, which are computed once (`prompt.py`). Layers and attention run by hand-written passes
that keep what the adapter's gradient needs (`fused.py`, `attention.py`).

Limits: the caller holds the policy's lock.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pot_agent.policy.adapters import Adapters, AdapterSlot
from pot_agent.policy.attention import TrainingAttention
from pot_agent.policy.base import Measure
from pot_agent.policy.cache import cache_of
from pot_agent.policy.fused import FusedLayers
from pot_agent.policy.head import Head, backbone_of, token_certainties, token_logprobs
from pot_agent.policy.models import LoadedModel
from pot_agent.policy.prompt import Prompts, States

GPU_PASS_TOKENS = 8192
"""Completion tokens, padding included, of one pass on a GPU."""
CPU_PASS_TOKENS = 384
"""On a CPU: beyond some hundred tokens a wider pass is no faster, and holds more memory."""
PADDING_SHARE = 12
"""Padding takes at most this share of a pass's budget: about what a pass of its own would cost."""

Rows = Sequence[Sequence[int]]


class Forward:
    """Prompts and rows through one base model, with or without an adapter."""

    def __init__(
        self,
        loaded: LoadedModel,
        adapters: Adapters,
        head: Head,
        *,
        pass_tokens: int | None = None,
        segment_tokens: int | None = None,
    ) -> None:
        self._backbone = backbone_of(loaded.model)
        self._device = loaded.device
        self._adapters = adapters
        self._head = head
        self._fused = FusedLayers(loaded.model)
        self._attention = TrainingAttention(self._backbone, loaded.model.config)
        self._pass_tokens = pass_tokens or (CPU_PASS_TOKENS if loaded.device.type == "cpu" else GPU_PASS_TOKENS)
        self.prompts = Prompts(self._backbone, self._device, segment_tokens)

    @contextmanager
    def running(self, slot: AdapterSlot | None, vector: Tensor | None) -> Iterator[None]:
        """The model runs this version inside, the base where either is None, by the fast layers."""
        adapted = None if vector is None else slot
        with self._adapters.running(slot, vector), self._fused.running(adapted), self._attention.running():
            yield

    def passes(self, rows: Rows) -> list[list[int]]:
        """Rows that go through the model together: as many of about one length as the budget allows, one at least."""
        passes: list[list[int]] = []
        for index in sorted(range(len(rows)), key=lambda i: len(rows[i])):
            together = [*passes[-1], index] if passes else []
            tokens = len(together) * len(rows[index])
            padding = tokens - sum(len(rows[i]) for i in together)
            if together and tokens <= self._pass_tokens and padding <= self._pass_tokens // PADDING_SHARE:
                passes[-1] = together
            else:
                passes.append([index])
        return passes

    def hidden(self, states: States, prompt_ids: Sequence[int], rows: Rows, part: Sequence[int]) -> list[Tensor]:
        """Hidden states that predict each completion token, [T, H] a row.

        Right-padded rows need no mask of their own: causal attention never looks to the right.
        """
        inputs = [torch.tensor([prompt_ids[-1], *rows[index][:-1]]) for index in part]
        ids_BT = pad_sequence(inputs, batch_first=True).to(self._device)
        cache = cache_of(states, len(part)) if states else None
        output = self._backbone(input_ids=ids_BT, past_key_values=cache, use_cache=cache is not None)
        return [row[: len(ids)] for row, ids in zip(output.last_hidden_state, inputs, strict=True)]

    def logprobs(
        self, hidden: Sequence[Tensor], rows: Rows, temperature: float, measure: Measure = "logprob"
    ) -> list[Tensor]:
        """Log-probabilities of the rows' tokens, or another measure of them, [T] a row."""
        targets_N = torch.tensor([token for row in rows for token in row], device=self._device)
        of_tokens = token_certainties if measure == "self_certainty" else token_logprobs
        values_N = of_tokens(torch.cat(list(hidden)), targets_N, self._head, temperature)
        return list(torch.split(values_N, [len(row) for row in rows]))
