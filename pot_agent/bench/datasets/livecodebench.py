"""LiveCodeBench code generation, lite (problems of their own publishers): stdin programs and `class Solution`.

v5 here is `test5.jsonl` (167 problems) and v6 is `test6.jsonl` (175): the problems that each release added, as in the
paper, not the releases' sums. Visible: the public tests. Hidden: the private ones, which stay packed in the file until
they are run, since a release inflates to gigabytes. Outputs are compared by the published rule (`compare="lcb"`);
values by equality, lists and tuples alike, except that True is no answer where 1 is expected. The published prompt and
the imports that the published grader puts before each program are used as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pot_agent.bench.datasets.base import Line, Row, digest_of, read_json, read_line_at, text_of
from pot_agent.bench.datasets.building import problem_of, separate_tests
from pot_agent.bench.datasets.lazy import LazyTests
from pot_agent.bench.datasets.safe_pickle import decode_private_tests
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError, ProblemError
from pot_agent.problem import CallTest, Limits, StdinTest, Test
from pot_agent.values import shorten

FILES = {"lcb_v5": "test5.jsonl", "lcb_v6": "test6.jsonl"}
COUNTS = {"lcb_v5": 167, "lcb_v6": 175}
HUB_ID = "livecodebench/code_generation_lite"
LICENCE = "CC"
LIMITS = Limits(cpu_seconds=6.0, memory_mb=2048)
"""Six seconds for each test, as published; memory, for which the published grader has no limit, is this project's."""

_STAR = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
)
IMPORTS = "; ".join(
    [
        *(f"from {name} import *" for name in [*_STAR.split(), "builtins", "typing"]),
        f"import {', '.join(_STAR.split())}",
        "sys.setrecursionlimit(50000)",
    ]
)
"""On one line, so that line numbers of a program are off by one at most."""
_FORMAT_STDIN = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)
_FORMAT_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)


def is_row(row: Row) -> bool:
    """Whether a row has this benchmark's own fields."""
    return "private_test_cases" in row and "question_content" in row


def task_of(line: Line, benchmark: str) -> Task:
    """The task of a row; its hidden tests are read from the file again when they are run."""
    row, name = line.row, text_of(line.row, "question_id", line.where)
    where, starter_code = f"{line.where} ({name})", text_of(line.row, "starter_code", line.where, "")
    function = _function(row, where)
    public, private = _tests(text_of(row, "public_test_cases", where), where), _private_tests(row, where)
    visible, hidden = separate_tests(public, private, where)
    question = text_of(row, "question_content", where)
    return Task(
        id=name,
        benchmark=benchmark,
        kind="stdin" if function is None else "function",
        problem=problem_of(
            _prompt(question, starter_code),
            visible,
            where,
            entry_point=f"Solution.{function}" if function else None,
            starter_code=starter_code if function else "",
            setup=IMPORTS,
            limits=LIMITS,
        ),
        hidden=LazyTests.of(_Private(line.path, line.offset, where), hidden, private),
        hidden_limits=LIMITS,
        digest=digest_of(name, question, starter_code, row["public_test_cases"], row["private_test_cases"]),
        tags=tuple(str(row[key]) for key in ("difficulty", "platform") if row.get(key)),
        note=f"contest {row.get('contest_id', '?')} of {str(row.get('contest_date', '?'))[:10]}",
    )


@dataclass(frozen=True)
class _Private:
    """Reads the private tests of one row."""

    path: Path
    offset: int
    where: str

    def __call__(self) -> Sequence[Test]:
        return _private_tests(read_line_at(self.path, self.offset), self.where)


def _prompt(question: str, starter_code: str) -> str:
    if starter_code:
        code = f"{_FORMAT_STARTER}\n```python\n{starter_code}\n```"
    else:
        code = f"{_FORMAT_STDIN}\n```python\n# YOUR CODE HERE\n```"
    return f"### Question:\n{question}\n\n### Format: {code}\n\n### Answer: (use the provided format with backticks)"


def _function(row: Row, where: str) -> str | None:
    """The method of `class Solution` to be written; None for a program that reads standard input."""
    given = row.get("metadata") or "{}"
    metadata = read_json(given, f"{where}, metadata") if isinstance(given, str) else given
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    if name is not None and (not isinstance(name, str) or not name.isidentifier()):
        raise DatasetError(f"{where}: func_name must be a name, got {shorten(name)}", value=name)
    return name


def _private_tests(row: Row, where: str) -> tuple[Test, ...]:
    """A few releases have them as plain JSON."""
    packed = text_of(row, "private_test_cases", where)
    return _tests(packed if packed.lstrip().startswith("[") else decode_private_tests(packed, where), where)


def _tests(text: str, where: str) -> tuple[Test, ...]:
    given = read_json(text, where)
    if not isinstance(given, list):
        raise DatasetError(f"{where}: test cases must be a list, got {shorten(given)}", value=given)
    return tuple(_test(test, where) for test in given)


def _test(given: Any, where: str) -> Test:
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("input", "output")):
        raise DatasetError(f"{where}: a test case needs input and output as text, got {shorten(given)}", value=given)
    kind = given.get("testtype")
    try:
        if kind == "stdin":
            return StdinTest(input=given["input"], output=given["output"], compare="lcb")
        if kind == "functional":
            args = tuple(read_json(line, where) for line in given["input"].split("\n") if line.strip())
            return CallTest(args=args, expected=read_json(given["output"], where), rel=0.0, abs=0.0)
    except ProblemError as error:
        raise DatasetError(f"{where}: {error}", value=error.value) from error
    raise DatasetError(f"{where}: testtype must be stdin or functional, got {shorten(kind)}", value=kind)
