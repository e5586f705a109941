"""Examples in running text: `f(1, 2) == 3`, `f([1]) -> 2`, "f(1) should return 2", "For x = 1 the output should be 2".

Only what can be read in one way counts: a call with literal arguments of a function that is known by name, one of a few
connecting words, a literal, and then nothing that could belong to it. A recurrence such as `f(n) = f(n-1) + 1` beside
`f(1) = 3` makes all examples with its connective doubtful: none of them is used.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pot_agent.pysource import literal_value, names_in, parse_expression
from pot_agent.statement.scan import MAX_SPAN, Budget, bracket_end, literal_at

MAX_CALLS = 2_000
"""Calls of one statement that are looked at."""

_CONNECTIVE = re.compile(
    r"[`\s]{0,8}(==>|==|=>|-->|->|➞|→|⟶|=(?!=)|#[ \t]{0,4}(?:=>|->|==|returns?)|"
    r"(?:should|must|will)\s{1,20}(?:return|be|equal)|returns?|is equal to|equals|evaluates to|gives)"
    r"[:`\s]{0,8}"
)
_TAIL = re.compile(
    r"`?\)?[.,;]?`?[ \t]*(?:$|\n|#|\(|//|and\b(?!\s*[-\d'\"\[({])|(?:because|since|as|for|but|while|where)\b)"
)
"""What may follow an example: the end of the line, a comment, an explanation; never more of a value."""
_ARITHMETIC_TAIL = re.compile(r"[ \d.+\-*/()]{0,200}={1,2}[ \t]*(?=[-\d])")
_OUTPUT_SHOULD_BE = re.compile(
    r",?[ \t]{1,4}(?:the|your) (?:output|result|answer|function) (?:should|must) (?:be|return)[ \t]{1,4}"
)
_BULLET = re.compile(r"(?:[-*•#]|//|\d{1,3}[.)])$")
_OTHER_WORDS = frozenset(
    ["assert", "def", "either", "elif", "if", "neither", "never", "nor", "not", "or", "return", "unless", "while"]
)
"""Words before a call that make what follows something else than an example."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A call and what it must give, at a position of the statement."""

    position: int
    name: str
    call: str
    """Source of the call, or of an expression around it."""
    expected: Any


def prose_examples(text: str, names: Sequence[str], *, known: bool) -> list[Example]:
    """Examples of calls of `names` in running text.

    `known`: the function is known for certain, from a stub or from the caller; only then is a single `=` a connective.
    """
    budget = Budget(4 * len(text) + 10_000)
    found: list[tuple[str, Example]] = []
    recurrences: set[str] = set()
    for start, end in _calls(text, names, budget):
        connective = _CONNECTIVE.match(text, end)
        call = parse_expression(text[start:end]) if connective else None
        if connective is None or not isinstance(call, ast.Call) or not _begins_here(text, start):
            continue
        kind = " ".join(connective[1].split()).lstrip("# ")
        if kind == "=" and not known:
            continue
        if _is_recurrence(call, _rest_of_line(text, connective.end())):
            recurrences.add(kind)
        elif (example := _example(text, start, call, connective, budget)) is not None:
            found.append((kind, example))
    return [example for kind, example in found if kind not in recurrences]


def _calls(text: str, names: Sequence[str], budget: Budget) -> Iterator[tuple[int, int]]:
    """Where the calls of `names` begin and end."""
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})[ ]?\(")
    for start in itertools.islice(pattern.finditer(text) if names else (), MAX_CALLS):
        end = bracket_end(text, start.end() - 1, budget)
        if end is not None:
            yield start.start(), end


def _begins_here(text: str, start: int) -> bool:
    """Whether nothing before the call, on its line, makes it a part of something else."""
    line = text[max(text.rfind("\n", 0, start) + 1, start - 300) : start].strip("`* \t")
    if line.startswith((">>>", "...")):
        return False
    if not line or _BULLET.match(line) or line.endswith((":", ",", ";", ".", '"""', "'''")):
        return True
    word = re.search(r"[A-Za-z]+$", line)
    return word is not None and word[0].lower() not in _OTHER_WORDS


def _rest_of_line(text: str, start: int) -> str:
    return text[start : start + 1_000].partition("\n")[0]


def _is_recurrence(call: ast.Call, right: str) -> bool:
    """Whether the right side speaks of the call's own variables, as in `f(n) = f(n - 1) + 1`."""
    variables = {name for argument in call.args for name in names_in(argument)}
    return bool(variables & set(re.findall(r"\b[A-Za-z_]\w*\b", right.partition("#")[0])))


def _continues(text: str, end: int) -> bool:
    """Whether the sentence goes on in the next line, so that what was read may be half of a value."""
    return re.match(r"`?[ \t]*\n[ \t]*[a-z]+ ", text[end : end + 200]) is not None


def _example(text: str, start: int, call: ast.Call, connective: re.Match[str], budget: Budget) -> Example | None:
    if not _is_plain(call):
        return None
    read = literal_at(text, connective.end(), budget)
    if read is None:
        return None
    value, end = read
    if _TAIL.match(text, end) is None:
        chain = _chained_value(text, connective.end())
        if chain is None:
            return None
        value = chain
    elif connective[1][:1].isalpha() and _continues(text, end):
        return None
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return Example(position=start, name=name, call=ast.unparse(call), expected=value)


def _is_plain(call: ast.Call) -> bool:
    """Whether all arguments are literals."""
    try:
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            literal_value(argument)
    except ValueError:
        return False
    return all(keyword.arg is not None for keyword in call.keywords)


def _chained_value(text: str, start: int) -> int | float | None:
    """The last value of a chain of constant arithmetic such as `19 - 5 - 6 = 8`, where both sides agree."""
    chain = _ARITHMETIC_TAIL.match(text, start)
    if chain is None:
        return None
    left = _arithmetic(parse_expression(chain[0].rstrip().rstrip("=")))
    right = literal_at(text, chain.end(), Budget(1_000))
    if left is None or right is None or right[0] != left or _TAIL.match(text, right[1]) is None:
        return None
    return left if type(right[0]) is type(left) else None


def _arithmetic(node: ast.expr | None) -> int | float | None:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _arithmetic(node.left), _arithmetic(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else None


def sentence_examples(text: str, name: str, parameters: Sequence[str]) -> Iterator[Example]:
    """Examples such as `For s = "abcde", c = "ae", the result should be ("bcd", False)`."""
    budget = Budget(4 * len(text) + 10_000)
    for middle in itertools.islice(_OUTPUT_SHOULD_BE.finditer(text), MAX_CALLS):
        line = max(text.rfind("\n", 0, middle.start()) + 1, middle.start() - MAX_SPAN)
        start = text.rfind("For ", line, middle.start())
        arguments = named_values(text[start + 4 : middle.start()], parameters) if start >= 0 else None
        read = literal_at(text, middle.end(), budget)
        if arguments is not None and read is not None and _TAIL.match(text, read[1]):
            call = f"{name}({', '.join(map(repr, arguments))})"
            yield Example(position=start, name=name, call=call, expected=read[0])


def named_values(text: str, parameters: Sequence[str]) -> list[Any] | None:
    """The values of `a = 1, b = [2]` in the order of the parameters; None unless exactly these are named, once each."""
    tree = parse_expression(f"dict({text.strip().rstrip(',')})") if parameters else None
    if not isinstance(tree, ast.Call) or tree.args or [word.arg for word in tree.keywords] != list(parameters):
        return None
    try:
        return [literal_value(word.value, json_names=True) for word in tree.keywords]
    except ValueError:
        return None


def whole_literal(text: str) -> tuple[Any] | None:
    """The literal that a line of an example is, with nothing after it but a remark; None where it is more or less."""
    stripped = text.strip()
    read = literal_at(stripped, 0, Budget(len(stripped)))
    return (read[0],) if read is not None and _TAIL.match(stripped, read[1]) else None
