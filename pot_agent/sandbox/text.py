"""Text that came from a program or a test, made fit to show: bounded, printable, valid. Never evaluated."""

from collections import deque
from collections.abc import Iterator
from typing import Any

FIELD_CHARACTERS = 1000
"""Longest text in one field of a result."""
MAX_SHOWN_BITS = 3000
"""Integers beyond this many bits are shown by their size: turning them into digits takes quadratic time."""


def printable(text: str, most: int = FIELD_CHARACTERS, *, lines: bool = True) -> str:
    """Cut to `most` characters; whatever is not printable becomes an escape; newlines stay if `lines`."""
    cut = text[:most]
    shown = "".join(c if c.isprintable() or (lines and c == "\n") else _escape(c) for c in cut)
    if len(shown) > 2 * most:
        shown = shown[: 2 * most]
    return shown if len(text) <= most else f"{shown}... ({len(text) - most} more characters)"


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    code = ord(character)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def show(value: Any, most: int = FIELD_CHARACTERS) -> str:
    """A value as Python would write it, as far as `most` characters reach; for plain data after decoding."""
    parts: list[str] = []
    length = 0
    for part in _pieces(value, most):
        parts.append(part)
        length += len(part)
        if length > most:
            return printable("".join(parts), most, lines=False).rpartition("... (")[0] + "..."
    return printable("".join(parts), most, lines=False)


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
}


def _pieces(value: Any, most: int) -> Iterator[str]:
    kind = type(value)
    if kind is dict:
        yield "{"
        for position, (key, item) in enumerate(value.items()):
            yield ", " if position else ""
            yield from _pieces(key, most)
            yield ": "
            yield from _pieces(item, most)
        yield "}"
    elif kind is tuple or (kind in _BRACKETS and (value or kind in (list, deque))):
        first, last = ("(", ",)" if len(value) == 1 else ")") if kind is tuple else _BRACKETS[kind]
        yield first
        for position, item in enumerate(value):
            yield ", " if position else ""
            yield from _pieces(item, most)
        yield last
    else:
        yield _leaf(value, most)


def _leaf(value: Any, most: int) -> str:
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"<an integer of {value.bit_length()} bits>"
    if isinstance(value, (str, bytes, bytearray)) and len(value) > most:
        return repr(value[:most])
    if isinstance(value, range):
        parts = (value.start, value.stop) if value.step == 1 else (value.start, value.stop, value.step)
        return f"range({', '.join(_leaf(part, most) for part in parts)})"
    if type(value).__name__ == "Fraction":  # not imported for the asking
        return f"Fraction({_leaf(value.numerator, most)}, {_leaf(value.denominator, most)})"
    return repr(value)
