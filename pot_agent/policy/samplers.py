"""What samples: any inference engine that draws completions of one prompt from one adapter version.

Two exist: `transformers` (`sampler.py`: any machine, the weights once) and `vllm` (`vllm_sampler.py`: many sessions in
one batch, the weights twice).
"""

from typing import Protocol

from torch import Tensor

from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.sampler import Drawn, Request


class Sampler(Protocol):
    """Draws completions. On any error nothing is left running."""

    name: str
    """`transformers` or `vllm`."""
    concurrent: bool
    """Whether calls may overlap, with one another and with the trainer."""
    caches_prompts: bool
    """Whether a prompt's keys and values may be used again by another call."""
    seeded: bool
    """Whether equal seeds give equal draws."""

    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw `request.n` completions of one prompt from a version; from the base where either is None."""
        ...

    def check_layout(self, layout: AdapterLayout) -> None:
        """Raises `ConfigError` for an adapter that this sampler cannot run."""
        ...

    def check_alive(self) -> None:
        """Raises `PolicyUnavailableError` where it cannot draw just now."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...
