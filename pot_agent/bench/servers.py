"""One policy or several equal ones: each problem goes to the least busy that still answers.

Limits: a problem stays where it began; one whose policy stops answering is begun again on another. Replicas are taken
for equal when they say the same of themselves (model, parameters, sampler, what they can do); their longest contexts
may differ, since these follow from the memory that each has free.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock
from typing import Generic, TypeVar

from pot_agent.errors import ConfigError, PolicyUnavailableError
from pot_agent.policy.base import Capabilities

log = logging.getLogger(__name__)

NOT_COMPARED = frozenset({"context_tokens"})
"""What a policy says of itself that follows from the memory of its machine."""

Server = TypeVar("Server")
Made = TypeVar("Made")


class Servers(Generic[Server]):
    """Gives out servers by load. Thread-safe."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._busy = dict.fromkeys(range(len(servers)), 0)
        self._servers = list(servers)
        self._last: PolicyUnavailableError | None = None
        self._lock = Lock()

    def run(self, work: Callable[[Server], Made]) -> Made:
        """`work` on the least busy server, again on another where one stops answering.

        Raises `PolicyUnavailableError` when none is left.
        """
        while True:
            with self._taken() as (index, server):
                try:
                    return work(server)
                except PolicyUnavailableError as error:
                    self._drop(index, error)

    @contextmanager
    def _taken(self) -> Iterator[tuple[int, Server]]:
        with self._lock:
            index = min(self._busy, key=lambda at: self._busy[at], default=None)
            if index is None:
                raise self._nobody() from self._last
            self._busy[index] += 1
        try:
            yield index, self._servers[index]
        finally:
            with self._lock:
                if index in self._busy:
                    self._busy[index] -= 1

    def _drop(self, index: int, error: PolicyUnavailableError) -> None:
        with self._lock:
            self._busy.pop(index, None)
            self._last = error
        log.warning("policy %d of %d is given no more problems: %s", index + 1, len(self._servers), error)

    def _nobody(self) -> PolicyUnavailableError:
        return PolicyUnavailableError(
            f"no policy is left that answers; go on with --resume when one does. The last one: {self._last}"
        )


def check_replicas(capabilities: Sequence[Capabilities]) -> None:
    """Raise `ConfigError` where policies that are to share a run say different things of themselves."""
    first = asdict(capabilities[0])
    for number, more in enumerate(capabilities[1:], 2):
        other = asdict(more)
        named = [name for name in first if name not in NOT_COMPARED]
        different = [f"{name} is {first[name]!r} and {other[name]!r}" for name in named if first[name] != other[name]]
        if different:
            raise ConfigError(
                f"policy 1 and policy {number} are not replicas: {'; '.join(different)}. A run has one model",
                value=different,
            )
