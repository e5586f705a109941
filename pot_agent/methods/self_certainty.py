"""Best-of-N whose choice among equals is by self-certainty (Kang et al., arXiv 2502.18581).

Drawn as Best-of-N is, sample for sample. Where several programs pass the most visible tests, the answer is the one of
which the model was most certain: the mean over its tokens of KL(uniform || p), p the model's distribution over the
whole vocabulary at temperature 1, computed by the trainer in a forward pass of its own. A program that several samples
wrote has the certainty of the most certain.

Limits: it decides among equals only, and has nothing to decide where one program is best. The authors' Borda vote is
for answers that can be equal; programs are compared by tests. The policy must give log-probabilities.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pot_agent.config import PotConfig
from pot_agent.errors import ConfigError
from pot_agent.methods.base import TRAINING, TREE, Method
from pot_agent.methods.parts.drawing import Drawing, drawing_graph, in_batches
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox

if TYPE_CHECKING:
    from pot_agent.run import Run

SCORED_TOGETHER = 64
"""Samples of one call."""


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph. Raises `ConfigError` for a policy without log-probabilities."""
    if not policy.capabilities.logprobs:
        model = policy.capabilities.model
        raise ConfigError(
            f"self_certainty needs the distribution over the vocabulary, and {model} gives none; use best_of_n",
            value=model,
        )
    return drawing_graph(policy, sandbox, in_batches(config), Drawing(choose=most_certain), name="self_certainty")


def most_certain(run: "Run", equals: Mapping[int, list[str]]) -> int:
    """The program with the greatest self-certainty, the earliest of equals."""
    from pot_agent.events import emit

    samples = [sample for wrote in equals.values() for sample in wrote]
    certainty: dict[str, float] = {}
    for start in range(0, len(samples), SCORED_TOGETHER):
        part = samples[start : start + SCORED_TOGETHER]
        certainty.update(zip(part, _certainties(run, part), strict=True))
    of_program = {program: max(certainty[sample] for sample in wrote) for program, wrote in sorted(equals.items())}
    chosen = max(of_program, key=lambda program: of_program[program])
    iteration = run.state["iteration"]
    emit("chosen", iteration=iteration, by="self_certainty", among=len(equals), certainty=of_program[chosen])
    return chosen


def _certainties(run: "Run", samples: list[str]) -> list[float]:
    return run.handles.policy.score(
        run.state["session"],
        version=run.state["version"],
        sample_ids=samples,
        temperature=1.0,
        measure="self_certainty",
    )


METHOD = Method(
    name="self_certainty",
    summary="best_of_n, the choice among equals by self-certainty",
    build=build,
    ignores=TRAINING | TREE,
)
