"""Checks of a setting when a configuration is built: each error has its name, its value and the rule."""

import math
from typing import Any

from pot_agent.errors import ConfigError


def require(condition: bool, name: str, value: object, rule: str) -> None:
    """Raise `ConfigError` with the setting's name, its value and the rule, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{name} must be {rule}, got {value!r}", value=value)


def is_finite(value: Any) -> bool:
    """Whether it is a finite number; True and False are none."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def require_finite(name: str, value: float, rule: str, *, positive: bool = True) -> None:
    """A finite number above 0, or from 0 on."""
    require(is_finite(value) and (value > 0 if positive else value >= 0), name, value, rule)


def require_kind(name: str, value: object, kind: type | tuple[type, ...], rule: str) -> None:
    """A value of that type."""
    require(isinstance(value, kind), name, value, rule)


def require_count(name: str, value: int, *, least: int = 1) -> None:
    """A whole number, `least` or more."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and value >= least, name, value, f"a whole number, {least} or more")


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of the choices."""
    require(value in choices, name, value, f"one of {', '.join(choices)}")
