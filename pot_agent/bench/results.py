"""The results of a run: a record a line, appended and on the disk before the next is begun; one process at a time.

A process that is killed loses what it had not appended and nothing else. A line that it tore is cut off at the next
start, with a message; a record is never there twice, since a key (problem, arm, seed) that is there is refused.

Limits: the lock is the kernel's (flock): it holds on one machine and on a local disk, and goes with the process,
however that ends. A line in the middle that cannot be read is an error, not mended: no crash of this program makes one.
"""

import fcntl
import json
import logging
import math
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from pot_agent.bench.checking import parse_record
from pot_agent.bench.record import Record
from pot_agent.bench.trial import Key
from pot_agent.errors import DiskFullError, RunFolderError
from pot_agent.policy.files import is_full, sync_path

log = logging.getLogger(__name__)

SET_ASIDE = "set-aside.jsonl"
"""Where records go that a later one takes the place of; no report reads it."""


class Results:
    """The file of one run (or one shard), held against other processes until `close`. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Take the file, cut a torn last line off, and read what is there. Raises `RunFolderError`."""
        self.path = path
        self._lock = Lock()
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = _held(path.with_name(f".{path.stem}.lock"))
        try:
            with self._errors():
                is_new = not path.exists()
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                if is_new:
                    sync_path(path.parent)
                self._records = {key_of(record): record for record in self._read()}
        except BaseException:
            os.close(self._held)
            raise

    @property
    def records(self) -> list[Record]:
        """All records, in the order in which they were appended."""
        with self._lock:
            return list(self._records.values())

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._records

    def append(self, record: Record) -> None:
        """Write a record and wait until the disk has it. Raises `RunFolderError` for a key that is there."""
        line = _line(record)
        with self._lock, self._errors():
            if key_of(record) in self._records:
                raise RunFolderError(
                    f"{self.path} has a record of {named(key_of(record))} already; a key is recorded once",
                    value=key_of(record),
                )
            _append(self._file, line)
            self._records[key_of(record)] = record

    def set_aside(self, keys: Collection[Key]) -> None:
        """Move these records to `set-aside.jsonl`, so that their problems are run again."""
        with self._lock, self._errors():
            gone = [self._records[key] for key in self._records if key in keys]
            if not gone:
                return
            kept = {key: record for key, record in self._records.items() if key not in keys}
            aside = os.open(self.path.with_name(SET_ASIDE), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                _append(aside, b"".join(map(_line, gone)))
            finally:
                os.close(aside)
            write_whole(self.path, b"".join(map(_line, kept.values())))
            os.close(self._file)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND)
            self._records = kept

    def close(self) -> None:
        """Let other processes have the file. Idempotent."""
        with self._lock:
            if self._held >= 0:
                os.close(self._file)
                os.close(self._held)
                self._held = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> list[Record]:
        whole, torn = _whole_lines(self.path.read_bytes())
        if torn:
            log.warning("%s ended in a torn line of %d bytes (a process was killed); it is cut off", self.path, torn)
            os.ftruncate(self._file, len(whole))
            os.fsync(self._file)
        records = [_record(self.path, at, line) for at, line in enumerate(whole.splitlines(), 1)]
        seen: set[Key] = set()
        for at, record in enumerate(records, 1):
            if key_of(record) in seen:
                raise RunFolderError(
                    f"{self.path}, line {at}: a second record of {named(key_of(record))}; keep one of them",
                    value=key_of(record),
                )
            seen.add(key_of(record))
        return records

    def _errors(self) -> "DiskErrors":
        return DiskErrors(self.path)


class DiskErrors:
    """What the system says of a file of a run, as errors that say what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, (RunFolderError, DiskFullError)):
            return
        if is_full(error):
            message = f"the disk is full ({self._path}); what was recorded is kept: make room and go on with --resume"
            raise DiskFullError(message, value=str(self._path)) from error
        raise RunFolderError(
            f"{self._path} cannot be used ({error.strerror or error}); choose another folder (--out)",
            value=str(self._path),
        ) from error


def key_of(record: Mapping[str, Any]) -> Key:
    """Problem, arm and seed of a record."""
    return (record["problem"], record["method"], record["seed"])


def named(key: Key) -> str:
    """A key for a message."""
    return f"{key[0]} by {key[1]} with seed {key[2]}"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step: as it was, or as it will be, whatever happens meanwhile."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    sync_path(path.parent)


def _append(file: int, line: bytes) -> None:
    """All of the bytes, on the disk; or none of them."""
    end = os.fstat(file).st_size
    try:
        written = 0
        while written < len(line):
            written += os.write(file, line[written:])
        os.fsync(file)
    except BaseException:
        os.ftruncate(file, end)
        raise


def _held(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
        os.close(descriptor)
        raise RunFolderError(
            f"{path.parent} is in use by process {holder}: one process writes a run's results. Wait for it, end it, or "
            "choose another folder (--out); to share the work, give each process a part (--shard 1/2, --shard 2/2)",
            value=str(path.parent),
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _whole_lines(data: bytes) -> tuple[bytes, int]:
    """The lines that end, and how many bytes the torn one after them has."""
    end = data.rfind(b"\n") + 1
    return data[:end], len(data) - end


def _line(record: Record) -> bytes:
    return json.dumps(_finite(record), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _record(path: Path, at: int, line: bytes) -> Record:
    try:
        return parse_record(line)
    except ValueError as error:
        raise RunFolderError(
            f"{path}, line {at} is not a record: {error}, or choose another folder (--out); nothing was changed",
            value=line[:200].decode("utf-8", "replace"),
        ) from error
