"""Policy of Thoughts: the search learns while it goes on (arXiv 2601.20379). The profile is the configuration's."""

from typing import Any

from pot_agent.config import PotConfig
from pot_agent.methods.base import Method
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph."""
    from pot_agent.graph import create_pot_agent

    return create_pot_agent(policy, sandbox, config=config, name="pot")


METHOD = Method(
    name="pot",
    summary="Policy of Thoughts: an adapter of its own for each problem, trained while it searches",
    build=build,
    learns=True,
)
