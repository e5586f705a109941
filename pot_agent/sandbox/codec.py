"""Plain Python data out of bytes: the only form in which a value leaves a program's process.

Limits first: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range, deque, Decimal and
Fraction travel, numpy scalars and arrays by value (as numbers and lists). A subclass is reduced to its base value, so
nothing that a program overrides (`__eq__`, `__hash__`, `items`) is ever asked. Anything else becomes `Opaque`, which
equals nothing. Decoding does not recurse, is bounded in depth, items and keys, and refuses keys made to collide;
nothing is imported, called or evaluated on the word of the bytes. `pot_agent.sandbox.encoding` is the other direction.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_DEPTH = 200
MAX_ITEMS = 1_000_000
MAX_COLLISIONS = 64
"""Keys of one set or dict that may share a hash; more are made to hang whoever builds the table."""
MAX_KEYS = 20_000
"""Most keys of a set or dict from a program; of several, the squares of their sizes add up to its square at most. Keys
can be made so that each takes a walk over all others without sharing a hash with any: the work is that square."""
NO_LIMIT = 1 << 40
MAX_FRACTION_CHARACTERS = 25_000
"""Numerator and denominator in hexadecimal; reading a Fraction takes time quadratic in that."""
MAX_NAME = 120

SIZE, DOUBLE = struct.Struct("<I"), struct.Struct("<d")


class CodecError(ValueError):
    """Bytes that are not an encoded value."""


class Opaque:
    """A value that is not plain data; it equals nothing. Knows the name of its type, cut short."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


class _Reader:
    """Takes pieces off a run of bytes; `CodecError` where they do not reach."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.position : self.position + count]
        if len(piece) != count:
            raise CodecError("an encoded value that ends early")
        self.position += count
        return piece

    def size(self) -> int:
        return int(SIZE.unpack(self.take(4))[0])

    def double(self) -> float:
        return float(DOUBLE.unpack(self.take(8))[0])


_Resolve = Callable[[int], Any]
_LEAVES: dict[bytes, Callable[[_Reader, _Resolve], Any]] = {
    b"N": lambda read, resolve: None,
    b"T": lambda read, resolve: True,
    b"F": lambda read, resolve: False,
    b"i": lambda read, resolve: int.from_bytes(read.take(read.size()), "little", signed=True),
    b"f": lambda read, resolve: read.double(),
    b"c": lambda read, resolve: complex(read.double(), read.double()),
    b"s": lambda read, resolve: read.take(read.size()).decode("utf-8", "surrogatepass"),
    b"b": lambda read, resolve: read.take(read.size()),
    b"y": lambda read, resolve: bytearray(read.take(read.size())),
    b"O": lambda read, resolve: Opaque(read.take(read.size()).decode("utf-8", "replace")[:MAX_NAME]),
    b"R": lambda read, resolve: resolve(read.size()),
    b"D": lambda read, resolve: _read_exact_number(b"D", read.take(read.size())),
    b"Q": lambda read, resolve: _read_exact_number(b"Q", read.take(read.size())),
}


def _read_exact_number(tag: bytes, raw: bytes) -> Any:
    text = raw.decode("ascii")
    if tag == b"D":
        from decimal import Decimal  # rare, and slow to import

        return Decimal(text)
    from fractions import Fraction

    if len(text) > MAX_FRACTION_CHARACTERS:
        raise CodecError("a huge Fraction")
    top, _, bottom = text.partition("/")
    return Fraction(int(top, 16), int(bottom, 16))  # Python bounds the digits of decimals that it reads


def _unique(keys: list[Any]) -> None:
    """Refuse keys that share a hash beyond `MAX_COLLISIONS`, before a table is built of them."""
    hashes = sorted(map(hash, keys))  # not counted in a table: that is what they may be made to make slow
    if any(one == other for one, other in zip(hashes, hashes[MAX_COLLISIONS:], strict=False)):
        raise CodecError("keys made to collide")


_BUILDERS: dict[bytes, Callable[[list[Any]], Any]] = {b"l": list, b"t": tuple, b"q": deque, b"I": iter}


def _build(tag: bytes, items: list[Any]) -> Any:
    if tag in b"SZ":
        _unique(items)
        return set(items) if tag == b"S" else frozenset(items)
    if tag == b"d":
        _unique(items[::2])
        return dict(zip(items[::2], items[1::2], strict=True))
    if tag == b"r":
        return range(*items)
    return _BUILDERS[tag](items)


def _no_reference(index: int) -> Any:
    raise CodecError(f"no result {index} here")


def decode(data: bytes, *, resolve: _Resolve = _no_reference, most_keys: int = MAX_KEYS) -> Any:
    """The value that `data` encodes; raises `CodecError` for anything else. `resolve` gives referenced results."""
    try:
        return _decode(_Reader(data), resolve, most_keys)
    except CodecError:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, struct.error) as error:
        raise CodecError(f"not an encoded value: {error}") from error


def _decode(read: _Reader, resolve: _Resolve, most_keys: int) -> Any:
    """Without recursion: containers that wait for their items are on a stack."""
    waiting: list[tuple[bytes, int, list[Any]]] = []
    total = squares = 0
    while True:
        tag = read.take(1)
        total += 1
        if tag in _LEAVES:
            value = _LEAVES[tag](read, resolve)
        else:
            count = _count(tag, read)
            if len(waiting) > MAX_DEPTH or total + count > 2 * MAX_ITEMS:
                raise CodecError("an encoded value too deep or too large")
            if count:
                waiting.append((tag, count, []))
                continue
            value = _build(tag, [])
        while waiting:
            kind, count, items = waiting[-1]
            items.append(value)
            if len(items) < count:
                break
            waiting.pop()
            squares += squared_keys(kind, count)
            if squares > most_keys**2:
                raise CodecError("sets and dicts of too many keys")
            value = _build(kind, items)
        else:
            return _finished(read, value)


def squared_keys(tag: bytes, items: int) -> int:
    """The square of the number of keys of a container with so many items; 0 where it has no keys."""
    return (items // 2 if tag == b"d" else items) ** 2 if tag in b"dSZ" else 0


def _count(tag: bytes, read: _Reader) -> int:
    """How many encoded items a container has."""
    if tag == b"r":
        return 3
    if tag not in b"ltSZqId":
        raise CodecError(f"no such kind of value: {tag!r}")
    return read.size() * (2 if tag == b"d" else 1)


def _finished(read: _Reader, value: Any) -> Any:
    if read.position != len(read.data):
        raise CodecError("bytes after the end of an encoded value")
    return value


def iterate(data: bytes) -> Iterator[bytes]:
    """Pieces of a run of size-prefixed records; raises `CodecError` when they do not fit it."""
    read = _Reader(data)
    while read.position < len(data):
        yield read.take(read.size())


def record(pieces: Iterable[bytes]) -> bytes:
    """One size-prefixed record."""
    body = b"".join(pieces)
    return SIZE.pack(len(body)) + body
