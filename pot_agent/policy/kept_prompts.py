"""The last prompt of each session as the lean decoder left it: keys, values and the hidden state after it.

A session asks more than once about one prompt under one version: the canary and the commit, several draws at one node.
What is kept is what running the prompt again would give, byte for byte: it is found under the very ids, the very
adapter tensor and that tensor's count of changes, so a prompt of another version, or of weights that were written to,
is run anew. Nothing is found for another session, though it may ask the same: how long a call takes tells nobody what
others asked.

Limits: on a CPU, in types whose prompt is shared by rows (`lean_attention.SharedPrompt`); one prompt a session, and
`KEPT_BYTES` in all, the longest unused going first. An entry ends with its session's journal. The caller has the
policy's turn.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor

from pot_agent.config import LoraConfig

KEPT_BYTES = 512 * 2**20
"""Keys and values of all sessions: some 11,000 tokens of the embedded model."""


class KeptPrompt(NamedTuple):
    """A prompt that was run; nobody writes to its tensors."""

    layers: Sequence[tuple[Tensor, Tensor]]
    """Keys [K, D, P] and values [K, P, D] of each layer."""
    hidden: Tensor
    """After the last token, [1, H]."""
    tokens: int

    @property
    def bytes(self) -> int:
        """Of its keys and values."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


class _Key(NamedTuple):
    prompt_ids: tuple[int, ...]
    lora: LoraConfig | None
    vector: int | None
    writes: int


class _Entry(NamedTuple):
    key: _Key
    vector: Tensor | None
    """Held, so that no other tensor gets its identity."""
    kept: KeptPrompt


class KeptPrompts:
    """What is kept, by whoever it is kept for."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._entries: WeakKeyDictionary[Hashable, _Entry] = WeakKeyDictionary()

    def place(
        self, keeper: Hashable | None, prompt_ids: Sequence[int], lora: LoraConfig | None, vector: Tensor | None
    ) -> "Place | None":
        """Where this prompt under this adapter is kept for `keeper`; None where nothing is."""
        if keeper is None or not self._most_bytes:
            return None
        return Place(self, keeper, _key(prompt_ids, lora, vector), vector)

    def find(self, keeper: Hashable, key: _Key) -> KeptPrompt | None:
        """What was kept under that key."""
        entry = self._entries.get(keeper)
        if entry is None or entry.key != key:
            return None
        self._entries[keeper] = self._entries.pop(keeper)  # the newest comes last
        return entry.kept

    def keep(self, keeper: Hashable, key: _Key, vector: Tensor | None, kept: KeptPrompt) -> None:
        """Keep it in place of the keeper's last one, where there is room at all."""
        self._entries.pop(keeper, None)
        if kept.bytes > self._most_bytes:
            return
        self._entries[keeper] = _Entry(key, vector, kept)
        entries = list(self._entries.items())
        excess = sum(entry.kept.bytes for _, entry in entries) - self._most_bytes
        for oldest, entry in entries:
            if excess <= 0:
                return
            self._entries.pop(oldest, None)
            excess -= entry.kept.bytes


@dataclass(frozen=True)
class Place:
    """Where one prompt is kept."""

    prompts: KeptPrompts
    keeper: Hashable
    key: _Key
    vector: Tensor | None

    def find(self) -> KeptPrompt | None:
        """What was kept here."""
        return self.prompts.find(self.keeper, self.key)

    def keep(self, kept: KeptPrompt) -> None:
        """Keep it here."""
        self.prompts.keep(self.keeper, self.key, self.vector, kept)


def _key(prompt_ids: Sequence[int], lora: LoraConfig | None, vector: Tensor | None) -> _Key:
    if lora is None or vector is None:
        return _Key(tuple(prompt_ids), None, None, 0)
    return _Key(tuple(prompt_ids), lora, id(vector), vector._version)
