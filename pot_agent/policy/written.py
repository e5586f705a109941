"""A completion's text while it is being written, in pieces that join to the finished text exactly.

Each step decodes a window of the newest tokens and never the whole: a byte of a character that is not complete yet is
held back, and so is whatever a stop string or the end of a block might still take away.

Limits: the text of a token is told when the next one is there, so that a completion's last token can be cut. Where a
tokenizer writes characters as byte tokens (`<0xE2>`), they are told when that run of bytes has ended. A tokenizer whose
text does not grow at its end alone would break the promise: a warning says so, and the pieces are then not the text.
"""

import logging
from collections.abc import Callable, Sequence

from pot_agent.policy.text import Stops

logger = logging.getLogger(__name__)

MOST = 24
"""Tokens in a window before it is cut."""
KEPT = 8
"""Tokens that a cut leaves. A character has 4 bytes at most and a token one at least, so decoding from any token on is
in step again with decoding from the start before these end."""
_UNFINISHED = "\ufffd"


class Written:
    """One completion on its way. `tell` gets each piece, never an empty one."""

    def __init__(self, stops: Stops, tell: Callable[[str], None]) -> None:
        self._chat = stops.chat
        self._stops = stops
        self._tell = tell
        self._window: list[int] = []
        self._shown = 0
        """Characters of the window's text that were taken."""
        self._read = 0
        """Tokens of the completion that were read."""
        self._held = self._chat.opening
        self._told: list[str] = []

    def advance(self, ids: Sequence[int]) -> None:
        """Tell what can no longer change; `ids` are all tokens so far, more may follow, and another thread add them."""
        upto = max(self._read, len(ids) - 1)
        newest = [token for token in ids[self._read : upto] if token not in self._chat.special_ids]
        self._read = upto
        if newest:
            self._window += newest
            if newest[-1] not in self._chat.byte_ids:
                self._take()
        self._say()

    def end(self, ids: Sequence[int]) -> None:
        """Tell the rest: these are all tokens there will be."""
        text, told = self._stops.text_of(ids), "".join(self._told)
        if not text.startswith(told):
            logger.warning("this tokenizer's text changed after it was told: the pieces that were streamed are not it")
            return
        if len(text) > len(told):
            self._tell(text[len(told) :])

    def _take(self) -> None:
        settled = _settled(self._chat.decode(self._window))
        self._held += settled[self._shown :]
        self._shown = len(settled)
        if len(self._window) > MOST:
            self._window = self._window[-KEPT:]
            self._shown = len(_settled(self._chat.decode(self._window)))

    def _say(self) -> None:
        ready = len(self._held) - self._stops.longest
        if ready <= 0:
            return
        piece, self._held = self._held[:ready], self._held[ready:]
        self._told.append(piece)
        self._tell(piece)


def _settled(text: str) -> str:
    """Without the mark at its end that stands for the first bytes of a character, or for none that there is."""
    return text.removesuffix(_UNFINISHED)
