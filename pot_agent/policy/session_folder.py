"""One session on the disk: what it was opened with, its samples, its receipts, and the versions it keeps.

    session.json            name, adapter, seed, base model, machine
    samples.jsonl           one line for each call of `sample`, on the disk before the call is answered
    receipts.jsonl          receipts of updates that were skipped, and of versions that are no longer kept
    versions/<n>/           state.safetensors, version.json (receipt, counters, checksum of the tensors), maybe `pinned`

A version appears under its name when all of it is on the disk: that rename is the moment at which an update is made.

Limits: no locks here; the session that owns the folder lets one writer in at a time.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pot_agent.errors import RestoreError
from pot_agent.policy.base import Receipt
from pot_agent.policy.checkpoint import (
    FORMAT,
    Checkpoint,
    check_format,
    pin_checkpoint,
    put_aside,
    read_checkpoint,
    receipt_from,
    write_checkpoint,
)
from pot_agent.policy.files import Log, appearing, discard, disk_errors, read_sealed, sealed, sweep, write_new
from pot_agent.policy.journal import Sample, from_record, to_record
from pot_agent.policy.state_folder import ABOUT

if TYPE_CHECKING:
    from pot_agent.policy.session import Session

logger = logging.getLogger(__name__)

_SAMPLES, _RECEIPTS, _VERSIONS = "samples.jsonl", "receipts.jsonl", "versions"


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a folder holds."""

    checkpoints: list[Checkpoint]
    """The good versions, in order."""
    samples: list[Sample]
    """In the order in which they were drawn."""
    receipts: list[Receipt]


class SessionFolder:
    """The folder of one session; see the module docstring for what is in it."""

    def __init__(self, path: Path, base: str, samples: Log, receipts: Log) -> None:
        self._path = path
        self._base = base
        self._samples = samples
        self._receipts = receipts
        self._made_by: dict[int, Receipt] = {}
        """Receipts of the versions that are kept."""
        self._logged: set[str] = set()
        """Digests of receipts of such versions that are in the log already, because a removal failed."""

    @classmethod
    def create(cls, path: Path, base: str, about: Mapping[str, Any]) -> "SessionFolder":
        """A new session's folder; `base` is the digest of the base model's weights."""
        with disk_errors(path), appearing(path) as temporary:
            write_new(temporary / ABOUT, sealed({"format": FORMAT, "base": base, **about}))
            write_new(temporary / _SAMPLES, b"")
            write_new(temporary / _RECEIPTS, b"")
            (temporary / _VERSIONS).mkdir(mode=0o700)
        return cls.of(path, base)

    @classmethod
    def of(cls, path: Path, base: str) -> "SessionFolder":
        """A folder that is there; `restore` is to be called before anything is added."""
        return cls(path, base, Log(path / _SAMPLES), Log(path / _RECEIPTS))

    def add_samples(self, samples: Sequence[Sample]) -> None:
        """Journal what one call drew."""
        with disk_errors(self._path):
            self._samples.append(to_record(samples))

    def add_receipt(self, receipt: Receipt) -> None:
        """Keep the receipt of an update that was skipped."""
        with disk_errors(self._path):
            self._receipts.append(receipt.to_dict())

    def add_version(self, session: "Session", receipt: Receipt) -> None:
        """Keep the session's newest version and its receipt, as one step."""
        with disk_errors(self._path):
            write_checkpoint(self._version_path(session.version), session, self._base, receipt)
        self._made_by[session.version] = receipt

    def keep_only(self, versions: Iterable[int]) -> None:
        """Remove the other versions, their receipts kept. What cannot be removed is tried again at the next call."""
        for version in sorted(set(self._made_by) - set(versions)):
            receipt = self._made_by[version]
            try:
                if receipt.digest not in self._logged:
                    self._receipts.append(receipt.to_dict())
                    self._logged.add(receipt.digest)
                discard(self._version_path(version))
            except OSError as error:
                logger.warning("version %d in %s cannot be removed yet: %s", version, self._path, error)
                return
            del self._made_by[version]
            self._logged.discard(receipt.digest)

    def pin(self, version: int) -> None:
        """Mark a version, so that it is kept until the session is closed."""
        with disk_errors(self._path):
            pin_checkpoint(self._version_path(version))

    def go_back(self, version: int) -> None:
        """Remove the versions after this one, the newest first; `restore` then drops their samples and receipts."""
        found = [int(path.name) for path in (self._path / _VERSIONS).iterdir() if path.name.isdecimal()]
        with disk_errors(self._path):
            for later in sorted((one for one in found if one > version), reverse=True):
                discard(self._version_path(later))

    def restore(self, device: torch.device) -> Restored:
        """All that it holds.

        The newest good version is what restores: samples and receipts of later ones are dropped, from the disk too.
        """
        sweep(self._path / _VERSIONS)
        self._samples, drawn = Log.read(self._path / _SAMPLES)
        self._receipts, given = Log.read(self._path / _RECEIPTS)
        checkpoints = self._read_versions(device)
        newest = checkpoints[-1].version if checkpoints else 0
        kept_drawn = [record for record in drawn if all(row["version"] <= newest for row in record["samples"])]
        kept_given = [record for record in given if max(record["version"], record["parent_version"]) <= newest]
        for log, kept, all_ in ((self._samples, kept_drawn, drawn), (self._receipts, kept_given, given)):
            if len(kept) < len(all_):
                log.rewrite(kept)
        os.utime(self._path / ABOUT)  # a session that is used does not age
        self._made_by = {checkpoint.version: checkpoint.receipt for checkpoint in checkpoints}
        self._logged = {record["digest"] for record in kept_given} & {r.digest for r in self._made_by.values()}
        return Restored(
            checkpoints=checkpoints,
            samples=[sample for record in kept_drawn for sample in from_record(record)],
            receipts=[receipt_from(record) for record in kept_given] + list(self._made_by.values()),
        )

    def _read_versions(self, device: torch.device) -> list[Checkpoint]:
        found = []
        for path in (self._path / _VERSIONS).iterdir():
            if path.name.isdecimal():
                try:
                    found.append(read_checkpoint(path, self._base, device))
                except RestoreError:
                    raise
                except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
                    logger.warning("%s is broken, and the last good version goes on: %s", path, error)
                    put_aside(path)
        return sorted(found, key=lambda checkpoint: checkpoint.version)

    def _version_path(self, version: int) -> Path:
        return self._path / _VERSIONS / str(version)


def read_about(path: Path) -> dict[str, Any]:
    """What the session in this folder was opened with. Raises `RestoreError` for another format or changed bytes."""
    try:
        about: dict[str, Any] = read_sealed(path / ABOUT)
    except (OSError, ValueError) as error:
        raise RestoreError(
            f"the session in {path} cannot be restored: {error}; put the file back, or close the session",
            value=str(path),
        ) from error
    check_format(about, path / ABOUT)
    return about


def newest_in(path: Path) -> tuple[str, int] | None:
    """The name and the newest version of the session in this folder; None where it cannot be read, or just went."""
    try:
        versions = [int(each.name) for each in (path / _VERSIONS).iterdir() if each.name.isdecimal()]
        return str(read_about(path)["name"]), max(versions, default=0)
    except (OSError, KeyError, RestoreError):
        return None
