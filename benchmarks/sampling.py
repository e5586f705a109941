"""The ways of sampling that are compared: our sampler, the same through transformers' layers, and `generate`.

Limits: end-of-sequence is off in all of them, prompts are random ids, and the adapter is random too (B is not zero):
the arithmetic does not depend on what they mean.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from pot_agent.config import LoraConfig
from pot_agent.policy.decoding import FastForward
from pot_agent.policy.engine import Engine
from pot_agent.settings import Settings

TEMPERATURE = 0.7
B_STD = 0.01
BANDWIDTH_BYTES = 2**29


@dataclass(frozen=True)
class Times:
    """Seconds of one call: to its first token, and from there on; `ids` are those of all rows."""

    prefill: float
    decode: float
    ids: list[list[int]]


@dataclass(frozen=True)
class Work:
    """What every way of sampling gets."""

    prompt_ids: list[int]
    width: int
    tokens: int
    temperature: float = TEMPERATURE

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_ids)


Way = Callable[[Work], Times]


class Bench:
    """One model with an adapter on it, and the ways to sample from it."""

    def __init__(self, model: str, *, device: str | None, dtype: str | None) -> None:
        self.engine = Engine(model, device=device, dtype=dtype, home=Settings.from_env().home)
        self.layout = self.engine.layout(LoraConfig())
        self.vector = self.layout.initial(0, self.engine._like)
        noise = torch.Generator(self.vector.device).manual_seed(0)
        for _, _, b_OR in self.layout.views(self.vector):
            b_OR.normal_(std=B_STD, generator=noise)
        self.engine._sampler._end_ids = frozenset()
        self._lean = self.engine._sampler._fast
        self._through: FastForward | None = None
        self.ways: dict[str, Way] = {"ours": self.ours, "through": self.through, "generate": self.generate}

    def work(self, prompt: int, width: int, tokens: int, temperature: float = TEMPERATURE) -> Work:
        """A random prompt of so many tokens."""
        vocabulary = self.engine._loaded.model.config.vocab_size
        generator = torch.Generator().manual_seed(prompt)
        ids = torch.randint(vocabulary // 100, vocabulary, (prompt,), generator=generator)
        return Work(ids.tolist(), width, tokens, temperature)

    def ours(self, work: Work) -> Times:
        """The sampler."""
        stamps: list[float] = []
        request = self.engine.request(
            prompt_ids=work.prompt_ids,
            n=work.width,
            temperature=work.temperature,
            max_tokens=work.tokens,
            seed="0",
            stop=(),
            check=lambda: None,
            on_tokens=lambda _: stamps.append(time.perf_counter()),
        )
        start = time.perf_counter()
        rows = self.engine.draw(request, self.layout, self.vector)
        return Times(stamps[0] - start, time.perf_counter() - stamps[0], [row.ids for row in rows])

    def through(self, work: Work) -> Times:
        """The sampler, through transformers' layers; their weights are packed apart, at the first call."""
        if self._through is None:
            self._through = FastForward(self.engine._loaded.model, self.engine._linears)
            self._through.may_be_lean = False
        self.engine._sampler._fast = self._through
        try:
            return self.ours(work)
        finally:
            self.engine._sampler._fast = self._lean

    @torch.no_grad()
    def generate(self, work: Work) -> Times:
        """transformers and peft."""
        model, clock = self.engine._loaded.model, _Clock()
        greedy = work.temperature == 0
        settings = GenerationConfig(
            max_new_tokens=work.tokens,
            do_sample=not greedy,
            temperature=None if greedy else work.temperature,
            top_k=None if greedy else 0,
            top_p=None if greedy else 1.0,
            num_return_sequences=work.width,
            eos_token_id=None,
            pad_token_id=0,
        )
        model.generation_config.eos_token_id = None  # what is None above would be taken from here
        ids_1P = torch.tensor([work.prompt_ids], device=model.device)
        slot = self.engine._adapters.slot(self.layout)
        start = time.perf_counter()
        with self.engine._adapters.running(slot, self.vector):
            found: Tensor = model.generate(
                ids_1P,
                attention_mask=torch.ones_like(ids_1P),
                generation_config=settings,
                logits_processor=LogitsProcessorList([clock]),
            )
        ids = found[:, len(work.prompt_ids) :].tolist()
        if any(len(row) != work.tokens for row in ids):
            raise RuntimeError(f"generate drew {[len(row) for row in ids]} tokens, not {work.tokens} in each row")
        return Times(clock.first - start, time.perf_counter() - clock.first, ids)

    def bandwidth(self) -> float:
        """Bytes a second at which a large tensor is read."""
        large = torch.ones(BANDWIDTH_BYTES // 4, device=self.engine.device)
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            float(large.sum())
            seconds.append(time.perf_counter() - start)
        return BANDWIDTH_BYTES / min(seconds)

    def step_bytes(self) -> int:
        """Bytes of the weights that every step reads: the linear layers and the head."""
        layers = [*self.engine._linears.values(), self.engine._loaded.model.get_output_embeddings()]
        return sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)


class _Clock(LogitsProcessor):  # type: ignore[misc]
    """When the first logits were there."""

    first = 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.first = self.first or time.perf_counter()
        return scores
