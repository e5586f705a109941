"""Tests that the model writes itself, from the statement alone: asking for them, and reading what it wrote.

They make rewards denser and prove nothing: no program is `solved` by them. What is kept is a question and one answer
(`assert f(1, 2) == 3` with literals, or an input and its output), so a test cannot fail by an error of its own.

Limits: what asks a visible test's question is dropped (it repeats it or contradicts it), and so is a question to which
the model gave two answers. Properties (`len(f(x)) == 3`), computed values (`10**9`) and tests of several functions are
not read. Whether an answer is right is unknown; `pot_agent.rewards.agreement` decides which of them count.
"""

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pot_agent.errors import ProblemError
from pot_agent.policy.base import Message
from pot_agent.problem import AssertTest, CallTest, Problem, StdinTest, Test, test_to_dict
from pot_agent.programs import without_thought
from pot_agent.prompts import SYSTEM
from pot_agent.pysource import find_stub, literal_value, parse_source
from pot_agent.sandbox.assertions import CANDIDATE
from pot_agent.sandbox.units import call_unit, stdin_unit
from pot_agent.statement.code import assert_examples
from pot_agent.statement.samples import samples

ASK_FOR_CALLS = (
    "Write {number} tests for the function `{name}`, one a line, each as `assert {name}(...) == ...`. "
    "Do not write the function."
)
ASK_FOR_INPUTS = (
    "Write {number} tests for this program, each as an input and the output that it must print. "
    "Do not write the program."
)
STUB = 'def double(x: int) -> int:\n    """ Return twice the number.\n    >>> double(4)\n    8\n    """'
PROSE = "Write a function that returns twice a number."
CALLS = "assert double(1) == 2\nassert double(0) == 0\nassert double(-3) == -6\nassert double(50) == 100"
PROGRAM = "Read an integer n and then n integers, and print their sum."
INPUTS = "Input:\n```\n3\n1 2 3\n```\nOutput:\n```\n6\n```\n\nInput:\n```\n1\n-5\n```\nOutput:\n```\n-5\n```"
"""Statements and tests of them, for an example turn: small models write programs unless they are shown."""


def is_askable(problem: Problem) -> bool:
    """Whether tests can be asked for: of one function, or of a program that reads standard input."""
    return _reads_stdin(problem) or problem.entry_point is not None


def request(problem: Problem, number: int) -> list[Message]:
    """Messages that ask for `number` tests; no visible test and no program is in them, beyond the statement's own."""
    statement = problem.text.strip("\n")
    if problem.starter_code.strip() and problem.starter_code.strip() not in statement:
        statement = f"{statement}\n\n{problem.starter_code.strip()}"
    if _reads_stdin(problem):
        ask, example, tests, shown = ASK_FOR_INPUTS, PROGRAM, INPUTS, 2
    else:
        ask, example, tests, shown = ASK_FOR_CALLS, STUB if problem.starter_code else PROSE, CALLS, 4
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{ask.format(number=shown, name='double')}\n\n{example}"},
        {"role": "assistant", "content": tests},
        {"role": "user", "content": f"{ask.format(number=number, name=_short_name(problem))}\n\n{statement}"},
    ]


def read_tests(completions: Sequence[str], problem: Problem, *, most: int) -> tuple[Test, ...]:
    """The first `most` tests that can be used, each once; never an error, whatever a model wrote."""
    read = _inputs if _reads_stdin(problem) else _calls
    texts = (without_thought(text.encode("utf-8", "replace").decode()) for text in completions)
    found = [claim for text in texts for claim in read(text, problem)]
    answers: dict[str, set[str]] = {}
    for claim in found:
        answers.setdefault(claim.question, set()).add(claim.answer)
    asked = _visible_questions(problem)
    first = {claim.question: claim.test for claim in reversed(found)}
    usable = (first[q] for q, given in answers.items() if q not in asked and len(given) == 1)
    return tuple(itertools.islice(filter(lambda test: _can_be_run(test, problem), usable), most))


@dataclass(frozen=True, kw_only=True)
class _Claim:
    question: str
    answer: str
    test: Test


def _reads_stdin(problem: Problem) -> bool:
    return any(isinstance(test, StdinTest) for test in problem.tests)


def _short_name(problem: Problem) -> str:
    return (problem.entry_point or "").rpartition(".")[2]


def _calls(text: str, problem: Problem) -> Iterator[_Claim]:
    """Assertions of the function, or of the method on a fresh object."""
    owner, _, name = (problem.entry_point or "").rpartition(".")
    examples = [e for known in (name, owner or "Solution") for e in assert_examples(text, name=known, known=set())]
    for example in sorted(examples, key=lambda found: found.position):
        for args, kwargs, expected in _asserted(example.code, name):
            test = CallTest(args=args, kwargs=kwargs, expected=expected)
            yield _Claim(question=_question(args, kwargs, problem), answer=repr(expected), test=test)


def _inputs(text: str, problem: Problem) -> Iterator[_Claim]:
    """Inputs with their outputs, compared as the first visible test is (its tolerance, its checker)."""
    like = next(test for test in problem.tests if isinstance(test, StdinTest))
    for sample in samples(text.splitlines()):
        test = replace(like, input=sample.input, output=sample.output)
        yield _Claim(question=_plain(sample.input), answer=_plain(sample.output), test=test)


def _visible_questions(problem: Problem) -> set[str]:
    found: set[str] = set()
    for test in problem.tests:
        if isinstance(test, StdinTest):
            found.add(_plain(test.input))
        elif isinstance(test, CallTest):
            found.add(_question(test.args, test.kwargs, problem))
        elif isinstance(test, AssertTest):
            calls = _asserted(test.code, _short_name(problem))
            found |= {_question(args, kwargs, problem) for args, kwargs, _ in calls}
    return found


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _question(args: Sequence[Any], kwargs: Mapping[str, Any], problem: Problem) -> str:
    """A call's arguments as text: by the names of the parameters where they are known, so that f(1) is f(x=1)."""
    stub = find_stub(problem.starter_code) if problem.starter_code else None
    if stub is None or len(args) > len(stub.parameters):
        return repr((list(args), sorted(kwargs.items())))
    return repr(sorted({**dict(zip(stub.parameters, args, strict=False)), **kwargs}.items()))


def _asserted(code: str, name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Arguments and value of each assertion in `code` that is one call with literals and a literal answer."""
    tree = parse_source(code)
    for node in ast.walk(tree) if tree is not None else ():
        for call, answer in _sides(node.test) if isinstance(node, ast.Assert) else ():
            try:
                if isinstance(call, ast.Call) and _calls_it(call, name):
                    yield *_arguments(call), literal_value(answer)
                    break
            except ValueError:
                continue


def _sides(tested: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What may be the call, with what may be its value; `assert f(x)` claims True."""
    match tested:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand, ast.Constant(value=False)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            yield left, right
            yield right, left
        case ast.Call():
            yield tested, ast.Constant(value=True)


def _calls_it(call: ast.Call, name: str) -> bool:
    match call.func:
        case ast.Name(id=called):
            return called in (name, CANDIDATE)
        case ast.Attribute(value=ast.Call(func=ast.Name(), args=[], keywords=[]), attr=method):
            return method == name
    return False


def _arguments(call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`ValueError` where an argument is not a literal."""
    if any(keyword.arg is None for keyword in call.keywords):
        raise ValueError("arguments that are unpacked are not literals")
    kwargs = {str(keyword.arg): literal_value(keyword.value) for keyword in call.keywords}
    return tuple(literal_value(argument) for argument in call.args), kwargs


def _can_be_run(test: Test, problem: Problem) -> bool:
    """Whether the state can hold it and the judge can run it; what it cannot would end the run."""
    try:
        test_to_dict(test)
        if isinstance(test, StdinTest):
            stdin_unit(0, test)
        elif isinstance(test, CallTest):
            call_unit(0, test, problem.entry_point)
    except ProblemError:
        return False
    return True
