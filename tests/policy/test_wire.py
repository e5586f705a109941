"""What crosses the wire arrives as it was: values, floats that are not finite, and every error."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent import errors
from pot_agent.policy.refusals import refusal
from pot_agent.policy.wire import MAX_VALUE_CHARACTERS, dumps, error_from_wire, error_to_wire, from_wire, to_wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ERRORS = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.PotError)]


@given(JSON)
def test_plain_values_cross_unchanged(value: object) -> None:
    assert from_wire(json.loads(dumps(value))) == value


def test_not_a_number_crosses_without_being_json() -> None:
    sent = dumps({"a": math.nan, "b": -math.inf})
    assert json.loads(sent, parse_constant=pytest.fail) == {"a": {"$float": "nan"}, "b": {"$float": "-inf"}}
    arrived = from_wire(json.loads(sent))
    assert math.isnan(arrived["a"])
    assert arrived["b"] == -math.inf


def test_a_lone_surrogate_crosses() -> None:
    assert from_wire(json.loads(dumps("a\ud800b"))) == "a\ud800b"


@pytest.mark.parametrize("value", [b"bytes", object(), {1: "a"}, [{"a": {2}}]])
def test_what_json_cannot_say_is_refused_and_not_guessed(value: object) -> None:
    with pytest.raises(errors.ConfigError, match="policy server"):
        to_wire(value)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_arrives_as_itself(cls: type[errors.PotError]) -> None:
    answer = refusal(cls("what to do", value={"seen": [1, 2.5, "x"]}))
    arrived = error_from_wire(json.loads(answer.body))
    assert type(arrived) is cls
    assert (arrived.message, arrived.value) == ("what to do", {"seen": [1, 2.5, "x"]})
    assert 400 <= answer.status_code < 600


class Unprintable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_a_value_that_is_not_plain_crosses_as_bounded_text() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (object(), "x" * 1_000_000, {"a": "y" * 1_000_000}, Unprintable(), 10**5000, nested):
        body = error_to_wire(errors.ConfigError("no", value=value))
        assert isinstance(body["value"], str)
        assert len(body["value"]) <= MAX_VALUE_CHARACTERS
        dumps(body)


def test_a_code_from_a_newer_server_is_a_policy_error() -> None:
    arrived = error_from_wire({"code": "not_yet_invented", "message": "no", "value": None})
    assert type(arrived) is errors.PolicyError
