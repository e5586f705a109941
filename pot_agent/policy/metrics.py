"""Prometheus metrics of a policy server, in a registry of their own.

Limits: labels are fixed by the server (the call, the status, the outcome); nothing that a client chooses becomes one.
Counters start at zero with the process.
"""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pot_agent.policy.base import Completion, Receipt

CALLS = frozenset(
    {"open", "sample", "score", "internalize", "snapshot", "restore", "close", "sessions", "count", "capabilities"}
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600)


class Metrics:
    """What is counted, and how it is shown."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter("pot_requests", "Requests by call and status.", ["call", "status"], registry=own)
        self._seconds = Histogram(
            "pot_request_seconds", "Seconds of a request.", ["call"], buckets=SECONDS, registry=own
        )
        self._tokens = Counter("pot_tokens", "Tokens: of prompts, and drawn.", ["kind"], registry=own)
        self._updates = Counter("pot_updates", "Calls of internalize by outcome.", ["outcome"], registry=own)
        self._canaries = Counter(
            "pot_canaries", "Updates that would move weights, by the canary's verdict.", ["verdict"], registry=own
        )
        self._update_seconds = Histogram(
            "pot_update_seconds", "Seconds of an update that moved weights.", buckets=SECONDS, registry=own
        )
        self._in_flight = Gauge("pot_calls_in_flight", "Policy calls that run or wait for their turn.", registry=own)
        self._sessions = Gauge("pot_sessions", "Sessions open or kept in the state folder.", registry=own)

    def watch(self, *, in_flight: Callable[[], float], sessions: Callable[[], float]) -> None:
        """Where the gauges look when they are read."""
        self._in_flight.set_function(in_flight)
        self._sessions.set_function(sessions)

    def sampled(self, completions: list[Completion]) -> None:
        """Count one call of `sample`; its rows share their prompt."""
        if completions:
            self._tokens.labels("prompt").inc(completions[0].prompt_tokens)
        self._tokens.labels("completion").inc(sum(completion.tokens for completion in completions))

    def updated(self, receipt: Receipt) -> None:
        """Count one answer of `internalize`; a receipt that is given again counts again."""
        self._updates.labels("skipped" if receipt.skipped else "moved").inc()
        if not receipt.skipped:
            self._canaries.labels(receipt.canary or "none").inc()
            self._update_seconds.observe(receipt.seconds)

    def caught(self) -> None:
        """Count an update that was refused because the sampler did not run it."""
        self._canaries.labels("not_reached").inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        last = path.rsplit("/", 1)[-1]
        call = last if path.startswith("/v1/") and last in CALLS else "other"
        self._requests.labels(call, str(status)).inc()
        self._seconds.labels(call).observe(seconds)


class Counted:
    """ASGI middleware: every request is counted, refused ones too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.answered(scope["path"], status, time.monotonic() - began)
