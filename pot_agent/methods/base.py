"""What every method is: a graph over the same parts, with the input and the output of `create_pot_agent`.

A method sees the problem with its visible tests, one policy and one sandbox, and nothing else. Whoever calls counts at
those two doors. Methods of one run share seeds (`pot_agent.handles.seed_for`) and prompts (`pot_agent.prompts`), so
that what differs between two of them is the method.

Budgets are matched by programs: `iterations` M and `width` k of one configuration allow M (k + 1) programs, the commit
of each iteration included, to every method that searches or samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from pot_agent.config import GrpoConfig, LoraConfig, PotConfig, SearchConfig
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox

Build = Callable[[Policy, Sandbox, PotConfig], Any]
"""Gives a compiled graph: `invoke({"problem": ..., "tests": ...})` answers `{"solution": Solution}`."""

_OF_UPDATES = ("profile", "learn", "generated_tests", "generated_weight", "snapshots")
TRAINING = frozenset([*_OF_UPDATES, *(f.name for cls in (LoraConfig, GrpoConfig) for f in fields(cls))])
"""Settings that mean nothing without updates."""
_OF_EVERY_DRAW = {"iterations", "width", "temperature", "max_new_tokens", "max_prompt_tokens", "end_at_block"}
TREE = frozenset(f.name for f in fields(SearchConfig)) - _OF_EVERY_DRAW
"""Settings that mean nothing without a thought tree."""
SAMPLING = frozenset({"iterations", "width", "temperature"})
"""Settings that mean nothing to one greedy answer."""


def programs_of(config: PotConfig) -> int:
    """Programs that `config` allows: k thoughts and a commit in each of M iterations."""
    return config.search.iterations * (config.search.width + 1)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way of solving, by name."""

    name: str
    """As `--method` takes it, such as `best_of_n`."""
    summary: str
    """One line for `pot bench --help` and the report."""
    build: Build
    learns: bool = False
    """Whether it needs a policy that can learn."""
    persistent: bool = False
    """Whether one adapter goes on from problem to problem (then problems run in order, one at a time)."""
    programs: Callable[[PotConfig], int] = programs_of
    """Programs that it runs at most."""
    ignores: frozenset[str] = frozenset()
    """Settings that mean nothing to it; an arm that names one is refused."""
    end: Callable[[Policy, PotConfig], None] | None = None
    """Drops what goes on from problem to problem. Whoever runs a persistent method calls it before the first problem
    and after the last, with the configuration that `build` is given, its seed included."""
