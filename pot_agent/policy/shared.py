"""The policy that a process shares: one for each model, device and type, built at first use, shut down at exit."""

import atexit
import threading

from pot_agent.policy.local import LocalPolicy
from pot_agent.settings import Settings

_defaults: dict[tuple[str | None, ...], LocalPolicy] = {}
_defaults_lock = threading.Lock()


def default_policy(settings: Settings) -> LocalPolicy:
    """The policy that this process shares: built once per (model, device, dtype, sampler), shut down at exit.

    A state folder is one policy's: a process that shares two needs one each, or `pot serve`.
    """
    key = (settings.model, settings.device, settings.dtype, settings.sampler)
    with _defaults_lock:
        policy = _defaults.get(key)
        if policy is None or policy.is_shut_down:
            policy = LocalPolicy.from_settings(settings)
            if not _defaults:
                atexit.register(_shut_defaults)
            _defaults[key] = policy
        return policy


def _shut_defaults() -> None:
    for policy in _defaults.values():
        policy.shutdown()
