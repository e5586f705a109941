"""A sampling call answered while it is made: one JSON object a line, pieces of text and at last what was drawn.

    {"text": {"0": "def ", "2": "Here"}}     the next piece of each completion that has one, by its index
    {"completions": [...]}                   the last line, or {"code", "message", "value"} where the call failed

Limits: an error before the first piece is a plain refusal with its status; one after it comes in the last line, because
the status is sent by then. A client that reads slowly lets pieces grow together, and nothing wait for it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pot_agent.errors import PotError
from pot_agent.policy.base import Completion
from pot_agent.policy.refusals import WireResponse
from pot_agent.policy.wire import LINES, dumps, error_to_wire

Tell = Callable[[int, str], None]
Sampling = Callable[[Tell], Awaitable[list[Completion]]]


async def streamed(sample: Sampling) -> Response:
    """The answer of a sampling call that tells its text. Raises what the call raised before it told anything."""
    pieces: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(index: int, text: str) -> None:  # in whatever thread draws
        loop.call_soon_threadsafe(pieces.put_nowait, (index, text))

    call = asyncio.ensure_future(sample(tell))
    call.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        first = await pieces.get()
    except BaseException:
        call.cancel()
        raise
    if first is None:
        return answer_of(call.result())
    return _Lines(first, pieces, call)


def answer_of(completions: list[Completion]) -> Response:
    """The plain answer."""
    return WireResponse(_plain(completions))


class _Lines(Response):
    """Sends the lines as they come; whoever is gone is noticed by the call itself."""

    media_type = LINES

    def __init__(
        self,
        first: tuple[int, str],
        pieces: "asyncio.Queue[tuple[int, str] | None]",
        call: "asyncio.Future[list[Completion]]",
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._first = first
        self._pieces = pieces
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with contextlib.aclosing(self._lines()) as lines:
                async for line in lines:
                    await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
        finally:
            self._call.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        piece: tuple[int, str] | None = self._first
        while piece is not None:
            told: dict[str, str] = {}
            while piece is not None:
                told[str(piece[0])] = told.get(str(piece[0]), "") + piece[1]
                if self._pieces.empty():
                    break
                piece = self._pieces.get_nowait()
            yield dumps({"text": told})
            if piece is not None:
                piece = await self._pieces.get()
        try:
            yield dumps(_plain(await self._call))
        except PotError as error:
            yield dumps(error_to_wire(error))


def _plain(completions: list[Completion]) -> dict[str, object]:
    return {"completions": [asdict(completion) for completion in completions]}
