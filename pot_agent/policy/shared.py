"""The policy that a process shares: one for each model, device and type, built at first use, shut down at exit."""

import atexit
import threading
from pathlib import Path

from pot_agent.policy.local import LocalPolicy
from pot_agent.settings import Settings

_defaults: dict[tuple[str, str | None, str | None], LocalPolicy] = {}
_defaults_lock = threading.Lock()


def default_policy(
    model: str = "embedded",
    *,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    home: Path | None = None,
    state_dir: Path | None = None,
    state_seconds: float = Settings.state_seconds,
) -> LocalPolicy:
    """The policy that this process shares: built once per (model, device, dtype), shut down at exit.

    A state folder is one policy's: a process that shares two needs one each, or `pot serve`.
    """
    key = (model, device, dtype)
    with _defaults_lock:
        policy = _defaults.get(key)
        if policy is None or policy.is_shut_down:
            policy = LocalPolicy(
                model,
                device=device,
                dtype=dtype,
                threads=threads,
                home=home,
                state_dir=state_dir,
                state_seconds=state_seconds,
            )
            if not _defaults:
                atexit.register(_shut_defaults)
            _defaults[key] = policy
        return policy


def _shut_defaults() -> None:
    for policy in _defaults.values():
        policy.shutdown()
