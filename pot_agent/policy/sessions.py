"""Sessions: one problem's adapter versions, moments, reference and journal; and the register with its cap and leases.

Limits: the newest two versions are kept, and version 0 always (it is the base). A session that nobody uses for the
length of a lease is dropped when any session is next looked at; one in the middle of a call is not.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import PolicyBusyError, SessionConflictError, SessionNotFoundError, VersionError
from pot_agent.policy.base import Receipt
from pot_agent.policy.journal import Journal

if TYPE_CHECKING:
    from torch import Tensor

    from pot_agent.policy.adapters import AdapterLayout
    from pot_agent.policy.trainer import Moments

KEPT_VERSIONS = 2
REMEMBERED = 1024
"""Names of expired sessions kept for the sake of a better message."""


@dataclass(eq=False)
class Session:
    """One open session. Its fields change under the policy's lock only."""

    name: str
    lora: LoraConfig | None
    seed: int
    layout: "AdapterLayout | None"
    version: int = 0
    vectors: dict[int, "Tensor"] = field(default_factory=dict)
    """Adapter vectors of the versions kept, but version 0."""
    reference: "Tensor | None" = None
    """The reference's vector; None: the base."""
    steps: int = 0
    steps_since_sync: int = 0
    moments: "Moments | None" = None
    receipts: dict[str, Receipt] = field(default_factory=dict)
    closed: bool = False
    used: float = field(default_factory=time.monotonic)
    calls: int = 0

    def __post_init__(self) -> None:
        self.journal = Journal(self.name)

    def vector_of(self, version: int) -> "Tensor | None":
        """The vector of a version that is kept; None for version 0. Raises `VersionError` naming both."""
        if version == 0:
            return None
        if version not in self.vectors:
            kept = ", ".join(str(v) for v in (0, *sorted(self.vectors)))
            raise VersionError(
                f"session {self.name!r} has no version {version}: the newest is {self.version}, and {kept} are kept",
                value=version,
            )
        return self.vectors[version]

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
        for old in [v for v in self.vectors if v <= self.version - KEPT_VERSIONS]:
            del self.vectors[old]
        self.moments = moments
        self.steps += steps
        self.steps_since_sync += steps
        if grpo.reference == "synced" and self.steps_since_sync >= grpo.reference_sync_steps:
            self.reference, self.steps_since_sync = vector, 0


class Sessions:
    """All open sessions of a policy. Thread-safe."""

    def __init__(self, *, most: int, lease_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._lease = lease_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, name: str, lora: LoraConfig | None, seed: int, layout: "AdapterLayout | None") -> Session:
        """A new session, or the one that is open with equal arguments."""
        with self._lock:
            self._expire()
            session = self._open.get(name)
            if session is None:
                session = self._add(Session(name=name, lora=lora, seed=seed, layout=layout, used=self._clock()))
            elif (session.lora, session.seed) != (lora, seed):
                raise SessionConflictError(
                    f"session {name!r} is open with lora={session.lora}, seed={session.seed}, not lora={lora}, "
                    f"seed={seed}; close it first or choose another name",
                    value=name,
                )
            session.used = self._clock()
            return session

    def _add(self, session: Session) -> Session:
        if len(self._open) >= self._most:
            raise PolicyBusyError(
                f"{len(self._open)} sessions are open and the cap is {self._most} (max_sessions); close one, or wait "
                f"until one has been unused for {self._lease:g} s",
                value=self._most,
            )
        self._expired.pop(session.name, None)
        self._open[session.name] = session
        return session

    @contextmanager
    def using(self, name: str) -> Iterator[Session]:
        """The session, safe from its lease meanwhile. Raises `SessionNotFoundError` saying whether it expired."""
        with self._lock:
            self._expire()
            session = self._open.get(name)
            if session is None:
                raise self._not_found(name)
            session.calls += 1
        try:
            yield session
        finally:
            with self._lock:
                session.calls -= 1
                session.used = self._clock()

    def close(self, name: str) -> None:
        """Forget a session; one that is not open is no error."""
        with self._lock:
            session = self._open.pop(name, None)
            self._expired.pop(name, None)
            if session is not None:
                session.closed = True

    def close_all(self) -> None:
        """Forget every session."""
        for name in list(self._open):
            self.close(name)

    def _expire(self) -> None:
        now = self._clock()
        for session in [s for s in self._open.values() if s.calls == 0 and now - s.used > self._lease]:
            session.closed = True
            del self._open[session.name]
            self._expired[session.name] = None
        while len(self._expired) > REMEMBERED:
            self._expired.popitem(last=False)

    def _not_found(self, name: str) -> SessionNotFoundError:
        if name in self._expired:
            return SessionNotFoundError(
                f"session {name!r} expired: it was unused for more than {self._lease:g} s (lease_seconds), and its "
                "adapter is gone; open it again and start anew",
                value=name,
            )
        return SessionNotFoundError(
            f"no session {name!r}: it was never opened here, or was closed; call open first", value=name
        )
