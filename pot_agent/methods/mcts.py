"""MCTS without learning: PoT with internalize off. The same tree, commits, prompts and seeds; the base writes all."""

from typing import Any

from pot_agent.config import PotConfig
from pot_agent.methods.base import TRAINING, Method
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph."""
    from pot_agent.graph import create_pot_agent

    return create_pot_agent(policy, sandbox, config=config.change(learn=False), name="mcts")


METHOD = Method(
    name="mcts",
    summary="PoT's search and commits without learning",
    build=build,
    ignores=TRAINING,
)
