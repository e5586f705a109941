"""What a graph holds on to: its policy, its sandbox, its configuration. Built at the first run, never at import."""

import hashlib
import inspect
import logging
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

from langchain_core.language_models import BaseChatModel

from pot_agent.config import PotConfig
from pot_agent.errors import CannotLearnError, ConfigError
from pot_agent.policy.base import Policy
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import ExecutionReward, Reward
from pot_agent.sandbox.base import Sandbox
from pot_agent.settings import Settings

log = logging.getLogger(__name__)

_CALLS = sorted(name for name in vars(Policy) if not name.startswith("_"))
"""What an object must have to be a policy."""


class Handles:
    """Policy, sandbox and reward of one graph; the defaults are shared by all graphs of the process."""

    def __init__(
        self,
        policy: Policy | BaseChatModel | str | None,
        sandbox: Sandbox | None,
        *,
        model: str,
        config: PotConfig | None,
        reward: Reward | None,
    ) -> None:
        self._given_policy = as_policy(policy)
        self._given_sandbox = sandbox
        self._model = model
        self._config = config
        self._lock = Lock()
        self.reward: Reward = reward if reward is not None else ExecutionReward()
        if self._given_policy is not None and not _is_far(self._given_policy):  # that is asked when a run starts
            check_can_learn(self._given_policy, config or PotConfig())

    @cached_property
    def policy(self) -> Policy:
        """The policy: the one given, else the process's own for this model."""
        with self._lock:
            if self._given_policy is not None:
                return self._given_policy
            return local_policy(self._model, Settings.from_env())

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox: the one given, else the process's own."""
        with self._lock:
            if self._given_sandbox is not None:
                return self._given_sandbox
            from pot_agent.sandbox.shared import default_sandbox

            return default_sandbox()

    def budget(self) -> str:
        """`given` where the graph has a configuration, else `quick` on a CPU and `paper` on anything else."""
        if self._config is not None:
            return "given"
        return "quick" if self.policy.capabilities.device.startswith("cpu") else "paper"

    def config(self, budget: str, knobs: dict[str, Any]) -> PotConfig:
        """The configuration of a run: the graph's own (or the budget's) with the run's knobs."""
        base = self._config
        if base is None:
            base = PotConfig.quick() if budget == "quick" else PotConfig.paper()
        return base.change(**knobs)


def local_policy(model: str, settings: Settings) -> Policy:
    """The process's own policy for `model`, on the device that the settings name."""
    from pot_agent.policy.shared import default_policy

    return default_policy(replace(settings, model=model))


def as_policy(given: Policy | BaseChatModel | str | None) -> Policy | None:
    """A policy from an object, a server's URL or a LangChain chat model."""
    if given is None:
        return None
    if isinstance(given, str):
        from pot_agent.policy.client import HttpPolicy

        return HttpPolicy(given, token=Settings.from_env().token)
    if isinstance(given, BaseChatModel):
        from pot_agent.policy.chat_model import ChatModelPolicy

        return ChatModelPolicy(given)
    # Not isinstance: before Python 3.12 it evaluates the protocol's properties, and a client's ask its server.
    missing = [name for name in _CALLS if inspect.getattr_static(given, name, None) is None]
    if not missing:
        return given
    what = f"{type(given).__name__}, which has no {missing[0]}"
    raise ConfigError(
        f"policy must be a policy, the URL of a policy server or a LangChain chat model, got {what}", value=given
    )


def _is_far(policy: Policy) -> bool:
    """Whether asking it anything is a call to a server; building a graph makes none."""
    from pot_agent.policy.client import HttpPolicy

    return isinstance(policy, HttpPolicy)


def check_can_learn(policy: Policy, config: PotConfig) -> None:
    """Raise `CannotLearnError` where learning is asked of a policy without weights."""
    capabilities = policy.capabilities
    if config.learn and not capabilities.learns:
        raise CannotLearnError(
            f"{capabilities.model} cannot learn: it has no weights to train here. Search with it by "
            "config=PotConfig.quick(learn=False), or give an open-weights model (model=...) or the URL of `pot serve`",
            value=capabilities.model,
        )


def limits_of(problem: Problem, config: PotConfig) -> Limits:
    """The problem's own limits, else the budget's."""
    return problem.limits if problem.limits is not None else Limits(cpu_seconds=config.program_seconds)


def seed_for(seed: int, iteration: int, purpose: str) -> int:
    """A seed of 63 bits for one call, the same for every method that makes that call."""
    digest = hashlib.sha256(f"{seed}/{iteration}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
