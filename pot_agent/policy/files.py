"""Files that are whole or not there: checksummed records, append-only logs, folders that appear as a whole.

Limits: a local POSIX file system that keeps what fsync promises; a checksum finds accidents, not forgery; a log is read
into memory whole.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pot_agent.errors import DiskFullError, PotError, RestoreError, StateFolderError

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","data":', b"}"
_DIGEST_CHARACTERS = 64


def sealed(data: Any) -> bytes:
    """Plain JSON types as one line of JSON, `{"sha256": ..., "data": ...}`, without its end."""
    body = json.dumps(data, separators=(",", ":")).encode("ascii")
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def unsealed(line: bytes) -> Any:
    """What `sealed` was given. Raises `ValueError` for bytes that do not match their checksum."""
    start = len(_HEAD) + _DIGEST_CHARACTERS
    body = line[start + len(_MIDDLE) : -len(_TAIL)]
    digest = hashlib.sha256(body).hexdigest().encode()
    if line != _HEAD + digest + _MIDDLE + body + _TAIL:
        raise ValueError("the bytes do not match their checksum")
    return json.loads(body)


def read_sealed(path: Path) -> Any:
    """The record that a file holds. Raises `ValueError` naming the file, or `OSError`."""
    try:
        return unsealed(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def is_full(error: BaseException) -> bool:
    """Whether the disk is full; safetensors wraps the system's error in one of its own, as text."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(f"os error {number}" in str(error) for number in _FULL)


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """What the system says of files below `place`, as errors that say what to do."""
    try:
        yield
    except PotError:
        raise
    except OSError as error:
        if is_full(error):
            message = f"the disk is full: {place} cannot be written; make room and call again, nothing has changed"
            raise DiskFullError(message, value=str(place)) from error
        raise StateFolderError(
            f"{place} cannot be used ({error.strerror or error}: {error.filename or place}); nothing has changed. Make "
            "it a folder that can be written, or choose another (POT_STATE, or state_dir)",
            value=str(place),
        ) from error


def sync_path(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """`sync_path` for a folder and all in it."""
    for path in sorted(folder.rglob("*")):
        sync_path(path)
    sync_path(folder)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, or leave none; its folder is to be synced by the caller."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(descriptor, content, 0)
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Let a file have this content: all of it, or what it had before."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)
    write_new(temporary, content)
    temporary.replace(path)
    sync_path(path.parent)


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill; it has its own name once all in it is on the disk. On an error nothing is left."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
        sync_tree(temporary)
        temporary.rename(folder)
        try:
            sync_path(folder.parent)
        except OSError:
            folder.rename(temporary)
            raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def discard(folder: Path) -> None:
    """Remove a folder: its name goes at once, so that nobody meets half of it; its content follows."""
    gone = folder.with_name(f".gone-{uuid4().hex}")
    folder.rename(gone)
    try:
        sync_path(folder.parent)
    except OSError as error:
        logger.warning("%s was removed, but would be back after a power failure: %s", folder, error)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what killed writers and removers left."""
    for left in [*folder.glob(".gone-*"), *folder.glob(".*.part")]:
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


class Log:
    """Records in a file, one a line, each on the disk when `append` returns. One writer at a time."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self._path = path
        self._size = size

    @classmethod
    def read(cls, path: Path) -> tuple["Log", list[Any]]:
        """The log and its records; a last line that was being written when its process died is left out.

        Raises `RestoreError` naming the file and the line for any other that does not match its checksum.
        """
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            logger.warning("%s: the last line was never finished, and is dropped", path)
        records = []
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            try:
                records.append(unsealed(line))
            except ValueError as error:
                raise RestoreError(
                    f"line {number} of {path} was changed: {error}; put the file back, or close the session",
                    value=str(path),
                ) from error
        return cls(path, len(whole)), records

    def append(self, record: Any) -> None:
        """Add a record; on an error the file is as it was."""
        line = sealed(record) + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, self._size)  # what an append that failed may have left
            _write_all(descriptor, line, self._size)
            os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, self._size)
            raise
        finally:
            os.close(descriptor)
        self._size += len(line)

    def rewrite(self, records: list[Any]) -> None:
        """Let the log hold these records alone."""
        content = b"".join(sealed(record) + b"\n" for record in records)
        replace_file(self._path, content)
        self._size = len(content)


def _write_all(descriptor: int, content: bytes, start: int) -> None:
    at = 0
    while at < len(content):
        at += os.pwrite(descriptor, memoryview(content)[at:], start + at)
