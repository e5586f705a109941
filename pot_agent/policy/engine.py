"""The heavy half of the policy in this process: everything that imports torch, put together.

Limits: not thread-safe. `LocalPolicy` lets one call in at a time; only `chat`, `capabilities` and `layout` may be used
outside its turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import ContextLengthError
from pot_agent.policy.adapters import AdapterLayout, Adapters, layout_of, linear_layers
from pot_agent.policy.base import Capabilities, Measure
from pot_agent.policy.batching import MOST_ROWS, Batcher
from pot_agent.policy.canary import PROMPT_TOKENS, TOKENS, Canary, judge
from pot_agent.policy.choice import choose
from pot_agent.policy.fingerprint import digest_of, weights_of
from pot_agent.policy.flops import ModelShape, update_flops
from pot_agent.policy.grpo import advantages
from pot_agent.policy.head import head_of
from pot_agent.policy.journal import Sample
from pot_agent.policy.memory import give_back_free_memory
from pot_agent.policy.models import load_model, locate_model, resolve_device, resolve_dtype
from pot_agent.policy.proof import prove
from pot_agent.policy.sampler import Drawn, Request
from pot_agent.policy.sampler import Sampler as TransformersSampler
from pot_agent.policy.session import Session
from pot_agent.policy.sizes import SamplerName, SamplerSizes
from pot_agent.policy.text import Chat, Stops
from pot_agent.policy.trainer import Group, Trainer, Update
from pot_agent.policy.turns import Turns

Draw = Callable[[Request, AdapterLayout | None, Tensor | None], list[Drawn]]
"""`Sampler.draw`."""


def set_threads(threads: int) -> None:
    """Let torch use this many threads, in the whole process."""
    torch.set_num_threads(threads)


class Engine:
    """One base model with its chat template, sampler, adapters and trainer."""

    def __init__(
        self,
        model: str,
        *,
        device: str | None,
        dtype: str | None,
        home: Path,
        sampler: SamplerName = "transformers",
        context_tokens: int | None = None,
        sizes: SamplerSizes | None = None,
    ) -> None:
        folder, name = locate_model(model, home)
        target = resolve_device(device)
        choice = choose(
            sampler,
            folder,
            target,
            resolve_dtype(dtype, target),
            sizes=sizes or SamplerSizes(),
            context_tokens=context_tokens,
            name=name,
        )
        limit = context_tokens or choice.context_tokens
        self._loaded = load_model(model, device=device, dtype=dtype, home=home, context_tokens=limit)
        network = self._loaded.model
        self.chat = Chat(self._loaded)
        self._base = weights_of(network)  # before any adapter comes
        self._linears = linear_layers(network)
        self._like = torch.empty(0, device=network.device, dtype=network.dtype)
        self._shape = ModelShape.of(network.config, list(self._linears.values()), network.get_output_embeddings())
        self._layouts: dict[LoraConfig, AdapterLayout] = {}
        self._adapters = Adapters(network)
        head = head_of(network)
        self._batcher: Batcher | None = None
        plan = choice.plan
        self.most_sessions = None if plan is None else plan.sessions
        """Sessions that the memory has room for, where that was reckoned."""
        self._most_rows = MOST_ROWS if plan is None else min(MOST_ROWS, max(1, plan.kv_rows))
        self._trainer = Trainer(
            self._loaded,
            self._adapters,
            head,
            pass_tokens=None if plan is None else plan.pass_tokens,
            segment_tokens=None if plan is None else plan.segment_tokens,
        )
        self._sampler = choice.build(self._loaded, self.chat, self._linears, head)
        self.capabilities = Capabilities(
            model=self._loaded.name,
            learns=True,
            logprobs=True,
            context_tokens=self._loaded.context_tokens,
            device=str(self._loaded.device),
            parameters=self._loaded.parameters,
            shape=asdict(self._shape),
            sampler=self._sampler.name,
            seeded=self._sampler.seeded,
            streams=True,
        )
        if self._sampler.concurrent:  # it is another program's, so it is not taken at its word
            try:
                prove(self)
            except BaseException:
                self._sampler.close()
                raise

    def drawer(self, turns: Turns, *, batch: bool) -> Draw:
        """What draws for callers who have not the policy's turn; with `batch` together, where the sampler can."""
        if self._sampler.concurrent:
            return self.draw
        if batch and isinstance(self._sampler, TransformersSampler) and self._sampler.joins:
            self._batcher = Batcher(self._sampler, turns, most_rows=self._most_rows)
            return self._batcher.draw

        def in_turn(request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
            with turns.taken(request.check):
                return self.draw(request, layout, vector)

        return in_turn

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._loaded.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self._loaded.dtype

    @cached_property
    def base_digest(self) -> str:
        """Digest of every weight of the base; it reads them all, once."""
        return digest_of(self._base)

    def layout(self, lora: LoraConfig) -> AdapterLayout:
        """The layout of such an adapter on this model. Raises `ConfigError` for targets that it does not have."""
        if lora not in self._layouts:
            layout = layout_of(self._linears, lora)
            self._sampler.check_layout(layout)
            self._layouts[lora] = layout
        return self._layouts[lora]

    def check_context(self, prompt_tokens: int, max_tokens: int) -> None:
        """Raises `ContextLengthError` where so many tokens are beyond what the model can hold."""
        limit = self.capabilities.context_tokens
        if prompt_tokens + max_tokens > limit:
            raise ContextLengthError(
                f"the prompt has {prompt_tokens:,} tokens and {max_tokens:,} more were asked for; the context of "
                f"{self.capabilities.model} is {limit:,}: shorten the prompt or lower max_tokens",
                value=prompt_tokens + max_tokens,
            )

    def request(self, *, stop: Sequence[str], end_at_block: bool = False, **fields: Any) -> Request:
        """A request to draw, its early ends watched."""
        return Request(stop=Stops(self.chat, stop, end_at_block=end_at_block), **fields)

    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw completions from a version (None: the base). The caller has the turn, but with a concurrent sampler."""
        try:
            return self._sampler.draw(request, layout, vector)
        finally:
            give_back_free_memory()

    def score(
        self,
        layout: AdapterLayout | None,
        vector: Tensor | None,
        samples: Sequence[Sample],
        temperature: float,
        measure: Measure,
    ) -> list[float]:
        """Mean of `measure` per token of each sample under a version (None: the base), by the trainer."""
        slot = None if layout is None or vector is None else self._adapters.slot(layout)
        means: dict[int, float] = {}
        for indices in _by_prompt(samples):
            rows = [samples[i].ids for i in indices]
            found = self._trainer.logprobs(slot, vector, samples[indices[0]].prompt_ids, rows, temperature, measure)
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
        teachers: Sequence[Sequence[int] | None] = (),
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
            teachers=teachers,
        )
        try:
            return self._trainer.update(self._adapters.slot(layout), group, grpo, check)
        finally:
            give_back_free_memory()

    def canary(self, session: Session, update: Update, sample: Sample, check: Callable[[], None]) -> Canary:
        """Show, after a sample's prompt, that the sampler runs the update's adapter; see `policy/canary.py`."""
        layout, vector = _required(session.layout), update.vector
        request = self.request(
            prompt_ids=sample.prompt_ids[0 if self._sampler.caches_prompts else -PROMPT_TOKENS :],
            n=1,
            temperature=sample.temperature,
            max_tokens=TOKENS,
            seed=f"canary:{session.seed}:{session.version}",
            stop=(),
            check=check,
            keeper=session.journal,
        )
        (drawn,) = self.draw(request, layout, vector)
        others = {"the base": self.score_tokens(layout, None, request, drawn)}
        if session.version:
            before = session.vector_of(session.version)
            others["the version before"] = self.score_tokens(layout, before, request, drawn)
        return judge(drawn.logprobs, self.score_tokens(layout, vector, request, drawn), others, update.noise)

    def score_tokens(self, layout: AdapterLayout, vector: Tensor | None, request: Request, drawn: Drawn) -> list[float]:
        """The trainer's log-probability of each token that was drawn, under a version (None: the base)."""
        slot = self._adapters.slot(layout)
        temperature = request.temperature or 1.0
        rows = self._trainer.logprobs(slot, vector, request.prompt_ids, [drawn.ids], temperature)
        return [float(value) for value in rows[0]]

    def noisy(self, layout: AdapterLayout, seed: int, scale: float) -> Tensor:
        """An adapter that changes the output: as at version 0, with B drawn from +-`scale` too."""
        vector = layout.initial(seed, self._like)
        generator = torch.Generator().manual_seed(seed)
        for _, _, b_OR in layout.views(vector):
            b_OR.copy_(torch.empty(b_OR.shape).uniform_(-scale, scale, generator=generator))
        return vector

    def flops(
        self,
        session: Session,
        samples: Sequence[Sample],
        update: Update,
        teachers: Sequence[Sequence[int] | None],
    ) -> float:
        """Estimate of the update's floating-point operations; see `policy/flops.py`."""
        return update_flops(
            self._shape,
            adapter=_required(session.layout).size,
            prompt=len(samples[0].prompt_ids),
            completions=[len(sample.ids) for sample in samples],
            epochs=len(update.losses),
            reference=update.referenced,
            teachers=[
                len(prompt_ids) + len(sample.ids)
                for sample, prompt_ids in zip(samples, teachers, strict=False)
                if prompt_ids is not None
            ],
        )

    def norm(self, session: Session) -> float:
        """L2 norm of the session's newest adapter."""
        layout, vector = _required(session.layout), session.vector_of(session.version)
        vector = layout.initial(session.seed, self._like) if vector is None else vector
        return float(vector.norm())

    def check_alive(self) -> None:
        """Raises `PolicyUnavailableError` where the sampler cannot draw just now. May be called at any time."""
        self._sampler.check_alive()

    def end_drawing(self) -> None:
        """End the thread that draws for several, where there is one. Its callers' checks must raise by now."""
        if self._batcher is not None:
            self._batcher.close()

    def release(self) -> None:
        """Let go of the weights. `end_drawing` comes first."""
        if "_sampler" in self.__dict__:
            self._sampler.close()
        for name in ("_sampler", "_trainer", "_adapters", "_loaded", "_linears", "_base"):
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
