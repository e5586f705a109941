"""The policy's calls as HTTP routes, one each: the body's types are checked, the policy does the rest."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from threading import Event
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.convertors import StringConvertor, register_url_convertor

from pot_agent.errors import AdapterNotSampledError
from pot_agent.policy.api import (
    EXAMPLE_LINES,
    EXAMPLES,
    Closed,
    Completions,
    CountBody,
    ErrorBody,
    InternalizeBody,
    OpenBody,
    SampleBody,
    ScoreBody,
    Scores,
    SessionList,
    TokenCount,
)
from pot_agent.policy.base import Capabilities, Completion, Message, Policy, Receipt, SessionInfo
from pot_agent.policy.calls import Calls
from pot_agent.policy.metrics import Metrics
from pot_agent.policy.owners import Owner
from pot_agent.policy.refusals import WireResponse
from pot_agent.policy.streaming import Tell, answer_of, streamed
from pot_agent.policy.wire import LINES

T = TypeVar("T")

_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body is not JSON in UTF-8"},
    401: {"model": ErrorBody, "description": "No token, or the wrong one"},
    403: {"model": ErrorBody, "description": "Without a token: a caller that is not of this machine"},
    404: {"model": ErrorBody, "description": "No such session"},
    409: {"model": ErrorBody, "description": "Open with other arguments, at another version, or not to be restored"},
    408: {"model": ErrorBody, "description": "The body did not arrive in time"},
    413: {"model": ErrorBody, "description": "The body is too large"},
    422: {"model": ErrorBody, "description": "The policy refused an argument; `code` and `value` say which"},
    429: {"model": ErrorBody, "description": "Too many sessions, or too many calls in flight"},
    500: {"model": ErrorBody, "description": "Unexpected; `value` is an id that the server's log explains"},
    503: {"model": ErrorBody, "description": "The call took too long and was stopped, or the server is ending"},
    507: {"model": ErrorBody, "description": "The disk is full; nothing has changed"},
}


class _NameConvertor(StringConvertor):
    """Any characters, slashes and line ends too: the call is the last part of the path, all before it the name."""

    regex = "(?s:.*)"


register_url_convertor("session", _NameConvertor())
_SESSION = "/v1/sessions/{session:session}"


class PolicyRoutes:
    """One method for each call of the contract. Sessions are named by their owner's names."""

    def __init__(self, policy: Policy, calls: Calls, metrics: Metrics) -> None:
        self._policy = policy
        self._calls = calls
        self._metrics = metrics

    def router(self) -> APIRouter:
        """The routes, documented for OpenAPI."""
        router = APIRouter(responses=_REFUSALS)
        posts: list[tuple[str, Callable[..., Awaitable[Response]], Any]] = [
            (f"{_SESSION}/open", self.open, SessionInfo),
            (f"{_SESSION}/sample", self.sample, Completions),
            (f"{_SESSION}/score", self.score, Scores),
            (f"{_SESSION}/internalize", self.internalize, Receipt),
            (f"{_SESSION}/snapshot", self.snapshot, SessionInfo),
            (f"{_SESSION}/restore", self.restore, SessionInfo),
            (f"{_SESSION}/close", self.close, Closed),
            ("/v1/count", self.count, TokenCount),
        ]
        for path, answer, model in posts:
            _add(router, "POST", path, answer, model)
        _add(router, "GET", "/v1/sessions", self.sessions, SessionList)
        _add(router, "GET", "/v1/capabilities", self.capabilities, Capabilities)
        return router

    async def open(self, request: Request, session: str, body: OpenBody) -> Response:
        """Open a session at version 0, the base model exactly; idempotent for equal arguments."""
        lora = body.lora_config()
        info = await self._in(request, session, lambda name, _: self._policy.open(name, lora=lora, seed=body.seed))
        return _info(info, session)

    async def sample(self, request: Request, session: str, body: SampleBody) -> Response:
        """Sample completions from one version; disconnecting stops the generation. Not idempotent.

        With `stream`, the text is told while it is written, in lines; the last is the plain answer, or the refusal.
        """

        async def draw(on_text: Tell | None) -> list[Completion]:
            found = await self._in(request, session, lambda name, cancel: self._drawn(name, body, cancel, on_text))
            self._metrics.sampled(found)
            return found

        return await streamed(draw) if body.stream else answer_of(await draw(None))

    def _drawn(self, name: str, body: SampleBody, cancel: Event, on_text: Tell | None) -> list[Completion]:
        # A policy that tells no text need not know the word.
        tells: dict[str, Any] = {"on_text": on_text} if on_text and self._policy.capabilities.streams else {}
        return self._policy.sample(
            name,
            version=body.version,
            messages=[Message(role=message.role, content=message.content) for message in body.messages],
            n=body.n,
            temperature=body.temperature,
            max_tokens=body.max_tokens,
            seed=body.seed,
            stop=body.stop,
            end_at_block=body.end_at_block,
            cancel=cancel,
            **tells,
        )

    async def score(self, request: Request, session: str, body: ScoreBody) -> Response:
        """Mean log-probability per token of earlier samples under a version, or mean self-certainty."""
        logprobs = await self._in(
            request,
            session,
            lambda name, _: self._policy.score(
                name,
                version=body.version,
                sample_ids=body.sample_ids,
                temperature=body.temperature,
                measure=body.measure,
            ),
        )
        return WireResponse({"logprobs": logprobs})

    async def internalize(self, request: Request, session: str, body: InternalizeBody) -> Response:
        """One GRPO update; the same call again gives the same receipt. Disconnecting cancels it between epochs."""
        grpo = body.grpo_config()

        def update(name: str, cancel: Event) -> Receipt:
            teachers = body.teacher_messages()
            return self._policy.internalize(
                name, version=body.version, rewards=body.rewards, grpo=grpo, teachers=teachers, cancel=cancel
            )

        try:
            receipt = await self._in(request, session, update)
        except AdapterNotSampledError:
            self._metrics.caught()
            raise
        self._metrics.updated(receipt)
        return WireResponse(receipt.to_dict())

    async def snapshot(self, request: Request, session: str) -> Response:
        """Keep the newest version until the session is closed, however many follow."""
        return _info(await self._in(request, session, lambda name, _: self._policy.snapshot(name)), session)

    async def restore(self, request: Request, session: str, version: int | None = None) -> Response:
        """Open a session from the state folder, as the other calls do by themselves; or take it back to a version."""
        found = await self._in(request, session, lambda name, _: self._policy.restore(name, version=version))
        return _info(found, session)

    async def close(self, request: Request, session: str) -> Response:
        """Drop a session: adapter, journal and folder; one that is not there is no error."""
        await self._in(request, session, lambda name, _: self._policy.close(name))
        return WireResponse({"closed": session})

    async def sessions(self, request: Request) -> Response:
        """The caller's own sessions, open or kept in the state folder, by name."""
        found = await self._calls.run(request, lambda _: self._policy.list_sessions())
        return WireResponse({"sessions": [asdict(info) for info in _owner(request).own(found)]})

    async def count(self, request: Request, body: CountBody) -> Response:
        """Tokens of a text, or of messages under the chat template."""
        content = body.content
        counted = content if isinstance(content, str) else [Message(role=m.role, content=m.content) for m in content]
        return WireResponse({"tokens": await self._calls.run(request, lambda _: self._policy.count_tokens(counted))})

    async def capabilities(self, request: Request) -> Response:
        """What the policy can do, and on which device."""
        return WireResponse(asdict(await self._calls.run(request, lambda _: self._policy.capabilities)))

    async def _in(self, request: Request, session: str, call: Callable[[str, Event], T]) -> T:
        with _owner(request).named(session) as name:
            return await self._calls.run(request, lambda cancel: call(name, cancel), session=name)


def _add(router: APIRouter, method: str, path: str, answer: Callable[..., Awaitable[Response]], model: Any) -> None:
    router.add_api_route(
        path,
        answer,
        methods=[method],
        response_model=model,
        operation_id=answer.__name__,
        tags=["sessions" if "session" in path else "policy"],
        openapi_extra={"responses": {"200": {"content": _content(answer.__name__)}}},
    )


def _content(call: str) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"example": EXAMPLES[call]}}
    if call == "sample":
        content[LINES] = {"schema": {"type": "string"}, "example": EXAMPLE_LINES}
    return content


def _owner(request: Request) -> Owner:
    owner: Owner = request.state.owner
    return owner


def _info(info: SessionInfo, session: str) -> Response:
    return WireResponse({**asdict(info), "session": session})
