"""Reading calls and literals out of running text, in time linear in the text.

Limits: a call or a literal longer than `MAX_SPAN` characters is not read. Quotes are Python's; an apostrophe in prose
inside brackets can hide the bracket's end, and then nothing is read.
"""

import re
from typing import Any

from pot_agent.pysource import literal_value

MAX_SPAN = 4_000
"""Longest call or literal, in characters."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_STOPS = re.compile(r"[()\[\]{}'\"]")
_STRING = re.compile(r"[bB]?(?:'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
_ATOM = re.compile(r"-?(?:\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+)(?![\w.]\w)|(?:True|False|None|true|false|null)\b")


class Budget:
    """Characters that may still be looked at: what keeps junk from costing more than its own length."""

    def __init__(self, characters: int) -> None:
        self.left = characters

    def spend(self, characters: int) -> bool:
        """Take from the budget; False when it is used up."""
        self.left -= characters
        return self.left >= 0


def bracket_end(text: str, start: int, budget: Budget) -> int | None:
    """The position after the bracket that closes the one at `start`; None where there is none near."""
    waiting: list[str] = []
    position, end = start, min(len(text), start + MAX_SPAN)
    while (stop := _STOPS.search(text, position, end)) is not None and budget.spend(stop.end() - position):
        position = stop.end()
        if stop[0] in _CLOSING:
            waiting.append(_CLOSING[stop[0]])
        elif stop[0] in "'\"":
            string = _STRING.match(text, stop.start(), end)
            if string is None:
                return None
            position = string.end()
        elif not waiting or stop[0] != waiting.pop():
            return None
        elif not waiting:
            return position
    return None


def literal_at(text: str, start: int, budget: Budget) -> tuple[Any, int] | None:
    """The literal that begins at `start`, and the position after it; None where there is none, or it is unclear."""
    if text[start : start + 1] in _CLOSING:
        end = bracket_end(text, start, budget)
    else:
        found = _STRING.match(text, start, start + MAX_SPAN) or _ATOM.match(text, start, start + MAX_SPAN)
        end = found.end() if found else None
    if end is None:
        return None
    source = text[start:end]
    try:
        value = literal_value(source, json_names=True)
    except ValueError:
        return None
    # ("Venus") is a string to Python, and may well be meant as a tuple of one.
    if source.startswith("(") and not isinstance(value, tuple):
        return None
    return value, end
