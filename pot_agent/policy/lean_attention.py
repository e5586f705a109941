"""Attention of the lean decoder: the prompt in parts, then one query a row over the prompt and the row's own tokens.

All rows of a call share their prompt. `SharedPrompt` keeps its keys and values once and reads them once a step for all
rows; beside them each row has room for its own tokens. One softmax runs over both, so the result is that of attention
over the whole, to rounding. `Widened` keeps a copy of the prompt for each row and leaves the arithmetic to torch's own
attention, which sums in float32 what is kept in half precision.

Limits: every position sees all that came before it (no windows). Keys and values lie in buffers of fixed room; a step
writes its own position and copies nothing else. Shapes: Q heads of queries share K heads of keys; T tokens, P of the
prompt, R of room, N rows, D numbers a head.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

EXACT = (torch.float32, torch.float64)
"""Types whose products may be rounded before the softmax without harm."""


class Attention(Protocol):
    """Keys and values of one layer, and what queries find in them."""

    def attend(self, queries_TQD: Tensor, keys_TKD: Tensor, values_TKD: Tensor, at: int) -> Tensor:
        """Put keys and values at position `at` on, then attend: [T, Q * D]."""
        ...


class RowsAttention(Attention, Protocol):
    """Of rows that decode together: T is one token of each of N rows, `at` counts a row's own tokens."""

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        ...


class PromptAttention:
    """Of one prompt, given in one part or several."""

    def __init__(self, like: Tensor, *, heads: int, tokens: int, size: int, scaling: float) -> None:
        self._both_2KPD = like.new_empty(2, heads, tokens, size)
        self._scaling = scaling

    def attend(self, queries_TQD: Tensor, keys_TKD: Tensor, values_TKD: Tensor, at: int) -> Tensor:
        tokens = queries_TQD.shape[0]
        self._both_2KPD[0, :, at : at + tokens] = keys_TKD.transpose(0, 1)
        self._both_2KPD[1, :, at : at + tokens] = values_TKD.transpose(0, 1)
        keys, values = self._both_2KPD[:, None, :, : at + tokens]
        queries = queries_TQD.transpose(0, 1).unsqueeze(0)
        mask = None
        if at:  # torch's own causal mask begins at the first key
            mask = torch.ones(tokens, at + tokens, dtype=torch.bool, device=keys.device).tril(at)
        found = attention(queries, keys, values, mask, is_causal=not at, scale=self._scaling, enable_gqa=True)
        return found[0].transpose(0, 1).reshape(tokens, -1)

    def widened(self, rows: int, room: int) -> RowsAttention:
        """For rows that go on from this prompt, with room for so many tokens each. It takes the prompt's values."""
        keys_KPD, values_KPD = self._both_2KPD
        if keys_KPD.dtype not in EXACT:
            return Widened(keys_KPD, values_KPD, rows=rows, room=room, scaling=self._scaling)
        # Copies of their own let go of the buffer.
        keys_KDP, values_KPD = keys_KPD.transpose(1, 2).contiguous(), values_KPD.clone()
        return SharedPrompt(keys_KDP, values_KPD, rows=rows, room=room, scaling=self._scaling)


class SharedPrompt:
    """The prompt's keys and values once for all rows, and each row's own."""

    def __init__(self, keys_KDP: Tensor, values_KPD: Tensor, *, rows: int, room: int, scaling: float) -> None:
        heads, self._prompt, size = values_KPD.shape
        self._keys_KDP, self._values_KPD = keys_KDP, values_KPD
        self._own_2KNRD = keys_KDP.new_empty(2, heads, rows, room, size)
        self._scaling = scaling

    @property
    def rows(self) -> int:
        """Rows that are left."""
        return self._own_2KNRD.shape[2]

    @property
    def room(self) -> int:
        """Tokens that each row has room for."""
        return self._own_2KNRD.shape[3]

    def move_own(self, place_2KNRD: Tensor, tokens: int) -> None:
        """Keep the rows' own keys and values, of so many tokens so far, in a place of the same shape."""
        place_2KNRD[:, :, :, :tokens] = self._own_2KNRD[:, :, :, :tokens]
        self._own_2KNRD = place_2KNRD

    @property
    def prompt(self) -> tuple[Tensor, Tensor]:
        """The prompt's keys and values: only read, here and by whoever else holds them."""
        return self._keys_KDP, self._values_KPD

    def attend(self, queries_TQD: Tensor, keys_TKD: Tensor, values_TKD: Tensor, at: int) -> Tensor:
        rows, heads, size = queries_TQD.shape
        shared = self._keys_KDP.shape[0]
        each = shared * rows  # (key head, row) pairs: each holds the queries of the heads that share the key
        self._own_2KNRD[0, :, :, at] = keys_TKD.transpose(0, 1)
        self._own_2KNRD[1, :, :, at] = values_TKD.transpose(0, 1)
        keys, values = self._own_2KNRD[:, :, :, : at + 1].flatten(1, 2)
        queries = queries_TQD.view(rows, shared, -1, size).transpose(0, 1).reshape(shared, -1, size) * self._scaling
        on_prompt = torch.bmm(queries, self._keys_KDP)
        on_own = torch.bmm(queries.reshape(each, -1, size), keys.transpose(1, 2))
        weights = torch.cat((on_prompt, on_own.view(shared, -1, at + 1)), 2).softmax(2)
        found = torch.bmm(weights[:, :, : self._prompt], self._values_KPD).view(each, -1, size)
        found.baddbmm_(weights[:, :, self._prompt :].reshape(each, -1, at + 1), values)
        return found.view(shared, rows, -1, size).transpose(0, 1).reshape(rows, heads * size)

    def keep(self, rows: Tensor) -> None:
        self._own_2KNRD = self._own_2KNRD.index_select(2, rows)


class Widened:
    """The prompt's keys and values copied for each row, followed by its own."""

    def __init__(self, keys_KPD: Tensor, values_KPD: Tensor, *, rows: int, room: int, scaling: float) -> None:
        heads, self._prompt, size = keys_KPD.shape
        self._all_2NKRD = keys_KPD.new_empty(2, rows, heads, self._prompt + room, size)
        self._all_2NKRD[0, :, :, : self._prompt] = keys_KPD
        self._all_2NKRD[1, :, :, : self._prompt] = values_KPD
        self._scaling = scaling

    def attend(self, queries_TQD: Tensor, keys_TKD: Tensor, values_TKD: Tensor, at: int) -> Tensor:
        rows, heads, size = queries_TQD.shape
        end = self._prompt + at + 1
        self._all_2NKRD[0, :, :, end - 1] = keys_TKD
        self._all_2NKRD[1, :, :, end - 1] = values_TKD
        keys, values = self._all_2NKRD[:, :, :, :end]
        # Heads that share a key are given as queries at several positions: nothing is repeated, nothing masked.
        queries = queries_TQD.view(rows, keys.shape[1], -1, size)
        return attention(queries, keys, values, scale=self._scaling).reshape(rows, heads * size)

    def keep(self, rows: Tensor) -> None:
        self._all_2NKRD = self._all_2NKRD.index_select(1, rows)
