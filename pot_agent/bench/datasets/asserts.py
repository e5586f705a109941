"""Assertions of a benchmark as data: which calls they make, which repeat or contradict each other, a grader's parts.

Pure functions on Python source, which is read and never run here. Whatever cannot be told for certain counts as
different: two assertions repeat each other only where they make the same calls with the same literal arguments.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pot_agent.pysource import names_bound, names_in, parse_source

CANDIDATE = "candidate"
"""The parameter of HumanEval's `check`."""


def split_check(test: str, entry_point: str) -> tuple[str, ...]:
    """The assertions in `check(candidate)`, each as code that stands alone; the whole text where it has other parts.

    An assertion comes with the statements above it whose names it uses; a loop with assertions inside stays whole;
    assertions of a constant are left out.
    """
    whole = (f"{test.rstrip()}\n\ncheck({entry_point})\n",)
    tree = parse_source(test)
    check = _check_function(tree) if tree is not None else None
    if tree is None or check is None:
        return whole
    before = [node for node in tree.body if node is not check and not _is_metadata(node)]
    if any(names_in(node) & {CANDIDATE} for node in before):
        return whole
    parts = [_standing_alone(node, above, entry_point) for node, above in _asserting(check.body, before)]
    return tuple(parts) or whole


def _check_function(tree: ast.Module) -> ast.FunctionDef | None:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    return found[0] if len(found) == 1 and [a.arg for a in found[0].args.args] == [CANDIDATE] else None


def _is_metadata(node: ast.stmt) -> bool:
    return names_bound(node) == {"METADATA"}


def _asserting(body: Sequence[ast.stmt], before: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """The statements that assert something, each with all statements above it that do not."""
    above = list(before)
    for node in body:
        if not any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
            above.append(node)
        elif not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant)):
            yield node, list(above)


def _standing_alone(node: ast.stmt, above: Sequence[ast.stmt], entry_point: str) -> str:
    needed, kept = names_in(node), [node]
    for statement in reversed(above):
        bound = names_bound(statement)
        if not bound or bound & needed:
            kept.insert(0, statement)
            needed |= names_in(statement)
    kept = [statement for statement in kept if not _says_nothing(statement)]
    return "\n".join(ast.unparse(_Renamed(entry_point).visit(statement)) for statement in kept)


def _says_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.Name)
    )


class _Renamed(ast.NodeTransformer):
    """`candidate` under the name of the function; for good, since a statement may serve several assertions."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.name, node.ctx), node) if node.id == CANDIDATE else node


@lru_cache(maxsize=8192)
def normalised(code: str) -> str:
    """Code as Python itself would write it, without an assertion's message."""
    tree = parse_source(code)
    if tree is None:
        return code.strip()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            node.msg = None
    return ast.unparse(tree)


@lru_cache(maxsize=8192)
def calls(code: str, entry_point: str) -> frozenset[str] | None:
    """The calls of the function that one assertion makes, with literal arguments only; None for any other code."""
    tree = parse_source(code)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    name = entry_point.rpartition(".")[2]
    found = [node for node in ast.walk(tree.body[0].test) if _calls(node, name)]
    if not found or any(names_in(argument) for node in found for argument in _arguments(node)):
        return None
    return frozenset(ast.unparse(node) for node in found)


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _arguments(node: ast.AST) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)] if isinstance(node, ast.Call) else []


def repeats(code: str, shown: Iterable[str], entry_point: str) -> bool:
    """Whether an assertion is one of those shown, or asks nothing that they do not."""
    shown = list(shown)
    if normalised(code) in {normalised(other) for other in shown}:
        return True
    asked = calls(code, entry_point)
    known = [made for other in shown if (made := calls(other, entry_point)) is not None]
    return asked is not None and asked <= frozenset().union(*known)


def contradicts(code: str, graded: Iterable[str], entry_point: str) -> bool:
    """Whether a plain assertion expects another value of a call than the graders do."""
    claim = _claim(code, entry_point)
    if claim is None:
        return False
    others = [other for test in graded if (other := _claim(test, entry_point)) is not None and other[0] == claim[0]]
    return any(value != claim[1] for _, value in others)


@lru_cache(maxsize=8192)
def _claim(code: str, entry_point: str) -> tuple[str, Any] | None:
    """A call and the value that it must have, from `assert call == literal` or `assert call is literal`."""
    asked, tree = calls(code, entry_point), parse_source(code)
    if asked is None or tree is None or len(asked) != 1:
        return None
    match tree.body[0]:
        case ast.Assert(
            test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq() | ast.Is()], comparators=[literal])
        ) if ast.unparse(call) in asked:
            try:
                return ast.unparse(call), ast.literal_eval(literal)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return None
    return None
