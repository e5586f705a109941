"""What the machine decides, read from the environment: the only reader of it (the sandboxed process empties its own).

An empty variable counts as unset; one that cannot be read is a `ConfigError` that names it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from pot_agent.errors import ConfigError
from pot_agent.require import require, require_choice, require_count, require_finite, require_kind

ENVIRONMENT_PREFIX = "POT_"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the machine decides. Variables are named `POT_` plus the field in capitals."""

    model: str = "embedded"
    """POT_MODEL: hub id, folder, GGUF file, or `embedded`."""
    chat_model: str | None = None
    """POT_CHAT_MODEL: name for langchain's `init_chat_model`, such as `openai:gpt-5-mini`; `graphs/search.py` and
    `graphs/coding_agent.py` then search with it, without learning."""
    policy: str | None = None
    """POT_POLICY: URL of a policy server, used instead of a model in process."""
    token: str | None = field(default=None, repr=False)
    """POT_TOKEN: bearer token of the policy server."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """POT_TOKENS: further tokens that the server accepts, separated by commas; each has sessions of its own."""
    device: str | None = None
    """POT_DEVICE: torch device; None: cuda where there is one, else cpu."""
    dtype: str | None = None
    """POT_DTYPE: float32, bfloat16 or float16; None: bfloat16 on a GPU, float32 on a CPU."""
    sampler: Literal["auto", "transformers", "vllm"] = "auto"
    """POT_SAMPLER: transformers, vllm, or auto: vllm on a GPU where it is installed and its second copy fits."""
    context_tokens: int | None = None
    """POT_CONTEXT_TOKENS: longest prompt plus completion; None: the model's own limit, as far as memory allows."""
    max_rank: int = 16
    """POT_MAX_RANK: largest rank of an adapter, where vllm samples."""
    lora_slots: int = 8
    """POT_LORA_SLOTS: adapters that vllm samples together; those of more sessions take turns."""
    batch: bool = True
    """POT_BATCH: whether calls of several sessions are sampled together, where the model can; then equal seeds give
    equal samples only to rounding. 0: they take turns, exact."""
    threads: int | None = None
    """POT_THREADS: torch threads; None: torch's own default."""
    home: Path = field(default_factory=lambda: Path.home() / ".cache" / "policy-of-thoughts")
    """POT_HOME: where converted models are kept."""
    host: str = "127.0.0.1"
    """POT_HOST: where `pot serve` listens."""
    port: int = 8719
    """POT_PORT."""
    max_sessions: int = 64
    """POT_MAX_SESSIONS: sessions open at once in one policy."""
    max_samples: int = 10_000
    """POT_MAX_SAMPLES: samples that one session may hold."""
    max_calls: int = 128
    """POT_MAX_CALLS: calls that the server has in flight, running or waiting; more are told to come again."""
    max_calls_per_session: int = 8
    """POT_MAX_CALLS_PER_SESSION: of which so many may be of one session."""
    call_seconds: float = 600.0
    """POT_CALL_SECONDS: a call that takes longer is stopped by the server."""
    lease_seconds: float = 3600.0
    """POT_LEASE_SECONDS: a session unused for so long is closed; with a state folder, it only leaves memory."""
    state: Path | None = None
    """POT_STATE: folder where sessions are kept, so that they survive the process; None: in memory only."""
    state_seconds: float = 7 * 24 * 3600.0
    """POT_STATE_SECONDS: a session's folder unused for so long is removed."""

    def __post_init__(self) -> None:
        require_count("POT_PORT", self.port)
        require(self.port < 65536, "POT_PORT", self.port, "between 1 and 65535")
        require_kind("POT_HOST", self.host, str, "an address, as text")
        require_kind("POT_HOME", self.home, Path, "a pathlib.Path")
        require_kind("POT_STATE", self.state, (Path, type(None)), "a pathlib.Path, or None")
        for name in ("chat_model", "policy", "token", "device"):
            value = getattr(self, name)
            shown = value if name != "token" else type(value).__name__
            require(isinstance(value, (str, type(None))), f"POT_{name.upper()}", shown, "text, or None")
        for name in ("max_sessions", "max_samples", "max_calls", "max_calls_per_session", "max_rank", "lora_slots"):
            require_count(f"POT_{name.upper()}", getattr(self, name))
        texts = isinstance(self.tokens, tuple) and all(isinstance(token, str) for token in self.tokens)
        require(texts, "POT_TOKENS", type(self.tokens).__name__, "a tuple of texts")
        require_finite("POT_CALL_SECONDS", self.call_seconds, "a finite number of seconds above 0")
        require_finite("POT_LEASE_SECONDS", self.lease_seconds, "a finite number of seconds above 0")
        require_finite("POT_STATE_SECONDS", self.state_seconds, "a finite number of seconds above 0")
        require_kind("POT_BATCH", self.batch, bool, "true or false")
        require_choice("POT_SAMPLER", self.sampler, ("auto", "transformers", "vllm"))
        for name in ("threads", "context_tokens"):
            if getattr(self, name) is not None:
                require_count(f"POT_{name.upper()}", getattr(self, name))
        if self.dtype is not None:
            require_choice("POT_DTYPE", self.dtype, ("float32", "bfloat16", "float16"))
        named = isinstance(self.model, str) and bool(self.model.strip())
        require(named, "POT_MODEL", self.model, "a hub id, a folder, a GGUF file or `embedded`")

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read `POT_*`; an empty variable counts as unset; one that cannot be read is a `ConfigError`."""
        source = os.environ if environment is None else environment
        given = {
            f.name: source[name]
            for f in fields(cls)
            if (name := ENVIRONMENT_PREFIX + f.name.upper()) in source and source[name].strip()
        }
        return cls(**{name: _read(name, text) for name, text in given.items()})


def set_where_unset(variables: Mapping[str, str]) -> None:
    """Variables for a library that takes its settings from the environment alone; what the user set stays."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


_SWITCHES = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}

_READERS: dict[str, Callable[[str], Any]] = {
    "port": int,
    "max_sessions": int,
    "max_samples": int,
    "max_calls": int,
    "max_calls_per_session": int,
    "call_seconds": float,
    "tokens": lambda text: tuple(token.strip() for token in text.split(",") if token.strip()),
    "threads": int,
    "context_tokens": int,
    "max_rank": int,
    "lora_slots": int,
    "batch": lambda text: _switch(text),
    "lease_seconds": float,
    "state_seconds": float,
    "home": lambda text: Path(text).expanduser(),
    "state": lambda text: Path(text).expanduser(),
}


def _switch(text: str) -> bool:
    if text.strip().lower() not in _SWITCHES:
        raise ValueError(f"one of {', '.join(_SWITCHES)}")
    return _SWITCHES[text.strip().lower()]


def _read(name: str, text: str) -> Any:
    try:
        return _READERS.get(name, str)(text)
    except ValueError as error:
        variable = ENVIRONMENT_PREFIX + name.upper()
        raise ConfigError(f"{variable} cannot be read: {text!r} ({error})", value=text) from error
