"""Values survive the trip; whatever else arrives is refused, quickly."""

import collections
import enum
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.sandbox.codec import CodecError, Opaque, decode, iterate, record
from pot_agent.sandbox.encoding import TooLargeError, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_plain_data_survives_the_trip(value: Any) -> None:
    arrived = decode(encode(value))
    assert arrived == value
    assert type(arrived) is type(value)


@given(st.binary(max_size=200))
def test_junk_is_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        decode(data)
    except CodecError:
        return


@given(VALUES, st.data())
def test_a_damaged_value_is_a_value_or_refused(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(raw))
    except CodecError:
        return


@pytest.mark.parametrize(
    "value",
    [
        range(3),
        range(5, 0, -2),
        collections.deque([1, [2]]),
        Decimal("1.50"),
        Fraction(-1, 3),
        bytearray(b"x"),
        1 << 99999,
    ],
    ids=lambda value: type(value).__name__,
)
def test_further_kinds_survive(value: Any) -> None:
    assert decode(encode(value)) == value


def test_subclasses_are_reduced_to_their_base_value() -> None:
    class Colour(enum.IntEnum):
        RED = 3

    point = collections.namedtuple("point", "x y")
    cases: list[tuple[Any, Any]] = [
        (Colour.RED, 3),
        (point(1, 2), (1, 2)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.defaultdict(list, {1: [2]}), {1: [2]}),
    ]
    for value, base in cases:
        assert decode(encode(value)) == base
        assert type(decode(encode(value))) is type(base)


def test_what_is_not_plain_data_equals_nothing() -> None:
    for value in (object(), len, iter([]), type, ValueError("x")):
        arrived = decode(encode(value))
        assert isinstance(arrived, Opaque)
        assert arrived != decode(encode(value))


def test_nan_stays_nan() -> None:
    assert math.isnan(decode(encode(math.nan)))


def test_numpy_arrives_by_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert decode(encode([numpy.int64(3), numpy.float32(0.5), numpy.array([[1, 2]]), numpy.bool_(True)])) == [
        3,
        0.5,
        [[1, 2]],
        True,
    ]


def test_depth_and_cycles_are_cut() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (deep, cycle):
        arrived = decode(encode(value))
        while isinstance(arrived, list):
            arrived = arrived[0]
        assert isinstance(arrived, Opaque)


def test_size_is_bounded() -> None:
    wide: Any = [0]
    for _ in range(60):
        wide = [wide, wide]
    for value in ("x" * 2000, b"x" * 2000, [0] * 2000, 1 << 20000, {i: i for i in range(2000)}, wide):
        with pytest.raises(TooLargeError):
            encode(value, most_bytes=1000)


def test_keys_made_to_collide_are_refused() -> None:
    colliding = [number * ((1 << 61) - 1) for number in range(1000)]
    listed = bytearray(encode(colliding))
    for tag in (b"S", b"Z"):
        with pytest.raises(CodecError, match="collide"):
            decode(tag + bytes(listed[1:]))


def test_records_that_do_not_fit_are_refused() -> None:
    whole = record([b"ab"]) + record([b"c"])
    assert list(iterate(whole)) == [b"ab", b"c"]
    with pytest.raises(CodecError):
        list(iterate(whole[:-1]))
