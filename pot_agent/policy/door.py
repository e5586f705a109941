"""The door of the policy server: who may come in, and how much they may bring.

Limits: no TLS (put a proxy before the server where the network is not trusted); no limit on the rate of calls.

Without a token only this machine may call, and a browser on it counts as a stranger: a page that posts here, or that
rebinds its own name to 127.0.0.1, sends an `Origin` or a `Host` that is not this machine's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pot_agent.errors import ConfigError, PermissionDeniedError, PolicyBusyError, PolicyUnavailableError
from pot_agent.policy.owners import Owner, same_token
from pot_agent.policy.refusals import refusal
from pot_agent.policy.wire import is_loopback

OPEN_PATHS = frozenset({"/health", "/ready"})
"""Probes carry no token, and learn nothing but that the server is up."""

_FULL = "{} requests are being read or answered, the most that this policy server takes; try again later"


class Door:
    """ASGI middleware: checks the caller, then reads the body whole, bounded in bytes and in seconds.

    At most `most` requests that send something are inside at once, so that their bodies do not fill the memory.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: Sequence[str], max_body_bytes: int, body_seconds: float, most: int
    ) -> None:
        self._app = app
        self._most = most
        self._inside = 0
        self._tokens = tuple(tokens)
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            token = self._check_caller(scope["path"], headers)
        except PermissionDeniedError as error:
            await refusal(error, status=401 if self._tokens else 403)(scope, receive, send)
            return
        scope.setdefault("state", {})["owner"] = Owner.of(token)
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
        elif self._inside >= self._most:
            await refusal(PolicyBusyError(_FULL.format(self._most), value=self._most))(scope, receive, send)
        else:
            self._inside += 1
            try:
                await self._with_body(scope, receive, send, headers)
            finally:
                self._inside -= 1

    async def _with_body(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        try:
            body = await self._read(receive, headers)
        except ConfigError as error:
            await refusal(error, status=413)(scope, receive, send)
        except TimeoutError:
            late = PolicyUnavailableError(f"the request's body did not arrive within {self._body_seconds:g} s")
            await refusal(late, status=408)(scope, receive, send)
        else:
            if body is not None:
                await self._app(scope, _replay(body, receive), send)

    def _check_caller(self, path: str, headers: Headers) -> str | None:
        """The caller's token; None where none is needed."""
        if not self._tokens:
            _check_local(headers)
            return None
        return None if path in OPEN_PATHS else self._check_token(headers.get("authorization", ""))

    def _check_token(self, authorization: str) -> str:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise PermissionDeniedError("this policy server wants a token: send `Authorization: Bearer TOKEN`")
        token = same_token(given.strip(), self._tokens)
        if token is None:
            raise PermissionDeniedError("the token is not this policy server's; compare POT_TOKEN on both sides")
        return token

    async def _read(self, receive: Receive, headers: Headers) -> bytes | None:
        """The whole body; None when the client left while sending it."""
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            raise self._too_large(int(announced))
        chunks: list[bytes] = []
        size = 0
        async with asyncio.timeout(self._body_seconds):
            while (message := await receive())["type"] == "http.request":
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > self._max_body_bytes:
                    raise self._too_large(size)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        return None

    def _too_large(self, size: int) -> ConfigError:
        limit = f"the limit of this policy server is {self._max_body_bytes:,}"
        return ConfigError(f"the request's body has {size:,} bytes or more; {limit}: send shorter messages", value=size)


def _check_local(headers: Mapping[str, str]) -> None:
    for name, url in (("Host", "//" + headers.get("host", "localhost")), ("Origin", headers.get("origin"))):
        if url is not None and not is_loopback(_hostname(url)):
            raise PermissionDeniedError(
                f"without a token this policy server answers its own machine alone, and {name} is {url.lstrip('/')!r}; "
                "set POT_TOKEN on both sides",
                value=url.lstrip("/"),
            )


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _replay(body: bytes, receive: Receive) -> Receive:
    """First the body that was read, then whatever the server says: that the client has gone, above all."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
