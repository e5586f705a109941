"""HTTP to a policy server: one event loop in a thread of its own, so that any call can be given up at any moment.

Limits: the whole answer is read before it is given; redirects are not followed (a token must not travel on). Proxies
and certificates come from the environment as in httpx, except for a server on this machine. Not for use across a fork.

Retries: a call that never left (connection refused) is tried again, always, and so is one that was answered "busy",
which a server says before it does anything; one that may have arrived only where doing it twice is the same as once.
After `timeout` seconds without an answer nothing is tried again.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import random
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Any

import httpx

from pot_agent.errors import CancelledError, ConfigError, PolicyUnavailableError
from pot_agent.policy.wire import LINES, NO_SUCH_PATH, check_token, dumps, error_from_wire, from_wire, is_loopback
from pot_agent.spans import carry_trace

BACKOFF_SECONDS = (0.1, 0.4, 1.6)
CONNECT_SECONDS = 5.0
BUSY_SECONDS = 10
"""Longest wait between two tries of a busy server, whatever it says."""
CLOSE_SECONDS = 5.0
POLL_SECONDS = 0.05
"""How often a waiting caller looks at its `cancel`."""
KEEP_ALIVE_SECONDS = 20.0
"""Less than the server's: an idle connection is dropped here before it is closed there."""

Put = Callable[[Any], None]

_GATEWAY_STATUSES = frozenset({502, 503, 504})


class Connection:
    """Sends a call and gives its answer or raises its error. Thread-safe; `close` is idempotent."""

    def __init__(self, url: str, *, token: str | None, timeout: float, busy: float = 60.0) -> None:
        check_token(token)
        self.url = _checked(url)
        self._timeout = timeout
        self._busy = busy
        self._client = httpx.AsyncClient(
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_SECONDS),
            trust_env=not is_loopback(httpx.URL(self.url).host),
        )
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: weakref.finalize[Any, Any] | None = None
        """Runs once: when closed, or else with the object's end, or the interpreter's."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        twice: bool,
        cancel: Event | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> Any:
        """The answer's JSON; `twice` says that doing the call twice is the same as once.

        `cancel` closes the connection, by which the server knows to stop the call too. `tell` gets, in this thread, the
        `text` of each line of an answer that comes in lines; the last of them is then the answer.
        """
        content = None if body is None else dumps(body)
        if cancel is not None and cancel.is_set():
            raise CancelledError(f"{method} {path} was cancelled before it was sent")
        told: SimpleQueue[Any] = SimpleQueue()
        future = self._submit(method, path, content, twice, None if tell is None else told.put)
        poll = None if cancel is None and tell is None else POLL_SECONDS
        try:
            while not concurrent.futures.wait([future], poll).done:
                if cancel is not None and cancel.is_set():
                    raise CancelledError(f"{method} {path} was cancelled while the policy server worked on it")
                _hand_over(told, tell)
            _hand_over(told, tell)
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._shut_down() from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Close every connection; calls in flight end with `PolicyUnavailableError`."""
        with self._lock:
            self._closed = True
        if self._stop is not None:
            self._stop()

    def unavailable(self, reason: str) -> PolicyUnavailableError:
        """The error for a server that does not answer as one: it names the URL and what to do."""
        return PolicyUnavailableError(
            f"no policy server at {self.url}: {reason}. Start one with `pot serve`, or correct the URL",
            value=self.url,
        )

    def _shut_down(self) -> PolicyUnavailableError:
        return PolicyUnavailableError(f"this client of {self.url} was shut down; make a new one", value=self.url)

    def _submit(
        self, method: str, path: str, content: bytes | None, twice: bool, put: Put | None
    ) -> concurrent.futures.Future[Any]:
        with self._lock:
            if self._closed:
                raise self._shut_down()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run, args=(self._loop,), name="pot-http", daemon=True)
                self._stop = weakref.finalize(self, _stop, self._loop, thread, self._client)
                thread.start()
            return asyncio.run_coroutine_threadsafe(self._send(method, path, content, twice, put), self._loop)

    async def _send(self, method: str, path: str, content: bytes | None, twice: bool, put: Put | None) -> Any:
        waits = iter(BACKOFF_SECONDS)
        patience = self._busy
        while True:
            try:
                response = await self._once(method, path, content, put)
                wait = _told_to_wait(response)
                if wait is None or patience <= 0:
                    return self._read(response, f"{method} {path}")
                wait = min(wait, patience)
                patience -= wait
            except httpx.HTTPError as error:
                wait = next(waits, None) if _may_retry(error, twice) else None
                if wait is None:
                    raise self.unavailable(self._reason(error, f"{method} {path}")) from error
            await asyncio.sleep(wait)

    async def _once(self, method: str, path: str, content: bytes | None, put: Put | None) -> httpx.Response:
        headers = {} if content is None else {"Content-Type": "application/json"}
        carry_trace(headers)
        async with self._client.stream(method, self.url + path, content=content, headers=headers) as response:
            if put is not None and response.headers.get("content-type", "").startswith(LINES):
                return await _last_line(response, put)
            await response.aread()
            return response

    def _read(self, response: httpx.Response, what: str) -> Any:
        try:
            body = json.loads(response.content)
        except (ValueError, RecursionError):
            body = None
        if response.status_code == 200 and isinstance(body, dict):
            return from_wire(body)
        if isinstance(body, dict) and isinstance(body.get("code"), str) and isinstance(body.get("message"), str):
            if body["code"] == NO_SUCH_PATH:
                raise self.unavailable(f"{what}: {body['message']}")
            raise error_from_wire(body)
        if response.status_code in _GATEWAY_STATUSES:
            raise httpx.HTTPStatusError("gateway", request=response.request, response=response)
        raise self.unavailable(f"{what} was answered {response.status_code}, not in the way a policy server does")

    def _reason(self, error: httpx.HTTPError, what: str) -> str:
        said = str(error) or type(error).__name__
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return f"cannot connect ({said})"
            case httpx.TimeoutException():
                return f"{what} had no answer within {self._timeout:g} s (`timeout` of HttpPolicy)"
            case httpx.HTTPStatusError():
                return f"{what} was answered {error.response.status_code} by a gateway"
            case _:
                return f"the connection was lost during {what} ({said})"


async def _last_line(response: httpx.Response, put: Put) -> httpx.Response:
    """Give each line's text away; the last line, as the plain answer that it stands for."""
    last: Any = None
    try:
        async for line in response.aiter_lines():
            last = json.loads(line)
            if "text" in last:
                put(last.pop("text"))
    except (ValueError, TypeError, AttributeError) as error:
        raise httpx.RemoteProtocolError(f"a line that cannot be read: {error}", request=response.request) from error
    if not last:
        raise httpx.RemoteProtocolError("the answer ended before its last line", request=response.request)
    content = json.dumps(last).encode("ascii")
    return httpx.Response(500 if "code" in last else 200, content=content, request=response.request)


def _hand_over(told: "SimpleQueue[Any]", tell: Callable[[Any], None] | None) -> None:
    while tell is not None and not told.empty():
        tell(told.get())


def _told_to_wait(response: httpx.Response) -> float | None:
    """Seconds until a busy server may be asked again, with jitter, so that those who wait do not come all at once."""
    told = response.headers.get("retry-after", "")
    if response.status_code != 429 or not told.isdigit():
        return None
    return min(int(told), BUSY_SECONDS) * random.uniform(0.5, 1.0) + POLL_SECONDS


def _may_retry(error: httpx.HTTPError, twice: bool) -> bool:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return True
    return twice and not isinstance(error, httpx.TimeoutException)


def _checked(url: str) -> str:
    """The URL without a slash at its end; anything but a plain http(s) address is refused."""
    try:
        parsed = httpx.URL(url.strip())
    except (httpx.InvalidURL, AttributeError, TypeError) as error:
        raise ConfigError(f"not a URL of a policy server: {url!r} ({error})", value=url) from error
    if parsed.userinfo:
        raise ConfigError("the URL of a policy server takes no user or password; use the token (POT_TOKEN)")
    fits = parsed.scheme in ("http", "https") and parsed.host and (parsed.port is None or 0 < parsed.port < 65536)
    if not fits or parsed.query or parsed.fragment or any(character.isspace() for character in url.strip()):
        raise ConfigError(f"the URL of a policy server looks like http://127.0.0.1:8719, got {url!r}", value=url)
    return str(parsed).rstrip("/")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: httpx.AsyncClient) -> None:
    if threading.current_thread() is thread:  # the garbage collector runs where it likes, and here must not wait
        loop.stop()
        return
    with contextlib.suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(_end(client), loop).result(CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(CLOSE_SECONDS)


async def _end(client: httpx.AsyncClient) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await client.aclose()
