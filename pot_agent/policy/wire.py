"""What crosses between the policy server and its client: plain JSON, and errors as {code, message, value}.

Limits: an error's value crosses whole only where it is plain JSON of at most 4,000 characters; anything else crosses
as its `repr`, cut. JSON has no NaN or infinity, so a float that is not finite crosses as `{"$float": "nan"}` (or
"inf", "-inf"): the policy itself, not the wire, says what is wrong with it.
"""

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from pot_agent.errors import ConfigError, PotError, error_by_code

NO_SUCH_PATH = "no_such_path"
"""Code of an answer to a path or method that the server does not have; it names no class in `errors`."""

MAX_VALUE_CHARACTERS = 4000

LINES = "application/x-ndjson"
"""Media type of an answer that comes in lines, each a JSON object."""

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_wire(value: Any) -> Any:
    """Plain JSON types; numpy's numbers count as numbers. Anything else is a `ConfigError`: nothing is guessed."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else {"$float": str(number)}
    if isinstance(value, Mapping):
        return {_key(key): to_wire(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [to_wire(item) for item in value]
    raise ConfigError(f"a {type(value).__name__} cannot be sent to a policy server: {_cut(value)}", value=value)


def from_wire(value: Any) -> Any:
    """The inverse of `to_wire`, tuples read as lists."""
    if isinstance(value, dict):
        if set(value) == {"$float"} and value["$float"] in _NOT_FINITE:
            return _NOT_FINITE[value["$float"]]
        return {key: from_wire(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_wire(item) for item in value]
    return value


def dumps(value: Any) -> bytes:
    """JSON in ASCII: lone surrogates cross escaped instead of failing to encode."""
    return json.dumps(to_wire(value), allow_nan=False).encode("ascii")


def error_to_wire(error: PotError) -> dict[str, Any]:
    """The body that stands for `error`."""
    return {"code": error.code, "message": error.message, "value": _bounded(error.value)}


def error_from_wire(body: Mapping[str, Any]) -> PotError:
    """The error that `body` stands for: the same class, message and value."""
    return error_by_code(str(body["code"]))(str(body["message"]), value=from_wire(body.get("value")))


def check_token(token: str | None) -> None:
    """Refuse a token that cannot be sent in a header; the message never shows it."""
    if token is not None and not (token and all("!" <= character <= "~" for character in token)):
        raise ConfigError("the token (POT_TOKEN) must be printable ASCII without spaces, and not empty")


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine and nothing beyond it; a name other than localhost counts as beyond."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise ConfigError(f"keys sent to a policy server must be text, got {_cut(key)}", value=key)


def _bounded(value: Any) -> Any:
    try:
        plain = to_wire(value)
        fits = len(json.dumps(plain)) <= MAX_VALUE_CHARACTERS
    except (PotError, ValueError, RecursionError):
        return _cut(value)
    return plain if fits else _cut(value)


def _cut(value: Any) -> str:
    """Anything as bounded text; a value whose own `repr` fails must not hide the error it belongs to."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."
