"""One session: a problem's adapter versions, moments, reference, receipts and journal.

With a folder, the disk comes first: `record`, `adopt` and `pin` write, and change memory when that has succeeded.

Limits: the newest two versions are kept, those that were pinned, and version 0 always (it is the base).
"""

import copy
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import RestoreError, SampleError, SessionNotFoundError, VersionError
from pot_agent.policy.base import Receipt
from pot_agent.policy.journal import Journal, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from pot_agent.policy.adapters import AdapterLayout
    from pot_agent.policy.session_folder import SessionFolder
    from pot_agent.policy.trainer import Moments

KEPT_VERSIONS = 2

_LEARNED = ("vectors", "reference", "moments", "steps", "steps_since_sync", "version")
"""What an update changes, the version last: who reads it meanwhile finds that version's vector."""


@dataclass(eq=False)
class Session:
    """One open session. What it has learned changes under the policy's lock only."""

    name: str
    lora: LoraConfig | None
    seed: int
    layout: "AdapterLayout | None"
    version: int = 0
    vectors: dict[int, "Tensor"] = field(default_factory=dict)
    """Adapter vectors of the versions kept, but version 0."""
    pinned: set[int] = field(default_factory=set)
    """Versions that are kept until the session is closed."""
    reference: "Tensor | None" = None
    """The reference's vector; None: the base."""
    steps: int = 0
    steps_since_sync: int = 0
    moments: "Moments | None" = None
    receipts: dict[str, Receipt] = field(default_factory=dict)
    folder: "SessionFolder | None" = None
    """Where it is kept; None: in memory only."""
    closed: bool = False
    used: float = field(default_factory=time.monotonic)
    calls: int = 0

    def __post_init__(self) -> None:
        self.journal = Journal(self.name)
        self.writing = threading.Lock()
        """Held by who changes the session on the disk and in memory, or ends it."""

    def vector_of(self, version: int) -> "Tensor | None":
        """The vector of a version that is kept; None for version 0. Raises `VersionError` naming both."""
        if version == 0:
            return None
        vector = self.vectors.get(version)
        if vector is None:
            kept = ", ".join(str(v) for v in (0, *sorted(self.vectors)))
            raise VersionError(
                f"session {self.name!r} has no version {version}: the newest is {self.version}, and {kept} are kept",
                value=version,
            )
        return vector

    def check_room(self, more: int, most: int) -> None:
        """Raises `SampleError` where so many samples more were too many."""
        if len(self.journal) + more > most:
            raise SampleError(
                f"session {self.name!r} holds {len(self.journal):,} samples, and {more:,} more would pass its limit of "
                f"{most:,} (max_samples, POT_MAX_SAMPLES); close it and open another",
                value=most,
            )

    def check_newest(self, version: int) -> None:
        """Raises `VersionError` naming both versions."""
        if version != self.version:
            raise VersionError(
                f"an update of version {version} was asked for; session {self.name!r} is at version {self.version}: "
                "sample from the newest version and train on that",
                value=version,
            )

    def commit(self, vector: "Tensor", moments: "Moments", steps: int, grpo: GrpoConfig) -> None:
        """Make this vector the next version, and at a sync boundary the reference."""
        self.version += 1
        self.vectors[self.version] = vector
        self.drop_old()
        self.moments = moments
        self.steps += steps
        self.steps_since_sync += steps
        if grpo.reference == "synced" and self.steps_since_sync >= grpo.reference_sync_steps:
            self.reference, self.steps_since_sync = vector, 0

    def drop_old(self) -> None:
        """Let go of the versions that are neither among the newest nor pinned."""
        for old in [v for v in self.vectors if v <= self.version - KEPT_VERSIONS and v not in self.pinned]:
            del self.vectors[old]

    def gone_back(self, version: int) -> "Session":
        """The session at version 0 again, with its samples of that. Raises `RestoreError` for another version."""
        if version != 0:
            raise RestoreError(
                f"session {self.name!r} cannot go back to version {version}: what an older version goes on from is "
                "kept in a state folder alone (POT_STATE, or state_dir)",
                value=version,
            )
        learned: dict[str, Any] = {"vectors": {}, "pinned": set(), "receipts": {}, "moments": None, "reference": None}
        counters: dict[str, Any] = {"version": 0, "steps": 0, "steps_since_sync": 0, "calls": 0}
        fresh = replace(self, **learned, **counters)
        for sample in self.journal.until(0):
            fresh.journal.add(sample)
        return fresh

    def draft(self) -> "Session":
        """A copy for an update to change: nothing of it is the session's until it is adopted."""
        draft = copy.copy(self)
        draft.vectors = dict(self.vectors)
        return draft

    def adopt(self, draft: "Session", receipt: Receipt) -> None:
        """Take over what the draft has learned, and its receipt; on an error the session is as it was."""
        with self._writing():
            if self.folder is not None and draft.version == self.version:
                self.folder.add_receipt(receipt)
            elif self.folder is not None:
                self.folder.add_version(draft, receipt)
            for name in _LEARNED:
                setattr(self, name, getattr(draft, name))
            self.receipts[receipt.digest] = receipt
            if self.folder is not None:
                self.folder.keep_only(self.vectors)

    def record(self, samples: Sequence[Sample]) -> None:
        """Journal what one call drew; on an error none of it."""
        with self._writing():
            if self.folder is not None:
                self.folder.add_samples(samples)
            for sample in samples:
                self.journal.add(sample)

    def pin(self) -> int:
        """Keep the newest version until the session is closed; its number."""
        with self._writing():
            if self.folder is not None and self.version > 0:
                self.folder.pin(self.version)
            self.pinned.add(self.version)
            return self.version

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.writing:
            if self.closed:
                raise SessionNotFoundError(f"session {self.name!r} was closed during the call", value=self.name)
            yield
