"""Best-of-N: programs drawn from the problem's own prompt, until one passes every visible test.

N = M (k + 1), as many programs as the same configuration allows a search, commits included; they come in M draws of
k + 1, and the first k of the first draw are those of PoT's first group (same prompt, same seed). The answer is the
first of those that pass the most tests. Best-of-20 of the paper is `best_of_n:iterations=5,width=3`.
"""

from typing import Any

from pot_agent.config import PotConfig
from pot_agent.methods.base import TRAINING, TREE, Method
from pot_agent.methods.parts.drawing import Drawing, drawing_graph, in_batches
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph."""
    return drawing_graph(policy, sandbox, in_batches(config), Drawing(), name="best_of_n")


METHOD = Method(
    name="best_of_n",
    summary="N samples of the problem's prompt, early stop; N = M (k + 1), as many programs as a search",
    build=build,
    ignores=TRAINING | TREE,
)
