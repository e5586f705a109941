"""The heavy half of the policy in this process: everything that imports torch, put together.

Limits: not thread-safe. `LocalPolicy` lets one call in at a time; only `chat`, `capabilities` and `layout` may be used
outside its turn.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.adapters import AdapterLayout, Adapters, layout_of, linear_layers
from pot_agent.policy.base import Capabilities
from pot_agent.policy.decoding import FastForward
from pot_agent.policy.grpo import advantages
from pot_agent.policy.head import head_of
from pot_agent.policy.journal import Sample
from pot_agent.policy.memory import give_back_free_memory
from pot_agent.policy.models import load_model
from pot_agent.policy.sampler import Drawn, Request, Sampler
from pot_agent.policy.sessions import Session
from pot_agent.policy.text import Chat, StopStrings
from pot_agent.policy.trainer import Group, Trainer, Update


def set_threads(threads: int) -> None:
    """Let torch use this many threads, in the whole process."""
    torch.set_num_threads(threads)


class Engine:
    """One base model with its chat template, sampler, adapters and trainer."""

    def __init__(self, model: str, *, device: str | None, dtype: str | None, home: Path) -> None:
        self._loaded = load_model(model, device=device, dtype=dtype, home=home)
        network = self._loaded.model
        self.chat = Chat(self._loaded)
        self._linears = linear_layers(network)
        self._like = torch.empty(0, device=network.device, dtype=network.dtype)
        self._layouts: dict[LoraConfig, AdapterLayout] = {}
        self._adapters = Adapters(network)
        head = head_of(network)
        self._sampler = Sampler(self._loaded, self.chat, FastForward(network, self._linears), head)
        self._trainer = Trainer(self._loaded, self._adapters, head)
        self.capabilities = Capabilities(
            model=self._loaded.name,
            learns=True,
            logprobs=True,
            context_tokens=self._loaded.context_tokens,
            device=str(self._loaded.device),
            parameters=self._loaded.parameters,
        )

    def layout(self, lora: LoraConfig) -> AdapterLayout:
        """The layout of such an adapter on this model. Raises `ConfigError` for targets that it does not have."""
        if lora not in self._layouts:
            self._layouts[lora] = layout_of(self._linears, lora)
        return self._layouts[lora]

    def request(self, *, stop: Sequence[str], **fields: Any) -> Request:
        """A request to draw, its stop strings watched."""
        return Request(stop=StopStrings(self.chat, stop), **fields)

    def draw(self, layout: AdapterLayout | None, vector: Tensor | None, request: Request) -> list[Drawn]:
        """Draw completions from a version (None: the base)."""
        try:
            return self._sampler.draw(request, layout, vector)
        finally:
            give_back_free_memory()

    def score(
        self, layout: AdapterLayout | None, vector: Tensor | None, samples: Sequence[Sample], temperature: float
    ) -> list[float]:
        """Mean log-probability per token of each sample under a version (None: the base), by the trainer."""
        slot = None if layout is None or vector is None else self._adapters.slot(layout)
        means: dict[int, float] = {}
        for indices in _by_prompt(samples):
            rows = [samples[i].ids for i in indices]
            found = self._trainer.logprobs(slot, vector, samples[indices[0]].prompt_ids, rows, temperature)
            means.update((i, float(row.double().mean())) for i, row in zip(indices, found, strict=True))
        return [means[i] for i in range(len(samples))]

    def advantages(self, rewards: Sequence[float], grpo: GrpoConfig) -> list[float]:
        """The advantage of each reward."""
        return [float(value) for value in advantages(rewards, grpo)]

    def update(
        self,
        session: Session,
        samples: Sequence[Sample],
        advantages_G: Sequence[float],
        grpo: GrpoConfig,
        check: Callable[[], None],
    ) -> Update:
        """Compute one update of the session's newest version; the session itself is left as it is."""
        layout = _required(session.layout)
        parent = session.vector_of(session.version)
        is_base = parent is None
        vector = layout.initial(session.seed, self._like) if parent is None else parent
        references = {"synced": session.reference, "base": None, "current": vector}
        group = Group(
            samples=samples,
            advantages=torch.tensor(advantages_G, dtype=torch.float64, device=self._loaded.device),
            parent=vector,
            reference=references[grpo.reference],
            parent_is_base=is_base,
            moments=session.moments,
        )
        try:
            return self._trainer.update(self._adapters.slot(layout), group, grpo, check)
        finally:
            give_back_free_memory()

    def norm(self, session: Session) -> float:
        """L2 norm of the session's newest adapter."""
        layout, vector = _required(session.layout), session.vector_of(session.version)
        vector = layout.initial(session.seed, self._like) if vector is None else vector
        return float(vector.norm())

    def release(self) -> None:
        """Let go of the weights."""
        for name in ("_sampler", "_trainer", "_adapters", "_loaded", "_linears"):
            self.__dict__.pop(name, None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _by_prompt(samples: Sequence[Sample]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(sample.prompt_digest, []).append(index)
    return list(groups.values())


def _required(layout: AdapterLayout | None) -> AdapterLayout:
    if layout is None:  # LocalPolicy refuses sessions without an adapter before it comes here
        raise TypeError("a session without an adapter cannot be trained")
    return layout
