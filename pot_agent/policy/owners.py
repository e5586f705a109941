"""Whose sessions: each token's are its own, and another token cannot tell that they exist.

A session's name inside the policy is the client's name and, behind an `@`, a digest of the token that opened it. So the
same name under two tokens is two sessions, and ownership needs no table: it outlives the server with the state folder.
What the policy answers, errors too, is given back with the client's own name.

Limits: without a token there is one owner. Who changes a token leaves its sessions behind, until they are too old. A
name too long to take the digest is kept, and listed, as a digest of its own.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pot_agent.errors import PotError
from pot_agent.policy.base import SessionInfo
from pot_agent.policy.checks import MAX_SESSION_CHARACTERS

_DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class Owner:
    """Who calls: the digest of a token; None for the one owner of a server without tokens."""

    digest: str | None

    @classmethod
    def of(cls, token: str | None) -> "Owner":
        """Of a token."""
        return cls(None if token is None else hashlib.sha256(token.encode()).hexdigest()[:_DIGEST_CHARACTERS])

    def inside(self, name: str) -> str:
        """The policy's name for this owner's session; a name that no session can have stays one."""
        if self.digest is None or not 0 < len(name) <= MAX_SESSION_CHARACTERS:
            return name
        if len(name) + len(self._mark) > MAX_SESSION_CHARACTERS:
            name = hashlib.sha256(name.encode()).hexdigest()
        return name + self._mark

    def own(self, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
        """Those of the policy's sessions that are this owner's, by the owner's names."""
        return [
            replace(info, session=info.session.removesuffix(self._mark))
            for info in sessions
            if info.session.endswith(self._mark)
        ]

    @contextmanager
    def named(self, name: str) -> Iterator[str]:
        """The policy's name; errors from inside come out with the owner's."""
        inside = self.inside(name)
        try:
            yield inside
        except PotError as error:
            if inside == name:
                raise
            message, value = (_with(told, {inside: name, self._mark: ""}) for told in (error.message, error.value))
            raise type(error)(message, value=value) from error

    @property
    def _mark(self) -> str:
        return "" if self.digest is None else f"@{self.digest}"


def _with(told: Any, changes: Mapping[str, str]) -> Any:
    """A text with these put in for those; anything else as it is."""
    for old, new in changes.items() if isinstance(told, str) else ():
        told = told.replace(old, new)
    return told


def same_token(given: str, tokens: Sequence[str]) -> str | None:
    """The token that was given, if it is one of these; the time it takes does not say how far it was right."""
    found = None
    for token in tokens:
        if hmac.compare_digest(given.encode(), token.encode()):
            found = token
    return found
