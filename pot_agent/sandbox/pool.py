"""The warm workers of a local sandbox: started when needed, in the strongest tier that works, a thread each at a time.

Limits first: a worker that is left by an error is ended, not handed on. In a forked child of this process the workers
are the parent's; the child starts its own.
"""

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

from pot_agent.errors import CancelledError, SandboxError, SandboxUnavailableError
from pot_agent.sandbox.probe import WAYS_OUT, missing
from pot_agent.sandbox.tiers import Tier
from pot_agent.sandbox.worker import Worker

WAIT_SECONDS = 0.05
CLOSED = "this sandbox is closed; make a new LocalSandbox"


class Pool:
    """At most `size` workers, started when first needed and given to one thread at a time."""

    def __init__(self, *, tiers: tuple[Tier, ...], options: dict[str, Any], size: int) -> None:
        self._tiers, self._options, self._size = tiers, options, size
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._finding_out = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._size)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._coming = 0
        self._closed = False

    @contextmanager
    def worker(self, cancel: Event | None) -> Iterator[Worker]:
        """Borrow a worker; one that is left by an error is ended, not handed on."""
        while not self._slots.acquire(timeout=WAIT_SECONDS if cancel is not None else None):
            if cancel is not None and cancel.is_set():
                raise CancelledError("judging was cancelled by its caller")
        slots = self._slots
        try:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                worker.kill()
                raise
            finally:
                self._give_back(worker)
        finally:
            slots.release()

    def _take(self) -> Worker:
        with self._lock:
            if self._closed:
                raise SandboxError(CLOSED)
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._all.discard(worker)
                worker.kill()
            self._coming += 1
        return self._start_fresh()

    def _start_fresh(self) -> Worker:
        """Start a worker that `_coming` counts already."""
        worker = None
        try:
            worker = self._start()
        finally:
            with self._lock:
                self._coming -= 1
                closed: bool = self.closed  # by another thread, while this one started a worker
                if worker is not None and not closed:
                    self._all.add(worker)
        if closed:
            worker.kill()
            raise SandboxError(CLOSED)
        return worker

    @property
    def tier(self) -> Tier | None:
        """The tier of every worker; None before the first has shown what works here."""
        return self._tiers[0] if len(self._tiers) == 1 else None

    @property
    def processes(self) -> bool:
        """Whether programs may start processes."""
        return bool(self._options["processes"])

    def _start(self) -> Worker:
        """Start a worker in the first tier that works; all later ones are of that tier."""
        if self.tier is not None:
            return self._started(self._tiers)
        with self._finding_out:
            worker = self._started(self._tiers)
            self._tiers = (worker.tier,)
            return worker

    def _started(self, tiers: Sequence[Tier]) -> Worker:
        reasons: dict[Tier, str] = {}
        for tier in tiers:
            try:
                reason = missing(tier)
                if reason is None:
                    return Worker(tier, **self._options)
            except SandboxUnavailableError as error:
                reason = error.message
            reasons[tier] = reason
        shown = "; ".join(f"{tier}: {reason}" for tier, reason in reasons.items())
        if self.processes:
            shown += " (and allow_processes=True needs T2; without it there may be a tier for this machine)"
        raise SandboxUnavailableError(
            f"programs cannot be isolated on this machine: {shown}. {WAYS_OUT}", value=reasons
        )

    def spare(self, wanted: int) -> int:
        """How many idle workers there are beside one; where they are too few, one more is started for later."""
        with self._lock:
            idle = len(self._idle)
            room = len(self._all) + self._coming < self._size and not self._coming and not self._closed
            more = room and idle <= wanted and self._slots.acquire(blocking=False)
            self._coming += more
        if more:
            threading.Thread(target=self._start_one_more, args=(self._slots,), daemon=True).start()
        return max(0, min(wanted, idle - 1))

    def _start_one_more(self, slots: threading.BoundedSemaphore) -> None:
        """Whoever needs it in vain sees the reason when starting one itself."""
        try:
            self._give_back(self._start_fresh())
        except SandboxError:
            return
        finally:
            slots.release()

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker.alive and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.kill()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._all - set(idle)
            self._all.clear()
        for worker in idle:
            worker.kill()
        for worker in busy:
            worker.end()  # the thread that uses it sees it gone, and frees what belongs to it

    def after_fork(self) -> None:
        """In a forked child: the workers are the parent's; start anew when needed."""
        for worker in self._all:
            worker.abandon()
        closed = self._closed
        self._reset()
        self._closed = closed


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
