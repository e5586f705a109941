"""Data sets by name, or from a user's own JSON Lines: `load("humaneval")`, `load("problems.jsonl")`.

Limits first: the number of problems of each benchmark is checked, and for HumanEval and MBPP the contents too; what the
others publish is not known here, so their digest is reported and not compared. `NAME:partial` takes any part of a
benchmark, and any change of it, and says so by its name.
"""

from pathlib import Path

from pot_agent.bench.datasets import jsonl, sources
from pot_agent.bench.datasets.base import Dataset, digest_of_tasks
from pot_agent.bench.datasets.dmoj import InteractiveError
from pot_agent.bench.datasets.registry import ALIASES, BENCHMARKS, Benchmark
from pot_agent.bench.task import Task
from pot_agent.errors import ConfigError, DatasetError, DatasetNotFoundError

__all__ = ["NAMES", "PARTIAL", "Dataset", "canonical_name", "load"]

NAMES: tuple[str, ...] = tuple(BENCHMARKS)
PARTIAL = ":partial"
_FILE_ENDINGS = (".jsonl", ".jsonl.gz", ".json")


def load(name: str, *, data: Path | None = None) -> Dataset:
    """The tasks of a benchmark, or of a user's file (`.jsonl`, `.jsonl.gz`, or `.json` with a list).

    `data` is the folder, or the file, where a benchmark's rows are; without it, what is installed is used, or the hub.
    Raises `ConfigError` for an unknown name, `DatasetNotFoundError`, and `DatasetError` for rows that are not right.
    """
    known = canonical_name(name)
    if known is None and data is not None:
        raise ConfigError(
            f"{name} is a file of your own, and data is where a benchmark's rows are: leave it out", value=name
        )
    if known is None:
        return _from_file(Path(name).expanduser())
    benchmark = BENCHMARKS[known.removesuffix(PARTIAL)]
    rows = _rows(benchmark, data)
    tasks, skipped = [], []
    for line in benchmark.select(rows.lines):
        try:
            tasks.append(benchmark.build(line, rows.root, known))
        except InteractiveError as error:
            skipped.append((str(error.value), error.message))
    dataset = _dataset(known, tasks, rows.source, benchmark.licence, tuple(skipped))
    if not known.endswith(PARTIAL):
        _check(benchmark, dataset)
    return dataset


def canonical_name(name: str) -> str | None:
    """The name as manifests have it; None for a user's file. Raises `ConfigError` for neither."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"a data set is one of {', '.join(NAMES)}, or a .jsonl file, got {name!r}", value=name)
    plain = name.strip().lower()
    partial = PARTIAL if plain.endswith(PARTIAL) else ""
    plain = plain.removesuffix(PARTIAL).replace("-", "_").replace(" ", "_")
    known = ALIASES.get(plain, plain)
    if known in BENCHMARKS:
        return known + partial
    if name.endswith(_FILE_ENDINGS) or Path(name).expanduser().is_file():
        return None
    raise ConfigError(
        f"no data set is called {name!r}; there are {', '.join(NAMES)} (each also as NAME{PARTIAL}), or give a file "
        f"({', '.join(_FILE_ENDINGS)})",
        value=name,
    )


def _rows(benchmark: Benchmark, data: Path | None) -> sources.Rows:
    try:
        if data is not None:
            return sources.from_data(Path(data), benchmark.files, benchmark.name)
        return benchmark.fetch()
    except DatasetNotFoundError as error:
        ways = "; ".join(benchmark.ways)
        raise DatasetNotFoundError(f"{error}. Ways to get {benchmark.title}: {ways}", value=error.value) from error


def _from_file(path: Path) -> Dataset:
    if not path.is_file():
        raise DatasetNotFoundError(f"no such file: {path}; give a benchmark's name or JSON Lines", value=str(path))
    name = path.name
    for ending in _FILE_ENDINGS:
        name = name.removesuffix(ending)
    lines = list(sources.lines_of(path))
    tasks = [jsonl.task_of(line, name) for line in lines]
    licences = {str(line.row.get("licence") or line.row.get("license") or "not stated") for line in lines}
    return _dataset(name, tasks, str(path), "; ".join(sorted(licences)), ())


def _dataset(name: str, tasks: list[Task], source: str, licence: str, skipped: tuple[tuple[str, str], ...]) -> Dataset:
    if not tasks:
        left_out = f" ({len(skipped)} rows were skipped)" if skipped else ""
        raise DatasetError(f"{source} has no problem of {name}{left_out}", value=source)
    seen: set[str] = set()
    for task in tasks:
        if not _can_be_written(task.id):
            raise DatasetError(
                f"{source}: an id must be text that can be written as UTF-8, got {task.id!r}", value=task.id
            )
        if task.id in seen:
            raise DatasetError(f"{source}: two rows are called {task.id}; ids must differ", value=task.id)
        seen.add(task.id)
    return Dataset(
        name=name,
        tasks=tuple(tasks),
        source=source,
        licence=licence,
        digest=digest_of_tasks(tasks),
        skipped=skipped,
    )


def _can_be_written(text: str) -> bool:
    """Whether it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(benchmark: Benchmark, dataset: Dataset) -> None:
    """As many problems as were published, and those."""
    found, asked = len(dataset.tasks) + len(dataset.skipped), f"{benchmark.name}{PARTIAL}"
    if found != benchmark.count:
        raise DatasetError(
            f"{benchmark.title} has {benchmark.count} problems, and {dataset.source} has {found}; get it again, or ask "
            f"for a part as {asked}",
            value=found,
        )
    if benchmark.digest is not None and dataset.digest != benchmark.digest:
        raise DatasetError(
            f"{dataset.source} has {found} problems of {benchmark.title}, but not the published ones (SHA-256 "
            f"{dataset.digest[:16]}..., expected {benchmark.digest[:16]}...); get it again, or ask for it as {asked}",
            value=dataset.digest,
        )
