"""The function that a statement leaves to be written, and the code around it.

Limits: a statement longer than `MAX_SOURCE_CHARACTERS` is searched for `def` lines only, not read as one program.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from pot_agent.pysource import Stub, find_stub, names_bound, parse_source

MAX_REGIONS = 50
"""Pieces of code in one statement that are looked at."""

_PLAIN = (
    "int float str bool bytes complex list dict set tuple frozenset None object List Dict Set Tuple FrozenSet Optional "
    "Union Any Sequence Iterable Mapping typing t T collections abc Literal Annotated"
)
PLAIN_ANNOTATIONS = frozenset(_PLAIN.split(" "))
"""Annotations of parameters that a literal in a statement can be passed for (a TreeNode cannot)."""

_DEF = re.compile(r"(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+Solution\b")
_IMPORT = re.compile(r"(?:import|from)[ \t]+\w|@\w")
_FENCE = re.compile(r"[ \t]*(```+|~~~+)[ \t]*(\w*)")


def stub_in(statement: str) -> Stub | None:
    """The stub in a statement: in the statement as a whole, in its last fenced block that has one, or in its text."""
    whole = find_stub(statement) if _may_be_code(statement) else None
    if whole is not None:
        return whole
    lines = statement.splitlines()
    blocks = list(itertools.islice(_fenced(lines), MAX_REGIONS))
    pieces = itertools.chain(reversed(blocks), itertools.islice(_regions(lines), MAX_REGIONS))
    return next((stub for piece in pieces if (stub := find_stub(piece)) is not None), None)


def takes_plain_data(stub: Stub | None) -> bool:
    """Whether literals can be passed to the stub, and what it returns can be compared with one."""
    return stub is None or (set(stub.annotations) <= PLAIN_ANNOTATIONS and not stub.returns_nothing)


def names_defined(code: str) -> frozenset[str]:
    """Names that the top level of `code` defines."""
    tree = parse_source(code)
    return frozenset() if tree is None else frozenset().union(*map(names_bound, tree.body))


def _may_be_code(text: str) -> bool:
    return any(_DEF.match(line) for line in text.splitlines())


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """The fenced blocks that are Python, or say nothing of what they are."""
    start: int | None = None
    mark = ""
    for index, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None or (start is not None and (fence[2] or fence[1] != mark)):
            continue
        if start is None:
            start, mark = index + 1, fence[1]
            is_python = fence[2].lower() in ("", "python", "python3", "py")
        else:
            if is_python and any(_DEF.match(line.lstrip()) for line in lines[start:index]):
                yield "\n".join(lines[start:index])
            start = None


def _regions(lines: Sequence[str]) -> Iterator[str]:
    """Stretches of unfenced code: imports and definitions at the margin, with what is indented below them."""
    index = 0
    while index < len(lines):
        start = index
        has_def = False
        while index < len(lines) and _belongs(lines[index], index > start):
            has_def = has_def or bool(_DEF.match(lines[index]))
            index += 1
        if has_def:
            yield "\n".join(lines[start:index])
        index = max(index, start + 1)


def _belongs(line: str, inside: bool) -> bool:
    if _DEF.match(line) or _IMPORT.match(line):
        return True
    return inside and (not line.strip() or line[0] in " \t)")
