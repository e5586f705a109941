"""Blocking policy calls behind an event loop: a thread each, a bounded number, stopped when their caller leaves.

Limits: a call that takes no `cancel` (all but `sample` and `internalize`) runs to its end after its caller has gone.
A call over the bound is refused at once (`PolicyBusyError`): nothing queues here, though calls may wait in the policy
for its lock.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Event
from typing import TypeVar

from starlette.requests import Request

from pot_agent.errors import PolicyBusyError, PotError
from pot_agent.policy.refusals import unexpected

T = TypeVar("T")


class Calls:
    """The policy calls in flight, at most `most` of them."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._free = BoundedSemaphore(most)
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="pot-call")

    async def run(self, request: Request, call: Callable[[Event], T]) -> T:
        """Run `call` in a thread; its event is set when the client disconnects or the server gives the request up."""
        cancel = Event()
        work = asyncio.wrap_future(self._start(call, cancel))
        watch = asyncio.create_task(_watch(request, cancel))
        try:
            return await work
        except PotError:
            raise
        except Exception as error:
            raise unexpected(error, f"{request.method} {request.url.path}") from error
        finally:
            cancel.set()
            watch.cancel()

    def close(self) -> None:
        """Take no more calls, and wait for those in flight."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _start(self, call: Callable[[Event], T], cancel: Event) -> Future[T]:
        if not self._free.acquire(blocking=False):
            raise PolicyBusyError(
                f"{self._most} calls are in flight, the most that this policy server takes; try again later",
                value=self._most,
            )
        future = self._threads.submit(call, cancel)
        future.add_done_callback(lambda _: self._free.release())
        return future


async def _watch(request: Request, cancel: Event) -> None:
    """Set `cancel` when the client disconnects; the body has been read, so that is all there is to receive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    cancel.set()
