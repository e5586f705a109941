"""Sessions on the disk, for one model: creating them, and restoring them so that they go on bit for bit.

Limits: bit for bit on the same machine with the same number of threads, the same torch and the same device; others are
a warning. Another base model, even the same one in another type, is an error.
"""

import logging
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pot_agent.config import LoraConfig
from pot_agent.errors import PolicyUnavailableError, RestoreError, StateFolderError
from pot_agent.policy.files import disk_errors
from pot_agent.policy.session import Session
from pot_agent.policy.session_folder import SessionFolder, newest_in, read_about
from pot_agent.policy.state_folder import StateFolder

if TYPE_CHECKING:
    from pot_agent.policy.engine import Engine

logger = logging.getLogger(__name__)


class Store:
    """The sessions of one engine in one state folder. Not thread-safe: the register of sessions takes turns."""

    def __init__(self, folder: StateFolder, engine: "Engine") -> None:
        self._folder = folder
        self._engine = engine
        self._held = True

    @property
    def seconds(self) -> float:
        """How long a session's folder may be unused."""
        return self._folder.seconds

    def has(self, name: str) -> bool:
        """Whether there is a session of that name."""
        return self._folder.has(name)

    def names(self) -> dict[str, int]:
        """The sessions on the disk and the newest version of each; those that cannot be read are left out."""
        return dict(found for path in self._folder.paths() if (found := newest_in(path)) is not None)

    def create(self, session: Session) -> None:
        """Give a new session its folder."""
        self._check_held()
        about = {
            "name": session.name,
            "lora": None if session.lora is None else asdict(session.lora),
            "seed": session.seed,
            "model": self._engine.capabilities.model,
            "machine": self._machine(),
        }
        session.folder = SessionFolder.create(self._folder.path_of(session.name), self._engine.base_digest, about)

    def load(self, name: str) -> Session:
        """The session of that name as it was. Raises `RestoreError` where it cannot be gone on from."""
        self._check_held()
        path = self._folder.path_of(name)
        about = read_about(path)
        self._check(about, name, path)
        lora = None if about["lora"] is None else LoraConfig(**about["lora"])
        session = Session(
            name=name,
            lora=lora,
            seed=about["seed"],
            layout=None if lora is None else self._engine.layout(lora),
            folder=SessionFolder.of(path, about["base"]),
        )
        self._fill(session, path)
        logger.info("session %r is restored at version %d from %s", name, session.version, path)
        return session

    def remove(self, name: str) -> None:
        """Remove a session's folder; none is no error."""
        if self._held:
            self._folder.remove(name)
        elif self._folder.has(name):
            logger.warning("session %r was closed after the shutdown: its folder stays until it is too old", name)

    def remove_aged(self, in_memory: Collection[str]) -> list[str]:
        """Remove the folders that were unused for too long, but those in memory; the names of those sessions."""
        return self._folder.remove_aged(in_memory) if self._held else []

    def release(self) -> None:
        """Let other processes have the folder. Idempotent."""
        self._held = False
        self._folder.release()

    def _fill(self, session: Session, path: Path) -> None:
        if session.folder is None:
            return
        try:
            with disk_errors(path):
                found = session.folder.restore(self._engine.device)
        except StateFolderError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            missing = error.__cause__.filename
            raise RestoreError(
                f"session {session.name!r} lacks {missing}; put it back, or close the session", value=str(missing)
            ) from error
        for checkpoint in found.checkpoints:
            _check_size(checkpoint.vector, session, path)
            session.vectors[checkpoint.version] = checkpoint.vector
        if found.checkpoints:
            newest = found.checkpoints[-1]
            session.version, session.moments, session.reference = newest.version, newest.moments, newest.reference
            session.steps, session.steps_since_sync = newest.steps, newest.steps_since_sync
        session.pinned = {checkpoint.version for checkpoint in found.checkpoints if checkpoint.pinned}
        session.receipts = {receipt.digest: receipt for receipt in found.receipts}
        for sample in found.samples:
            session.journal.add(sample)
        session.drop_old()
        session.folder.keep_only(session.vectors)

    def _check(self, about: dict[str, Any], name: str, path: Path) -> None:
        if about["name"] != name:
            raise RestoreError(f"{path} is of session {about['name']!r}, not {name!r}", value=about["name"])
        if about["base"] != self._engine.base_digest:
            raise RestoreError(
                f"session {name!r} is of other base weights ({about['model']}, {about['machine']['dtype']}) than those "
                f"here ({self._engine.capabilities.model}, {self._machine()['dtype']}); load that model, or close the "
                "session and start anew",
                value=about["model"],
            )
        here = self._machine()
        for what in sorted(here.keys() & about["machine"].keys()):
            if here[what] != about["machine"][what]:
                logger.warning(
                    "session %r had %s %s and has %s now: it goes on, but not bit for bit",
                    name,
                    what,
                    about["machine"][what],
                    here[what],
                )

    def _machine(self) -> dict[str, Any]:
        """What results depend on, bit for bit."""
        return {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "device": str(self._engine.device),
            "dtype": str(self._engine.dtype).removeprefix("torch."),
        }

    def _check_held(self) -> None:
        if not self._held:
            raise PolicyUnavailableError("this policy was shut down; build another one", value=None)


def _check_size(vector: torch.Tensor, session: Session, path: Path) -> None:
    wanted = 0 if session.layout is None else session.layout.size
    if vector.shape != (wanted,):
        raise RestoreError(
            f"{path} has an adapter of {vector.numel():,} numbers; this model's has {wanted:,}: load the model that it "
            "is of, or close the session",
            value=list(vector.shape),
        )
