"""From a statement to tests: what was found where, in the statement's order, without what contradicts itself."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pot_agent.pysource import BUILTINS, Stub
from pot_agent.statement.code import CodeExample, assert_examples, doctest_examples, equality, line_starts
from pot_agent.statement.prose import Example, named_values, prose_examples, sentence_examples, whole_literal
from pot_agent.statement.samples import Sample, is_interactive, samples
from pot_agent.statement.stub import names_defined, stub_in, takes_plain_data

MAX_TESTS = 100
"""Examples that are used, the first ones of the statement."""
MAX_NAMES = 20
"""Functions called in running text, beyond which none is taken for the one to write."""

_CALL_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
_DECIMAL = re.compile(r"\d\.\d")
_ERROR_BOUND = re.compile(r"(?:absolute|relative)[^.]{0,80}?\berror\b[^.]{0,80}?10 ?\^? ?\{? ?[-−–] ?(\d{1,2})")

Found = tuple[int, dict[str, Any]]
"""A position in the statement and a test."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Tests found in a statement, as plain objects for `problem.parse_tests`."""

    tests: tuple[dict[str, Any], ...] = ()
    entry_point: str | None = None
    """The function that they call, or that the statement leaves to be written."""
    starter_code: str = ""
    """The code that the statement leaves to be completed, helpers included."""


def find_examples(statement: str, *, entry_point: str | None = None) -> Examples:
    """Find doctests, assertions, examples in running text, and sample input and output in a statement."""
    stub = stub_in(statement)
    if stub is not None and entry_point is not None and stub.name != entry_point.rpartition(".")[2]:
        stub = None
    name = entry_point or (stub.name if stub is not None else None)
    if name is not None:
        tests = _function_tests(statement, name.rpartition(".")[2], stub)
        return Examples(tests=_bounded(tests), entry_point=name, starter_code=stub.code if stub is not None else "")
    written = _written(statement, None, frozenset())
    names = {example.name for example in written}
    if len(names) == 1:
        return Examples(tests=_bounded(map(_assertion, written)), entry_point=names.pop())
    stdin_tests = [] if names else _stdin_tests(statement)
    if names or stdin_tests:
        return Examples(tests=_bounded(stdin_tests))
    return _unnamed_prose(statement)


def _bounded(found: Iterable[Found]) -> tuple[dict[str, Any], ...]:
    """The tests in the statement's order, each once, without those that contradict another."""
    by_question: dict[str, list[dict[str, Any]]] = {}
    for _, test in sorted(found, key=lambda pair: pair[0]):
        answers = by_question.setdefault(_question(test), [])
        if test not in answers:
            answers.append(test)
    agreed = (answers[0] for answers in by_question.values() if len(answers) == 1)
    return tuple(itertools.islice(agreed, MAX_TESTS))


def _question(test: dict[str, Any]) -> str:
    """What a test asks, without the answer that it expects."""
    if test["type"] == "assert":
        code = str(test["code"])
        return code.removesuffix(" is None") if code.endswith(" is None") else code.rpartition(" == ")[0] or code
    return str(test["input"] if test["type"] == "stdin" else test["args"])


def _assertion(example: CodeExample) -> Found:
    return example.position, {"type": "assert", "code": example.code}


def _written(statement: str, name: str | None, known: frozenset[str]) -> list[CodeExample]:
    """Examples written as code."""
    doctests = doctest_examples(statement, name=name, known=known)
    return doctests + assert_examples(statement, name=name, known=known)


def _function_tests(statement: str, name: str, stub: Stub | None) -> Iterator[Found]:
    known = names_defined(stub.code) if stub is not None else frozenset()
    yield from map(_assertion, _written(statement, name, known - {name}))
    if not takes_plain_data(stub):
        return
    for example in prose_examples(statement, [name], known=True):
        yield _equality(example)
    if stub is not None:
        for example in sentence_examples(statement, name, stub.parameters):
            yield _equality(example)
        yield from _sample_calls(statement, name, stub)


def _equality(example: Example) -> Found:
    return example.position, {"type": "assert", "code": equality(example.call, example.expected)}


def _sample_calls(statement: str, name: str, stub: Stub) -> Iterator[Found]:
    """Samples of a function: `Input: nums = [2, 7], target = 9`, `Output: [0, 1]`."""
    lines, starts = line_starts(statement)
    for sample in samples(lines):
        arguments = _arguments(sample.input, stub.parameters)
        expected = whole_literal(sample.output)
        if arguments is None or expected is None:
            continue
        position = starts[sample.position]
        if stub.is_method:
            plain = [_plain(value) for value in arguments]
            yield position, {"type": "call", "args": plain, "expected": _plain(expected[0])}
        else:
            call = f"{name}({', '.join(map(repr, arguments))})"
            yield position, {"type": "assert", "code": equality(call, expected[0])}


def _arguments(text: str, parameters: tuple[str, ...]) -> list[Any] | None:
    """Arguments from `a = 1, b = 2` over one line or several, from a line for each, or from one value alone."""
    lines = [line.strip().rstrip(",") for line in text.strip().splitlines() if line.strip()]
    named = named_values(", ".join(lines), parameters)
    if named is not None or len(lines) != len(parameters):
        return named
    values = [whole_literal(line) for line in lines]
    return [value[0] for value in values if value is not None] if None not in values else None


def _plain(value: Any) -> Any:
    """A value as JSON types, or as the Python literal that `problem.decode_value` reads."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is list:
        return [_plain(item) for item in value]
    return {"$python": repr(value)}


def _stdin_tests(statement: str) -> list[Found]:
    if is_interactive(statement):
        return []
    lines, starts = line_starts(statement)
    bound = _ERROR_BOUND.search(statement)
    tolerance = float(f"1e-{bound[1]}") if bound is not None else None
    return [(starts[sample.position], _stdin_test(sample, tolerance)) for sample in samples(lines)]


def _stdin_test(sample: Sample, tolerance: float | None) -> dict[str, Any]:
    test: dict[str, Any] = {"type": "stdin", "input": sample.input, "output": sample.output}
    if tolerance is not None and _DECIMAL.search(sample.output):
        test |= {"compare": "float", "rel": tolerance, "abs": tolerance}
    return test


def _unnamed_prose(statement: str) -> Examples:
    """Examples in running text of a function that nothing else names, where there is only one such function."""
    called = (match[1] for match in itertools.islice(_CALL_NAME.finditer(statement), 10_000))
    names = sorted({name for name in called if name not in BUILTINS})
    if not 0 < len(names) <= MAX_NAMES:
        return Examples()
    found = prose_examples(statement, names, known=False)
    named = {example.name for example in found}
    return Examples(tests=_bounded(map(_equality, found)), entry_point=named.pop()) if len(named) == 1 else Examples()
