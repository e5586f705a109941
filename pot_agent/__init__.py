"""Policy of Thoughts (arXiv 2601.20379): a LangGraph agent that learns while it solves.

>>> from pot_agent import create_pot_agent
>>> graph = create_pot_agent()
>>> graph.invoke({"problem": "...", "tests": [...]})["solution"]  # doctest: +SKIP

Names are imported when they are first used, so that `import pot_agent` loads neither torch nor langgraph.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pot_agent.version import __version__

if TYPE_CHECKING:
    from pot_agent.config import GrpoConfig, LoraConfig, PotConfig, SearchConfig
    from pot_agent.errors import CannotLearnError, ConfigError, MissingExtraError, PotError, ProblemError
    from pot_agent.graph import create_pot_agent
    from pot_agent.policy.chat_model import ChatModelPolicy
    from pot_agent.policy.client import HttpPolicy
    from pot_agent.policy.local import LocalPolicy
    from pot_agent.problem import AssertTest, CallTest, Limits, Problem, StdinTest
    from pot_agent.sandbox.local import LocalSandbox
    from pot_agent.settings import Settings
    from pot_agent.state import Solution

_HOMES = {
    "config": ("GrpoConfig", "LoraConfig", "PotConfig", "SearchConfig"),
    "errors": ("CannotLearnError", "ConfigError", "MissingExtraError", "PotError", "ProblemError"),
    "graph": ("create_pot_agent",),
    "policy.chat_model": ("ChatModelPolicy",),
    "policy.client": ("HttpPolicy",),
    "policy.local": ("LocalPolicy",),
    "problem": ("AssertTest", "CallTest", "Limits", "Problem", "StdinTest"),
    "sandbox.local": ("LocalSandbox",),
    "settings": ("Settings",),
    "state": ("Solution",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AssertTest",
    "CallTest",
    "CannotLearnError",
    "ChatModelPolicy",
    "ConfigError",
    "GrpoConfig",
    "HttpPolicy",
    "Limits",
    "LocalPolicy",
    "LocalSandbox",
    "LoraConfig",
    "MissingExtraError",
    "PotConfig",
    "PotError",
    "Problem",
    "ProblemError",
    "SearchConfig",
    "Settings",
    "Solution",
    "StdinTest",
    "__version__",
    "create_pot_agent",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pot_agent' has no attribute {name!r}")
    return getattr(import_module(f"pot_agent.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
