"""Prompts within a budget of tokens, and programs out of what a model wrote."""

import string
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pot_agent.errors import ContextLengthError
from pot_agent.policy.base import Message
from pot_agent.problem import Problem
from pot_agent.prompts import ASK, ASK_TO_COMPLETE, SYSTEM, Attempt, BuiltPrompt, build_messages, extract_program

ADD = Problem.parse("Write add.", tests=["assert add(1, 2) == 3", "assert add(2, 2) == 4"])
SUM = Problem.parse("Print the sum.", tests=[{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}])


def count(content: str | Sequence[Message]) -> int:
    """Words as tokens, and three for each message: the shape of a real tokenizer's count, in whole numbers."""
    if isinstance(content, str):
        return len(content.split())
    return sum(3 + len(message["content"].split()) for message in content)


def build(problem: Problem, history: Sequence[Attempt] = (), *, max_tokens: int = 1_000, **options: Any) -> BuiltPrompt:
    built = build_messages(problem, history, max_tokens=max_tokens, count=count, **options)
    assert built.tokens == count(built.messages) <= max_tokens
    assert [message["role"] for message in built.messages[:2]] == ["system", "user"]
    assert built.messages[-1]["role"] == "user"
    assert problem.text.strip("\n") in built.messages[1]["content"]
    return built


def attempts(number: int, *, words: int = 20) -> list[Attempt]:
    return [
        Attempt(program=f"def add(a, b):\n    return {i}\n", feedback=f"wrong {i}\n" + "why " * words)
        for i in range(number)
    ]


def all_text(built: BuiltPrompt) -> str:
    return "\n".join(message["content"] for message in built.messages)


class TestTask:
    def test_it_says_the_statement_the_tests_and_what_to_write(self) -> None:
        built = build(ADD)
        task = built.messages[1]["content"]
        assert built.messages[0]["content"] == SYSTEM
        assert task.startswith("Write add.")
        assert "```python\nassert add(1, 2) == 3\nassert add(2, 2) == 4\n```" in task
        assert task.endswith(ASK)

    def test_starter_code_is_shown_once(self) -> None:
        stub = "def add(a, b):\n    pass\n"
        assert all_text(build(Problem.parse("Write add.", starter_code=stub))).count(stub.strip()) == 1
        assert all_text(build(Problem.parse(f"Complete it:\n{stub}", starter_code=stub))).count(stub.strip()) == 1

    def test_a_statement_that_is_code_is_fenced_and_said_to_be_one_to_complete(self) -> None:
        stub = "def add(a, b):\n    '''Add.\n    >>> add(1, 2)\n    3\n    '''\n"
        task = build(Problem.parse(stub)).messages[1]["content"]
        assert task == f"{ASK_TO_COMPLETE}\n\n```python\n{stub}```"

    def test_given_tests_are_shown_unless_the_statement_shows_every_one_of_them(self) -> None:
        stub = "def add(a, b):\n    '''Add.\n    >>> add(1, 2)\n    3\n    '''\n"
        known, new = "assert add(1,2)==3", "assert add(2, 2) == 4"
        assert known not in all_text(build(Problem.parse(stub, tests=[known])))
        assert new in all_text(build(Problem.parse(stub, tests=[known, new])))

    def test_examples_that_stand_in_the_statement_are_not_repeated(self) -> None:
        assert all_text(build(Problem.parse("Write add.\n>>> add(1, 2)\n3\n"))).count("add(1, 2)") == 1

    def test_stdin_samples_are_shown_as_they_are(self) -> None:
        assert "Input:\n```\n1 2\n```\nOutput:\n```\n3\n```" in all_text(build(SUM))

    def test_call_tests_are_shown_as_calls(self) -> None:
        problem = Problem.parse("f", entry_point="f", tests=[{"args": [1], "kwargs": {"k": "x"}, "expected": [2]}])
        assert "assert f(1, k='x') == [2]" in all_text(build(problem))

    def test_a_long_test_is_cut_and_the_rest_of_many_is_counted(self) -> None:
        tests = [{"input": "7 " * 9_000, "output": "1"}] + [{"input": str(i), "output": str(i)} for i in range(99)]
        text = all_text(build(Problem.parse("Print.", tests=tests), max_tokens=5_000))
        assert "... (cut)" in text
        assert "(50 more tests are not shown.)" in text

    def test_tests_give_way_before_the_statement_does(self) -> None:
        problem = Problem.parse("word " * 60, tests=[f"assert f({i}) == {i}" for i in range(40)])
        text = all_text(build(problem, max_tokens=110))
        assert "assert f(0) == 0" in text
        assert "more tests are not shown" in text

    def test_a_fence_in_the_text_does_not_end_its_block(self) -> None:
        problem = Problem.parse("Print it.", tests=[{"input": "```\n", "output": "x"}])
        assert "````\n```\n````" in all_text(build(problem))


class TestHistory:
    def test_thoughts_come_oldest_first_as_turns(self) -> None:
        built = build(ADD, attempts(2))
        assert [message["role"] for message in built.messages] == ["system", "user", *["assistant", "user"] * 2]
        assert built.messages[2]["content"] == "```python\ndef add(a, b):\n    return 0\n```"
        assert built.messages[3]["content"].startswith("wrong 0\nwhy why")
        assert "return 1" in built.messages[4]["content"]
        assert built.dropped == 0

    def test_the_oldest_pairs_go_first_and_are_counted(self) -> None:
        full = build(ADD, attempts(5)).tokens
        built = build(ADD, attempts(5), max_tokens=full - 1)
        assert built.dropped == 1
        assert "return 0" not in all_text(built)
        assert "return 1" in all_text(built)
        assert "return 4" in all_text(built)

    def test_the_newest_thought_stays_to_the_last(self) -> None:
        bare = build(ADD).tokens
        for most in range(bare + 30, build(ADD, attempts(5)).tokens):
            assert "return 4" in all_text(build(ADD, attempts(5), max_tokens=most))

    def test_then_its_feedback_is_cut_to_its_first_line_and_then_its_program(self) -> None:
        short = build(ADD, attempts(1, words=0)).tokens
        built = build(ADD, attempts(1, words=90), max_tokens=short)
        assert "wrong 0" in all_text(built)
        assert "why" not in all_text(built)
        long = Attempt(program="\n".join(f"x = {i}" for i in range(100)), feedback="wrong")
        text = all_text(build(ADD, [long], max_tokens=short + 160))
        assert "x = 0\n" in text
        assert "# ... (cut)" in text
        assert "x = 99" not in text

    def test_feedback_has_its_own_limit(self) -> None:
        feedback = build(ADD, attempts(1, words=500), feedback_tokens=50).messages[3]["content"].split("\n\n")[0]
        assert count(feedback) == 50
        assert feedback.endswith("... (cut)")
        assert "why" not in all_text(build(ADD, attempts(1), feedback_tokens=0))

    @settings(max_examples=100, deadline=None)
    @given(st.integers(40, 400), st.integers(0, 8), st.integers(0, 60))
    def test_whatever_the_budget_the_prompt_fits(self, most: int, number: int, words: int) -> None:
        built = build(ADD, attempts(number, words=words), max_tokens=most)
        assert (len(built.messages) - 2) // 2 == number - built.dropped


class TestTooLong:
    def test_a_statement_that_does_not_fit_names_the_limit_its_length_and_what_to_do(self) -> None:
        with pytest.raises(ContextLengthError, match=r"3,0\d\d tokens .* may have 1,000: shorten it") as caught:
            build(Problem.parse("word " * 3_000), max_tokens=1_000)
        assert caught.value.value > 3_000

    def test_a_very_long_statement_is_refused_without_counting_it(self) -> None:
        def never(content: Any) -> int:
            raise AssertionError("counted")

        with pytest.raises(ContextLengthError, match=r"7,812 tokens or more \(1,000,000 characters\)"):
            build_messages(Problem.parse("x" * 1_000_000), [], max_tokens=2_048, count=never)


def extracted(completion: str, problem: Problem = ADD) -> str:
    return extract_program(completion, problem).program


class TestExtract:
    @pytest.mark.parametrize(
        "completion",
        [
            "```python\nx = 1\n```",
            "Here it is:\n\n```py\nx = 1\n```\nIt works.",
            "~~~python\nx = 1\n~~~",
            "```\nx = 1\n```",
            "```Python3\nx = 1\n```",
            "````python\nx = 1\n````",
            "1. First:\n   ```python\n   x = 1\n   ```\n",
            "```python\ny = 2\n```\nBetter:\n```python\nx = 1\n```",
            "```python\nx = 1\n```\nThis prints:\n```\n3\n```",
            "```python\nx = 1\n```\nRun it:\n```bash\npython add.py\n```",
            "```python\nx = 1\n```\nthen\n```text\nx = 2\n```\n```json\n{}\n```",
            "```python\nx = 1\n```\nUnfinished:\n```python\nx = (",
            "<think>\n```python\ny = 2\n```\n</think>\n```python\nx = 1\n```",
            "so y it is\n</think>\n\n```python\nx = 1\n```",
            "```python\ny = (\n```python\nx = 1\n```",
            "```python\r\nx = 1\r\n```\r\n",
            "```python\nx = 1",
            "x = 1",
            "\ufeffx = 1\n\n\n",
        ],
    )
    def test_the_last_complete_python_block_is_the_program_else_what_there_is(self, completion: str) -> None:
        assert extracted(completion) == "x = 1\n"

    def test_a_block_that_defines_the_function_is_preferred_to_one_that_uses_it(self) -> None:
        answer = "```python\ndef add(a, b):\n    return a + b\n```\nUse it:\n```python\nprint(add(1, 2))\n```"
        assert extracted(answer) == "def add(a, b):\n    return a + b\n"
        assert extracted(answer, SUM) == "print(add(1, 2))\n"

    def test_a_function_whose_name_begins_alike_is_another_function(self) -> None:
        answer = "```python\ndef add(a, b):\n    return 3\n```\n```python\ndef add_all(xs):\n    return 3\n```"
        assert extracted(answer).startswith("def add(")

    def test_a_form_feed_in_a_string_is_no_end_of_line(self) -> None:
        assert extracted("```python\nx = '\x0c\u2028'\n```") == "x = '\x0c\u2028'\n"

    def test_lone_surrogates_are_cleaned_and_null_bytes_stay_for_the_sandbox_to_refuse(self) -> None:
        program = extracted("```python\nx = '\ud800\x00'\n```")
        assert program.encode()
        assert "\x00" in program

    def test_a_thought_that_never_ended_holds_no_program(self) -> None:
        assert extracted("<think>\n```python\nx = 1\n```\nbut then") == "\n"

    def test_a_program_has_a_longest_length(self) -> None:
        found = extract_program("```python\n" + "x = 1\n" * 100_000 + "```", ADD)
        assert len(found.program) <= 200_001
        assert "cut at 200,000 characters" in found.reason

    def test_the_reason_says_how_it_was_found(self) -> None:
        for completion, reason in (
            ("```python\nx = 1\n```", "block"),
            ("```python\nx = 1\n", "unterminated block"),
            ("x = 1", "whole text"),
        ):
            assert extract_program(completion, ADD).reason == reason


HELPED = Problem.parse(
    "import math\nfrom typing import List\n\nBASE = 10\n\n\ndef helper(x):\n    return math.floor(x)\n\n\n"
    "def solve_it(xs: List[int]):\n    '''Floor them.'''\n"
)


class TestStarterCode:
    def test_helpers_above_the_stub_are_put_back(self) -> None:
        program = extracted("```python\ndef solve_it(xs):\n    return [helper(x) for x in xs]\n```", HELPED)
        space: dict[str, Any] = {}
        exec(program, space)
        assert space["solve_it"]([1.5, BASE_VALUE]) == [1, 10]
        assert space["BASE"] == BASE_VALUE

    def test_what_the_program_defines_itself_is_not_put_back(self) -> None:
        own = "import math\nfrom typing import List\nBASE = 2\ndef helper(x):\n    pass\ndef solve_it(xs):\n    pass\n"
        assert extracted(f"```python\n{own}```", HELPED) == own

    @pytest.mark.parametrize("body", ["    return [helper(x) for x in xs]", "return [helper(x) for x in xs]"])
    def test_a_body_alone_gets_its_head_back(self, body: str) -> None:
        for completion in (f"```python\n{body}\n```", body):
            space: dict[str, Any] = {}
            exec(extracted(completion, HELPED), space)
            assert space["solve_it"]([2.5]) == [2]

    def test_a_body_of_a_method_gets_its_class_back(self) -> None:
        starter = "class Solution:\n    def twice(self, x: int) -> int:\n        "
        problem = Problem.parse("Twice.", starter_code=starter, tests=[{"args": [2], "expected": 4}])
        space: dict[str, Any] = {}
        exec(extracted("```python\nreturn 2 * x\n```", problem), space)
        assert space["Solution"]().twice(2) == 4

    def test_future_imports_stay_first(self) -> None:
        code = "from __future__ import annotations\ndef solve_it(xs):\n    return helper(1.5)\n"
        program = extracted(f"```python\n{code}```", HELPED)
        space: dict[str, Any] = {}
        exec(program, space)
        assert space["solve_it"]([]) == 1

    def test_a_program_that_does_not_parse_or_lacks_the_function_stays_as_it_is(self) -> None:
        assert extracted("```python\ndef solve_it(xs:\n```", HELPED) == "def solve_it(xs:\n"
        assert "print(1)" in extracted("```python\nprint(1)\n```", HELPED)


BASE_VALUE = 10

TEXT = st.lists(
    st.sampled_from(["```", "~~~", "python", "\n", "def add(a, b):", "    return 1", "x = 1", "<think>", "</think>"])
    | st.text(string.printable, max_size=5),
    max_size=25,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.one_of(TEXT, st.text(max_size=100)), st.sampled_from([ADD, SUM, HELPED]))
def test_whatever_a_model_writes_is_some_program(completion: str, problem: Problem) -> None:
    assert extract_program(completion, problem).program.endswith("\n")


@pytest.mark.parametrize("piece", ["```", "```\n", "```python\n", "~~~~", "`" * 999 + "\n", "</think>", "  ```x\n"])
def test_a_long_answer_of_junk_is_read_to_its_end(piece: str) -> None:
    assert extract_program(piece * (500_000 // len(piece)), HELPED).program
