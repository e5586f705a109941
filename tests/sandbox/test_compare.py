"""Comparison rules, each as a table of what is the same and what is not."""

import math
from collections import deque
from typing import Any

import pytest

from pot_agent.problem import Compare, StdinTest
from pot_agent.sandbox.compare import Equality, same_output


@pytest.mark.parametrize(
    ("rule", "expected", "got", "same"),
    [
        ("tokens", "1 2\n3", "1\n2 3\n", True),
        ("tokens", "42", "42.0", True),
        ("tokens", "4.20", "4.2", True),
        ("tokens", "1e3", "1000", True),
        ("tokens", "7", "007", False),
        ("tokens", "007", "7", False),
        ("tokens", "0.1", "0.1000000001", False),
        ("tokens", "1", "1 1", False),
        ("tokens", "nan", "NaN", False),
        ("tokens", "inf", "Infinity", False),
        ("tokens", "1", "١", False),
        ("tokens", "1000", "1_000", False),
        ("tokens", "Yes", "yes", False),
        ("tokens", "", " \n", True),
        ("tokens", "1", "1e99999", False),
        ("exact", "a b\n", "a b", True),
        ("exact", "a b", "a b\n\n", False),
        ("exact", "a b", "a  b", False),
        ("float", "1.0", "1.0000001", True),
        ("float", "1.0", "1.1", False),
        ("float", "1.0", "nan", False),
        ("float", "nan", "nan", True),
        ("float", "1e400", "2e400", False),
        ("float", "a 1", "a 1.0000000001", True),
        ("lcb", "42", "42.0", True),
        ("lcb", "42", "42.000000001", False),
        ("lcb", " 1 2 \n", "1 2", True),
        ("lcb", "1 2", "1\n2", False),
        ("lcb", "a 2", "a 2.0", False),
        ("lcb", "7", "007", True),
        ("lcb", "NaN", "sNaN", False),
        ("unordered", "1 2\n3", "3\n1  2\n", True),
        ("unordered", "1 2\n3", "3\n2 1", False),
        ("unordered", "1\n1\n2", "1\n2\n2", False),
        ("unordered", "1\n1", "1", False),
        ("unordered", "a\n\nb", "b\na", True),
        ("unordered", "1.50 a\n2", "2.0\n1.5 a", True),
        ("unordered", "100\n0", "0.00\n1e2", True),
        ("unordered", "1e2000", "1e2001", False),
        ("unordered", "007", "7", False),
        ("unordered", "a b", "ab", False),
    ],
)
def test_outputs_by_their_rule(rule: Compare, expected: str, got: str, same: bool) -> None:
    assert same_output(got, StdinTest(input="", output=expected, compare=rule)) is same


ASSERTED, JSON = Equality(), Equality(rel=1e-9, abs=1e-12, json=True)


@pytest.mark.parametrize(
    ("expected", "got", "asserted", "json"),
    [
        (2, 2.0, True, True),
        (2, True, False, False),
        (1, True, False, False),
        (True, True, True, True),
        (True, 1, True, True),
        ([1], [True], False, False),
        ({"a": 0}, {"a": False}, False, False),
        ({1: 2}, {True: 2}, False, False),
        ([1, 2], (1, 2), False, True),
        ((1, 2), [1, 2], False, False),
        ([[1]], [(1,)], False, True),
        (0.3, 0.1 + 0.2, False, True),
        (0.3, 0.3001, False, False),
        (1, 1 + 1e-12, False, True),
        (math.nan, math.nan, False, True),
        (1.0, math.nan, False, False),
        (math.inf, math.inf, True, True),
        (math.inf, 1e308, False, False),
        ({1, 2}, {2, 1}, True, True),
        ({1, 2}, [1, 2], False, False),
        ("a", b"a", False, False),
        (None, 0, False, False),
        ([1, 2], deque([1, 2]), False, False),
        (10**400, 1.0, False, False),
        (1.0, 10**400, False, False),
        ({"a": [1.0]}, {"a": [1.0 + 1e-12]}, False, True),
    ],
)
def test_values_by_rule(expected: Any, got: Any, asserted: bool, json: bool) -> None:
    assert ASSERTED.same(expected, got) is asserted
    assert JSON.same(expected, got) is json
