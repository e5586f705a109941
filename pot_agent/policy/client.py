"""A policy behind HTTP: the contract of `policy/base.py`, kept by a server that `pot serve` started.

Limits: `on_tokens` is accepted and never called (a running total does not cross); what the server is asked for is
sent as JSON, so an argument that is not plain JSON is a `ConfigError` here. `capabilities` are asked for once.
Needs httpx alone: neither torch nor FastAPI. Arguments meet the checks of the policy in process before they are sent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from threading import Event
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import ConfigError
from pot_agent.policy import checks
from pot_agent.policy.base import Capabilities, Completion, Measure, Message, Receipt, SessionInfo
from pot_agent.policy.connection import Connection

T = TypeVar("T")


class HttpPolicy:
    """A policy server's client. Thread-safe; connects at the first call; `shutdown` leaves the server running."""

    def __init__(
        self, url: str, *, token: str | None = None, timeout: float = 600.0, busy_seconds: float = 60.0
    ) -> None:
        """`timeout`: seconds that one answer may take. `busy_seconds`: how long a busy server is asked again."""
        if not 0 <= busy_seconds < float("inf"):
            raise ConfigError(f"busy_seconds must be 0 or more, and finite, got {busy_seconds!r}", value=busy_seconds)
        if not 0 < timeout < float("inf"):
            raise ConfigError(f"timeout must be a finite number of seconds above 0, got {timeout!r}", value=timeout)
        self._connection = Connection(url, token=token, timeout=timeout, busy=busy_seconds)
        self._capabilities: Capabilities | None = None

    def __repr__(self) -> str:
        return f"HttpPolicy({self.url!r})"

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return self._connection.url

    @property
    def capabilities(self) -> Capabilities:
        """What the server's policy can do; its device is shown as, say, `cpu (remote)`."""
        if self._capabilities is None:
            body = self._connection.call("GET", "/v1/capabilities", twice=True)
            found = self._read(body, lambda: _build(Capabilities, body))
            self._capabilities = replace(found, device=f"{found.device} (remote)")
        return self._capabilities

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """Tokens of a text, or of messages under the chat template."""
        counted = content if isinstance(content, str) else _plain(content)
        body = self._connection.call("POST", "/v1/count", {"content": counted}, twice=True)
        return self._read(body, lambda: int(body["tokens"]))

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """Open a session at version 0."""
        checks.check_session_name(session)
        checks.check_seed(seed)
        asked = {"lora": None if lora is None else asdict(lora), "seed": seed}
        body = self._connection.call("POST", _path(session, "open"), asked, twice=True)
        return self._read(body, lambda: _build(SessionInfo, body))

    def sample(
        self,
        session: str,
        *,
        version: int,
        messages: Sequence[Message],
        n: int = 1,
        temperature: float = 0.7,
        max_tokens: int = 256,
        seed: int = 0,
        stop: Sequence[str] = (),
        end_at_block: bool = False,
        cancel: Event | None = None,
        on_tokens: Callable[[int], None] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Completion]:
        """Sample `n` completions. Never sent twice: the server journals every sample that it draws.

        `on_text` is called in the thread of the caller, within a twentieth of a second after a piece has come.
        """
        checks.check_version(version)
        asked_messages = _plain(messages)
        checks.check_sampling(n, temperature, max_tokens, stop)
        checks.check_seed(seed)
        asked = {
            "version": version,
            "messages": asked_messages,
            "n": n,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            "stop": stop,
            "end_at_block": bool(end_at_block),
        }
        tell = None
        if on_text is not None and self.capabilities.streams:  # an older server knows no such argument
            asked["stream"] = True
            tell = _teller(on_text)
        body = self._connection.call("POST", _path(session, "sample"), asked, twice=False, cancel=cancel, tell=tell)
        found = self._read(body, lambda: [_build(Completion, item) for item in body["completions"]])
        if on_text is not None and tell is None:
            for index, completion in enumerate(found):
                on_text(index, completion.text)
        return found

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        """Mean of `measure` per token of journalled samples under a version."""
        checks.check_measure(measure)
        checks.check_version(version)
        if temperature is not None:
            checks.check_temperature(temperature, allow_zero=False)
        checks.check_sample_ids(sample_ids)
        asked: dict[str, Any] = {"version": version, "sample_ids": sample_ids, "temperature": temperature}
        if measure != "logprob":  # an older server knows no other
            asked["measure"] = measure
        body = self._connection.call("POST", _path(session, "score"), asked, twice=True)
        return self._read(body, lambda: [float(value) for value in body["logprobs"]])

    def internalize(
        self,
        session: str,
        *,
        version: int,
        rewards: Mapping[str, float],
        grpo: GrpoConfig,
        teachers: Mapping[str, Sequence[Message]] | None = None,
        cancel: Event | None = None,
    ) -> Receipt:
        """One GRPO update. Sent again when the connection breaks: the receipt makes that safe."""
        checks.check_version(version)
        checks.check_rewards(rewards)
        checks.check_teachers(teachers, rewards)
        asked = {"version": version, "rewards": rewards, "grpo": asdict(grpo), "teachers": teachers}
        body = self._connection.call("POST", _path(session, "internalize"), asked, twice=True, cancel=cancel)
        return self._read(body, lambda: _build(Receipt, body))

    def snapshot(self, session: str) -> SessionInfo:
        """Keep the newest version on the server until the session is closed."""
        body = self._connection.call("POST", _path(session, "snapshot"), twice=True)
        return self._read(body, lambda: _build(SessionInfo, body))

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """Open a session from the server's state folder, or take it back to a version."""
        if version is not None:
            checks.check_version(version)
        asked = "" if version is None else f"?version={version}"
        body = self._connection.call("POST", _path(session, "restore") + asked, twice=True)
        return self._read(body, lambda: _build(SessionInfo, body))

    def list_sessions(self) -> list[SessionInfo]:
        """The sessions on the server that are this token's."""
        body = self._connection.call("GET", "/v1/sessions", twice=True)
        return self._read(body, lambda: [_build(SessionInfo, item) for item in body["sessions"]])

    def close(self, session: str) -> None:
        """Drop the session on the server."""
        self._connection.call("POST", _path(session, "close"), twice=True)

    def shutdown(self) -> None:
        """Close the connections; sessions and model stay on the server."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _read(self, body: Any, build: Callable[[], T]) -> T:
        """What `build` makes of the answer; an answer of another shape comes from no server of this kind."""
        try:
            return build()
        except (KeyError, TypeError, ValueError) as error:
            raise self._connection.unavailable(f"its answer cannot be read ({error}): {str(body)[:200]}") from error


def _build(cls: Callable[..., T], body: Mapping[str, Any]) -> T:
    """An instance of a dataclass; keys that a newer server added are left out."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in body.items() if name in known})


def _teller(on_text: Callable[[int, str], None]) -> Callable[[Any], None]:
    """Tells the pieces of one line of the answer."""

    def tell(told: Mapping[str, str]) -> None:
        for index, piece in told.items():
            on_text(int(index), piece)

    return tell


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    checks.check_messages(messages)
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _path(session: str, call: str) -> str:
    """A session's name as one part of a path, whatever its characters."""
    if not isinstance(session, str):
        raise ConfigError(f"session must be a name, got {session!r}", value=session)
    try:
        name = quote(session, safe="").replace(".", "%2E")
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"session has a lone surrogate at character {error.start}: {session!r}", value=session
        ) from error
    return f"/v1/sessions/{name}/{call}"
