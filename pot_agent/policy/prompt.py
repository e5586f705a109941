"""A prompt run once for a whole group, with a gradient: its keys and values are what completions see of it.

`differentiable` gives keys and values as leaves. Each completion's backward pass adds to their gradients, and
`backward` then sends the sum through the prompt in one go. Exact: it is the chain rule with its terms grouped.

A prompt longer than a segment keeps the graph of its last segment only: the keys and values of the others are computed
without one, and `backward` goes through the segments from the last to the first, running those again with gradient.
Memory is then that of one segment instead of the whole prompt, for one more forward pass of the rest.

Limits: the last prompt token is not part of it: it starts each completion's row.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pot_agent.policy.cache import cache_of, full_cache, states_of

CPU_SEGMENT_TOKENS = 1024
GPU_SEGMENT_TOKENS = 4096

States = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [1, heads, tokens, size]."""


class Prompts:
    """Runs prompts through a model. The caller has put the adapter in place."""

    def __init__(self, backbone: nn.Module, device: torch.device, segment_tokens: int | None = None) -> None:
        self._backbone = backbone
        self._device = device
        default = CPU_SEGMENT_TOKENS if device.type == "cpu" else GPU_SEGMENT_TOKENS
        self._segment = segment_tokens or default

    def states(self, ids: Sequence[int]) -> States:
        """Keys and values; with a graph where gradients are enabled."""
        return self.extend([], ids) if ids else []

    def extend(self, past: States, ids: Sequence[int]) -> States:
        """Keys and values of what came before and of these tokens."""
        cache = cache_of(past, 1) if past else full_cache()
        ids_1P = torch.tensor([list(ids)], device=self._device)
        self._backbone(input_ids=ids_1P, past_key_values=cache, use_cache=True)
        return states_of(cache)

    def differentiable(self, ids: Sequence[int]) -> "Prompt":
        """The prompt's keys and values as leaves, and the way back."""
        if not ids:
            return Prompt([], lambda _: None)
        segments = self._segments(ids)
        states: States = []
        with torch.no_grad():
            for segment in segments[:-1]:
                states = self.extend(states, segment)
        past = _leaves(states)
        whole = self.extend(past, segments[-1])
        return Prompt(_leaves(whole), lambda leaves: self._backward(segments, past, whole, leaves))

    def _segments(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Whole segments and, first, what is left: the last one's graph is kept, so it had better be a whole one."""
        first = len(ids) % self._segment
        starts = [*([0] if first else []), *range(first, len(ids), self._segment)]
        return [ids[start:end] for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)]

    def _backward(self, segments: Sequence[Sequence[int]], past: States, whole: States, leaves: States) -> None:
        gradients = [_gradients(pair) for pair in leaves]
        end = sum(len(segment) for segment in segments)
        for segment in reversed(segments):
            start = end - len(segment)
            if segment is not segments[-1]:
                past = _leaves([(keys[:, :, :start], values[:, :, :start]) for keys, values in leaves]) if start else []
                whole = self.extend(past, segment)
            new = [(keys[:, :, start:], values[:, :, start:]) for keys, values in whole]
            _backward(new, [(keys[:, :, start:end], values[:, :, start:end]) for keys, values in gradients])
            for (keys, values), before in zip(gradients, past, strict=False):
                keys[:, :, :start] += _gradients(before)[0]
                values[:, :, :start] += _gradients(before)[1]
            end = start


class Prompt:
    """Keys and values to attend to, and the way back through what they were computed from."""

    def __init__(self, states: States, back: Callable[[States], None]) -> None:
        self.states = states
        self._back = back

    def backward(self) -> None:
        """Send the gradients that have gathered on `states` back to the adapter. Once only."""
        self._back(self.states)


def _leaves(states: States) -> States:
    return [(keys.detach().requires_grad_(), values.detach().requires_grad_()) for keys, values in states]


def _gradients(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    keys, values = (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in pair)
    return keys, values


def _backward(states: States, gradients: States) -> None:
    """Layers that no adapter reaches (the first one's keys, where only later layers are adapted) have no graph."""
    pairs = [
        (state, gradient)
        for both, slopes in zip(states, gradients, strict=True)
        for state, gradient in zip(both, slopes, strict=True)
        if state.requires_grad
    ]
    if pairs:
        torch.autograd.backward([state for state, _ in pairs], [gradient for _, gradient in pairs])
