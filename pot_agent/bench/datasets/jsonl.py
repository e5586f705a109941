"""A user's own JSON Lines: problems as `pot solve` reads them, with `hidden_tests` and an `id`.

Rows that are a known benchmark's (HumanEval's, MBPP's, LiveCodeBench's own fields) are read as that benchmark's.
Exports that call things `prompt`, `visible_tests`, `preamble`, `test_setup` are read too. A row's `checker` says how
standard output is compared: `{"type": "tokens" | "float" | "exact" | "unordered" | "lcb", "abs": ..., "rel": ...}`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pot_agent.bench.datasets import humaneval, livecodebench, mbpp
from pot_agent.bench.datasets.base import Line, Row, digest_of, text_of
from pot_agent.bench.datasets.building import separate_assertions, separate_tests
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError, ProblemError
from pot_agent.problem import INFORMATIONAL, AssertTest, Limits, Problem, StdinTest, Test, parse_tests
from pot_agent.testcases import Compare
from pot_agent.values import shorten

_RENAMED = {"prompt": "problem", "text": "problem", "visible_tests": "tests"}
_OURS = frozenset({"problem", "tests", "entry_point", "starter_code", "limits"})
_READ_HERE = frozenset({"hidden_tests", "hidden_setup", "setup", "preamble", "test_setup", "checker"})
_EXPORTED = frozenset(
    {"canonical_solution", "official_test", "n_hidden_dropped_as_visible", "easy_rank", "hidden_manifest"}
    | {"output_limit"}
)
"""Fields of an export that say nothing about a task."""
_MOST_ID = 10**18
_MOST_DIGITS = 300
"""Below the smallest number that a float holds in full."""


def task_of(line: Line, benchmark: str) -> Task:
    """The task of a row of whatever kind."""
    row = line.row
    if livecodebench.is_row(row):
        return livecodebench.task_of(line, benchmark)
    if humaneval.is_row(row):
        return humaneval.task_of(row, line.where, benchmark)
    if mbpp.is_row(row):
        return mbpp.task_of(row, line.where, benchmark)
    return _own(row, line, benchmark)


def _own(row: Row, line: Line, benchmark: str) -> Task:
    name = _id(row, line)
    where = f"{line.where} ({name})"
    given = _problem(row, where)
    try:
        compared = _comparison(row.get("checker"), where)
        problem = Problem.parse(given)
        shown = [_compared(test, compared) for test in problem.tests]
        graded = [_compared(test, compared) for test in parse_tests(row.get("hidden_tests"), "hidden_tests")]
    except ProblemError as error:
        raise DatasetError(f"{where}: {error}", value=error.value) from error
    visible, hidden = _separated(shown, graded, problem.entry_point, where)
    evidence = problem.evidence if visible else "none"
    problem = replace(problem, tests=tuple(visible), evidence=evidence)
    return Task(
        id=name,
        benchmark=benchmark,
        kind="stdin" if any(isinstance(test, StdinTest) for test in hidden) else "function",
        problem=problem,
        hidden=tuple(hidden),
        hidden_setup=text_of(row, "hidden_setup", where, ""),
        hidden_limits=problem.limits or Limits(),
        digest=digest_of({key: value for key, value in row.items() if key not in INFORMATIONAL}, name),
        tags=_tags(row, where),
        note=_note(row, len(shown) - len(visible), where),
    )


def _id(row: Row, line: Line) -> str:
    """What the row is called; its place in the file where it says nothing."""
    for key in ("id", "name"):
        value = row.get(key)
        if value is None or value == "":
            continue
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_ID:
            return str(value)
        if not isinstance(value, str):
            raise DatasetError(
                f"{line.where}: {key} must be text or a number below 10^18, got {shorten(value)}", value=value
            )
        return value
    return f"{Path(line.path).stem}/{line.number}"


def _tags(row: Row, where: str) -> tuple[str, ...]:
    tags = row.get("tags")
    tags = () if tags is None else tags
    if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) for tag in tags):
        raise DatasetError(f"{where}: tags must be a list of texts, got {shorten(tags)}", value=tags)
    return tuple(tags)


def _note(row: Row, left_out: int, where: str) -> str:
    note = text_of(row, "note", where, "")
    said = [note] if note else []
    if left_out:
        said.append(f"{left_out} visible tests left out: hidden tests contradict them, or have no others")
    return "; ".join(said)


def _problem(row: Row, where: str) -> dict[str, Any]:
    """The fields of a problem, under this project's names."""
    given: dict[str, Any] = {}
    for key, value in row.items():
        name = _RENAMED.get(key, key)
        if name in _OURS:
            if name in given:
                raise DatasetError(f"{where}: {key} and another field both give the {name}", value=key)
            given[name] = value
        elif key not in _READ_HERE | _EXPORTED | INFORMATIONAL:
            known = ", ".join(sorted({*_OURS, *_READ_HERE, *_RENAMED}))
            raise DatasetError(f"{where}: a row has no field {shorten(key)}; there are {known}", value=key)
    given["limits"] = _limits(given.get("limits"), where)
    setup = [text_of(row, key, where, "") for key in ("setup", "test_setup", "preamble")]
    given["setup"] = "\n".join(part.strip("\n") for part in setup if part.strip())
    return given


def _limits(given: Any, where: str) -> Any:
    """`time_s` and `memory_kib` of an export, under this project's names."""
    if not isinstance(given, Mapping) or not set(given) <= {"time_s", "memory_kib"}:
        return given
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given.values())
    if not numbers:
        raise DatasetError(f"{where}: limits must be numbers, got {shorten(dict(given))}", value=dict(given))
    limits: dict[str, Any] = {}
    if "time_s" in given:
        limits["cpu_seconds"] = given["time_s"]
    if "memory_kib" in given:
        limits["memory_mb"] = given["memory_kib"] // 1024
    return limits


def _comparison(given: Any, where: str) -> dict[str, Any]:
    """Fields of `StdinTest` from a row's `checker`."""
    if given is None or given == {"type": "tokens"}:
        return {}
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind not in get_args(Compare):
        known = ", ".join(get_args(Compare))
        raise DatasetError(
            f"{where}: checker's type must be one of {known}, got {shorten(kind)}; a test may have a `checker` of its "
            "own, in Python",
            value=kind,
        )
    fields: dict[str, Any] = {"compare": kind}
    for name in ("abs", "rel"):
        if isinstance(given, Mapping) and name in given:
            fields[name] = given[name]
    if isinstance(given, Mapping) and "precision" in given:
        digits = given["precision"]
        if not isinstance(digits, int) or isinstance(digits, bool) or not 0 <= digits <= _MOST_DIGITS:
            raise DatasetError(
                f"{where}: checker's precision must be a whole number of digits from 0 to {_MOST_DIGITS}, got "
                f"{shorten(digits)}",
                value=digits,
            )
        fields |= {"abs": 10.0**-digits, "rel": 10.0**-digits}
    return fields


def _compared(test: Test, fields: Mapping[str, Any]) -> Test:
    """The row's rule, for tests of standard output that have none of their own."""
    own = not isinstance(test, StdinTest) or test.checker or test.compare != "tokens"
    return test if own or not fields else replace(test, **fields)


def _separated(
    shown: list[Test], graded: list[Test], entry_point: str | None, where: str
) -> tuple[list[Test], list[Test]]:
    codes = [test.code for test in shown + graded if isinstance(test, AssertTest)]
    if entry_point is None or len(codes) < len(shown) + len(graded):
        return separate_tests(shown, graded, where)
    visible, hidden = separate_assertions(codes[: len(shown)], codes[len(shown) :], entry_point, where)
    by_code: dict[str, Test] = {test.code: test for test in shown + graded if isinstance(test, AssertTest)}
    return [by_code[code] for code in visible], [by_code[code] for code in hidden]
