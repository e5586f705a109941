"""The folder where sessions are kept: one process at a time, one folder a session, old ones removed.

A session's folder is named by a digest of the session's name: a name is a client's text, and never a path.

Limits: the lock is the kernel's (flock), so it holds on one machine and on a local disk; it goes with the process,
however that ends. A session's age is that of its newest file, by the system's clock.
"""

import fcntl
import hashlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Collection
from pathlib import Path

from pot_agent.errors import StateFolderError
from pot_agent.policy.files import discard, disk_errors, read_sealed, sweep, sync_path

logger = logging.getLogger(__name__)

ABOUT = "session.json"
"""Name of the file with what a session was opened with."""
_LOCK = ".lock"
_NAME_CHARACTERS = 32


class StateFolder:
    """Holds `root` against other processes from the start until `release`."""

    def __init__(self, root: Path, *, seconds: float, clock: Callable[[], float] = time.time) -> None:
        """Take the folder, and sweep what killed processes left in it. Raises `StateFolderError`."""
        self.root = root.absolute()
        self.seconds = seconds
        """How long a session's folder may be unused."""
        self._clock = clock
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._unlock = weakref.finalize(self, _unlock, _locked(self.root), os.getpid())
            sync_path(self.root.parent)
        try:
            with disk_errors(self.root):
                sweep(self.root)
            self.remove_aged(())
        except BaseException:
            self.release()
            raise

    def path_of(self, name: str) -> Path:
        """Where the session of that name is, or would be."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / digest[:_NAME_CHARACTERS]

    def has(self, name: str) -> bool:
        """Whether there is a session of that name."""
        return self.path_of(name).is_dir()

    def paths(self) -> list[Path]:
        """Every session's folder."""
        with disk_errors(self.root):
            return [path for path in sorted(self.root.iterdir()) if _is_session(path)]

    def remove(self, name: str) -> None:
        """Remove a session's folder, at once for all who look; none is no error."""
        path = self.path_of(name)
        with disk_errors(path):
            if path.is_dir():
                discard(path)

    def remove_aged(self, in_memory: Collection[str]) -> list[str]:
        """Remove the folders that were unused for too long; the names of those sessions, where readable."""
        spared = {self.path_of(name) for name in in_memory}
        found = [path for path in self.paths() if path not in spared]
        return [name for path in found if (name := self._removed_by_age(path)) is not None]

    def _removed_by_age(self, path: Path) -> str | None:
        try:
            if self._clock() - _last_used(path) <= self.seconds:
                return None
            name = _name_in(path)
            discard(path)
        except OSError as error:  # one that cannot be removed must not keep others from being opened
            logger.warning("%s is to be looked at for its age, and cannot be: %s", path, error)
            return None
        logger.warning("session %r was unused for more than %g s and is removed", name, self.seconds)
        return name

    def release(self) -> None:
        """Let other processes have the folder. Idempotent."""
        self._unlock()


def _locked(root: Path) -> int:
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
        os.close(descriptor)
        raise StateFolderError(
            f"the state folder {root} is in use by process {holder}: one policy holds it at a time. End that one, "
            "share it through `pot serve`, or choose another folder (POT_STATE, or state_dir)",
            value=str(root),
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(descriptor: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child shares the lock, and must not take it from its parent
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone would leave it with a child that lives on
    os.close(descriptor)


def _is_session(path: Path) -> bool:
    return path.is_dir() and len(path.name) == _NAME_CHARACTERS and set(path.name) <= set("0123456789abcdef")


def _last_used(path: Path) -> float:
    return max((entry.stat().st_mtime for entry in path.iterdir()), default=path.stat().st_mtime)


def _name_in(path: Path) -> str:
    try:
        return str(read_sealed(path / ABOUT)["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return path.name
