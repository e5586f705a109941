"""Proof that the sampler runs the adapter that was trained, at each publish.

The sampler *generates* a few tokens under the new version, caches on, as it does in the search; the trainer scores
those very tokens under the new version, under the one before it and under the base. A sampler that is one version
behind, that runs the base, or that scales the adapter wrongly, then lies away from the new version.

Distances are root mean squares over the tokens, in nats. The policies' own separation says what can be seen: where the
step moved these tokens by less than `CLEAR` times the numerical noise between sampler and trainer (measured on the
group itself), nothing can be told, and the verdict is `undetermined`. A fixed limit could not do this: the step of one
small update is below any that bfloat16's noise would allow.

Limits: it sees the tokens that it drew; a fault that spares them is not seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pot_agent.errors import AdapterNotSampledError

TOKENS = 12
"""Tokens drawn for a canary."""
PROMPT_TOKENS = 256
"""The end of the group's prompt that they follow, where the sampler keeps no cache between calls that a whole prompt
would have to pass through."""
CLEAR = 4.0
"""Separation over noise from which a verdict is given."""
LEAST_NOISE = 1e-6

CanaryVerdict = Literal["reached", "undetermined"]


@dataclass(frozen=True, kw_only=True)
class Canary:
    """What the canary showed; distances in nats, root mean square over its tokens."""

    verdict: CanaryVerdict
    gap: float
    """Between the sampler and the trainer's new version."""
    separation: float
    """Between the new version and the nearest of those it must not be."""


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Root mean square difference."""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / len(one))


def judge(
    sampled: Sequence[float], new: Sequence[float], others: Mapping[str, Sequence[float]], noise: float
) -> Canary:
    """Whether log-probabilities recorded by the sampler are those of the new version.

    `others` are the trainer's log-probabilities of the same tokens under the policies that the sampler must not be
    running, by a name for the message. Raises `AdapterNotSampledError` where the sampler is further from the new
    version than half of the way to one of them that can be told apart.
    """
    gap = distance(sampled, new)
    separations = {name: distance(new, other) for name, other in others.items()}
    clear = {name: s for name, s in separations.items() if s >= CLEAR * max(noise, LEAST_NOISE)}
    if clear and not gap <= min(clear.values()) / 2:
        nearest = min(others, key=lambda name: distance(sampled, others[name]))
        raise AdapterNotSampledError(
            f"the sampler does not run the adapter that was trained: its log-probabilities lie {gap:.3g} nats from the "
            f"new version and {distance(sampled, others[nearest]):.3g} from {nearest}, which differ by "
            f"{separations[nearest]:.3g}; the update is dropped and the session keeps its version",
            value={"gap": gap, "nearest": nearest},
        )
    verdict: CanaryVerdict = "reached" if len(clear) == len(others) else "undetermined"
    return Canary(verdict=verdict, gap=gap, separation=min(separations.values()))
