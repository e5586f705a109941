"""Steps of several sessions as one: their prompts, own tokens and adapters side by side in one buffer each.

One after the other, sixteen sessions of three rows spend two thirds of a step on operators too small to be worth their
call. Here each layer attends once for all, and adds all adapters at once. A session has a *slot* of the stack, its
prompt padded to the longest and masked, its rows to the most; it gets one when it is first stepped beside others, and
loses it when it ends or drops a row (it then comes again). Its own tokens are written in the slot and seen by
`SharedPrompt` as a view, so a session may at any time be stepped without the stack.

Limits: on a CPU, in float32 and float64; what does not fit `STACK_BYTES`, padding included, is stepped one after the
other. Shapes: S slots of n rows, K key heads with G queries each, D numbers a head, P padded prompt, R room.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from pot_agent.policy.lean_layer import PRODUCTS, Joined, LeanLayer

if TYPE_CHECKING:
    from pot_agent.policy.lean import LeanDecoder

STACK_BYTES = 2**30
"""Of prompts and own tokens; adapters come on top."""
_PROMPT_STEP, _SLOT_STEP = 64, 4
"""The stack grows by so many tokens and slots."""


class Stack:
    """The slots of one model's sessions. Sessions hold it, and it ends with the last of them."""

    def __init__(self, slots: int, rows: int, room: int, prompt: int, like: "LeanDecoder") -> None:
        layers, layer = like.layers, like.layers[0]
        keys, size, made = layer.key_heads, layer.size, like.like
        self._scaling = layer.scaling
        self._sizes = (slots, rows, room, prompt)
        self._keys_LSKDP = made.new_zeros(len(layers), slots, keys, size, prompt)
        self._values_LSKPD = made.new_zeros(len(layers), slots, keys, prompt, size)
        self._own_L2SKnRD = made.new_zeros(len(layers), 2, slots, keys, rows, room, size)
        self._adapters: list[dict[str, _Adapters]] = [
            {name: _Adapters(made, slots) for name in PRODUCTS} for _ in layers
        ]
        self._taken: list[ReferenceType[LeanDecoder] | None] = [None] * slots

    @classmethod
    def of(cls, decoders: "Sequence[LeanDecoder]") -> "Stack | None":
        """The stack that these are in, made anew where they would not fit; None where they are not to be stacked."""
        if len(decoders) < 2 or not all(decoder.shared for decoder in decoders):
            return None
        found = next((decoder.stack for decoder in decoders if decoder.stack is not None), None)
        strangers = [decoder for decoder in decoders if decoder.stack is None or decoder.stack is not found]
        if found is None or not found._has_room(strangers):
            found, strangers = cls._for(decoders), list(decoders)
        for decoder in strangers if found is not None else []:
            found._join(decoder)  # type: ignore[union-attr]
        return found

    @classmethod
    def _for(cls, decoders: "Sequence[LeanDecoder]") -> "Stack | None":
        slots = _up(len(decoders), _SLOT_STEP)
        rows = max(decoder.shared[0].rows for decoder in decoders)
        room = max(decoder.shared[0].room for decoder in decoders)
        prompt = _up(max(decoder.prompt_tokens for decoder in decoders), _PROMPT_STEP)
        layer = decoders[0].layers[0]
        numbers = len(decoders[0].layers) * slots * 2 * layer.key_heads * layer.size * (prompt + rows * room)
        if numbers * decoders[0].like.element_size() > STACK_BYTES:
            return None
        return cls(slots, rows, room, prompt, decoders[0])

    def _free(self) -> list[int]:
        holders = [None if taken is None else taken() for taken in self._taken]
        return [slot for slot, holder in enumerate(holders) if holder is None or holder.stack is not self]

    def _has_room(self, decoders: "Sequence[LeanDecoder]") -> bool:
        _, rows, room, prompt = self._sizes
        fits = all(
            decoder.shared[0].rows <= rows and decoder.shared[0].room <= room and decoder.prompt_tokens <= prompt
            for decoder in decoders
        )
        return fits and len(decoders) <= len(self._free())

    def _join(self, decoder: "LeanDecoder") -> None:
        slot, tokens = self._free()[0], decoder.prompt_tokens
        for at, shared in enumerate(decoder.shared):
            keys_KDP, values_KPD = shared.prompt
            self._keys_LSKDP[at, slot, :, :, :tokens] = keys_KDP
            self._keys_LSKDP[at, slot, :, :, tokens:] = 0.0
            self._values_LSKPD[at, slot, :, :tokens] = values_KPD
            self._values_LSKPD[at, slot, :, tokens:] = 0.0
            shared.move_own(self._own_L2SKnRD[at, :, slot, :, : shared.rows, : shared.room], decoder.own_tokens)
            self._own_L2SKnRD[at, :, slot, :, :, decoder.own_tokens :] = 0.0  # nothing of whoever was here: 0 x nan
            for name, adapters in self._adapters[at].items():
                adapters.put(slot, getattr(decoder.layers[at], name).factors)
        decoder.stack, decoder.slot = self, slot
        self._taken[slot] = ref(decoder)


class StackStep:
    """One token more of rows that all have a slot: where they lie and what they see, in any layer."""

    def __init__(self, stack: Stack, decoders: "Sequence[LeanDecoder]") -> None:
        self._stack = stack
        _, self._rows, _, self._prompt = stack._sizes
        slots = [decoder.slot for decoder in decoders]
        self._slots = max(slots) + 1
        self._own = max(decoder.own_tokens for decoder in decoders) + 1
        self._slots_J = torch.tensor(slots)
        self._at_J = torch.tensor([decoder.own_tokens for decoder in decoders])
        to_stack, back, row = [0] * (self._slots * self._rows), [], 0
        for decoder in decoders:
            for own in range(decoder.shared[0].rows):
                place = decoder.slot * self._rows + own
                to_stack[place] = row
                back.append(place)
                row += 1
        self._to_stack, self._back_N = torch.tensor(to_stack), torch.tensor(back)
        seen_SA = torch.zeros(self._slots, self._prompt + self._own, dtype=torch.bool)
        seen_SA[:, 0] = True  # of slots that nobody is in: what is found there is left
        for decoder in decoders:
            seen_SA[decoder.slot, : decoder.prompt_tokens] = True
            seen_SA[decoder.slot, self._prompt : self._prompt + decoder.own_tokens + 1] = True
        bias_SA = torch.zeros(seen_SA.shape, dtype=stack._keys_LSKDP.dtype).masked_fill_(~seen_SA, float("-inf"))
        self._bias = bias_SA.view(self._slots, 1, 1, -1)

    def attend(self, layer: int, queries_NQD: Tensor, keys_NKD: Tensor, values_NKD: Tensor) -> Tensor:
        """Keep keys and values of the new tokens, then attend: [N, Q * D]."""
        stack, slots, rows = self._stack, self._slots, self._rows
        shared, size = keys_NKD.shape[1:]
        own_2SKnRD = stack._own_L2SKnRD[layer]
        for kept_SKnRD, new_NKD in zip(own_2SKnRD, (keys_NKD, values_NKD), strict=True):
            placed_SKnD = new_NKD[self._to_stack].view(slots, rows, shared, size).transpose(1, 2)
            kept_SKnRD[self._slots_J, :, :, self._at_J] = placed_SKnD[self._slots_J]
        own_keys, own_values = own_2SKnRD[:, :slots, :, :, : self._own].flatten(1, 3)
        queries = (queries_NQD * stack._scaling)[self._to_stack].view(slots, rows, shared, -1, size).transpose(1, 2)
        queries = queries.reshape(slots * shared, -1, size)
        on_prompt = torch.bmm(queries, stack._keys_LSKDP[layer, :slots].flatten(0, 1))
        on_own = torch.bmm(queries.view(len(own_keys), -1, size), own_keys.transpose(1, 2))
        both = (on_prompt, on_own.view(slots * shared, -1, self._own))
        scores = torch.cat(both, 2).view(slots, shared, -1, self._prompt + self._own).add_(self._bias)
        weights = scores.softmax(3).flatten(0, 1)
        found = torch.bmm(weights[:, :, : self._prompt], stack._values_LSKPD[layer, :slots].flatten(0, 1))
        found = found.view(len(own_keys), -1, size)
        found.baddbmm_(weights[:, :, self._prompt :].reshape(len(own_keys), -1, self._own), own_values)
        found = found.view(slots, shared, rows, -1, size).transpose(1, 2).reshape(slots * rows, -1)
        return found[self._back_N]

    def add_adapters_(self, layer: int, name: str, result_NO: Tensor, x_NI: Tensor) -> None:
        """Add each row's own adapter's part to a product, in place."""
        part = self._stack._adapters[layer][name].part(x_NI[self._to_stack].view(self._slots, self._rows, -1))
        if part is not None:
            result_NO += part.flatten(0, 1)[self._back_N]


@dataclass(frozen=True)
class StackLayer:
    """One layer of a step: a `lean_layer.Company`."""

    step: StackStep
    at: int
    layer: LeanLayer

    def product(self, name: str, x_NI: Tensor) -> Tensor:
        """One product of all rows, their adapters' part with it."""
        joined: Joined = getattr(self.layer, name)
        result_NO = joined.product(x_NI)
        self.step.add_adapters_(self.at, name, result_NO, x_NI)
        return result_NO

    def attend(self, queries_NQD: Tensor, keys_NKD: Tensor, values_NKD: Tensor) -> Tensor:
        """Each row over its prompt and its own tokens."""
        return self.step.attend(self.at, queries_NQD, keys_NKD, values_NKD)


class _Adapters:
    """A and B, times the scale, of one product in each slot; zero where a session has none."""

    def __init__(self, like: Tensor, slots: int) -> None:
        self._a_SRI = like.new_zeros(slots, 0, 0)
        self._b_SRO = like.new_zeros(slots, 0, 0)

    def put(self, slot: int, factors: tuple[Tensor, Tensor, float] | None) -> None:
        """Take over a session's."""
        self._a_SRI[slot], self._b_SRO[slot] = 0.0, 0.0
        if factors is None:
            return
        a_RI, b_OR, scale = factors
        rank = len(a_RI)
        if rank > self._a_SRI.shape[1]:
            self._a_SRI = _with_ranks(self._a_SRI, rank, a_RI.shape[1])
            self._b_SRO = _with_ranks(self._b_SRO, rank, b_OR.shape[0])
        self._a_SRI[slot, :rank] = a_RI
        self._b_SRO[slot, :rank] = b_OR.t() * scale

    def part(self, x_SnI: Tensor) -> Tensor | None:
        """What the adapters add, [S, n, O]; None where there are none."""
        if not self._a_SRI.numel():
            return None
        slots = len(x_SnI)
        return torch.bmm(torch.bmm(x_SnI, self._a_SRI[:slots].transpose(1, 2)), self._b_SRO[:slots])


def _with_ranks(halves_SRX: Tensor, rank: int, width: int) -> Tensor:
    """With room for that rank, the new ones zero."""
    wider = halves_SRX.new_zeros(len(halves_SRX), rank, width)
    if halves_SRX.numel():
        wider[:, : halves_SRX.shape[1]] = halves_SRX
    return wider


def _up(count: int, step: int) -> int:
    return -(-count // step) * step
