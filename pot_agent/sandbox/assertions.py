"""Assertions taken apart without being run: `assert f(1, 2) == 3` is a call, and a check that the judge makes itself.

Taken apart are `assert CALL == literal` (either way round), `CALL is None/True/False`, `CALL` and `not CALL`, where
CALL is a function of the program, or `Solution().method`, with literal arguments: one to a test, because calls of one
test may build on each other. Whatever else a test does, it runs as it is, apart from the program
(`pot_agent.sandbox.separately`).
"""

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pot_agent.sandbox.codec import Opaque
from pot_agent.sandbox.compare import Equality

CANDIDATE = "candidate"
"""What HumanEval's graders call the function under test."""
_ASSERTED = Equality()


@dataclass(frozen=True)
class Check:
    """One call and what its value must be."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    accepts: Callable[[Any], bool]
    expected: str
    """What is expected, as the test's own text."""
    shown: str
    """The call, as the test's own text."""


class _NotSimpleError(Exception):
    pass


def take_apart(code: str, *, entry_point: str | None, setup_names: frozenset[str]) -> Check | None:
    """The check that `code` amounts to; None where it has to be run."""
    try:
        body = ast.parse(code).body
        return _check(body[0], entry_point, setup_names) if len(body) == 1 else None
    except (_NotSimpleError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _check(statement: ast.stmt, entry_point: str | None, setup_names: frozenset[str]) -> Check:
    if not isinstance(statement, ast.Assert):
        raise _NotSimpleError
    call, expected, accepts = _sides(statement.test)
    name = _called(call, entry_point, setup_names)
    args = tuple(ast.literal_eval(argument) for argument in call.args)
    if any(keyword.arg is None for keyword in call.keywords):
        raise _NotSimpleError
    kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return Check(name, args, kwargs, accepts, expected, ast.unparse(call))


def _sides(test: ast.expr) -> tuple[ast.Call, str, Callable[[Any], bool]]:
    match test:
        case ast.Call():
            return test, "a true value", lambda got: not isinstance(got, Opaque) and bool(got)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
            return call, "a false value", lambda got: not isinstance(got, Opaque) and not got
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[literal]) if not _is_call(literal):
            expected = ast.literal_eval(literal)
            return call, ast.unparse(literal), lambda got: _ASSERTED.same(expected, got)
        case ast.Compare(left=literal, ops=[ast.Eq()], comparators=[ast.Call() as call]) if not _is_call(literal):
            expected = ast.literal_eval(literal)
            return call, ast.unparse(literal), lambda got: _ASSERTED.same(expected, got)
        case ast.Compare(
            left=ast.Call() as call, ops=[ast.Is()], comparators=[ast.Constant(value=None | bool() as one)]
        ):
            return call, repr(one), lambda got: got is one
    raise _NotSimpleError


def _is_call(expression: ast.expr) -> bool:
    """Whether it calls anything but `set()`, the one literal that is written as a call."""
    return isinstance(expression, ast.Call) and ast.unparse(expression) != "set()"


def _called(call: ast.Call, entry_point: str | None, setup_names: frozenset[str]) -> str:
    match call.func:
        case ast.Name(id=name):
            known = name != entry_point and (name in setup_names or hasattr(builtins, name))
            if known:
                raise _NotSimpleError
            return entry_point if name == CANDIDATE and entry_point else name
        case ast.Attribute(value=ast.Call(func=ast.Name(id="Solution"), args=[], keywords=[]), attr=method):
            return f"Solution.{method}"
    raise _NotSimpleError


def bound_names(code: str) -> frozenset[str]:
    """Names that `code` binds anywhere: assignments, imports, functions, arguments."""
    found: set[str] = set()
    for node in ast.walk(_parsed(code)):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return frozenset(found)


def names_from_program(code: str, *, entry_point: str | None, setup_names: Iterable[str]) -> list[list[str]]:
    """Pairs of a name that `code` takes from the program, and what the program calls it."""
    bound = bound_names(code) | frozenset(setup_names)
    loaded = {
        node.id for node in ast.walk(_parsed(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    free = {name for name in loaded - bound if not hasattr(builtins, name)}
    if entry_point and entry_point in loaded:
        free.add(entry_point)
    return [[name, entry_point if name == CANDIDATE and entry_point else name] for name in sorted(free)]


def _parsed(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
