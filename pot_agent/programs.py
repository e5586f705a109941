"""The program in a model's answer: the last complete fenced block of Python, else the whole text.

For a function, a block that defines it is preferred to a later one that only uses it; a block that is only the
function's body gets its head back; and imports and helpers that the starter code has above the stub are put back where
the program does not define them itself. Nothing is repaired beyond that: a program that does not parse stays as it is
(null bytes included), and the sandbox says so.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from pot_agent.problem import Problem
from pot_agent.pysource import find_stub, function_defined, names_bound, parse_source

MAX_PROGRAM_CHARACTERS = 200_000
"""Longest program; the rest of a longer one is cut off."""

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_PYTHON = re.compile(r"\{?\.?(?:python|py)[\d.]*(?:$|[\s}:;,{])", re.IGNORECASE)
_THOUGHT_END = "</think>"


@dataclass(frozen=True, kw_only=True)
class Extracted:
    """A program, and how it was found."""

    program: str
    reason: str
    """What the program is: `block`, `unterminated block` or `whole text`, with what was done to it."""


@dataclass(frozen=True, kw_only=True)
class _Block:
    code: str
    language: str
    is_closed: bool


def extract_program(completion: str, problem: Problem) -> Extracted:
    """The program in a completion; never an error, whatever a model wrote."""
    text = without_thought(completion.encode("utf-8", "replace").decode("utf-8"))
    entry_point = problem.entry_point
    block = _choose(list(_blocks(text)), entry_point)
    if block is None:
        program, reason = text, "whole text"
    else:
        program, reason = block.code, "block" if block.is_closed else "unterminated block"
    program = program.removeprefix("\ufeff")
    if len(program) > MAX_PROGRAM_CHARACTERS:
        program, reason = program[:MAX_PROGRAM_CHARACTERS], f"{reason}, cut at {MAX_PROGRAM_CHARACTERS:,} characters"
    if entry_point is not None and problem.starter_code:
        program, change = _completed(program, entry_point.rpartition(".")[2], problem.starter_code)
        reason += change
    return Extracted(program=program.strip("\n").rstrip() + "\n", reason=reason)


def without_thought(text: str) -> str:
    """The text after a reasoning model's thought: nothing, where the thought never ended.

    A chat template may have written the opening tag already; a policy here gives it back with the text.
    """
    if text.lstrip().startswith("<think>"):
        return text.partition(_THOUGHT_END)[2]
    before, end, after = text.partition(_THOUGHT_END)
    return after if end and (after[:1] in ("\n", "") or before.endswith("\n")) else text


def _blocks(text: str) -> Iterator[_Block]:
    """The fenced blocks in order; the last may be unterminated."""
    indent, mark, language = "", "", ""
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.match(line)
        opens = fence is not None and bool(fence[3].strip())
        if not mark:
            if fence is not None:
                indent, mark, language, lines = fence[1], fence[2], fence[3].strip(), []
        elif fence is not None and fence[2].startswith(mark):
            yield _Block(code=_dedent(lines, indent), language=language, is_closed=True)
            # A fence that names a language inside an open block: the model forgot to close the one before.
            indent, mark, language, lines = (fence[1], fence[2], fence[3].strip(), []) if opens else ("", "", "", [])
        else:
            lines.append(line)
    if mark and any(line.strip() for line in lines):
        yield _Block(code=_dedent(lines, indent), language=language, is_closed=False)


def _dedent(lines: list[str], indent: str) -> str:
    return "\n".join(line.removeprefix(indent) for line in lines)


def _choose(blocks: list[_Block], entry_point: str | None) -> _Block | None:
    """The last block that defines the function, or else the last complete block that is a Python program."""
    closed = [block for block in blocks if block.is_closed and _is_program(block)]
    candidates = closed or [block for block in blocks if _is_python(block)]
    if entry_point is not None:
        name = entry_point.rpartition(".")[2]
        defining = [block for block in candidates if re.search(rf"\bdef[ \t]+{name}\b", block.code)]
        candidates = defining or candidates
    return candidates[-1] if candidates else None


def _is_python(block: _Block) -> bool:
    return not block.language or bool(_PYTHON.match(block.language))


def _is_program(block: _Block) -> bool:
    """Whether a block is Python by its label, or has none and reads as a program (not as output or a shell session)."""
    if block.language:
        return _is_python(block) and bool(block.code.strip())
    tree = parse_source(textwrap.dedent(block.code))
    return tree is not None and any(_does_something(statement) for statement in tree.body)


def _does_something(statement: ast.stmt) -> bool:
    return not isinstance(statement, ast.Expr) or any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _completed(program: str, name: str, starter_code: str) -> tuple[str, str]:
    """The program with what the starter code has and it lacks, and what was done."""
    tree = parse_source(program)
    if tree is None or not function_defined(tree, name):
        with_head = _with_head(program, name, starter_code)
        if with_head is not None:
            return with_head, ", a body under the starter code's head"
    if tree is None:
        return program, ""
    missing = _missing(tree, name, starter_code)
    if not missing:
        return program, ""
    # `from __future__ import ...` must stay first.
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    after = max((node.end_lineno or 0 for node in futures), default=0)
    lines = program.split("\n") if futures else program.strip("\n").split("\n")
    return "\n".join([*lines[:after], missing, "", *lines[after:]]), ", with the starter code's helpers"


def _with_head(program: str, name: str, starter_code: str) -> str | None:
    """The starter code with `program` as the body of its stub, where it is one; None where it is not."""
    stub = find_stub(starter_code)
    body = textwrap.dedent(program.strip("\n"))
    tree = parse_source(body)
    if stub is None or stub.name != name or tree is None or not _is_body(tree, program):
        return None
    indent = " " * (8 if stub.is_method else 4)
    return f"{stub.code.rstrip()}\n{textwrap.indent(body, indent)}\n"


def _is_body(tree: ast.Module, source: str) -> bool:
    """Whether statements are a function's body: they return, or they came indented."""
    first = source.strip("\n")[:1]
    return any(_returns(statement) for statement in tree.body) or (bool(tree.body) and first in (" ", "\t"))


def _returns(statement: ast.stmt) -> bool:
    """Whether a statement returns or yields outside of any function."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Return, ast.Yield)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def _missing(tree: ast.Module, name: str, starter_code: str) -> str:
    """Source of the starter code's imports, constants and helpers that the program does not define itself."""
    starter = parse_source(starter_code) or parse_source(starter_code.rstrip() + "\n    pass\n")
    if starter is None:
        return ""
    own: set[str] = {name, "Solution"}.union(*map(names_bound, tree.body))
    pieces = [
        ast.get_source_segment(starter_code, statement) or ""
        for statement in starter.body
        if (bound := names_bound(statement)) and not bound <= own
    ]
    return "\n".join(piece for piece in pieces if piece)
