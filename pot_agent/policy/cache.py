"""Key and value caches: one allocated once for decoding, one that carries gradient for training.

Both keep every position of every layer; a model's sliding windows are applied by its own masks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class _Room(DynamicLayer):  # type: ignore[misc]
    """One layer's cache in a buffer of fixed room; a step writes its own positions and copies nothing else."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._key_buffer = _buffer(key_states, self._room)
        self._value_buffer = _buffer(value_states, self._room)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self._length = self._length, self._length + key_states.shape[-2]
        self._key_buffer[:, :, start : self._length] = key_states
        self._value_buffer[:, :, start : self._length] = value_states
        return self._show()

    def get_seq_length(self) -> int:
        return self._length

    def widen(self, rows: int, more: int) -> None:
        """One row becomes `rows` equal ones, with room for so many more positions."""
        self._room += more
        self._key_buffer = _widened(self.keys, rows, self._room)
        self._value_buffer = _widened(self.values, rows, self._room)
        self._show()

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self._key_buffer = self._key_buffer.index_select(0, rows)
        self._value_buffer = self._value_buffer.index_select(0, rows)
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys = self._key_buffer[:, :, : self._length]
        self.values = self._value_buffer[:, :, : self._length]
        return self.keys, self.values


def _buffer(states: Tensor, room: int) -> Tensor:
    rows, heads, _, size = states.shape
    return states.new_empty(rows, heads, room, size)


def _widened(states: Tensor, rows: int, room: int) -> Tensor:
    buffer = _buffer(states.expand(rows, -1, -1, -1), room)
    buffer[:, :, : states.shape[2]] = states
    return buffer


class DecodingCache(Cache):  # type: ignore[misc]
    """A prompt's cache, prefilled once as one row, then widened to n and narrowed as rows finish."""

    def __init__(self, layers: int, room: int) -> None:
        self._rooms = [_Room(room) for _ in range(layers)]
        super().__init__(layers=list(self._rooms))

    def widen(self, rows: int, more: int) -> None:
        """One row becomes `rows` equal ones, with room for so many more positions."""
        for layer in self._rooms:
            layer.widen(rows, more)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        for layer in self._rooms:
            layer.keep(torch.tensor(rows, device=layer.device))


def full_cache() -> Cache:
    """An empty cache that grows and forgets nothing (the default one forgets what a sliding window passed)."""
    return Cache(layer_class_to_replicate=DynamicLayer)


class _Given(DynamicLayer):  # type: ignore[misc]
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.dtype, self.device = keys.dtype, keys.device
        self.keys, self.values = keys, values
        self.is_initialized = True


def cache_of(states: Sequence[tuple[Tensor, Tensor]], rows: int) -> Cache:
    """A cache that starts from a prompt's keys and values, the same for each row; gradient flows back into them."""
    return Cache(
        layers=[_Given(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in states]
    )


def states_of(cache: Cache) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]
