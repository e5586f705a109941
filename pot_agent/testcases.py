"""The kinds of test that a problem can have, and reading them from JSON.

Tests are data: what they expect stays with the judge and never enters a program's process.
"""

import ast
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pot_agent.errors import ProblemError
from pot_agent.pysource import PARSER_ERRORS
from pot_agent.values import clean_text, decode_value, encode_value, shorten

MAX_TEST_CHARACTERS = 50_000_000
"""Longest input or output of one test, in characters."""

Compare = Literal["tokens", "exact", "float", "lcb", "unordered"]
"""How standard output is compared: `tokens`: whitespace-separated tokens, equal as text or as canonical decimals;
`exact`: byte for byte, one final newline aside; `float`: tokens, numbers within `rel` or `abs`; `lcb`: LiveCodeBench's
published rule; `unordered`: lines in any order, each compared by its tokens."""
CHECK = "check"
"""The function that a checker defines."""


@dataclass(frozen=True, kw_only=True)
class StdinTest:
    """A program is given `input` and must print `output`."""

    input: str
    output: str
    compare: Compare = "tokens"
    rel: float = 1e-6
    """Relative tolerance of `float`."""
    abs: float = 1e-6
    """Absolute tolerance of `float`."""
    checker: str = ""
    """Python that defines `check(input, expected, output)`, which returns True or False; it decides in place of
    `compare`, in a sandboxed process of its own."""

    def __post_init__(self) -> None:
        _check_checker(self.checker, self.compare)
        if self.compare not in get_args(Compare):
            known = ", ".join(get_args(Compare))
            raise ProblemError(f"compare must be one of {known}, got {shorten(self.compare)}", value=self.compare)
        _check_tolerance("rel", self.rel)
        _check_tolerance("abs", self.abs)


@dataclass(frozen=True, kw_only=True)
class CallTest:
    """`entry_point(*args, **kwargs)` must return a value equal to `expected`; all are plain Python data."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None
    rel: float = 1e-9
    """Relative tolerance, where expected and returned are both floats (or a float and an int)."""
    abs: float = 1e-12
    """Absolute tolerance, likewise."""

    def __post_init__(self) -> None:
        _check_tolerance("rel", self.rel)
        _check_tolerance("abs", self.abs)


@dataclass(frozen=True, kw_only=True)
class AssertTest:
    """Python statements that must run through, such as `assert add(1, 2) == 3`."""

    code: str


Test = StdinTest | CallTest | AssertTest


def _check_tolerance(name: str, tolerance: Any) -> None:
    is_number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < math.inf:
        raise ProblemError(f"{name} must be a finite number, 0 or more, got {shorten(tolerance)}", value=tolerance)


def _check_checker(source: Any, compare: Any) -> None:
    if not isinstance(source, str):
        raise ProblemError(f"checker must be Python source, got {shorten(source)}", value=source)
    if not source:
        return
    if compare != "tokens":
        raise ProblemError(f"a test has a checker or compare, not both; compare is {shorten(compare)}", value=compare)
    try:
        body = ast.parse(source).body
    except PARSER_ERRORS as error:
        raise ProblemError(f"checker: not Python: {error}: {shorten(source)}", value=source) from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == CHECK for node in body):
        wanted = f"def {CHECK}(input, expected, output): ..."
        raise ProblemError(f"checker: there is no {wanted} in {shorten(source)}", value=source)


def parse_tests(given: Any, name: str = "tests") -> tuple[Test, ...]:
    """Tests from a list of objects and Python assertions, or JSON text of such a list. None gives none.

    Errors call the list by `name`.
    """
    if given is None:
        return ()
    if isinstance(given, (str, bytes)):
        given = _tests_from_text(given, name)
    if isinstance(given, Mapping):
        given = given.get("tests", [given])
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise ProblemError(f"{name} must be a list, got {type(given).__name__}: {shorten(given)}", value=given)
    return tuple(_parse_test(test, f"{name}[{index}]") for index, test in enumerate(given))


def _tests_from_text(text: str | bytes, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(
            f"{name} are not JSON: {error}. Give a list such as "
            '["assert add(1, 2) == 3"] or [{"type": "stdin", "input": "1 2", "output": "3"}]',
            value=text,
        ) from error


_FIELDS = {
    "stdin": {"input", "output", "compare", "rel", "abs", "checker"},
    "call": {"args", "kwargs", "expected", "rel", "abs"},
    "assert": {"code"},
}
_ALIASES = {"io": "stdin"}
_IGNORED = {"type", "origin", "note", "name"}


def _parse_test(given: Any, where: str) -> Test:
    if isinstance(given, (StdinTest, CallTest, AssertTest)):
        return given
    if isinstance(given, str):
        given = {"type": "assert", "code": given}
    if not isinstance(given, Mapping):
        raise ProblemError(f"{where} must be an object or an assertion, got {shorten(given)}", value=given)
    named = given.get("type", _guess_kind(given))
    kind = _ALIASES.get(named, named) if isinstance(named, str) else named
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ProblemError(
            f"{where}: there is no test kind {shorten(kind)}; use stdin (input, output), call (args, expected) or "
            "assert (code)",
            value=given,
        )
    unknown = sorted(set(map(str, given)) - _FIELDS[kind] - _IGNORED)
    if unknown:
        allowed = ", ".join(sorted(_FIELDS[kind]))
        raise ProblemError(f"{where}: a {kind} test has no {', '.join(unknown)}; it has {allowed}", value=given)
    return _BUILDERS[kind]({name: given[name] for name in _FIELDS[kind] if name in given}, where)


def _guess_kind(given: Mapping[str, Any]) -> str | None:
    if "code" in given:
        return "assert"
    if "input" in given or "output" in given:
        return "stdin"
    return "call" if "args" in given or "kwargs" in given else None


def _stdin_test(values: dict[str, Any], where: str) -> StdinTest:
    values.setdefault("input", "")
    if values.get("checker"):
        values.setdefault("output", "")
    for name in ("input", "output"):
        text = values.get(name)
        if not isinstance(text, str):
            raise ProblemError(f"{where}.{name} must be text, got {shorten(text)}", value=text)
        if len(text) > MAX_TEST_CHARACTERS:
            limit = f"{MAX_TEST_CHARACTERS:,}"
            raise ProblemError(f"{where}.{name} has {len(text):,} characters; the limit is {limit}", value=len(text))
        clean_text(text, f"{where}.{name}")
    if isinstance(values.get("checker"), str):
        clean_text(values["checker"], f"{where}.checker")
    return StdinTest(**values)


def _call_test(values: dict[str, Any], where: str) -> CallTest:
    if "expected" not in values:
        raise ProblemError(f"{where}: a call test needs `expected`, the value to return", value=values)
    decoded = {name: decode_value(value, where) for name, value in values.items()}
    args, kwargs = decoded.get("args", ()), decoded.get("kwargs", {})
    if not isinstance(args, (list, tuple)):
        raise ProblemError(f"{where}: args must be a list of arguments, got {shorten(args)}", value=args)
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise ProblemError(f"{where}: kwargs must be an object of named arguments, got {shorten(kwargs)}", value=kwargs)
    decoded.update(args=tuple(args), kwargs=dict(kwargs))
    for name, value in (("args", list(args)), ("kwargs", dict(kwargs)), ("expected", decoded["expected"])):
        encode_value(value, f"{where}.{name}")
    return CallTest(**decoded)


def _assert_test(values: dict[str, Any], where: str) -> AssertTest:
    code = values.get("code")
    if not isinstance(code, str):
        raise ProblemError(f"{where}.code must be text, got {shorten(code)}", value=code)
    clean_text(code, f"{where}.code")
    try:
        tree = ast.parse(code)
    except PARSER_ERRORS as error:
        raise ProblemError(f"{where}: not Python: {error}: {shorten(code)}", value=code) from error
    if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        raise ProblemError(f"{where}: there is no assert in {shorten(code)}", value=code)
    always = next((node for node in ast.walk(tree) if isinstance(node, ast.Assert) and _always_true(node.test)), None)
    if always is not None:
        raise ProblemError(
            f"{where}: {shorten(ast.unparse(always))} always holds, whatever the program does; write `assert "
            "condition, message` without parentheses around both, and `all(...)` around conditions",
            value=code,
        )
    return AssertTest(code=code)


def _always_true(tested: ast.expr) -> bool:
    """Collections written out with something in them, functions and generators are true whatever they hold."""
    if isinstance(tested, (ast.Tuple, ast.List, ast.Set)):
        return any(not isinstance(element, ast.Starred) for element in tested.elts)
    if isinstance(tested, ast.Dict):
        return any(key is not None for key in tested.keys)
    return isinstance(tested, (ast.Lambda, ast.GeneratorExp))


_BUILDERS: dict[str, Callable[[dict[str, Any], str], Test]] = {
    "stdin": _stdin_test,
    "call": _call_test,
    "assert": _assert_test,
}


def test_to_dict(test: Test) -> dict[str, Any]:
    """Plain JSON types; `parse_tests` reads them back."""
    if isinstance(test, AssertTest):
        return {"type": "assert", "code": test.code}
    if isinstance(test, StdinTest):
        plain: dict[str, Any] = {"type": "stdin", "input": test.input, "output": test.output, "compare": test.compare}
        plain |= {"rel": test.rel, "abs": test.abs}
        return plain | ({"checker": test.checker} if test.checker else {})
    values = {name: encode_value(getattr(test, name)) for name in ("expected", "rel", "abs")}
    values["args"] = [encode_value(value) for value in test.args]
    values["kwargs"] = {name: encode_value(value) for name, value in test.kwargs.items()}
    return {"type": "call", **values}


test_to_dict.__test__ = False  # type: ignore[attr-defined]  # not a test case, whatever pytest thinks of its name
