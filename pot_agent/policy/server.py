"""`pot serve`: one policy behind HTTP, with the meaning and the errors that it has in process.

Limits: one process, one model; without a state folder, sessions are gone when the server ends (their clients get
`SessionNotFoundError`); no TLS. A client that vanishes stops its generation within a token; its session goes within
half a minute of the end of its lease.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pot_agent.errors import ConfigError, MissingExtraError, PolicyUnavailableError, PotError
from pot_agent.policy.base import Policy
from pot_agent.policy.wire import check_token, is_loopback
from pot_agent.settings import Settings

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import PlainTextResponse

    from pot_agent.policy.api import ErrorBody, Health
    from pot_agent.policy.calls import Calls
    from pot_agent.policy.door import Door
    from pot_agent.policy.metrics import CONTENT_TYPE, Counted, Metrics
    from pot_agent.policy.patience import Patient
    from pot_agent.policy.refusals import WireResponse, invalid, no_such_path, refusal, unexpected
    from pot_agent.policy.routes import PolicyRoutes
except ImportError as error:
    raise MissingExtraError(
        f"the policy server needs {error.name}, which is not installed: pip install 'policy-of-thoughts[server]'",
        value=error.name,
    ) from error

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The longest statement that a problem may have, escaped, fits with room to spare."""

BODY_SECONDS = 30.0
"""Time a client has to send its body."""

KEEP_ALIVE_SECONDS = 75
"""An idle connection lives longer here than in the client, so that a call never meets one that is being closed."""

READY_SECONDS = 10.0
"""A policy that takes longer to count the tokens of a word does not answer."""

LOOK_SECONDS = 30.0
"""How often sessions are looked at, so that those whose lease has ended go where nobody calls, too."""

DRAIN_SECONDS = 30
"""After a signal to end, calls in flight have so long to finish; then they are cancelled."""


def create_app(
    policy: Policy,
    *,
    token: str | None = None,
    tokens: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    max_calls: int = Settings.max_calls,
    max_calls_per_session: int = Settings.max_calls_per_session,
    call_seconds: float = Settings.call_seconds,
) -> FastAPI:
    """The policy as an ASGI application, which owns it: the end of the application shuts the policy down.

    With `token`, or any in `tokens`, every path but the probes wants `Authorization: Bearer TOKEN`, and each token has
    sessions of its own; without, only callers that address this machine by a loopback name are answered.
    """
    known = [each for each in (token, *tokens) if each is not None]
    for each in known:
        check_token(each)
    calls = Calls(most=max_calls, most_per_session=max_calls_per_session, seconds=call_seconds)
    metrics = Metrics()
    metrics.watch(in_flight=lambda: len(calls), sessions=lambda: len(policy.list_sessions()))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        looking = asyncio.create_task(_look_after(policy))
        yield
        looking.cancel()
        calls.ending = True
        policy.shutdown()  # ends the calls that did not end in the time they had
        calls.close()

    app = FastAPI(
        title="Policy of Thoughts: policy server",
        description="Sample from, and train, one transient LoRA adapter per session. The contract is that of "
        "`pot_agent.policy.base.Policy`; every refusal is `{code, message, value}`.",
        version="1",
        lifespan=lifespan,
    )
    app.include_router(PolicyRoutes(policy, calls, metrics).router())
    _add_probes(app, policy, calls)
    _add_metrics(app, metrics)
    _add_refusals(app)
    app.add_middleware(Door, tokens=known, max_body_bytes=max_body_bytes, body_seconds=body_seconds, most=2 * max_calls)
    app.add_middleware(Counted, metrics=metrics)
    app.state.calls = calls
    return app


def serve(settings: Settings, *, policy: Policy | None = None, log_level: str = "info") -> None:
    """Serve until a signal ends it; `policy` None loads the model that `settings` name.

    The address and the token are checked, and the port is taken, before any weights are loaded.
    """
    sock = listen(settings)
    _show_logs(log_level)
    try:
        served = _load(settings) if policy is None else policy
        app = create_app(
            served,
            token=settings.token,
            tokens=settings.tokens,
            max_calls=settings.max_calls,
            max_calls_per_session=settings.max_calls_per_session,
            call_seconds=settings.call_seconds,
        )
        config = uvicorn.Config(
            app,
            http=Patient,
            log_level=log_level,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        _Server(config, served).run(sockets=[sock])
    finally:
        sock.close()


def _show_logs(level: str) -> None:
    """What the package says, the memory plan for one, on standard error; nothing where somebody has set logging up."""
    package = logging.getLogger("pot_agent")
    if not package.hasHandlers():
        package.addHandler(logging.StreamHandler())
        package.setLevel(level.upper())


class _Server(uvicorn.Server):
    """Says where it listens, and what it serves: given a socket, uvicorn itself says neither."""

    def __init__(self, config: uvicorn.Config, policy: Policy) -> None:
        super().__init__(config)
        self._policy = policy

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        app.state.calls.ending = True  # connections that are open may still ask
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2] if sockets else (self.config.host, self.config.port)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        served = self._policy.capabilities
        logging.getLogger("uvicorn.error").info(
            "Serving %s (%s) on %s; Ctrl-C ends it", served.model, served.device, url
        )


def listen(settings: Settings) -> socket.socket:
    """The socket to serve on, bound; beyond loopback only with a token."""
    for token in (settings.token, *settings.tokens):
        check_token(token)
    host, port = settings.host, settings.port
    if settings.token is None and not settings.tokens and not is_loopback(host):
        raise ConfigError(
            f"listening on {host} lets other machines in: set a token (POT_TOKEN), or listen on 127.0.0.1 (POT_HOST)",
            value=host,
        )
    if not is_loopback(host):
        _log.warning("listening on %s without TLS: the token crosses the network in clear", host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay (40 ms a call) off only on sockets that say they are TCP
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), port))
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen on {host} port {port}: {reason}; choose another with POT_HOST or POT_PORT",
            value=f"{host}:{port}",
        ) from error
    return sock


def _load(settings: Settings) -> Policy:
    from pot_agent.policy.local import LocalPolicy  # torch: only a server that loads its own model needs it

    return LocalPolicy.from_settings(settings)


async def _look_after(policy: Policy) -> None:
    """Look at the sessions now and then, by which those that are unused for too long are let go."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await asyncio.to_thread(policy.list_sessions)
        except PotError as error:
            _log.warning("the sessions could not be looked at: %s", error)


def _add_probes(app: FastAPI, policy: Policy, calls: Calls) -> None:
    @app.get("/health", response_model=Health, operation_id="health", tags=["server"])
    async def health() -> Response:
        """The process is up."""
        return WireResponse({"status": "ok"})

    @app.get(
        "/ready",
        response_model=Health,
        responses={503: {"model": ErrorBody}},
        operation_id="ready",
        tags=["server"],
    )
    async def ready() -> Response:
        """The policy answers, and the server is not about to end; one that has no place for a call now is ready."""
        calls.check_open()
        try:
            await asyncio.wait_for(asyncio.to_thread(_check_ready, policy), READY_SECONDS)
        except Exception as error:
            _log.warning("the policy does not answer: %s", str(error) or type(error).__name__)
            raise PolicyUnavailableError("the policy does not answer; the server's log says why") from error
        return WireResponse({"status": "ready"})


def _check_ready(policy: Policy) -> None:
    """The policy answers, and one that can tell (`check_ready`) says that it can draw: its engine may have died."""
    policy.count_tokens("ready")
    check: Callable[[], None] | None = getattr(policy, "check_ready", None)
    if check is not None:
        check()


def _add_metrics(app: FastAPI, metrics: Metrics) -> None:
    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {"text/plain": {"example": "pot_calls_in_flight 1.0"}}}},
        operation_id="metrics",
        tags=["server"],
    )
    async def read() -> Response:
        """Prometheus metrics; they want the token as every other path does."""
        text = await asyncio.to_thread(metrics.text)  # listing sessions may read the disk
        return Response(text, media_type=CONTENT_TYPE)


def _add_refusals(app: FastAPI) -> None:
    @app.exception_handler(PotError)
    async def refused(_: Request, error: PotError) -> Response:
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def not_valid(_: Request, error: RequestValidationError) -> Response:
        return refusal(invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def not_served(request: Request, error: HTTPException) -> Response:
        if error.status_code in (404, 405):
            return no_such_path(request, error.status_code)
        return refusal(ConfigError(f"{error.detail}; send JSON in UTF-8, not deeply nested"), status=error.status_code)

    @app.exception_handler(Exception)
    async def not_expected(request: Request, error: Exception) -> Response:
        return refusal(unexpected(error, f"{request.method} {request.url.path}"))
