"""Which assertions repeat each other, which contradict each other, and what a grader's text comes apart into."""

import pytest

from pot_agent.bench.datasets.asserts import calls, contradicts, normalised, repeats, split_check


@pytest.mark.parametrize(
    ("code", "shown", "repeated"),
    [
        ("assert f([1,2]) == 3, 'no'", "assert f([1, 2]) == 3", True),
        ('assert f("a") == 1', "assert f('a') == 1", True),
        ("assert abs(f(1.5) - 0.5) < 1e-6", "assert f(1.5) == 0.5", True),
        ("assert f(1) == 1", "assert f(1) is True", True),
        ("assert f(1) == 2", "assert f(2) == 2", False),
        ("assert f(1) == f(2)", "assert f(1) == 1", False),
        ("assert f(1.0) == 1", "assert f(1) == 1", False),
        ("assert f(x) == 1", "assert f(1) == 1", False),
        ("for x in (1, 2):\n    assert f(1) == 1", "assert f(1) == 1", False),
        ("assert g(1) == 1", "assert f(1) == 1", False),
        ("assert g(f(1)) == 1", "assert f(1) == 1", True),
    ],
)
def test_an_assertion_repeats_those_that_make_its_calls(code: str, shown: str, repeated: bool) -> None:
    assert repeats(code, [shown], "f") is repeated


@pytest.mark.parametrize(
    ("shown", "graded", "wrong"),
    [
        ("assert f(1) == 15.0", "assert f(1) == 8.0", True),
        ("assert f(1) == 8", "assert f(1) == 8.0", False),
        ("assert f(1) == 15.0", "assert f(2) == 8.0", False),
        ("assert f(1) == 15.0", "assert abs(f(1) - 8.0) < 1", False),
        ("assert f(1) is None", "assert f(1) == 0", True),
        ("assert f(1) != 15.0", "assert f(1) == 8.0", False),
        ("assert f(1) == x", "assert f(1) == 8.0", False),
    ],
)
def test_only_a_plain_claim_of_another_value_is_a_contradiction(shown: str, graded: str, wrong: bool) -> None:
    assert contradicts(shown, [graded], "f") is wrong


CHECK = """
METADATA = {'author': 'x'}

def check(candidate):
    import math
    assert True, "nothing"
    base = 2
    other = [1]
    assert candidate(base) == math.sqrt(4), "message"
    other.append(3)
    assert candidate(other) == 1
    for n in range(3):
        assert candidate(n) == n
"""


def test_each_assertion_comes_with_what_it_uses() -> None:
    first, second, loop = split_check(CHECK, "f")
    assert first.splitlines()[-1] == "assert f(base) == math.sqrt(4), 'message'"
    assert "import math" in first
    assert "base = 2" in first
    assert "base" not in second
    assert second.splitlines() == ["other = [1]", "other.append(3)", "assert f(other) == 1"]
    assert loop.endswith("for n in range(3):\n    assert f(n) == n")


@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    assert helper(candidate",
        "def check(candidate, more):\n    assert candidate(1)",
        "def verify(candidate):\n    assert candidate(1)",
        "f = lambda: candidate\ndef check(candidate):\n    assert candidate(1)",
        "def check(candidate):\n    candidate(1)",
    ],
)
def test_a_grader_of_another_form_stays_whole(test: str) -> None:
    assert split_check(test, "f") == (f"{test}\n\ncheck(f)\n",)


def test_code_that_is_not_python_is_compared_as_text() -> None:
    assert normalised(" assert ( ") == "assert ("
    assert calls("assert (", "f") is None
