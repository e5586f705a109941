"""Sampling: the prompt prefilled once, then n rows token by token, stoppable at every one.

The full softmax at the temperature: no top-k, no top-p, no penalties, so the recorded log-probability is that of the
distribution sampled from. Tokens are drawn by inverting the cumulative distribution at uniforms fixed beforehand by
the seed: a row's draws do not depend on when its siblings end. Equal arguments give equal samples on one machine with
one number of threads; a different number of rows may round differently.
"""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from pot_agent.errors import NotFiniteError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.base import FinishReason
from pot_agent.policy.decoding import Decoder, FastForward
from pot_agent.policy.head import Head
from pot_agent.policy.kept_prompts import KEPT_BYTES, KeptPrompts, Place
from pot_agent.policy.lean import LeanDecoder
from pot_agent.policy.models import LoadedModel
from pot_agent.policy.text import Chat, Stops
from pot_agent.policy.written import Written

PREFILL_TOKENS = 512
"""Prompt tokens that go through the model together; a cancel is looked at between two parts at least."""


BLOCK_TOKENS = 128
"""Tokens whose probabilities are added up before their sums are."""


@dataclass
class Drawn:
    """One completion as it was drawn: `logprobs[j]` is that of `ids[j]` at the sampling temperature (1.0 if greedy)."""

    index: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    noted: list[float] = field(default_factory=list)
    """Those at `Request.note_at`, where that is given and the sampler can."""
    finish: FinishReason = "length"

    def take(self, token: int, logprob: float, request: "Request", end_ids: frozenset[int]) -> bool:
        """Append a token that was drawn; whether the completion ends with it. Raises for one that is no number."""
        if logprob != logprob or logprob == float("-inf"):
            raise NotFiniteError(
                f"the model's logits are not finite after {len(self.ids)} tokens; load it in float32 or bfloat16 "
                "(POT_DTYPE)",
                value=token,
            )
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in end_ids or request.stop.reached(self.ids):
            self.finish = "stop"
        return self.finish == "stop" or len(self.ids) == request.max_tokens


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be drawn. `temperature=0` is greedy."""

    prompt_ids: Sequence[int]
    n: int
    temperature: float
    max_tokens: int
    seed: str
    """Any text; equal text, equal draws."""
    stop: Stops
    check: Callable[[], None]
    """Called before each step; raises to end the call."""
    note_at: float | None = None
    """Another temperature at which the log-probabilities of what is drawn are to be noted."""
    keeper: Hashable | None = None
    """For whom the prompt's keys and values are kept until its next call, and no longer than it lives; None: nobody."""
    on_tokens: Callable[[int], None] | None = None
    on_text: Callable[[int, str], None] | None = None
    """Told the index of a completion and the next piece of its text."""

    def written(self) -> list[Written]:
        """What tells each completion's text as it grows; none where nobody listens."""
        if self.on_text is None:
            return []
        return [Written(self.stop, partial(self.on_text, index)) for index in range(self.n)]


class Drawing:
    """One request being drawn: its rows, and the hidden states that their next tokens are chosen from."""

    def __init__(self, request: Request, decoder: Decoder, end_ids: frozenset[int], device: torch.device) -> None:
        self.request = request
        self.rows = [Drawn(index) for index in range(request.n)]
        self._decoder = decoder
        self._end_ids = end_ids
        self._live = self.rows
        self._uniforms_NT = _uniforms(request).to(device)
        self._written = request.written()
        self._step = 0
        self.hidden_NH = torch.empty(0)

    def begin(self) -> None:
        """Run the prompt, once for all rows."""
        ids_P = torch.tensor(list(self.request.prompt_ids), device=self._uniforms_NT.device)
        for part_P in torch.split(ids_P, PREFILL_TOKENS):
            hidden_1H = self._decoder.prefill(part_P, self.request.check)
        self._decoder.widen(self.request.n, self.request.max_tokens)
        self.hidden_NH = hidden_1H.expand(self.request.n, -1)

    def choose(self, logits_NV: Tensor) -> Tensor | None:
        """Take the next token of each live row; those of the rows that go on, or None where the request is done."""
        uniforms_N = self._uniforms_NT[[row.index for row in self._live], self._step]
        ids_N, logprobs_N = _choose(logits_NV, self.request.temperature, uniforms_N)
        for row, token, logprob in zip(self._live, ids_N.tolist(), logprobs_N.tolist(), strict=True):
            row.take(token, logprob, self.request, self._end_ids)
        if self.request.note_at is not None:
            for row, logprob in zip(self._live, _logprobs(logits_NV, self.request.note_at, ids_N), strict=True):
                row.noted.append(logprob)
        self._step += 1
        if self._written:
            self._tell()
        if self.request.on_tokens is not None:
            self.request.on_tokens(sum(len(row.ids) for row in self.rows))
        going = [at for at, row in enumerate(self._live) if row.finish == "length"]
        if not going or self._step == self.request.max_tokens:
            return None
        if len(going) < len(self._live):
            self._live, ids_N = [self._live[at] for at in going], ids_N[going]
            self._decoder.keep(going)
        return ids_N

    def _tell(self) -> None:
        for row in self._live:
            written = self._written[row.index]
            is_over = row.finish == "stop" or self._step == self.request.max_tokens
            (written.end if is_over else written.advance)(row.ids)


class Sampler:
    """A `policy.samplers.Sampler` over the trainer's own weights. The caller holds the policy's lock."""

    name = "transformers"
    concurrent = False
    caches_prompts = False
    seeded = True

    def __init__(self, loaded: LoadedModel, chat: Chat, fast: FastForward, head: Head) -> None:
        self._device = loaded.device
        self._fast = fast
        self._head = head
        self._end_ids = chat.end_ids
        self._kept = KeptPrompts(KEPT_BYTES if loaded.device.type == "cpu" else 0)

    @torch.no_grad()
    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw `request.n` completions of one prompt."""
        place = self._place(request, layout, vector)
        with self._fast.running(layout, vector, len(request.prompt_ids), place) as decoder:
            drawing = Drawing(request, decoder, self._end_ids, self._device)
            drawing.begin()
            while True:
                request.check()
                ids_N = drawing.choose(self._head(drawing.hidden_NH))
                if ids_N is None:
                    return drawing.rows
                drawing.hidden_NH = decoder.step(ids_N)

    @property
    def joins(self) -> bool:
        """Whether several requests can be drawn together: the lean decoder's models can."""
        return self._fast.lean is not None

    def drawing(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> "JoinedDrawing":
        """A request to be drawn together with others; inside `together` alone."""
        decoder = self._fast.decoder(layout, vector, len(request.prompt_ids), self._place(request, layout, vector))
        return JoinedDrawing(request, decoder, self._end_ids, self._device)

    def _place(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> Place | None:
        return self._kept.place(request.keeper, request.prompt_ids, None if layout is None else layout.lora, vector)

    def together(self) -> AbstractContextManager[None]:
        """The model is set to draw inside."""
        return self._fast.head_running()

    def step(self, drawings: "Sequence[JoinedDrawing]", ids: Sequence[Tensor]) -> None:
        """Run one more token of each row of these."""
        hidden_NH = LeanDecoder.step_together([drawing.decoder for drawing in drawings], ids)
        parts = torch.split(hidden_NH, [len(ids_N) for ids_N in ids])
        for drawing, part_NH in zip(drawings, parts, strict=True):
            drawing.hidden_NH = part_NH

    def logits(self, drawings: "Sequence[JoinedDrawing]") -> list[Tensor]:
        """Of the next token of each row of these: the head's weights are read once for all."""
        sizes = [len(drawing.hidden_NH) for drawing in drawings]
        hidden_NH = drawings[0].hidden_NH if len(drawings) == 1 else torch.cat([d.hidden_NH for d in drawings])
        return list(torch.split(self._head(hidden_NH), sizes))

    def check_layout(self, layout: AdapterLayout) -> None:
        """Any will do."""

    def check_alive(self) -> None:
        """It lives as long as the trainer."""

    def close(self) -> None:
        """The weights are the trainer's."""


class JoinedDrawing(Drawing):
    """A request whose steps are made together with those of others."""

    def __init__(self, request: Request, decoder: LeanDecoder, end_ids: frozenset[int], device: torch.device) -> None:
        super().__init__(request, decoder, end_ids, device)
        self.decoder = decoder


def _uniforms(request: Request) -> Tensor:
    digest = hashlib.sha256(request.seed.encode("utf-8", "surrogatepass")).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.rand(request.n, request.max_tokens, generator=generator, dtype=torch.float64)


def _choose(logits_NV: Tensor, temperature: float, uniforms_N: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens, and their log-probabilities."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    if temperature > 0:
        logits_NV = logits_NV / temperature
    probabilities_NV = logits_NV.softmax(1)
    ids_N = logits_NV.argmax(1) if temperature == 0 else _invert(probabilities_NV, uniforms_N)
    return ids_N, probabilities_NV.gather(1, ids_N.unsqueeze(1)).squeeze(1).log()


def _logprobs(logits_NV: Tensor, temperature: float, ids_N: Tensor) -> list[float]:
    """As `_choose` forms them."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    found: list[float] = (logits_NV / temperature).softmax(1).gather(1, ids_N.unsqueeze(1)).squeeze(1).log().tolist()
    return found


def _invert(probabilities_NV: Tensor, uniforms_N: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the uniform; never one of probability zero.

    In float64, first among the sums of blocks and then within the block: few additions wait for one another. The clamps
    are for probabilities that are not numbers; what they give is refused later.
    """
    last = probabilities_NV.shape[1] - 1
    padding = -probabilities_NV.shape[1] % BLOCK_TOKENS
    if padding:
        probabilities_NV = pad(probabilities_NV, (0, padding))
    blocks_NBT = probabilities_NV.view(len(uniforms_N), -1, BLOCK_TOKENS)
    ends_NB = blocks_NBT.sum(2, dtype=torch.float64).cumsum(1)
    wanted_N1 = uniforms_N.unsqueeze(1) * ends_NB[:, -1:]
    block_N1 = torch.searchsorted(ends_NB, wanted_N1, right=True).clamp(max=ends_NB.shape[1] - 1)
    start_N1 = pad(ends_NB, (1, 0)).gather(1, block_N1)
    within_NT = blocks_NBT[torch.arange(len(uniforms_N), device=block_N1.device), block_N1[:, 0]].double().cumsum(1)
    # A block's own sum may round to less than what it added to the sum of blocks: its last token is then wanted.
    rest_N1 = torch.minimum(wanted_N1 - start_N1, within_NT[:, -1:].nextafter(within_NT.new_zeros(1)))
    return (block_N1 * BLOCK_TOKENS + torch.searchsorted(within_NT, rest_N1, right=True)).squeeze(1).clamp(max=last)
