"""The register of open sessions, with its cap and leases; and, with a store, those that are on the disk.

Limits: a session that nobody uses for the length of a lease is dropped from memory when any session is next looked at;
one in the middle of a call is not. Without a store that is its end; with one, the next call that names it restores it,
until its folder is removed by age. Opening, restoring and closing take turns.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pot_agent.config import LoraConfig
from pot_agent.errors import PolicyBusyError, SessionConflictError, SessionNotFoundError
from pot_agent.policy.session import Session

if TYPE_CHECKING:
    from pot_agent.policy.adapters import AdapterLayout
    from pot_agent.policy.store import Store

REMEMBERED = 1024
"""Names of expired sessions kept for the sake of a better message."""


class Sessions:
    """All sessions of a policy. Thread-safe."""

    def __init__(
        self,
        *,
        most: int,
        lease_seconds: float,
        store: "Store | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._lease = lease_seconds
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._doors = threading.Lock()
        """Held by who opens, restores or closes, which may read and write files; taken before `_lock`, never after."""
        self._open: dict[str, Session] = {}
        self._expired: OrderedDict[str, str] = OrderedDict()
        """Why sessions that are gone are gone, by name."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self, name: str, lora: LoraConfig | None, seed: int, layout: "AdapterLayout | None") -> Session:
        """A new session, or the one that is there with equal arguments."""
        with self._doors:
            self._remove_aged()
            session = self._find(name) or self._create(name, lora, seed, layout)
            if (session.lora, session.seed) != (lora, seed):
                raise SessionConflictError(
                    f"session {name!r} is open with lora={session.lora}, seed={session.seed}, not lora={lora}, "
                    f"seed={seed}; close it first or choose another name",
                    value=name,
                )
            session.used = self._clock()
            return session

    @contextmanager
    def using(self, name: str) -> Iterator[Session]:
        """The session, safe from its lease meanwhile. Raises `SessionNotFoundError` saying whether it expired."""
        session = self._enter(name)
        try:
            yield session
        finally:
            with self._lock:
                session.calls -= 1
                session.used = self._clock()

    def names(self) -> dict[str, int]:
        """Every session, in memory or on the disk, with its newest version."""
        with self._doors:
            kept = {} if self._store is None else self._store.names()
        with self._lock:
            self._expire()
            return kept | {name: session.version for name, session in self._open.items()}

    def close(self, name: str) -> None:
        """Forget a session, on the disk too; one that is not there is no error."""
        with self._doors:
            session = self._open.get(name)
            if session is None:
                self._remove_folder(name)
            else:
                with session.writing:  # nobody writes into a folder that is removed, or into its successor
                    self._remove_folder(name)
                    session.closed = True
            with self._lock:
                self._open.pop(name, None)
                self._expired.pop(name, None)

    def go_back(self, name: str, version: int) -> None:
        """Take a session back to a version that is kept; calls of it in flight end as if it had been closed."""
        with self._doors:
            session = self._find(name)
            if session is None:
                raise self._not_found(name)
            session.vector_of(version)
            if version == session.version:
                return
            with session.writing:
                if session.folder is None:
                    after = session.gone_back(version)
                else:  # the disk alone has the moments: the next call restores from it
                    session.folder.go_back(version)
                    after = None
                session.closed = True
            with self._lock:
                del self._open[name]
            if after is not None:
                self._add(after)

    def close_all(self) -> None:
        """End every session; folders stay, and other processes may have them from now on."""
        with self._doors, self._lock:
            for session in self._open.values():
                with session.writing:
                    session.closed = True
            self._open.clear()
            if self._store is not None:
                self._store.release()

    def _enter(self, name: str) -> Session:
        with self._lock:
            self._expire()
            session = self._open.get(name)
            if session is not None:
                session.calls += 1
                return session
        with self._doors:
            session = self._find(name, calls=1)
        if session is None:
            raise self._not_found(name)
        return session

    def _find(self, name: str, *, calls: int = 0) -> Session | None:
        """The session in memory, else restored; `calls` more are in it."""
        with self._lock:
            self._expire()
            session = self._open.get(name)
            if session is not None:
                session.calls += calls
                return session
        if self._store is None or not self._store.has(name):
            return None
        self._check_room()
        session = self._store.load(name)
        session.calls = calls
        return self._add(session)

    def _create(self, name: str, lora: LoraConfig | None, seed: int, layout: "AdapterLayout | None") -> Session:
        self._check_room()
        session = Session(name=name, lora=lora, seed=seed, layout=layout)
        if self._store is not None:
            self._store.create(session)
        return self._add(session)

    def _add(self, session: Session) -> Session:
        with self._lock:
            session.used = self._clock()
            self._expired.pop(session.name, None)
            self._open[session.name] = session
        return session

    def _check_room(self) -> None:
        if len(self._open) >= self._most:
            raise PolicyBusyError(
                f"{len(self._open)} sessions are open and the cap is {self._most} (max_sessions); close one, or wait "
                f"until one has been unused for {self._lease:g} s",
                value=self._most,
            )

    def _remove_folder(self, name: str) -> None:
        if self._store is not None:
            self._store.remove(name)

    def _remove_aged(self) -> None:
        if self._store is not None:
            self._remember(self._store.remove_aged(self._open), f"{self._store.seconds:g} s (state_seconds)")

    def _expire(self) -> None:
        now = self._clock()
        idle = [s for s in self._open.values() if s.calls == 0 and now - s.used > self._lease]
        for session in idle:
            session.closed = True
            del self._open[session.name]
        if self._store is None:
            self._remember((session.name for session in idle), f"{self._lease:g} s (lease_seconds)")

    def _remember(self, names: Iterable[str], limit: str) -> None:
        self._expired.update((name, limit) for name in names)
        while len(self._expired) > REMEMBERED:
            self._expired.popitem(last=False)

    def _not_found(self, name: str) -> SessionNotFoundError:
        if name in self._expired:
            return SessionNotFoundError(
                f"session {name!r} expired: it was unused for more than {self._expired[name]}, and its adapter is "
                "gone; open it again and start anew",
                value=name,
            )
        lost = ", or was lost with its process (POT_STATE keeps sessions)" if self._store is None else ""
        return SessionNotFoundError(
            f"no session {name!r}: it was never opened here, or was closed{lost}; call open first", value=name
        )
