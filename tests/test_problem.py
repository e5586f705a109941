"""Problems and their tests: what is read, what is refused and with which words, and that nothing is lost on the way."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pot_agent.errors import ProblemError
from pot_agent.problem import (
    MAX_TEXT_CHARACTERS,
    AssertTest,
    CallTest,
    Limits,
    Problem,
    StdinTest,
    decode_value,
    encode_value,
    load_problem,
    parse_tests,
    test_to_dict,
)

ADD = "assert add(1, 2) == 3"


class TestWhereTestsComeFrom:
    def test_given_tests_win_over_examples(self) -> None:
        problem = Problem.parse("Write add.\n>>> add(1, 1)\n2", tests=[ADD])
        assert problem.tests == (AssertTest(code=ADD),)
        assert problem.evidence == "given"
        assert problem.entry_point == "add"

    def test_without_given_tests_examples_are_found(self) -> None:
        problem = Problem.parse({"problem": "Write add.\n>>> add(1, 1)\n2", "tests": []})
        assert problem.tests == (AssertTest(code="assert add(1, 1) == 2"),)
        assert problem.evidence == "examples"

    def test_without_either_there_is_no_evidence(self) -> None:
        problem = Problem.parse("Write add.")
        assert (problem.tests, problem.evidence, problem.entry_point) == ((), "none", None)

    def test_tests_that_come_later_replace_what_was_found(self) -> None:
        found = Problem.parse("Write add.\n>>> add(1, 1)\n2")
        assert Problem.parse(found, tests=[ADD]).evidence == "given"
        assert Problem.parse(Problem.parse("Write add."), tests=[ADD]).evidence == "given"

    def test_fields_by_keyword_win_and_none_is_not_given(self) -> None:
        whole = {"problem": "Write add.", "setup": "import math", "tests": [ADD]}
        problem = Problem.parse(whole, setup=None, tests=None)
        assert problem.setup == "import math"
        assert Problem.parse(problem, setup="import re").setup == "import re"

    def test_a_problem_may_be_an_object_within_an_object_once(self) -> None:
        inner = {"problem": "Write add.", "entry_point": "add"}
        assert Problem.parse({"problem": inner, "tests": [ADD]}).tests == (AssertTest(code=ADD),)
        endless: dict[str, Any] = {}
        endless["problem"] = endless
        with pytest.raises(ProblemError, match="problem must be text"):
            Problem.parse(endless)


class TestStubs:
    STUB = "from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    '''Sum.'''\n"

    def test_the_statements_own_stub_is_the_starter_code(self) -> None:
        problem = Problem.parse(self.STUB, tests=["assert total([1]) == 1"])
        assert problem.entry_point == "total"
        assert problem.starter_code == self.STUB

    def test_a_stub_in_the_starter_code_names_the_function(self) -> None:
        solution = "class Solution:\n    def twoSum(self, nums, target):\n        "
        problem = Problem.parse("Two sum.", starter_code=solution, tests=[{"args": [[1, 2], 3], "expected": [0, 1]}])
        assert problem.entry_point == "twoSum"

    def test_a_stub_that_no_test_calls_is_not_the_function(self) -> None:
        assert Problem.parse(self.STUB, tests=["assert other(1) == 1"]).entry_point == "other"

    def test_a_program_that_reads_stdin_has_no_entry_point(self) -> None:
        problem = Problem.parse(self.STUB, tests=[{"input": "1", "output": "1"}])
        assert (problem.entry_point, problem.starter_code) == (None, "")

    def test_assertions_that_call_two_functions_name_none(self) -> None:
        assert Problem.parse("Write.", tests=["assert f(1) == g(1)"]).entry_point is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ("", "is empty"),
            ("  \n", "is empty"),
            ("a\x00b", "null byte at character 1"),
            ("a\ud800b", "lone surrogate at character 1"),
            ("x" * (MAX_TEXT_CHARACTERS * 2), "2,000,000 characters; the limit is 1,000,000"),
            (None, "a problem is text or an object"),
            ([], "a problem is text or an object"),
            ({}, "problem must be text"),
            ({"problem": 3}, "problem must be text, got 3"),
            ({"problem": "p", "test": []}, "no field 'test'; did you mean tests"),
            ({"problem": "p", "entrypoint": "f"}, "did you mean entry_point"),
            ({"problem": "p", "hidden_tests": []}, "hidden tests never enter a problem"),
            ({"problem": "p", "entry_point": "not a name"}, "entry_point must be the name of a function"),
            ({"problem": "p", "entry_point": "class"}, "entry_point must be the name of a function"),
            ({"problem": "p", "evidence": "hearsay"}, "evidence must be one of given"),
            ({"problem": "p", "limits": 3}, "limits must be an object"),
            ({"problem": "p", "limits": {"cpu": 1}}, "no such limit: cpu; there are cpu_seconds"),
            ({"problem": "p", "limits": {"cpu_seconds": -1}}, "cpu_seconds must be a number above 0, got -1"),
            ({"problem": "p", "limits": {"memory_mb": True}}, "memory_mb must be a number above 0, got True"),
        ],
    )
    def test_a_problem_that_cannot_be_read_says_what_is_wrong(self, given: Any, words: str) -> None:
        with pytest.raises(ProblemError, match=words):
            Problem.parse(given)

    @pytest.mark.parametrize(
        ("tests", "words"),
        [
            ("assert f(1) == 1", "tests are not JSON.*Give a list such as"),
            ("[" * 100_000, "tests are not JSON"),
            ("3", "tests must be a list, got int"),
            ('"assert f(1) == 1"', "tests must be a list, got str"),
            (3, "tests must be a list"),
            ([3], r"tests\[0\] must be an object or an assertion, got 3"),
            ([{"type": "fuzz"}], "no test kind 'fuzz'; use stdin .* call .* or assert"),
            ([{"type": ["stdin"]}], "no test kind"),
            ([{}], "no test kind None"),
            (["x = 1"], "there is no assert in 'x = 1'"),
            (["assert ("], "not Python"),
            ([""], "there is no assert"),
            ([{"code": 3}], r"tests\[0\].code must be text"),
            ([{"input": "1"}], r"tests\[0\].output must be text, got None"),
            ([{"input": 1, "output": "1"}], r"tests\[0\].input must be text, got 1"),
            ([{"input": "1", "output": "1", "compare": "near"}], "compare must be one of tokens"),
            ([{"input": "1", "output": "1", "rel": -1}], "rel must be a finite number"),
            ([{"input": "1", "output": "1", "expected": "2"}], "a stdin test has no expected; it has abs, checker"),
            ([{"args": [1]}], "a call test needs `expected`"),
            ([{"args": 1, "expected": 1}], "args must be a list"),
            ([{"args": [], "kwargs": [1], "expected": 1}], "kwargs must be an object"),
            ([{"args": [], "expected": 1, "abs": "1"}], "abs must be a finite number"),
            ([{"args": [{"$python": "open('x')"}], "expected": 1}], "not a Python literal"),
            ([{"args": [{"$python": 3}], "expected": 1}], "must be a Python literal as text, got 3"),
            ([{"args": [object()], "expected": 1}], "is not plain data"),
            ([{"args": [], "expected": "\ud800"}], "lone surrogate"),
        ],
    )
    def test_tests_that_cannot_be_read_say_what_is_wrong(self, tests: Any, words: str) -> None:
        with pytest.raises(ProblemError, match=words):
            Problem.parse("Write f.", tests=tests, entry_point="f")

    def test_call_tests_need_a_function(self) -> None:
        with pytest.raises(ProblemError, match="call tests need entry_point"):
            Problem.parse("Write it.", tests=[{"args": [1], "expected": 1}])

    def test_a_value_nested_without_end_is_refused(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(ProblemError, match="nested too deeply"):
            Problem.parse("Write f.", entry_point="f", tests=[{"args": [endless], "expected": 1}])

    def test_an_error_carries_the_value(self) -> None:
        with pytest.raises(ProblemError) as caught:
            parse_tests([{"type": "fuzz"}])
        assert caught.value.value == {"type": "fuzz"}


class TestKinds:
    def test_each_kind_is_read_with_its_defaults(self) -> None:
        assert parse_tests([{"type": "io", "input": "1\n", "output": "2\n", "origin": "sample"}]) == (
            StdinTest(input="1\n", output="2\n"),
        )
        assert parse_tests('[{"args": [1], "expected": 2}]') == (CallTest(args=(1,), expected=2),)
        assert parse_tests({"tests": [ADD]}) == parse_tests([{"code": ADD}]) == (AssertTest(code=ADD),)

    def test_long_inputs_are_data_and_no_statement(self) -> None:
        (test,) = parse_tests([{"input": "1 " * MAX_TEXT_CHARACTERS, "output": "\x00"}])
        assert len(test.input) == 2 * MAX_TEXT_CHARACTERS  # type: ignore[union-attr]

    def test_the_wall_limit_follows_the_cpu_limit_unless_it_is_given(self) -> None:
        assert Limits(cpu_seconds=2).wall == 5
        assert Limits.parse({"cpu_seconds": 2, "wall_seconds": 3}).wall == 3


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5)
    | st.complex_numbers(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$python"), inner, max_size=3)
    | st.frozensets(st.integers() | st.text(max_size=2), max_size=3)
    | st.sets(st.integers(), max_size=3),
    max_leaves=8,
)  # fmt: skip


class TestValues:
    @settings(max_examples=300, deadline=None)
    @given(PLAIN)
    def test_plain_data_survives_json(self, value: Any) -> None:
        read = decode_value(json.loads(json.dumps(encode_value(value), allow_nan=False)))
        assert read == value
        assert type(read) is type(value)

    @pytest.mark.parametrize("value", [math.nan, [math.nan], (1, math.nan), {"a": -math.inf}, [10**5000, -(10**5000)]])
    def test_what_json_cannot_say_survives_too(self, value: Any) -> None:
        read = decode_value(json.loads(json.dumps(encode_value(value), allow_nan=False)))
        assert encode_value(read) == encode_value(value)

    @pytest.mark.parametrize("value", [object(), (object(),), range(3), type("Liar", (int,), {})(1), {1: object}])
    def test_an_object_of_another_class_is_no_plain_data(self, value: Any) -> None:
        with pytest.raises(ProblemError, match="not plain data"):
            encode_value(value)


class TestRoundTrip:
    @pytest.mark.parametrize(
        "given",
        [
            "Write add.\n>>> add(1, 1)\n2",
            "Nothing to go by.",
            {"problem": TestStubs.STUB, "tests": ["assert total([1]) == 1"], "limits": {"cpu_seconds": 2}},
            {"problem": "Add.", "tests": [{"input": "1 2", "output": "3", "compare": "float", "rel": 0.1, "abs": 0}]},
            {"problem": "f", "entry_point": "f", "tests": [{"args": [{"$python": "(1, {2})"}], "expected": 1.5}]},
            {"problem": "f", "entry_point": "Solution.f", "tests": [{"kwargs": {"a": 1}, "expected": None}]},
        ],
    )
    def test_a_problem_as_json_is_the_same_problem(self, given: Any) -> None:
        problem = Problem.parse(given)
        assert Problem.parse(json.loads(json.dumps(problem.to_dict(), allow_nan=False))) == problem

    def test_each_test_as_json_is_the_same_test(self) -> None:
        tests = parse_tests([ADD, {"input": "", "output": "x"}, {"args": [b"1".decode()], "expected": [1]}])
        assert parse_tests([test_to_dict(test) for test in tests]) == tests


class TestFiles:
    def test_a_json_file_holds_the_fields_and_notes_for_people(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        notes = {"id": "A/1", "licence": "MIT", "source": "us"}
        path.write_text(json.dumps(notes | {"problem": "Write.", "tests": [ADD]}))
        assert load_problem(path) == load_problem(str(path)) == Problem.parse("Write.", tests=[ADD])

    @pytest.mark.parametrize("name", ["p.txt", "p.md", "p.py", "statement"])
    def test_any_other_file_is_a_statement(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("Write add.\n>>> add(1, 1)\n2\n")
        assert load_problem(tmp_path / name).entry_point == "add"

    def test_text_that_names_no_file_is_the_problem_itself(self) -> None:
        assert load_problem("Write add in Python.").text == "Write add in Python."
        assert load_problem('{"problem": "Write add.", "entry_point": "add"}').entry_point == "add"
        assert load_problem("{a} is a set: count it.").text == "{a} is a set: count it."

    def test_a_file_that_cannot_be_read_is_a_clear_error(self, tmp_path: Path) -> None:
        (tmp_path / "list.json").write_text("[1]")
        (tmp_path / "broken.json").write_text("{")
        (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
        for source, words in (
            (tmp_path / "list.json", "one object"),
            (tmp_path / "broken.json", "is not JSON"),
            (tmp_path / "binary.txt", "cannot be read"),
            (tmp_path, "a folder"),
            (str(tmp_path / "missing.json"), "no such file"),
            ("missing.txt", "no such file"),
        ):
            with pytest.raises(ProblemError, match=words):
                load_problem(source)

    def test_misspelt_json_text_is_refused_and_not_taken_for_a_statement(self) -> None:
        with pytest.raises(ProblemError, match="did you mean tests"):
            load_problem('{"problem": "Write add.", "test": []}')
