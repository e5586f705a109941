"""Plain Python data as JSON, both ways.

What JSON cannot say (a tuple, a set, bytes, a complex number, an infinity, a dict with other keys than text) is written
`{"$python": "(1, 2)"}`, a Python literal, which is read and never run. Objects of any other class are refused.
"""

import math
from collections.abc import Mapping
from typing import Any

from pot_agent.errors import ProblemError
from pot_agent.pysource import MAX_SOURCE_CHARACTERS, literal_value

MARK = "$python"
_MAX_INT = 10**4000
"""Beyond this Python's JSON module neither writes nor reads a whole number; it is written in hexadecimal instead."""


def encode_value(value: Any, where: str = "value") -> Any:
    """Plain Python data as JSON types; `ProblemError` for anything else."""
    try:
        return _encode(value, where)
    except RecursionError as error:
        raise ProblemError(f"{where}: {shorten(value)} is nested too deeply", value=value) from error


def _encode(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return clean_text(value, where)
    if type(value) is int:
        return value if abs(value) < _MAX_INT else {MARK: hex(value)}
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is list:
        return [_encode(item, where) for item in value]
    if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return {clean_text(key, where): _encode(item, where) for key, item in value.items()}
    return {MARK: _literal(value, where)}


def _literal(value: Any, where: str) -> str:
    """A Python literal that `decode_value` gives back as an equal value."""
    message = f"{where}: {shorten(value)} is not plain data (numbers, text, lists, tuples, ...)"
    refused = ProblemError(message, value=value)
    if not _is_plain(value):
        raise refused
    try:
        literal = repr(value)
        literal_value(literal)
    except ValueError as error:
        raise refused from error
    return literal


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)) and type(value) in (list, tuple, set, frozenset):
        return all(_is_plain(item) for item in value)
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def decode_value(value: Any, where: str = "value") -> Any:
    """The inverse of `encode_value`."""
    try:
        return _decode(value, where)
    except RecursionError as error:
        raise ProblemError(f"{where}: {shorten(value)} is nested too deeply", value=value) from error


def _decode(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {MARK}:
            return _read_literal(value[MARK], where)
        return {key: _decode(item, where) for key, item in value.items()}
    return [_decode(item, where) for item in value] if isinstance(value, list) else value


def _read_literal(literal: Any, where: str) -> Any:
    if not isinstance(literal, str) or len(literal) > MAX_SOURCE_CHARACTERS:
        raise ProblemError(f"{where}: {MARK} must be a Python literal as text, got {shorten(literal)}", value=literal)
    try:
        return literal_value(literal)
    except ValueError as error:
        raise ProblemError(f"{where}: not a Python literal: {shorten(literal)}", value=literal) from error


def clean_text(text: str, where: str) -> str:
    """The text itself; `ProblemError` where it cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProblemError(f"{where} has a lone surrogate at character {error.start}; remove it", value=text) from error
    return text


def shorten(value: Any, most: int = 120) -> str:
    """`repr` of a value that may be anything, at most that long, for a message."""
    try:
        text = repr(value if not isinstance(value, (str, bytes)) else value[:most])
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 3] + "..."
