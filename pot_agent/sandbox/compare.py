"""Whether an output or a value is the expected one. Runs in the judge, on plain data only; pure functions.

Rules for standard output (`StdinTest.compare`):
* `tokens`: whitespace-separated tokens; equal as text, or both canonical decimals that are equal as numbers and at
  least one of them with a point or an exponent ("42.0" equals "42"; "007" does not equal "7"; no tolerance).
* `exact`: character for character, one final newline aside.
* `float`: tokens; equal as text, or both numbers within `abs` or within `rel` of the expected one.
* `lcb`: LiveCodeBench's published rule: strip, split lines, strip each; as many lines; each equal, or all its tokens
  equal as Decimal.
* `unordered`: the lines that are not blank, in any order, each by its tokens: as text, or decimals as in `tokens`.

Rules for values: Python's equality on plain data, except that True and False are no answer where an int is expected
(1 == True would be luck). For call tests, where JSON has no tuples, an expected list accepts a tuple, floats may differ
by the test's `rel` and `abs`, and an expected NaN accepts NaN; an assertion has neither.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from pot_agent.problem import StdinTest

_DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,5})?", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?", re.ASCII)
MAX_NUMBER_CHARACTERS = 1000
"""Longer tokens are compared as text alone."""


def same_output(got: str, test: StdinTest) -> bool:
    """Whether standard output answers the test, by the test's own rule."""
    if test.compare == "exact":
        return got.removesuffix("\n") == test.output.removesuffix("\n")
    if test.compare == "lcb":
        return _same_by_lines(got, test.output)
    if test.compare == "unordered":
        return _sorted_lines(got) == _sorted_lines(test.output)
    expected_tokens, tokens = test.output.split(), got.split()
    if len(tokens) != len(expected_tokens):
        return False
    pairs = zip(expected_tokens, tokens, strict=True)
    if test.compare == "float":
        return all(a == b or _close_texts(a, b, test.rel, test.abs) for a, b in pairs)
    return all(a == b or _same_decimals(a, b) for a, b in pairs)


def _sorted_lines(text: str) -> list[list[str]]:
    """Sorted and not counted in a table: a program may choose what it prints so that keys collide."""
    return sorted([_canonical(token) for token in line.split()] for line in text.split("\n") if line.strip())


def _canonical(token: str) -> str:
    """The same text for decimals that are equal as numbers, signs written alike."""
    if len(token) > MAX_NUMBER_CHARACTERS or token[0] == "+" or not _DECIMAL.fullmatch(token):
        return token
    sign, digits, exponent = Decimal(token).as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    kept = shown.rstrip("0")
    if not kept:
        return token if token == "-0" else "0"
    return f"{'-' if sign else ''}{kept}e{int(exponent) + len(shown) - len(kept)}"


def _same_decimals(expected: str, got: str) -> bool:
    if max(len(expected), len(got)) > MAX_NUMBER_CHARACTERS:
        return False
    if not (_DECIMAL.fullmatch(expected) and _DECIMAL.fullmatch(got)):
        return False
    return any(mark in expected + got for mark in ".eE") and Decimal(expected) == Decimal(got)


def _close_texts(expected: str, got: str, rel: float, abs_: float) -> bool:
    if max(len(expected), len(got)) > MAX_NUMBER_CHARACTERS:
        return False
    if not (_FLOAT.fullmatch(expected) and _FLOAT.fullmatch(got)):
        return False
    numbers = float(expected), float(got)
    return math.inf not in map(abs, numbers) and _close(*numbers, rel, abs_)


def _close(expected: float, got: float, rel: float, abs_: float) -> bool:
    """Within a tolerance of the *expected* value; never for NaN; infinities only when equal."""
    if math.isinf(expected) or math.isinf(got):
        return expected == got
    return abs(expected - got) <= max(rel * abs(expected), abs_)


def _same_by_lines(got: str, expected: str) -> bool:
    lines, expected_lines = ([line.strip() for line in text.strip().split("\n")] for text in (got, expected))
    if len(lines) != len(expected_lines):
        return False
    return all(a == b or _same_decimal_lines(a, b) for a, b in zip(expected_lines, lines, strict=True))


def _same_decimal_lines(expected: str, got: str) -> bool:
    try:
        return [Decimal(token) for token in expected.split()] == [Decimal(token) for token in got.split()]
    except (InvalidOperation, ValueError):
        return False


@dataclass(frozen=True, kw_only=True)
class Equality:
    """How values are compared; the defaults are those of an assertion."""

    rel: float = 0.0
    abs: float = 0.0
    json: bool = False
    """The expected value may have come through JSON: a list accepts a tuple, NaN accepts NaN."""

    def same(self, expected: Any, got: Any) -> bool:
        """Whether `got`, as decoded, is the expected value. Depth is bounded by that of `got`."""
        kind, got_kind = type(expected), type(got)
        if got_kind is bool and kind in (int, float, complex):
            return False
        if kind in (list, tuple):
            if got_kind is not kind and not (self.json and kind is list and got_kind is tuple):
                return False
            return len(expected) == len(got) and all(map(self.same, expected, got))
        if kind is dict:
            return got_kind is dict and len(expected) == len(got) and self._same_items(expected, got)
        if float in (kind, got_kind) and {kind, got_kind} <= {int, float}:
            return self._same_numbers(expected, got)
        try:
            return bool(expected == got)
        except (ValueError, ArithmeticError, RecursionError):
            return False

    def _same_items(self, expected: dict[Any, Any], got: dict[Any, Any]) -> bool:
        kinds = {key: type(key) for key in got}
        return all(
            key in got and not (kinds[key] is bool and type(key) is int) and self.same(item, got[key])
            for key, item in expected.items()
        )

    def _same_numbers(self, expected: float, got: float) -> bool:
        if expected == got:
            return True
        if self.json and expected != expected and got != got:
            return True
        try:
            return (self.rel > 0 or self.abs > 0) and _close(float(expected), float(got), self.rel, self.abs)
        except OverflowError:
            return False
