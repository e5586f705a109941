"""Errors as HTTP answers: every `PotError` with a fitting status, anything else with an id and nothing more.

Limits: what an unexpected exception says stays in the server's log, under the id that the client is given.
"""

import logging
import secrets
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pot_agent.errors import (
    CancelledError,
    CannotLearnError,
    ConfigError,
    ContextLengthError,
    DiskFullError,
    PermissionDeniedError,
    PolicyBusyError,
    PolicyError,
    PolicyUnavailableError,
    PotError,
    ProblemError,
    RestoreError,
    SampleError,
    SessionConflictError,
    SessionNotFoundError,
    VersionError,
)
from pot_agent.policy.wire import NO_SUCH_PATH, dumps, error_to_wire

_log = logging.getLogger(__name__)

STATUSES: dict[type[PotError], int] = {
    ConfigError: 422,
    ProblemError: 422,
    SampleError: 422,
    ContextLengthError: 422,
    CannotLearnError: 422,
    PermissionDeniedError: 403,
    SessionNotFoundError: 404,
    SessionConflictError: 409,
    VersionError: 409,
    RestoreError: 409,
    PolicyBusyError: 429,
    CancelledError: 499,
    PolicyUnavailableError: 503,
    DiskFullError: 507,
}
"""Every other `PotError` is a 500; 499 is nginx's "client closed request", which nobody is there to read."""

RETRY_AFTER_SECONDS = 5

_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": str(RETRY_AFTER_SECONDS)},
}


class WireResponse(Response):
    """An answer in the wire's JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


def refusal(error: PotError, *, status: int | None = None) -> Response:
    """The answer that stands for `error`."""
    code = STATUSES.get(type(error), 500) if status is None else status
    return WireResponse(error_to_wire(error), status_code=code, headers=_HEADERS.get(code))


def unexpected(error: BaseException, what: str) -> PolicyError:
    """Log an exception nobody planned for, with its trace; what the client learns is an id to ask about."""
    error_id = secrets.token_hex(4)
    _log.error("%s failed unexpectedly (error id %s)", what, error_id, exc_info=error)
    message = f"the policy server failed unexpectedly in {what} (error id {error_id}); its log says why"
    return PolicyError(message, value=error_id)


def invalid(errors: Sequence[Any]) -> PotError:
    """What was wrong with a body: the configuration's own error where it raised one, else the place and the reason."""
    for found in errors:
        own = found.get("ctx", {}).get("error")
        if isinstance(own, PotError):
            return own
    first = errors[0]
    if first["type"] == "json_invalid":
        return ConfigError(f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    hint = "; send JSON with the header `Content-Type: application/json`" if isinstance(first["input"], bytes) else ""
    return ConfigError(f"{place}: {first['msg']}{hint}{more}", value=first["input"])


def no_such_path(request: Request, status: int) -> Response:
    """The answer to a path or method that is not there, apart from the answer for a session that is not there."""
    message = f"this policy server has no {request.method} {request.url.path}; GET /openapi.json lists what it has"
    return WireResponse({"code": NO_SUCH_PATH, "message": message, "value": request.url.path}, status_code=status)
