"""Examples found in statements: what is found, and what is left alone because it could be read in two ways."""

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pot_agent.problem import parse_tests
from pot_agent.statement import find_examples


def codes(statement: str, **options: Any) -> list[str]:
    return [test["code"] for test in find_examples(statement, **options).tests]


def stub(body: str, signature: str = "f(x)") -> str:
    return f'def {signature}:\n    """{body}\n    """\n'


class TestDoctests:
    def test_a_doctest_becomes_an_assertion_and_its_function_the_entry_point(self) -> None:
        found = find_examples("Write add.\n\n>>> add(1, 2)\n3\n>>> add('a', 'b')\n'ab'\n")
        assert [test["code"] for test in found.tests] == ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]
        assert found.entry_point == "add"

    @pytest.mark.parametrize(
        ("want", "code"),
        [
            ("0.5", "assert f(1) == 0.5"),
            ("-2", "assert f(1) == -2"),
            ("True", "assert f(1) == True"),
            ("None", "assert f(1) is None"),
            ("'a b'", "assert f(1) == 'a b'"),
            ("[1,\n 2]", "assert f(1) == [1, 2]"),
            ("{'a': (1, {2})}", "assert f(1) == {'a': (1, {2})}"),
        ],
    )
    def test_any_literal_is_a_result(self, want: str, code: str) -> None:
        assert codes(f">>> f(1)\n{want}\n") == [code]

    def test_a_call_over_several_lines_is_read_whole(self) -> None:
        assert codes(">>> f([1,\n...    2],\n...   k=3)\n6\n") == ["assert f([1, 2], k=3) == 6"]

    def test_a_comment_after_the_call_is_no_part_of_it(self) -> None:
        assert codes(">>> round(f([1, 2]), 2) # f(x) = 1 + 2x\n-0.5\n") == ["assert round(f([1, 2]), 2) == -0.5"]

    def test_a_comparison_is_the_assertion_itself(self) -> None:
        assert codes(">>> f([]) == 0\n>>> f([1]) == 2\nTrue\n>>> f([3]) == 5\nFalse\n") == [
            "assert f([]) == 0",
            "assert f([1]) == 2",
            "assert not (f([3]) == 5)",
        ]

    def test_what_is_printed_is_compared_as_text(self) -> None:
        assert codes(">>> print(f(1))\n1, 2\n") == ["assert str(f(1)) == '1, 2'"]

    def test_a_missing_result_is_none_only_where_the_statement_says_so(self) -> None:
        examples = ">>> f([])\n\n>>> f([2])\n2\n"
        assert codes(f"Return None for an empty list.\n{examples}") == ["assert f([]) is None", "assert f([2]) == 2"]
        assert codes(examples) == ["assert f([2]) == 2"]

    def test_a_variable_given_a_literal_stands_for_it_until_a_call_may_have_changed_it(self) -> None:
        assert codes(">>> xs = [2, 1]\n>>> f(xs)\n1\n>>> f(xs)\n0\n") == ["assert f([2, 1]) == 1"]

    @pytest.mark.parametrize(
        "doctest",
        [
            ">>> f(1)\nTraceback (most recent call last):\nValueError: no\n",
            ">>> f(1)\nhello\n",
            ">>> f(1)\n<object at 0x7f>\n",
            ">>> f(1)\n[1, ..., 9]\n",
            ">>> f(open('x'), y)\n3\n",
            ">>> f(1)  # doctest: +SKIP\n3\n",
            ">>> f(1) [0, 1]\n",
            ">>> f(1\n3\n",
        ],
    )
    def test_what_cannot_be_compared_is_left_out(self, doctest: str) -> None:
        assert codes(doctest) == []


class TestAssertions:
    def test_assert_lines_are_found_over_one_line_or_several(self) -> None:
        text = "Your code should pass:\nassert f(1) == 2\nassert f(\n    [1,\n     2]\n) == 3\n"
        assert codes(text) == ["assert f(1) == 2", "assert f([1, 2]) == 3"]

    def test_helpers_of_the_statements_own_code_may_be_called(self) -> None:
        text = (
            "def enc(s):\n    return s[::-1]\n\n\ndef dec(s):\n    '''Undo enc.'''\n\nassert dec(enc('ab')) == 'ab'\n"
        )
        found = find_examples(text)
        assert found.entry_point == "dec"
        assert [test["code"] for test in found.tests] == ["assert dec(enc('ab')) == 'ab'"]

    def test_math_is_imported_where_an_assertion_needs_it(self) -> None:
        assert codes("assert math.isclose(f(2), 1.5)") == ["import math\nassert math.isclose(f(2), 1.5)"]

    @pytest.mark.parametrize("line", ["assert x > 0", "assert f(x) == 1", "assert is_sorted", "assert f(1) == g(2)"])
    def test_an_assertion_that_does_not_stand_alone_is_left_out(self, line: str) -> None:
        assert codes(line) == []

    def test_two_functions_are_no_entry_point(self) -> None:
        assert find_examples("assert f(1) == 2\nassert g(1) == 2").entry_point is None


class TestProse:
    @pytest.mark.parametrize(
        "line",
        [
            "f(3) == 9",
            "f(3) => 9",
            "f(3) ==> 9",
            "f(3) -> 9",
            "f(3) ➞ 9",
            "f(3) = 9",
            "f(3) returns 9",
            "f(3) should return 9.",
            "* f(3) -> 9",
            "`f(3)` returns `9`.",
            "f(3)   # returns 9",
            "f(3) # => 9",
            "For example, f(3) == 9 because 3 * 3 is 9.",
            "f(3) -> 3 + 6 = 9",
            "f(3) => 9 (the square)",
            "for f(3) == 9",
            "For x = 3 the output should be 9.",
            "Example:\n        Input: 3\n        Output: 9",
            "Example 1:\n        Input: x = 3\n        Output: 9 # 3 * 3\n        Explanation: 3 * 3",
        ],
    )
    def test_an_example_in_running_text_is_found(self, line: str) -> None:
        assert codes(stub(f"Square.\n\n    {line}\n    More text.")) == ["assert f(3) == 9"]

    @pytest.mark.parametrize(
        "line",
        [
            "f(x) == 9",
            "f(3) -> the square",
            "f(3) == 9 or 10",
            "f(3) returns 1, 2",
            "f(3) returns 3 and 6",
            "not f(3) == 9",
            "2 * f(3) == 18",
            "if f(3) == 9 then stop",
            "len(f(3)) == 9",
            "g.f(3) == 9",
            "f(3) == 9 * 2",
            "f(3) -> (9)",
            "f(3) == ''9'",
            "f(3) should not return 9",
            "f(3) returns 9\n    elements of the list",
            "f([3) == 9",
            "f(3) -> [1, ..., 9]",
            "For y = 3 the output should be 9.",
            "Input: y = 3\n    Output: 9",
            "Input: 3, 4\n    Output: 9",
        ],
    )
    def test_what_can_be_read_in_two_ways_is_left_out(self, line: str) -> None:
        assert codes(stub(f"Square.\n\n    {line}")) == []

    def test_a_recurrence_makes_its_examples_doubtful(self) -> None:
        text = stub("f(1) = 3\n    f(x) = f(x - 1) + 1\n    f(4) = 6\n    f(5) == 7")
        assert codes(text) == ["assert f(5) == 7"]

    def test_json_names_are_pythons(self) -> None:
        assert codes(stub("f([true, null]) => false")) == []
        assert codes(stub("f(1) => false")) == ["assert f(1) == False"]

    def test_examples_that_contradict_each_other_are_left_out(self) -> None:
        assert codes(stub("f(1) == 2\n    f(1) == 3\n    f(2) == 4")) == ["assert f(2) == 4"]

    def test_an_example_that_is_given_twice_counts_once(self) -> None:
        assert codes(stub(">>> f(1)\n    2\n\n    f(1) == 2")) == ["assert f(1) == 2"]

    def test_without_a_stub_one_function_is_clear_and_two_are_not(self) -> None:
        assert find_examples("Write a function. Examples: area(2, 3) == 6").entry_point == "area"
        assert codes("side(2) == 6 and area(3) == 9.") == []
        assert codes("area(2) = 6") == []

    def test_examples_keep_the_order_of_the_statement(self) -> None:
        assert codes(stub("f(3) == 4\n    >>> f(1)\n    2\n\n    f(0) -> 1")) == [
            "assert f(3) == 4",
            "assert f(1) == 2",
            "assert f(0) == 1",
        ]


class TestStubs:
    def test_the_last_function_without_a_body_is_the_entry_point_and_helpers_stay(self) -> None:
        code = "import math\n\n\ndef poly(x):\n    return math.pow(x, 2)\n\n\ndef find_zero(xs):\n    '''Find it.'''\n"
        found = find_examples(code)
        assert found.entry_point == "find_zero"
        assert found.starter_code == code

    @pytest.mark.parametrize("body", ["pass", "...", "raise NotImplementedError", "'''Doc.'''", "# write it here", ""])
    def test_a_function_that_does_nothing_is_a_stub(self, body: str) -> None:
        assert find_examples(f"def f(a, b):\n    {body}").entry_point == "f"

    def test_a_stub_is_found_in_a_fence_and_in_running_text(self) -> None:
        fenced = "Complete it:\n```python\nimport re\n\ndef f(x):\n    pass\n```\nThank you."
        assert find_examples(fenced).starter_code == "import re\n\ndef f(x):\n    pass\n"
        plain = "Complete this function.\n\ndef f(x):\n    '''Double x.'''\n\nIt must be fast."
        assert find_examples(plain).starter_code == "def f(x):\n    '''Double x.'''\n"

    @pytest.mark.parametrize("text", ["def main():\n    pass", "def f(x):\n    return x", "a default is given", "def"])
    def test_a_program_start_or_a_finished_function_is_no_stub(self, text: str) -> None:
        assert find_examples(text).entry_point is None

    def test_a_method_of_class_solution_is_called_with_plain_values(self) -> None:
        text = (
            "Two sum.\n\nExample 1:\n\nInput: nums = [2,7,11,15], target = 9\nOutput: [0,1]\nExplanation: It is 9.\n\n"
            "Example 2:\nInput: nums = [3,3], target = 6\nOutput: [0,1]\n\n"
            "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        "
        )
        found = find_examples(text)
        assert found.entry_point == "twoSum"
        assert found.tests == (
            {"type": "call", "args": [[2, 7, 11, 15], 9], "expected": [0, 1]},
            {"type": "call", "args": [[3, 3], 6], "expected": [0, 1]},
        )
        assert parse_tests(found.tests)

    @pytest.mark.parametrize(
        "signature", ["root(self, x: Optional[TreeNode]) -> int", "turn(self, x: List[int]) -> None"]
    )
    def test_what_takes_a_node_or_works_in_place_has_no_examples(self, signature: str) -> None:
        text = f"Example:\nInput: x = [1,2]\nOutput: [2,1]\n\nclass Solution:\n    def {signature}:\n        pass"
        assert find_examples(text).tests == ()


JUNK = ["f(", ">>> f(1)\n", "assert (\n", "assert f([\n", "(", "[", "'", "\\", "`", "```\n", "Input\n", "Input:\n1\n"]
JUNK += ["Sample Input\n1\n\nSample Output\n", "For x = 1 the output should be ", "def f(x):\n", "- ", "\n", "\t"]
JUNK += ["~~~\n", "f(1) = 1 + ", "lambda:", "not ", "a.", "f(1) == 2\n"]
JUNK += ["input" + "\t" * 4_000 + "\n", "absolute error 10" + " " * 900]


@pytest.mark.parametrize("piece", JUNK, ids=lambda piece: repr(piece[:20]))
def test_a_long_statement_of_junk_is_read_to_its_end(piece: str) -> None:
    for start in ("", "def f(x):\n    '''doc'''\n"):
        found = find_examples(start + piece * (200_000 // len(piece)))
        assert len(found.tests) <= 1


WORDS = ["f(1)", " == ", " -> ", "2", "[1, 2]", "\n", ">>> ", "assert ", "Sample Input\n", "Output: ", "Input: x = 1"]
WORDS += [
    "```\n",
    "def f(x):\n",
    "    '''",
    "class Solution:\n",
    " ",
    "(",
    "]",
    "'",
    "x",
    "for ",
    "returns ",
    "# ",
    "...",
]
PIECES = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.one_of(PIECES, st.text(max_size=300)))
def test_whatever_is_found_can_be_read_as_tests(statement: str) -> None:
    found = find_examples(statement)
    assert len(parse_tests(found.tests)) == len(found.tests)
    assert found.entry_point is None or found.entry_point.isidentifier()


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(LITERALS, LITERALS)
def test_an_example_means_what_it_was_written_from(argument: Any, value: Any) -> None:
    found = codes(f"Write it.\n\n>>> f({argument!r})\n{value!r}\n")
    assert len(found) == 1
    test = ast.parse(found[0]).body[0].test  # type: ignore[attr-defined]
    assert ast.literal_eval(test.left.args[0]) == argument
    assert ast.literal_eval(test.comparators[0]) == value
