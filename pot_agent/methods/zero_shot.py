"""Zero-shot: one greedy answer to the prompt that every method starts from.

It is run on the visible tests once, so that its score is known; nothing depends on the outcome. Deviation from the
paper: the budget's tokens of one thought, not 8,192 (`max_new_tokens` changes it for this arm alone).
"""

from typing import Any

from pot_agent.config import PotConfig
from pot_agent.methods.base import SAMPLING, TRAINING, TREE, Method
from pot_agent.methods.parts.drawing import Drawing, drawing_graph, greedily
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph."""
    return drawing_graph(policy, sandbox, greedily(config), Drawing(greedy=True), name="zero_shot")


METHOD = Method(
    name="zero_shot",
    summary="one greedy answer",
    build=build,
    programs=lambda config: 1,
    ignores=SAMPLING | TRAINING | TREE,
)
