"""Plain Python data as bytes, inside a process that may do anything to defeat it; see `pot_agent.sandbox.codec`.

A subclass is reduced to its base value without asking anything that a class can override; built-ins that a program may
replace are bound here first. Does not recurse; bounded in bytes, depth and number of items. Standard library only.
"""

import sys
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from pot_agent.sandbox.codec import (
    DOUBLE,
    MAX_DEPTH,
    MAX_FRACTION_CHARACTERS,
    MAX_ITEMS,
    MAX_NAME,
    NO_LIMIT,
    SIZE,
    squared_keys,
)


class TooLargeError(ValueError):
    """A value of more bytes or items than allowed."""


_BASES: tuple[type, ...] = (
    bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, deque, range,
)  # fmt: skip
_MRO = type.__dict__["__mro__"].__get__
_TYPE_NAME = type.__dict__["__name__"].__get__
_type, _len, _list, _int, _next = type, len, list, int, next  # a program may replace those in `builtins`
_bytes, _str, _iter, _reversed = bytes, str, iter, reversed


def base_of(kind: type) -> type | None:
    """The plain type that `kind` is or derives from, None for any other; asks nothing that a class can override."""
    if kind in _BASES:
        return kind
    for parent in _MRO(kind):
        if parent in _BASES:
            return parent  # type: ignore[no-any-return]
    return None


def encode(
    value: Any,
    *,
    most_bytes: int = 1 << 30,
    consume: int = 0,
    most_keys: int = NO_LIMIT,
    reference: Callable[[Any], int | None] | None = None,
) -> bytes:
    """Encode a value; raises `TooLargeError` beyond `most_bytes`, `MAX_ITEMS` or `most_keys` (see `codec.MAX_KEYS`).

    `consume` > 0 takes up to so many items out of an iterator and sends them as a list of the kind `iterator`.
    `reference` may name an object as the result of an earlier operation.
    """
    out = bytearray()
    items = squares = 0
    stack: list[tuple[int, Any]] = [(0, value)]
    while stack:
        depth, item = stack.pop()
        items += 1  # and those on the stack are still to come
        number = reference(item) if reference is not None else None
        if number is not None:
            out += b"R" + SIZE.pack(number)
        elif depth > MAX_DEPTH:
            out += _opaque("value nested too deep")
        else:
            start = _len(out)
            children = _write(out, item, most_bytes, consume)
            squares += squared_keys(_bytes(out[start : start + 1]), _len(children))
            stack += [(depth + 1, child) for child in _reversed(children)]
        if _len(out) > most_bytes or items + _len(stack) > MAX_ITEMS:
            raise TooLargeError(f"a value of more than {most_bytes} bytes or {MAX_ITEMS} items")
        if squares > most_keys**2:
            raise TooLargeError(f"sets and dicts of more than {most_keys} keys")
    return _bytes(out)


def _write(out: bytearray, item: Any, most: int, consume: int) -> list[Any]:
    """Write one item's head; returns its children."""
    if item is None:
        out += b"N"
        return []
    if item is True or item is False:
        out += b"T" if item else b"F"
        return []
    kind = _type(item)
    base = base_of(kind)
    if base is not None:
        return _WRITERS[base](out, item, most)
    converted = _number_or_array(item)
    if converted is not item:
        return _write(out, converted, most, consume)
    if (consume and hasattr(kind, "__next__")) or kind in _VIEWS:
        taken = _list(islice(_iter(item), consume or MAX_ITEMS))
        out += b"I" + SIZE.pack(_len(taken))
        return taken
    out += _exact_number(item) or _opaque(_TYPE_NAME(kind))
    return []


_VIEWS = frozenset({type({}.keys()), type({}.values()), type({}.items())})


def _number_or_array(item: Any) -> Any:
    """A numpy scalar or array by value; anything else unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return item
    if isinstance(item, numpy.ndarray):
        return numpy.ndarray.tolist(item) if item.dtype.kind in "biufcSU" else item
    if isinstance(item, numpy.generic):
        plain = item.item()
        return item if isinstance(plain, numpy.generic) else plain
    return item


def _exact_number(item: Any) -> bytes | None:
    for module, name, tag in (("decimal", "Decimal", b"D"), ("fractions", "Fraction", b"Q")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and _type(item) is kind:
            return tag + _sized(_fraction(item) if tag == b"Q" else _str(item).encode()[:100_000])
    return None


def _fraction(item: Any) -> bytes:
    text = f"{item.numerator:x}/{item.denominator:x}"
    if _len(text) > MAX_FRACTION_CHARACTERS:
        raise TooLargeError("a huge Fraction")
    return text.encode()


def _sized(raw: bytes | bytearray) -> bytes:
    return SIZE.pack(_len(raw)) + raw


def _opaque(name: str) -> bytes:
    return b"O" + _sized(name[:MAX_NAME].encode("utf-8", "backslashreplace"))


def _write_bool(out: bytearray, item: Any, most: int) -> list[Any]:
    out += b"T" if item else b"F"
    return []


def _write_int(out: bytearray, item: Any, most: int) -> list[Any]:
    plain = int.__int__(item)
    length = int.bit_length(plain) // 8 + 1
    if length > most:
        raise TooLargeError("a huge integer")
    out += b"i" + _sized(int.to_bytes(plain, length, "little", signed=True))
    return []


def _write_float(out: bytearray, item: Any, most: int) -> list[Any]:
    out += b"f" + DOUBLE.pack(float.__float__(item))
    return []


def _write_complex(out: bytearray, item: Any, most: int) -> list[Any]:
    plain = complex.__complex__(item) if hasattr(complex, "__complex__") else complex.__pos__(item)
    out += b"c" + DOUBLE.pack(plain.real) + DOUBLE.pack(plain.imag)
    return []


def _write_str(out: bytearray, item: Any, most: int) -> list[Any]:
    if str.__len__(item) > most:
        raise TooLargeError("a huge text")
    out += b"s" + _sized(str.encode(item, "utf-8", "surrogatepass"))
    return []


def _write_bytes(out: bytearray, item: Any, most: int) -> list[Any]:
    base, tag = (bytes, b"b") if isinstance(item, bytes) else (bytearray, b"y")
    if base.__len__(item) > most:
        raise TooLargeError("huge bytes")
    out += tag + _sized(base.__getitem__(item, slice(None)))
    return []


def _container(tag: bytes, kind: type) -> Callable[[bytearray, Any, int], list[Any]]:
    def write(out: bytearray, item: Any, most: int) -> list[Any]:
        if kind.__len__(item) > most:  # type: ignore[attr-defined]
            raise TooLargeError("a huge collection")
        children = _list(kind.__iter__(item))  # type: ignore[attr-defined]
        out += tag + SIZE.pack(_len(children))
        return children

    return write


def _write_dict(out: bytearray, item: Any, most: int) -> list[Any]:
    if dict.__len__(item) > most:
        raise TooLargeError("a huge dict")
    pairs = _list(dict.items(item))
    out += b"d" + SIZE.pack(_len(pairs))
    return [part for pair in pairs for part in pair]


def _write_range(out: bytearray, item: Any, most: int) -> list[Any]:
    out += b"r"
    return [item.start, item.stop, item.step]


_WRITERS: dict[type, Callable[[bytearray, Any, int], list[Any]]] = {
    bool: _write_bool, int: _write_int, float: _write_float, complex: _write_complex, str: _write_str,
    bytes: _write_bytes, bytearray: _write_bytes, dict: _write_dict, range: _write_range,
    list: _container(b"l", list), tuple: _container(b"t", tuple), set: _container(b"S", set),
    frozenset: _container(b"Z", frozenset), deque: _container(b"q", deque),
}  # fmt: skip
