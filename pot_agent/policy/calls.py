"""Blocking policy calls behind an event loop: a thread each, a bounded number, stopped when their caller leaves.

Limits: a call that takes no `cancel` (all but `sample` and `internalize`) runs to its end after its caller has gone,
and past its time. A call over a bound is refused at once (`PolicyBusyError`), before anything was done; those below it
wait in the policy for their turn.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from starlette.requests import Request

from pot_agent.errors import PolicyBusyError, PolicyUnavailableError, PotError
from pot_agent.policy.refusals import unexpected
from pot_agent.spans import continued

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""How long a call that was told to stop is waited for."""


class Calls:
    """The policy calls in flight: at most `most`, at most `most_per_session` of one session, `seconds` each."""

    def __init__(self, *, most: int, most_per_session: int, seconds: float) -> None:
        self._most = most
        self._most_per_session = most_per_session
        self._seconds = seconds
        self._in_flight: Counter[str | None] = Counter()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="pot-call")
        self.ending = False
        """Whether no more calls are taken."""

    def __len__(self) -> int:
        """Calls in flight."""
        return self._in_flight.total()

    def check_open(self) -> None:
        """Raises `PolicyUnavailableError` once the server is ending."""
        if self.ending:
            raise PolicyUnavailableError("this policy server is ending; call again when it is back", value=None)

    async def run(self, request: Request, call: Callable[[Event], T], *, session: str | None = None) -> T:
        """Run `call` in a thread; its event is set when the client leaves, its time is up, or the server ends."""
        cancel = Event()

        def traced(cancel: Event) -> T:
            with continued(request.headers, f"server.{request.url.path.rpartition('/')[2]}"):
                return call(cancel)

        work = asyncio.wrap_future(self._start(traced, cancel, session))
        watch = asyncio.create_task(_watch(request, cancel))
        try:
            return await self._in_time(work, cancel, f"{request.method} {request.url.path}")
        except PotError:
            raise
        except Exception as error:
            raise unexpected(error, f"{request.method} {request.url.path}") from error
        finally:
            cancel.set()
            watch.cancel()

    def close(self) -> None:
        """Take no more calls, and wait for those in flight."""
        self.ending = True
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _in_time(self, work: "asyncio.Future[T]", cancel: Event, what: str) -> T:
        done, _ = await asyncio.wait([work], timeout=self._seconds)
        if done:
            return work.result()
        cancel.set()
        await asyncio.wait([work], timeout=GRACE_SECONDS)
        if work.done() and not work.cancelled() and work.exception() is None:
            return work.result()
        raise PolicyUnavailableError(
            f"{what} did not end within {self._seconds:g} s (POT_CALL_SECONDS of the policy server), and was stopped: "
            "ask for fewer tokens or completions, or raise the limit",
            value=self._seconds,
        )

    def _start(self, call: Callable[[Event], T], cancel: Event, session: str | None) -> Future[T]:
        with self._lock:
            self.check_open()
            if len(self) >= self._most:
                raise PolicyBusyError(
                    f"{self._most} calls are in flight, the most that this policy server takes (POT_MAX_CALLS); try "
                    "again later",
                    value=self._most,
                )
            if session is not None and self._in_flight[session] >= self._most_per_session:
                raise PolicyBusyError(
                    f"{self._most_per_session} calls of this session are in flight, the most that it may have; wait "
                    "for one of them",
                    value=self._most_per_session,
                )
            self._in_flight[session] += 1
            future = self._threads.submit(call, cancel)
        future.add_done_callback(lambda _: self._left(session))
        return future

    def _left(self, session: str | None) -> None:
        with self._lock:
            self._in_flight[session] -= 1
            if not self._in_flight[session]:
                del self._in_flight[session]


async def _watch(request: Request, cancel: Event) -> None:
    """Set `cancel` when the client disconnects; the body has been read, so that is all there is to receive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    cancel.set()
