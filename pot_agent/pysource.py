"""Python source that nobody vouches for: read, never executed.

Limits: code longer than `MAX_SOURCE_CHARACTERS` is not read at all, and code that the parser gives up on (too deeply
nested, say) counts as not being Python. Nothing here imports or runs what it reads.
"""

import ast
import builtins
import itertools
import keyword
import math
import re
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Literal

MAX_SOURCE_CHARACTERS = 200_000
"""Longest code that is parsed; a program of a contest or a library module is far shorter."""

PARSER_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises on text that is not Python."""

BUILTINS = frozenset(dir(builtins))

_DRAWS_WARNINGS = re.compile(r"\\|\d(?:and|else|for|if|in|is|not|or)\b")
_WARNINGS_LOCK = threading.Lock()

_JSON_NAMES: dict[str, Any] = {"true": True, "false": False, "null": None}
_FLOAT_NAMES: dict[str, Any] = {"nan": math.nan, "inf": math.inf}


def parse_source(code: str) -> ast.Module | None:
    """The syntax tree of `code`, or None where it is not Python."""
    tree = _parse(code, "exec")
    return tree if isinstance(tree, ast.Module) else None


def parse_expression(code: str) -> ast.expr | None:
    """The syntax tree of one expression, or None where it is not one."""
    tree = _parse(code.strip(), "eval")
    return tree.body if isinstance(tree, ast.Expression) else None


def _parse(code: str, mode: Literal["exec", "eval"]) -> ast.AST | None:
    if len(code) > MAX_SOURCE_CHARACTERS:
        return None
    try:
        if not _DRAWS_WARNINGS.search(code):
            return ast.parse(code, mode=mode)
        # "\d" in a string, or `1if x`, draw warnings about somebody else's text. The filters are global: hence the
        # lock, and hence only where it is needed.
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code, mode=mode)
    except PARSER_ERRORS:
        return None


def literal_value(source: str | ast.expr, *, json_names: bool = False) -> Any:
    """The value of a Python literal; `ValueError` where it is not one.

    Beyond `ast.literal_eval`: `nan`, `inf`, `set()`, `frozenset(...)`, and with `json_names` also true, false, null.
    `...` is no literal here: in an example it stands for something left out.
    """
    node = parse_expression(source) if isinstance(source, str) else source
    names = _FLOAT_NAMES | (_JSON_NAMES if json_names else {})
    if node is None:
        raise ValueError(f"not a Python literal: {source!r}"[:200])
    try:
        return _value(node, names)
    except (RecursionError, TypeError, OverflowError) as error:
        raise ValueError(f"not a Python literal: {error}") from error


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and node.value is not ...:
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [_value(item, names) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items) if isinstance(node, ast.Tuple) else set(items)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(key, names) for key in node.keys if key is not None]
        return dict(zip(keys, [_value(item, names) for item in node.values], strict=True))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        return _signed(node.op, _value(node.operand, names))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _complex(node, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _set_call(node.func.id, [_value(argument, names) for argument in node.args])
    raise ValueError(f"not a Python literal: {type(node).__name__}")


def _signed(sign: ast.unaryop, value: Any) -> Any:
    if type(value) not in (int, float, complex):
        raise ValueError("a sign before something that is not a number")
    return -value if isinstance(sign, ast.USub) else value


def _complex(node: ast.BinOp, names: dict[str, Any]) -> complex:
    left, right = _value(node.left, names), _value(node.right, names)
    if type(left) not in (int, float) or type(right) is not complex:
        raise ValueError("arithmetic is not a literal")
    return complex(left + right if isinstance(node.op, ast.Add) else left - right)


def _set_call(name: str, arguments: list[Any]) -> Any:
    if name == "set" and not arguments:
        return set()
    if name == "frozenset" and len(arguments) <= 1:
        return frozenset(*arguments)
    raise ValueError(f"a call of {name} is not a literal")


@dataclass(frozen=True, kw_only=True)
class Stub:
    """A function that somebody left to be written."""

    name: str
    parameters: tuple[str, ...]
    """Names of the parameters, without `self`."""
    annotations: tuple[str, ...]
    """Names used in the parameters' annotations."""
    code: str
    """The code that it stands in, helpers above it included."""
    returns_nothing: bool = False
    """Whether it is annotated `-> None`: what it changes in place is no value to compare."""
    is_method: bool = False
    """Whether it is the method of `class Solution`."""


def find_stub(code: str) -> Stub | None:
    """The last function in `code` with a body of nothing but a docstring, `pass`, `...` or imports.

    A function without parameters that is called `main` or `solve` is where a program begins, not one to be called.
    A class Solution counts where it leaves exactly one method to be written.
    """
    tree = parse_source(code) or parse_source(_with_body(code))
    if tree is None:
        return None
    for node in reversed(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_stub(node):
            return None if _is_program_start(node) else _stub(node, code)
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            methods = [method for method in node.body if isinstance(method, ast.FunctionDef) and _is_stub(method)]
            return _stub(methods[0], code, is_method=True) if len(methods) == 1 else None
    return None


def _with_body(code: str) -> str:
    """The code with `pass` below its last line, for a `def` that is followed by nothing or by a comment."""
    last = code.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    return f"{code.rstrip()}\n{indent}{'' if last.lstrip().startswith('#') else '    '}pass\n"


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all(_says_nothing(statement) for statement in function.body)


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in names_in(statement)
    return isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom))


def _is_program_start(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    return function.name in ("main", "solve") and not (arguments.args or arguments.posonlyargs or arguments.vararg)


def _stub(function: ast.FunctionDef | ast.AsyncFunctionDef, code: str, *, is_method: bool = False) -> Stub:
    arguments = [*function.args.posonlyargs, *function.args.args][1 if is_method else 0 :]
    annotations = {
        name for argument in arguments if argument.annotation for name in annotation_names(argument.annotation)
    }
    return Stub(
        name=function.name,
        parameters=tuple(argument.arg for argument in arguments),
        annotations=tuple(sorted(annotations)),
        code=code.strip("\n") + "\n",
        returns_nothing=isinstance(function.returns, ast.Constant) and function.returns.value is None,
        is_method=is_method,
    )


def annotation_names(annotation: ast.expr) -> set[str]:
    """Names in an annotation, those inside quotes included."""
    quoted = [
        node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    inner = [tree for text in quoted if (tree := parse_expression(text)) is not None]
    return names_in(annotation).union(*(names_in(tree) for tree in inner))


def names_in(node: ast.AST) -> set[str]:
    """All names that are read or bound below `node`."""
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def called_functions(tree: ast.AST) -> set[str]:
    """Plain names that `tree` calls, builtins and what it defines itself aside."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return {function.id for function in calls if isinstance(function, ast.Name)} - BUILTINS - own


def names_bound(statement: ast.stmt) -> set[str]:
    """The names that one top-level statement gives a meaning to."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return {
            node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
    return set()


def is_function_name(name: str) -> bool:
    """Whether `name` can be the name of a function, or `Class.method`."""
    parts = name.split(".")
    return len(parts) <= 2 and all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)


def function_defined(tree: ast.Module, name: str) -> bool:
    """Whether a program defines a function of that name, at its top level or in `class Solution`."""
    solutions = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Solution"]
    statements = itertools.chain(tree.body, *(solution.body for solution in solutions))
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name for node in statements)
