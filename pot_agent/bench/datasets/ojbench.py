"""OJBench, ICPC part (CC-BY-4.0): statements in `prompts/full.jsonl`, cases in folders of the DMOJ judge.

Visible: the samples in the statement, judged as the hidden cases are. Hidden: the folder's cases. Of the 73 problems
those that are a conversation with a judge are named and skipped. Only the rows for Python are read; the format that
they ask for stays part of the statement, as published.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pot_agent.bench.datasets.base import Line, Row, digest_of, text_of
from pot_agent.bench.datasets.building import problem_of, separate_tests
from pot_agent.bench.datasets.dmoj import Comparison, InteractiveError, cases, comparison, read_init
from pot_agent.bench.datasets.lazy import LazyTests
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError
from pot_agent.problem import Limits, StdinTest, Test
from pot_agent.statement import find_examples

COUNT = 73
"""Problems, the interactive ones included."""
HUB_ID = "He-Ren/OJBench_testdata"
LICENCE = "CC-BY-4.0"
LIMITS = Limits(cpu_seconds=10.0, memory_mb=1024, output_kb=16 << 10)
PROMPTS, FOLDER = "prompts/full.jsonl", "ICPC"


def icpc_rows(lines: Iterable[Line]) -> Iterator[Line]:
    """The rows of this part, those for other languages left out."""
    for line in lines:
        if str(line.row.get("dataset", "")).lower() == "icpc" and line.row.get("language", "python") == "python":
            yield line


def task_of(line: Line, root: Path, benchmark: str) -> Task:
    """The task of a row. Raises `InteractiveError` where it is a conversation."""
    name, prompt = text_of(line.row, "id", line.where), text_of(line.row, "prompt", line.where)
    where, folder = f"{line.where} ({name})", root / FOLDER / name
    if not folder.resolve().is_relative_to((root / FOLDER).resolve()):
        raise DatasetError(f"{where}: the id names no folder of {root / FOLDER}", value=name)
    init = read_init(folder)
    compared = comparison(folder, init)
    read = _Cases(folder, tuple(sorted(compared.items())))
    found = read()
    visible, hidden = separate_tests(_samples(prompt, compared), found, where)
    return Task(
        id=name,
        benchmark=benchmark,
        kind="stdin",
        problem=problem_of(prompt, visible, where, limits=LIMITS),
        hidden=LazyTests.of(read, hidden, found),
        hidden_limits=LIMITS,
        digest=digest_of(name, prompt, init, [[test.input, test.output] for test in found]),
        tags=_tags(line.row),
        note="several answers may be right" if "checker" in compared else "",
    )


@dataclass(frozen=True)
class _Cases:
    """Reads the cases of one folder."""

    folder: Path
    compared: tuple[tuple[str, Any], ...]

    def __call__(self) -> Sequence[StdinTest]:
        return tuple(cases(self.folder, read_init(self.folder), dict(self.compared)))


def _samples(prompt: str, compared: Comparison) -> list[Test]:
    found = (test for test in find_examples(prompt).tests if test["type"] == "stdin")
    return [replace(StdinTest(input=test["input"], output=test["output"]), **compared) for test in found]


def _tags(row: Row) -> tuple[str, ...]:
    return (str(row["difficulty"]),) if row.get("difficulty") else ()


__all__ = ["COUNT", "FOLDER", "HUB_ID", "LICENCE", "PROMPTS", "InteractiveError", "icpc_rows", "task_of"]
