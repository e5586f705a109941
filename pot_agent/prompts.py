"""A problem and its history as chat messages within a budget of tokens; and a completion as a program.

What gives way when the budget is short, in this order: the oldest thoughts, whole pairs of program and feedback; the
newest thought's feedback beyond its first line; the end of its program; tests, beyond the first. The statement is never
cut: where it does not fit, that is an error.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pot_agent.errors import ContextLengthError
from pot_agent.policy.base import Message
from pot_agent.problem import AssertTest, CallTest, Problem, StdinTest, Test, parse_tests, test_to_dict
from pot_agent.programs import Extracted, extract_program
from pot_agent.sandbox.text import show
from pot_agent.statement import find_examples

__all__ = ["Attempt", "BuiltPrompt", "Extracted", "build_messages", "extract_program"]

MAX_CHARACTERS_PER_TOKEN = 128
"""No tokenizer in common use has a longer token; text beyond `limit * this` cannot fit, and is not even counted."""
MAX_TEST_CHARACTERS = 1_000
"""A longer test is shown cut."""
MAX_TESTS = 50
"""Tests shown at most."""
CUT = " ... (cut)"

SYSTEM = "You are an expert Python programmer."
ASK = "Write one complete Python program in a ```python block."
ASK_TO_COMPLETE = "Complete this Python function. Write the whole program in a ```python block."
ASK_AGAIN = "Fix the program. Write the complete corrected Python program in a ```python block."

Count = Callable[[str | list[Message]], int]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One thought of the history: a program and what running it showed."""

    program: str
    feedback: str


@dataclass(frozen=True, kw_only=True)
class BuiltPrompt:
    """Messages for the policy."""

    messages: list[Message]
    tokens: int
    dropped: int
    """Thoughts of the history that did not fit."""


def build_messages(
    problem: Problem,
    history: Sequence[Attempt],
    *,
    max_tokens: int,
    count: Count,
    feedback_tokens: int = 200,
) -> BuiltPrompt:
    """The prompt of a node: the problem, and the thoughts from the root to it, the oldest first.

    `count` gives the tokens of a text or of messages. Raises `ContextLengthError` where the statement alone is longer
    than `max_tokens`.
    """
    least = len(problem.text) // MAX_CHARACTERS_PER_TOKEN
    if least > max_tokens:
        raise _too_long(f"{least:,} tokens or more ({len(problem.text):,} characters)", max_tokens, least)
    shortened = [Attempt(program=a.program, feedback=_cut(a.feedback, feedback_tokens, count)) for a in history]
    for messages, dropped in _candidates(problem, shortened):
        tokens = count(messages)
        if tokens <= max_tokens:
            return BuiltPrompt(messages=messages, tokens=tokens, dropped=dropped)
    raise _too_long(f"{tokens:,} tokens", max_tokens, tokens)


def _too_long(has: str, limit: int, tokens: int) -> ContextLengthError:
    return ContextLengthError(
        f"the statement has {has} with its instructions, and the prompt may have {limit:,}: shorten it, raise "
        "max_prompt_tokens, or take a model with a longer context",
        value=tokens,
    )


def _candidates(problem: Problem, history: Sequence[Attempt]) -> Iterator[tuple[list[Message], int]]:
    """Prompts from the fullest to the barest, each with the number of thoughts left out."""
    tests = problem.tests[:MAX_TESTS]
    for start in range(len(history)):
        yield _messages(problem, tests, history[start:]), start
    for newest in history[-1:]:
        first_line = newest.feedback.strip().partition("\n")[0]
        lines = newest.program.splitlines()
        for tests_shown in (tests, tests[:1]):
            for kept in (len(lines), len(lines) // 2, len(lines) // 4):
                program = newest.program if kept == len(lines) else "\n".join([*lines[:kept], "# ... (cut)"])
                attempt = Attempt(program=program, feedback=first_line)
                yield _messages(problem, tests_shown, [attempt]), len(history) - 1
    shown = len(tests)
    while shown > 0:
        yield _messages(problem, tests[:shown], []), len(history)
        shown //= 2
    yield _messages(problem, (), []), len(history)


def _messages(problem: Problem, tests: Sequence[Test], history: Sequence[Attempt]) -> list[Message]:
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": _task(problem, tests)},
    ]
    for attempt in history:
        fence = _fence_around(attempt.program)
        program = attempt.program.rstrip("\n")
        messages.append({"role": "assistant", "content": f"{fence}python\n{program}\n{fence}"})
        messages.append({"role": "user", "content": f"{attempt.feedback.strip()}\n\n{ASK_AGAIN}"})
    return messages


def _task(problem: Problem, tests: Sequence[Test]) -> str:
    """The first message: statement, starter code, tests, and what to write."""
    text, starter_code = problem.text.strip("\n"), problem.starter_code.strip()
    shows_tests = problem.tests and not _are_in_statement(problem)
    examples = [_tests_text(problem, tests)] if shows_tests else []
    if starter_code and starter_code == text.strip():  # the statement is code; small models want to be told so first
        return "\n\n".join([ASK_TO_COMPLETE, _block(text, "python"), *examples])
    if starter_code and starter_code not in text:
        examples.insert(0, f"Start from this code:\n{_block(starter_code, 'python')}")
    return "\n\n".join([text, *examples, ASK])


def _are_in_statement(problem: Problem) -> bool:
    """Whether the statement shows every test itself, so that they need not be repeated."""
    if problem.evidence == "examples":
        return True
    found = find_examples(problem.text, entry_point=problem.entry_point).tests
    shown = [test_to_dict(test) for test in parse_tests(found)]
    return all(_plainly(test_to_dict(test)) in map(_plainly, shown) for test in problem.tests)


def _plainly(test: dict[str, Any]) -> dict[str, Any]:
    """A test as data, its code as Python itself would write it."""
    return test | {"code": ast.unparse(ast.parse(test["code"]))} if test["type"] == "assert" else test


def _tests_text(problem: Problem, tests: Sequence[Test]) -> str:
    shown = [_test_text(test, problem.entry_point) for test in tests if not isinstance(test, StdinTest)]
    text = f"It must pass these tests:\n{_block(chr(10).join(shown), 'python')}" if shown else ""
    for test in tests:
        if isinstance(test, StdinTest):
            given, wanted = _short(test.input.rstrip("\n")), _short(test.output.rstrip("\n"))
            text += f"\n\nInput:\n{_block(given)}\nOutput:\n{_block(wanted)}"
    hidden = len(problem.tests) - len(tests)
    if any(isinstance(test, StdinTest) for test in problem.tests):
        text = f"The program reads standard input and prints to standard output.{text}"
    return text.strip() + (f"\n({hidden} more tests are not shown.)" if hidden else "")


def _test_text(test: AssertTest | CallTest, entry_point: str | None) -> str:
    if isinstance(test, AssertTest):
        return _short(test.code.strip())
    arguments = [_shown(value) for value in test.args]
    arguments += [f"{name}={_shown(value)}" for name, value in test.kwargs.items()]
    return _short(f"assert {entry_point}({', '.join(arguments)}) == {_shown(test.expected)}")


def _shown(value: Any) -> str:
    """A value as Python writes it; Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(value)
    except ValueError:
        return show(value, MAX_TEST_CHARACTERS)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEST_CHARACTERS else text[:MAX_TEST_CHARACTERS] + CUT


def _block(text: str, language: str = "") -> str:
    fence = _fence_around(text)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def _fence_around(text: str) -> str:
    """A fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence


def _cut(text: str, limit: int, count: Count) -> str:
    """The text cut to `limit` tokens, the mark included."""
    text = text[: limit * MAX_CHARACTERS_PER_TOKEN]
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle] + CUT) <= limit else (low, middle - 1)
    return text[:low] + CUT if low else ""
