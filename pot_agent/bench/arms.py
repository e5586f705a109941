"""An arm of a comparison: a method with its configuration, from text such as `pot`, `pot:k=8` or `pot:rank=4,lr=5e-5`.

Knobs are the fields of `PotConfig`, `SearchConfig`, `LoraConfig` and `GrpoConfig`, by name, and:

    k        thoughts of an expansion *at equal programs*: `iterations` becomes as many iterations of k + 1 programs
             (a commit each) as the base's M (k + 1) programs pay for, 1 at least; with `iterations` given, `width`
    width    thoughts of an expansion, `iterations` left as it is
    rank     the adapter's rank; `alpha` becomes 2 x rank, so that its scale stays, unless `alpha` is given
    lr       `learning_rate`
    profile  also where the base has a loss of its own: the arm's profile replaces that

Limits: a field that means nothing to a method is refused (`zero_shot:k=8`), so that no arm is named after what it does
not do. Seeds are the run's and no knob. `k` spends whole iterations only, at most the base's programs (33 of 54 for
k = 32 on the quick budget): `Arm.programs` says how many, and a base whose programs all widths divide has no rest.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pot_agent.config import GrpoConfig, LoraConfig, PotConfig, SearchConfig
from pot_agent.errors import ConfigError
from pot_agent.methods import Method, find
from pot_agent.methods.base import programs_of

_NO_KNOBS = {"search", "lora", "grpo", "seed"}
_ALIASES = {"lr": "learning_rate"}
_SHORT = {name: alias for alias, name in _ALIASES.items()}
_SOURCES = (PotConfig, SearchConfig, LoraConfig, GrpoConfig)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A method and the configuration that it is built with."""

    name: str
    """Canonical: equal names, equal settings of one base."""
    method: Method
    config: PotConfig

    @property
    def programs(self) -> int:
        """Programs that it runs at most on one problem."""
        return self.method.programs(self.config)


def parse_arm(text: str, base: PotConfig, *, parameters: int | None = None) -> Arm:
    """The arm that `text` names, its settings changed from `base`.

    `parameters` of the model decide the learning rate of the profile `corrected`. Raises `ConfigError` with the knob
    that is unknown, that cannot be read, or that means nothing to the method.
    """
    name, colon, rest = text.strip().partition(":")
    method = find(name)
    if colon and not rest.strip():
        raise ConfigError(
            f"{text!r} has no knob after the colon; write {method.name}, or {method.name}:k=8", value=text
        )
    knobs = _read_knobs(rest, text) if rest.strip() else {}
    _check_meant(method, knobs)
    config = _configured(base, knobs, parameters)
    shown = ",".join(f"{_SHORT.get(name, name)}={_shown(value)}" for name, value in sorted(knobs.items(), key=_order))
    return Arm(name=f"{method.name}:{shown}" if shown else method.name, method=method, config=config)


def _order(knob: tuple[str, Any]) -> tuple[bool, str]:
    return (knob[0] != "k", knob[0])


def _read_knobs(text: str, whole: str) -> dict[str, Any]:
    """Values by name, aliases resolved."""
    knobs: dict[str, Any] = {}
    for part in text.split(","):
        given, equals, value = (piece.strip() for piece in part.partition("="))
        name = _ALIASES.get(given, given)
        if not equals or not given or not value:
            raise ConfigError(f"{whole!r}: {part.strip()!r} is no knob; write name=value, as in pot:k=8", value=whole)
        if name in knobs:
            raise ConfigError(f"{whole!r} gives {given} twice", value=whole)
        knobs[name] = _read(name, value)
    if {"k", "width"} <= set(knobs):
        raise ConfigError(
            f"{whole!r} gives k and width; k keeps the number of programs, width the number of iterations", value=whole
        )
    return knobs


def _read(name: str, text: str) -> Any:
    known = {"k": int, **_kinds()}
    if name == "seed":
        raise ConfigError("seed is no knob of an arm: all arms of a run share its seeds (--seeds)", value=text)
    if name not in known:
        raise ConfigError(f"no knob {name!r}; there are lr, {', '.join(sorted(known))}", value=name)
    try:
        return _as(known[name], text)
    except ValueError:
        raise ConfigError(f"{name} must be {_described(known[name])}, got {text!r}", value=text) from None


def _kinds() -> dict[str, Any]:
    """The type of each field that is a knob."""
    hints = {name: hint for cls in _SOURCES for name, hint in get_type_hints(cls).items()}
    names = {field.name for cls in _SOURCES for field in fields(cls)} - _NO_KNOBS
    return {name: hints[name] for name in names}


def _as(kind: Any, text: str) -> Any:
    """`ValueError` where the text is no value of that kind; ranges are the configuration's to check."""
    options = get_args(kind)
    if type(None) in options:
        rest = [option for option in options if option is not type(None)]
        return None if text.lower() == "none" else _as(rest[0], text)
    if get_origin(kind) is Literal:
        if text not in options:
            raise ValueError(text)
        return text
    if get_origin(kind) is tuple:
        return tuple(float(part) for part in text.split("/"))
    if str in options:  # adapter targets
        return text if text == "all-linear" else tuple(text.split("/"))
    return _PLAIN[kind](text)


def _bool(text: str) -> bool:
    known = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PLAIN: dict[Any, Callable[[str], Any]] = {bool: _bool, int: int, float: _float}


def _described(kind: Any) -> str:
    options = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(options)}"
    if get_origin(kind) is Union or type(None) in options:
        return f"{_described(options[0])}, or none"
    return {bool: "true or false", int: "a whole number", float: "a finite number"}.get(kind, "values with / between")


def _check_meant(method: Method, knobs: Mapping[str, Any]) -> None:
    for name in knobs:
        if ("width" if name == "k" else name) in method.ignores:
            raise ConfigError(f"{name} means nothing to {method.name} ({method.summary}); leave it out", value=name)


def _configured(base: PotConfig, knobs: Mapping[str, Any], parameters: int | None) -> PotConfig:
    flat = {f.name for cls in (PotConfig, SearchConfig) for f in fields(cls)}
    config = base.change(**{name: value for name, value in knobs.items() if name in flat})
    if "k" in knobs:
        config = config.change(width=knobs["k"])
        if "iterations" not in knobs:
            config = config.change(iterations=max(1, programs_of(base) // (knobs["k"] + 1)))
    lora = {f.name: knobs[f.name] for f in fields(LoraConfig) if f.name in knobs}
    if "rank" in lora:
        lora.setdefault("alpha", 2.0 * lora["rank"])
    grpo = {f.name: knobs[f.name] for f in fields(GrpoConfig) if f.name in knobs}
    if "profile" in knobs:
        config = config.change(grpo=None)
    if grpo:
        config = config.change(grpo=replace(_loss(config, grpo, parameters), **grpo))
    return replace(config, lora=replace(config.lora, **lora))


def _loss(config: PotConfig, changes: Mapping[str, Any], parameters: int | None) -> GrpoConfig:
    """The loss that `changes` are made to."""
    by_size = config.grpo is None and config.profile == "corrected" and parameters is None
    if by_size and "learning_rate" not in changes:
        raise ConfigError(
            f"the profile `corrected` chooses its learning rate by the model's size, which is not known here: give lr "
            f"beside {', '.join(changes)}",
            value=config.profile,
        )
    return config.grpo_for(parameters)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, tuple):
        return "/".join(_shown(part) for part in value)
    return "none" if value is None else str(value)
