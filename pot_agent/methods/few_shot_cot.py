"""Few-shot chain of thought: one greedy answer that reasons first, after worked examples that do.

The problem itself is shown as every method shows it, its visible tests included; the examples and a sentence that asks
for reasoning come on top (`parts/shots.py`). As in the paper it may write twice as many tokens as a zero-shot answer
(16,384 against 8,192 there), and its answer does not end at the first block of code: reasoning may quote some.

Limits: examples that do not fit into the prompt's budget are left out, the last first; the event `selected` counts them
in `dropped`.
"""

from typing import TYPE_CHECKING, Any

from pot_agent.config import PotConfig
from pot_agent.methods.base import SAMPLING, TRAINING, TREE, Method
from pot_agent.methods.parts.drawing import Drawing, drawing_graph, greedily
from pot_agent.methods.parts.shots import with_shots
from pot_agent.policy.base import Policy
from pot_agent.prompts import BuiltPrompt
from pot_agent.sandbox.base import Sandbox

if TYPE_CHECKING:
    from pot_agent.run import Run

TIMES_AS_LONG = 2


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph."""
    tokens = TIMES_AS_LONG * config.search.max_new_tokens
    changed = greedily(config, max_new_tokens=tokens, end_at_block=False)
    return drawing_graph(policy, sandbox, changed, Drawing(greedy=True, prompt=prompt), name="few_shot_cot")


def prompt(run: "Run") -> BuiltPrompt:
    """The examples, then the problem."""
    from pot_agent.run import prompt_room

    return with_shots(
        run.problem, max_tokens=prompt_room(run.handles, run.config), count=run.handles.policy.count_tokens
    )


METHOD = Method(
    name="few_shot_cot",
    summary="one greedy answer that reasons first, after worked examples",
    build=build,
    programs=lambda config: 1,
    ignores=SAMPLING | TRAINING | TREE | {"end_at_block"},
)
