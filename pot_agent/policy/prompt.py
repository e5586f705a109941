"""A prompt run once for a whole group, with a gradient: its keys and values are what completions see of it.

`differentiable` gives keys and values as leaves. Each completion's backward pass adds to their gradients, and
`backward` then sends the sum through the prompt in one go. Exact: it is the chain rule with its terms grouped.

A prompt longer than a segment keeps no graph: its keys and values are computed without one, and `backward` goes through
the segments from the last to the first, running each again with gradient. Memory is then that of one segment instead of
the whole prompt, for one more forward pass of it.

Limits: the last prompt token is not part of it: it starts each completion's row.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pot_agent.policy.cache import cache_of, full_cache, states_of

CPU_SEGMENT_TOKENS = 512
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
        if len(ids) <= self._segment:
            states = self.states(ids)
            return Prompt(_leaves(states), lambda leaves: _backward(states, [_gradients(pair) for pair in leaves]))
        segments = [ids[start : start + self._segment] for start in range(0, len(ids), self._segment)]
        states = []
        with torch.no_grad():
            for segment in segments:
                states = self.extend(states, segment)
        return Prompt(_leaves(states), lambda leaves: self._backward_by_segments(segments, leaves))

    def _backward_by_segments(self, segments: Sequence[Sequence[int]], leaves: States) -> None:
        gradients = [_gradients(pair) for pair in leaves]
        end = sum(len(segment) for segment in segments)
        for segment in reversed(segments):
            start = end - len(segment)
            past = _leaves([(keys[:, :, :start], values[:, :, :start]) for keys, values in leaves]) if start else []
            states = self.extend(past, segment)
            new = [(keys[:, :, start:], values[:, :, start:]) for keys, values in states]
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
        """Send the gradients that have gathered on `states` back to the adapter."""
        if self.states:
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
