"""What is to be solved: a statement and the tests that a program can be seen to pass.

Tests come from, in this order: those given; examples found in the statement (`pot_agent.statement`); none at all. A
problem is plain data: `to_dict` gives JSON types only (`pot_agent.values` says how), and `Problem.parse` reads them.

Hidden tests of a benchmark never enter this type.
"""

import ast
import difflib
import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pot_agent.errors import ProblemError
from pot_agent.pysource import Stub, called_functions, find_stub, is_function_name
from pot_agent.statement import find_examples, stub_in
from pot_agent.testcases import (
    AssertTest,
    CallTest,
    Compare,
    StdinTest,
    Test,
    parse_tests,
    test_to_dict,
)
from pot_agent.values import clean_text, decode_value, encode_value, shorten

__all__ = [
    "MAX_TEXT_CHARACTERS",
    "AssertTest",
    "CallTest",
    "Compare",
    "Evidence",
    "Limits",
    "Problem",
    "StdinTest",
    "Test",
    "decode_value",
    "encode_value",
    "load_problem",
    "parse_tests",
    "test_to_dict",
]

MAX_TEXT_CHARACTERS = 1_000_000
"""Longest statement, in characters; no model's context holds more."""
MAX_FILE_BYTES = 256_000_000
"""Largest problem file, in bytes."""

Evidence = Literal["given", "examples", "generated", "none"]
"""Where the tests come from, and so what a full pass is worth."""

FIELDS = ("problem", "text", "tests", "entry_point", "starter_code", "setup", "limits", "evidence")
_FOR_PEOPLE = "author benchmark difficulty id kind licence license name note origin source tags task_id title url"
INFORMATIONAL = frozenset(_FOR_PEOPLE.split(" "))
"""Keys of a problem's object that say something to people; they are read over."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one test of one program may use."""

    cpu_seconds: float = 10.0
    wall_seconds: float | None = None
    """Backstop for programs that wait; None: twice the CPU limit plus one second."""
    memory_mb: int = 1024
    """Address space, in MiB."""
    output_kb: int = 4096
    """Standard output, and standard error, in KiB each."""

    def __post_init__(self) -> None:
        for name in ("cpu_seconds", "wall_seconds", "memory_mb", "output_kb"):
            limit = getattr(self, name)
            if name == "wall_seconds" and limit is None:
                continue
            number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
            low = 1 / 1024 if name == "output_kb" else 0  # a byte
            if not number or not 0 < limit < 1e9 or limit < low:
                raise ProblemError(f"limits: {name} must be a number above {low:g}, got {shorten(limit)}", value=limit)

    @property
    def wall(self) -> float:
        """Wall-clock limit in seconds."""
        return self.wall_seconds if self.wall_seconds is not None else 2 * self.cpu_seconds + 1

    @classmethod
    def parse(cls, given: Any) -> Self:
        """Limits from a mapping, by the names of the fields."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ProblemError(
                f"limits must be an object such as {{'cpu_seconds': 2}}, got {shorten(given)}", value=given
            )
        unknown = sorted(set(map(str, given)) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise ProblemError(f"limits: no such limit: {', '.join(unknown)}; there are {known}", value=given)
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A statement, its visible tests, and what a program for it must look like."""

    text: str
    tests: tuple[Test, ...] = ()
    entry_point: str | None = None
    """The function to write; None for a program that reads stdin and writes stdout."""
    starter_code: str = ""
    """Code that the program starts from: a stub, perhaps with imports and helpers above it."""
    setup: str = ""
    """Code that runs before the program in the same namespace (imports that the tests need)."""
    limits: Limits | None = None
    evidence: Evidence = "none"

    @classmethod
    def parse(cls, given: "Problem | str | Mapping[str, Any]", **flat: Any) -> Self:
        """Read a problem from text, from a mapping with `problem` (or `text`) and the flat fields, or from a Problem.

        Flat fields given by keyword win over those in the mapping; None counts as not given. Where no tests are given,
        examples in the statement are looked for; where no function or starter code is, the statement's own stub
        counts. Raises `ProblemError`, always with the value that was wrong.
        """
        source = _flatten(given, flat)
        limits = source.get("limits")
        problem = cls(
            text=_text(source.get("problem", source.get("text")), "problem", required=True),
            entry_point=_entry_point(source.get("entry_point")),
            starter_code=_text(source.get("starter_code"), "starter_code"),
            setup=_text(source.get("setup"), "setup"),
            limits=None if limits is None else Limits.parse(limits),
        )
        tests, evidence = parse_tests(source.get("tests")), _evidence(source.get("evidence"))
        return problem._with_given(tests, evidence) if tests else problem._with_examples()

    def _with_given(self, tests: tuple[Test, ...], evidence: Evidence) -> Self:
        if any(isinstance(test, StdinTest) for test in tests):
            _check_calls_have_a_function(tests, self.entry_point)
            return replace(self, tests=tests, evidence=evidence)
        stub, called = self._stub(), _called_by(tests)
        if stub is not None and called and stub.name not in called:
            stub = None
        entry_point = self.entry_point or (stub.name if stub else called.pop() if len(called) == 1 else None)
        _check_calls_have_a_function(tests, entry_point)
        starter_code = self.starter_code or (stub.code if stub is not None else "")
        return replace(self, tests=tests, evidence=evidence, entry_point=entry_point, starter_code=starter_code)

    def _with_examples(self) -> Self:
        statement = self.text if self.starter_code in self.text else f"{self.text}\n\n{self.starter_code}"
        found = find_examples(statement, entry_point=self.entry_point)
        tests = parse_tests(found.tests)
        return replace(
            self,
            tests=tests,
            entry_point=self.entry_point or found.entry_point,
            starter_code=self.starter_code or found.starter_code,
            evidence="examples" if tests else "none",
        )

    def _stub(self) -> Stub | None:
        """The stub in the starter code or in the statement; it must be of the entry point, where that is given."""
        stub = find_stub(self.starter_code) if self.starter_code else stub_in(self.text)
        wrong = stub is not None and self.entry_point and self.entry_point.rpartition(".")[2] != stub.name
        return None if wrong else stub

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `Problem.parse` of the result gives an equal problem, if this one was parsed."""
        result: dict[str, Any] = {
            "problem": self.text,
            "tests": [test_to_dict(test) for test in self.tests],
            "entry_point": self.entry_point,
            "starter_code": self.starter_code,
            "setup": self.setup,
            "evidence": self.evidence,
        }
        if self.limits is not None:
            result["limits"] = {name: getattr(self.limits, name) for name in Limits.__dataclass_fields__}
        return result


def load_problem(source: str | Path) -> Problem:
    """A problem from a file, or from text that names no file.

    A `.json` file, and text that is a JSON object, holds the fields of a problem; any other file (`.txt`, `.md`, `.py`)
    is a statement. Raises `ProblemError`.
    """
    path = _existing_file(source)
    text = _read(path) if path is not None else str(source)
    if path is not None and path.suffix.lower() == ".json":
        return Problem.parse(_json_object(text, str(path)))
    if path is None and text.lstrip().startswith("{"):
        try:
            return Problem.parse(_json_object(text, "the problem"))
        except ProblemError as error:
            if not isinstance(error.__cause__, ValueError):
                raise
    return Problem.parse(text)


def _existing_file(source: str | Path) -> Path | None:
    """The file that is meant; None where `source` is the statement itself."""
    if isinstance(source, str) and (not source.strip() or "\n" in source or len(source) > 1_000 or "\x00" in source):
        return None
    path = Path(source)
    try:
        if path.is_file():
            return path
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None  # no file can have such a name: it is the statement
        raise ProblemError(f"{path} cannot be read: {error.strerror}", value=str(source)) from error
    suffix, is_one_word = path.suffix.lower(), len(str(source).split()) == 1
    named = suffix in (".json", ".jsonl") or (suffix in (".txt", ".md", ".py") and is_one_word)
    if isinstance(source, Path) or named or path.is_dir():
        kind = "a folder, not a file" if path.is_dir() else "no such file"
        raise ProblemError(f"{kind}: {shorten(str(source))}; give a file (.json, .txt, .md) or the text", value=source)
    return None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            size = path.stat().st_size
            raise ProblemError(f"{path} has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}", value=size)
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path} cannot be read: {error}", value=str(path)) from error


def _json_object(text: str, where: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{where} is not JSON: {error}", value=text[:200]) from error
    if not isinstance(given, Mapping):
        raise ProblemError(f"{where} must hold one object with `problem`, got {shorten(given)}", value=given)
    return given


def _flatten(given: Any, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The flat fields, those by keyword first; a problem may itself be an object under `problem`, once."""
    keywords = {name: value for name, value in flat.items() if value is not None}
    source = _mapping(given)
    nested = source.get("problem", source.get("text"))
    if isinstance(nested, (Mapping, Problem)):
        outer = {name: value for name, value in source.items() if name not in ("problem", "text")}
        source = _mapping(nested)
        keywords = outer | keywords
    if "tests" in keywords:
        source.pop("evidence", None)
    source.update(keywords)
    unknown = sorted(set(map(str, source)) - set(FIELDS) - INFORMATIONAL)
    if unknown:
        raise ProblemError(_unknown_field(unknown[0]), value=unknown)
    return source


def _mapping(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"problem": given}
    if isinstance(given, Problem):
        return {name: value for name, value in given.to_dict().items() if value is not None}
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if value is not None}
    raise ProblemError(f"a problem is text or an object with `problem`, got {shorten(given)}", value=given)


def _unknown_field(name: str) -> str:
    if name == "hidden_tests":
        return "hidden tests never enter a problem: leave `hidden_tests` out, and run them on the answer yourself"
    close = difflib.get_close_matches(name, FIELDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(FIELDS)}"
    return f"a problem has no field {shorten(name)}{hint}"


def _text(value: Any, name: str, *, required: bool = False) -> str:
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise ProblemError(f"{name} must be text, got {shorten(value)}", value=value)
    if required and not value.strip():
        raise ProblemError(f"{name} is empty; give the statement of what is to be solved", value=value)
    if "\x00" in value:
        raise ProblemError(f"{name} has a null byte at character {value.index(chr(0))}; remove it", value=value)
    if len(value) > MAX_TEXT_CHARACTERS:
        raise ProblemError(
            f"{name} has {len(value):,} characters; the limit is {MAX_TEXT_CHARACTERS:,}, and a model's context is "
            "usually far less: shorten it",
            value=len(value),
        )
    return clean_text(value, name)


def _entry_point(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not is_function_name(value):
        raise ProblemError(f"entry_point must be the name of a function, got {shorten(value)}", value=value)
    return value


def _evidence(value: Any) -> Evidence:
    if value is not None and value not in get_args(Evidence):
        known = ", ".join(get_args(Evidence))
        raise ProblemError(f"evidence must be one of {known}, got {shorten(value)}", value=value)
    return "given" if value in (None, "none") else value


def _called_by(tests: Sequence[Test]) -> set[str]:
    """The functions that the assertions call, builtins aside."""
    codes = [test.code for test in tests if isinstance(test, AssertTest)]
    return {name for code in codes for name in called_functions(ast.parse(code))}


def _check_calls_have_a_function(tests: Sequence[Test], entry_point: str | None) -> None:
    if entry_point is None and any(isinstance(test, CallTest) for test in tests):
        raise ProblemError("call tests need entry_point, the name of the function to call", value=None)
