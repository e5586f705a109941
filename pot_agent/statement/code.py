"""Examples written as code: doctests (`>>> f(1)` and what it gives) and `assert` lines.

Limits: an example is used only where it stands alone, that is, where it names nothing but the function, what the
statement's own code defines, builtins, and variables that were given a literal just above. A doctest that prints
becomes a test of `str(...)` where that is the same; what raises, prints something else or elides (`...`) is left out.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pot_agent.pysource import BUILTINS, literal_value, names_in, parse_expression, parse_source

MAX_LINES = 60
"""Longest example, in lines."""
MAX_EXAMPLES = 1_000
"""Doctests, and assertions, of one statement that are looked at."""

_PROMPT = re.compile(r"[ \t]*>>> ?(.*)")
_ASSERT = re.compile(r"[ \t]*(?:>>> ?)?assert\b")


@dataclass(frozen=True, kw_only=True)
class CodeExample:
    """An assertion found in the statement."""

    position: int
    """Character of the statement that its line begins at."""
    name: str
    """The function that it calls."""
    code: str


@dataclass(frozen=True, kw_only=True)
class _Doctest:
    line: int
    source: str
    want: str


def _doctests(lines: Sequence[str]) -> Iterator[_Doctest]:
    index = 0
    while index < len(lines):
        prompt = _PROMPT.match(lines[index])
        start, index = index, index + 1
        if prompt is None:
            continue
        indent = len(lines[start]) - len(lines[start].lstrip())
        source, want = [prompt[1]], list[str]()
        while index < len(lines) and re.match(r"[ \t]*\.\.\.( |$)", lines[index]) and len(source) < MAX_LINES:
            source.append(lines[index].strip()[4:])
            index += 1
        while index < len(lines) and _is_want(lines[index]) and len(want) < MAX_LINES:
            line = lines[index].rstrip()
            want.append(line[min(indent, len(line) - len(line.lstrip())) :])
            index += 1
        yield _Doctest(line=start, source="\n".join(source), want="\n".join(want))


def line_starts(text: str) -> tuple[list[str], list[int]]:
    """The lines of `text`, and the character that each begins at."""
    lines = text.splitlines(keepends=True)
    return [line.rstrip("\r\n") for line in lines], [0, *itertools.accumulate(map(len, lines))]


def _is_want(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith((">>>", '"""', "'''", "```"))


def doctest_examples(text: str, *, name: str | None, known: Set[str]) -> list[CodeExample]:
    """Doctests of `name` (None: of any function) as assertions; `known` are names that the statement's code defines."""
    lines, starts = line_starts(text)
    doctests = list(itertools.islice(_doctests(lines), MAX_EXAMPLES))
    none_is_meant = "None" in text and any(doctest.want for doctest in doctests)
    variables: dict[str, Any] = {}
    found: list[CodeExample] = []
    for doctest in doctests:
        tree = parse_source(doctest.source) if len(doctest.source) < 10_000 else None
        if tree is None or len(tree.body) != 1 or "doctest: +SKIP" in doctest.source:
            continue
        statement = tree.body[0]
        if not isinstance(statement, ast.Expr):
            _remember(statement, variables)
            continue
        used = names_in(statement)
        expression = _substitute(statement.value, variables)
        called = called_name(expression, name, known)
        code = _assertion(expression, doctest.want, called, none_is_meant=none_is_meant) if called else None
        if code is not None and called is not None:
            found.append(CodeExample(position=starts[doctest.line], name=called, code=code))
        for variable in used & set(variables):
            if isinstance(variables[variable], (list, dict, set)):
                del variables[variable]  # the call may have changed it
    return found


def _remember(statement: ast.stmt, variables: dict[str, Any]) -> None:
    """Keep a variable that is given a literal; forget one that is given anything else."""
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    for name in names & set(variables):
        del variables[name]
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        try:
            if isinstance(target, ast.Name):
                variables[target.id] = literal_value(statement.value)
        except ValueError:
            return


class _Substitution(ast.NodeTransformer):
    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.variables:
            return node
        return parse_expression(repr(self.variables[node.id])) or node


def _substitute(expression: ast.expr, variables: dict[str, Any]) -> ast.expr:
    return _Substitution(variables).visit(expression) if variables else expression


def called_name(node: ast.AST, name: str | None, known: Set[str]) -> str | None:
    """The function under test that `node` calls; None where it calls none, several, or names something unknown."""
    called = {call.func.id for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    bound = {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    bound |= {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}
    foreign = names_in(node) - BUILTINS - known - bound
    if name is not None:
        return name if name in called and foreign <= {name} else None
    return next(iter(foreign)) if len(foreign) == 1 and foreign <= called else None


def _assertion(expression: ast.expr, want: str, called: str, *, none_is_meant: bool) -> str | None:
    try:
        source = ast.unparse(expression)
    except RecursionError:
        return None
    is_comparison = isinstance(expression, (ast.Compare, ast.BoolOp)) or (
        isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not)
    )
    if is_comparison and want.strip() in ("", "True"):
        return f"assert {source}"
    if is_comparison:
        return f"assert not ({source})" if want.strip() == "False" else None
    if not want:
        # Python prints nothing for None; so does an author who forgot the value.
        return f"assert {source} is None" if none_is_meant and _calls_directly(expression, called) else None
    printed = _printed(expression)
    if printed is not None:
        several = "\n" in want and want.rsplit("\n", 1)[-1] == "None"
        return None if several or "..." in want else f"assert str({ast.unparse(printed)}) == {want!r}"
    try:
        return equality(source, literal_value(want))
    except ValueError:
        return None


def _calls_directly(expression: ast.expr, called: str) -> bool:
    return isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == called


def _printed(expression: ast.expr) -> ast.expr | None:
    """What `print(x)` prints, x; None for any other expression."""
    if not (isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name)):
        return None
    plain = expression.func.id == "print" and len(expression.args) == 1 and not expression.keywords
    return expression.args[0] if plain and not isinstance(expression.args[0], ast.Starred) else None


def equality(source: str, expected: Any) -> str:
    """The assertion that the expression `source` gives `expected`."""
    return f"assert {source} is None" if expected is None else f"assert {source} == {expected!r}"


def assert_examples(text: str, *, name: str | None, known: Set[str]) -> list[CodeExample]:
    """Assertions that stand alone in the statement, each on its own line or over several."""
    lines, starts = line_starts(text)
    candidates = (index for index, line in enumerate(lines) if _ASSERT.match(line))
    found: list[CodeExample] = []
    for index in itertools.islice(candidates, MAX_EXAMPLES):
        statement = _assert_at(lines, index)
        called = called_name(statement, name, known | {"math"}) if statement is not None else None
        if statement is not None and called is not None:
            imports = "import math\n" if "math" in names_in(statement) else ""
            found.append(CodeExample(position=starts[index], name=called, code=imports + ast.unparse(statement)))
    return found


def _assert_at(lines: Sequence[str], start: int) -> ast.Assert | None:
    """The assertion that begins in line `start`, over as many lines as its brackets need."""
    source, depth = "", 0
    for line in lines[start : start + MAX_LINES]:
        plain = re.sub(r"^[ \t]*(?:>>> ?|\.\.\. ?)?", "", line)[:4_000]
        source += plain + "\n"
        depth += sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}"))
        tree = parse_source(source) if depth <= 0 or source.count("\n") == 1 else None
        if tree is not None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Assert):
            return tree.body[0]
        if depth <= 0 or len(source) > 10_000:
            return None
    return None
