"""What a data set is, and reading its rows: JSON Lines, gzip included, each row with where it stands in its file.

Limits first: a line holds at most `MAX_LINE_BYTES`. Whole numbers of any length are read, those of more than 4,300
digits included, which Python's own reader refuses.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError
from pot_agent.values import shorten

MAX_LINE_BYTES = 1 << 30
_SAFE_DIGITS = 4_000
"""Python converts this many digits, whatever its limit is set to."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Tasks of one benchmark, in its own order."""

    name: str
    """As it was asked for, canonical, such as `humaneval` or `lcb_v6:partial`."""
    tasks: tuple[Task, ...]
    source: str
    """Where the rows were read from."""
    licence: str
    digest: str
    """SHA-256 of the tasks' digests in order, hexadecimal."""
    skipped: tuple[tuple[str, str], ...] = field(default=())
    """Ids of rows that cannot be run here, and why."""


@dataclass(frozen=True)
class Line:
    """A row and where it stands, so that it can be read again."""

    row: Row
    path: Path
    offset: int
    """In bytes, of the uncompressed file."""
    number: int

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.path}, line {self.number}"


def read_lines(path: Path) -> Iterator[Line]:
    """The rows of a JSON Lines file, in order. Raises `DatasetError` with the line that cannot be read."""
    try:
        with opened(path) as file:
            offset, number = 0, 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DatasetError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes", value=number)
                if line.strip():
                    yield Line(parse_row(line, f"{path}, line {number}"), path, offset, number)
                offset += len(line)
    except (OSError, EOFError) as error:
        raise DatasetError(f"{path} cannot be read: {error}; get the file again", value=str(path)) from error


def read_line_at(path: Path, offset: int) -> Row:
    """The row that begins at `offset`."""
    try:
        with opened(path) as file:
            file.seek(offset)
            return parse_row(file.readline(MAX_LINE_BYTES), f"{path} at byte {offset:,}")
    except (OSError, EOFError) as error:
        raise DatasetError(f"{path} cannot be read any more: {error}", value=str(path)) from error


def opened(path: Path) -> Any:
    """A file of bytes, decompressed where its name ends in `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def parse_row(line: bytes | str, where: str) -> Row:
    """One object from a line of JSON."""
    row = read_json(line, where)
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: a row must be an object, got {shorten(row)}", value=row)
    return row


def read_json(text: bytes | str, where: str) -> Any:
    """JSON with whole numbers of any length. Raises `DatasetError`."""
    try:
        return json.loads(text, parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: not JSON: {error}: {shorten(text)}", value=text[:200]) from error


def whole_number(digits: str) -> int:
    """A decimal number of any length; piece by piece where Python's limit of 4,300 digits would refuse it."""
    if len(digits) <= _SAFE_DIGITS:
        return int(digits)
    if digits[0] == "-":
        return -whole_number(digits[1:])
    half = len(digits) // 2
    shift: int = 10**half
    return whole_number(digits[:-half]) * shift + whole_number(digits[-half:])


def text_of(row: Row, name: str, where: str, default: str | None = None) -> str:
    """A field that must be text; `default` where it is missing or null."""
    value = row.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise DatasetError(f"{where}: {name} must be text, got {shorten(value)}", value=value)
    return value


def digest_of(*parts: Any) -> str:
    """SHA-256 of plain JSON data, hexadecimal."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_tasks(tasks: Sequence[Task]) -> str:
    """SHA-256 of the tasks' own digests, in order."""
    return digest_of([task.digest for task in tasks])
