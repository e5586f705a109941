"""A Python file with tests of its own, read and edited without running a line of it.

Its tests are the functions `test_*` without parameters, and the assertions at its top level. Limits: tests with
parameters (fixtures), decorators or `async`, and tests that use nothing of the file, are not run and are named as such.
Tests run against the file from a process of their own: they call its functions and classes, and know its imports and
its constants where these are literals; what they compare must be plain data. Functions at the top level can be written
anew, methods cannot.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pot_agent.errors import ProblemError
from pot_agent.pysource import called_functions, find_stub, literal_value, names_bound, names_in, parse_source
from pot_agent.sandbox.assertions import bound_names, names_from_program
from pot_agent.values import shorten

_TEST = "test_"

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """The text of a file and its syntax tree."""

    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Read a file's text; `ProblemError` where it is not Python, or has no test that can be run."""
        if not isinstance(text, str):
            raise ProblemError(f"a file is its text, got {type(text).__name__}", value=text)
        tree = parse_source(text)
        if tree is None:
            raise ProblemError(f"this file is not Python: {shorten(text)}", value=text)
        file = cls(text=text, tree=tree)
        if not file.tests:
            raise ProblemError(
                "this file has no tests of its own that can be run; write functions test_* without parameters, or "
                f"assertions at the top level, that call what it defines{_but(file.skipped)}",
                value=text,
            )
        return file

    @cached_property
    def tests(self) -> dict[str, str]:
        """Each test by its name, as statements that must run through."""
        found: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assert):
                found[f"line {node.lineno}"] = ast.unparse(node)
            elif isinstance(node, ast.FunctionDef) and _is_plain_test(node):
                found[node.name] = f"{ast.unparse(node)}\n{node.name}()"
        return {name: code for name, code in found.items() if self._uses_the_file(code)}

    @cached_property
    def skipped(self) -> list[str]:
        """Tests that cannot be run here."""
        functions = [node.name for node in self.functions if node.name.startswith(_TEST)]
        lines = [f"line {node.lineno}" for node in self.tree.body if isinstance(node, ast.Assert)]
        return [name for name in (*functions, *lines) if name not in self.tests]

    def assertions(self, function: str) -> list[str]:
        """The tests that come to `function`, in the smallest parts that can be run alone; all where none seems to.

        A test of nothing but assertions is taken apart. One that leaves the function out would be passed by anything.
        """
        found: list[str] = []
        for name, code in self.tests.items():
            parsed = ast.parse(code).body[0]
            body = _after_docstring(parsed) if isinstance(parsed, ast.FunctionDef) else [parsed]
            plain = all(isinstance(statement, ast.Assert) for statement in body)
            found += [ast.unparse(statement) for statement in body] if plain else [self.tests[name]]
        found = [code for code in found if self._uses_the_file(code)]
        return [code for code in found if function in _reached(names_in(ast.parse(code)), self.tree.body)] or found

    @cached_property
    def functions(self) -> list[Function]:
        """The functions at the top level."""
        return [node for node in self.tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @property
    def program(self) -> str:
        """The file without its tests and without what it does as a script."""
        return _unparsed([node for node in self.tree.body if not _is_aside(node)])

    @cached_property
    def setup(self) -> str:
        """What the tests need beside functions and classes: imports, and constants that are literals."""
        tests = [node for node in self.tree.body if _is_aside(node)]
        needed = set().union(*(names_in(node) for node in tests))
        kept = [node for node in self.tree.body if _is_import(node) or _is_constant(node)]
        return _unparsed([node for node in kept if names_bound(node) & needed])

    def _uses_the_file(self, code: str) -> bool:
        return bool(names_from_program(code, entry_point=None, setup_names=bound_names(self.setup)))

    def helpers(self, function: str) -> str:
        """What stands beside `function`: the program without it."""
        nodes = [node for node in self.tree.body if not _is_aside(node) and function not in names_bound(node)]
        return _unparsed(nodes)

    def function_to_write(self, failing: Iterable[str]) -> str:
        """The function that is missing, else the one that is a stub, else the only one that the failing tests call."""
        bound = set().union(*(names_bound(node) for node in self.tree.body))
        tested = called_functions(ast.parse("\n".join(self.tests[name] for name in failing if name in self.tests)))
        missing = (tested | called_functions(ast.parse(self.program))) - bound
        stub = find_stub(self.program)
        own = {node.name for node in self.functions}
        candidates: set[str] = set()
        for candidates in (missing, {stub.name} if stub is not None else set(), tested & own):
            if len(candidates) == 1:
                return candidates.pop()
            if candidates:
                break
        raise ProblemError(
            f"which function is to be written? Give `function`; failing tests call {', '.join(sorted(tested))}",
            value=sorted(candidates),
        )

    def source_of(self, function: str) -> str:
        """The text of a function; empty where it is missing."""
        return "\n".join(self._lines[slice(*span)]) if (span := self._span(function)) else ""

    def stub_of(self, function: str) -> str:
        """The head and the docstring of a function with nothing below; where it is missing, a head from its calls."""
        node = next((node for node in self.functions if node.name == function), None)
        if node is None:
            return f"def {function}({self._parameters_of(function)}):\n    pass"
        docstring = node.body[: len(node.body) - len(_after_docstring(node))]
        bare = ast.parse(ast.unparse(node)).body[0]
        bare.body = [*docstring, ast.Pass()]  # type: ignore[attr-defined]
        return ast.unparse(bare)

    def _parameters_of(self, function: str) -> str:
        """Parameters that fit the first call of a function that is missing."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                named = [keyword.arg for keyword in node.keywords]
                if any(isinstance(argument, ast.Starred) for argument in node.args) or None in named:
                    break
                letters = "abcdefghijklmnopqrstuvwxyz"[: len(node.args)]
                return ", ".join([*(letter for letter in letters if letter not in named), *map(str, named)])
        return "*args, **kwargs"

    def with_function(self, function: str, program: str) -> str:
        """The file's text with `function` as `program` has it, and whatever else of `program` it lacks and needs.

        Tests, calls and second versions of what the file has already are left behind. `ProblemError` where the
        program is not Python or has no such function.
        """
        tree = parse_source(program)
        body = [] if tree is None else tree.body
        if not any(_defines(node, function) for node in body):
            raise ProblemError(f"there is no function {function} in this program: {shorten(program)}", value=program)
        here = set().union(*(names_bound(node) for node in self.tree.body)) - {function}
        needed = _reached({function}, body) - here
        brought = [node for node in body if (_is_kept(node) or _defines(node, function)) and names_bound(node) & needed]
        written = _spaced(brought)
        span = self._span(function)
        if span is None:
            at = self._before_tests()
            parts = [*self._lines[:at], written, "", "", *self._lines[at:]]
        else:
            parts = [*self._lines[: span[0]], written, *self._lines[span[1] :]]
        return "\n".join(parts).rstrip("\n") + "\n"

    @cached_property
    def _lines(self) -> list[str]:
        # As the parser counts them: str.splitlines would also break at form feeds and the like.
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def _span(self, function: str) -> tuple[int, int] | None:
        found = [node for node in self.functions if node.name == function]
        if not found:
            return None
        node = found[-1]  # the last definition is the one that counts
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        return first - 1, node.end_lineno or node.lineno

    def _before_tests(self) -> int:
        """Index of the line where the first test begins; the file's end where there is none."""
        asides = [node.lineno - 1 for node in self.tree.body if _is_aside(node)]
        return min(asides, default=len(self._lines))


def _is_plain_test(node: Function) -> bool:
    arguments = node.args
    takes = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    plain = isinstance(node, ast.FunctionDef) and not any(takes) and not node.decorator_list
    return plain and node.name.startswith(_TEST)


def _is_aside(node: ast.stmt) -> bool:
    """Whether it is a test, an assertion, or what the file does when it is run as a script."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name.startswith(_TEST)
    if isinstance(node, ast.If):
        return "__name__" in names_in(node.test)
    return isinstance(node, ast.Assert)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", None) != "__future__"


def _is_constant(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
        return False
    try:
        literal_value(node.value)
    except ValueError:
        return False
    return True


def _is_kept(node: ast.stmt) -> bool:
    is_definition = isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign))
    return (is_definition or _is_import(node)) and not _is_aside(node)


def _defines(node: ast.stmt, function: str) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == function


def _after_docstring(node: Function) -> list[ast.stmt]:
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return node.body[1:] if documented and isinstance(first.value.value, str) else node.body  # type: ignore[attr-defined]


def _reached(names: set[str], body: list[ast.stmt]) -> set[str]:
    """The names, and all that the statements which bind them use, and so on."""
    reached: set[str] = set()
    while names - reached:
        name = (names - reached).pop()
        reached.add(name)
        names = names.union(*(names_in(node) for node in body if name in names_bound(node)))
    return reached


def _spaced(nodes: list[ast.stmt]) -> str:
    """The statements, with two empty lines around functions and classes, as people write them."""
    text = ""
    for before, node in zip([None, *nodes], nodes, strict=False):
        is_definition = isinstance(node, _BLOCKS) or isinstance(before, _BLOCKS)
        text += f"{'' if before is None else chr(10) * (3 if is_definition else 1)}{ast.unparse(node)}"
    return text


def _unparsed(nodes: list[ast.stmt]) -> str:
    return "".join(f"{ast.unparse(node)}\n" for node in nodes)


def _but(skipped: list[str]) -> str:
    return f" (these cannot be run here: {', '.join(skipped)})" if skipped else ""
