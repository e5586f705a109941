"""Whether a model fits, before anything of it is loaded, and what each part may take: pure functions over numbers.

What must fit: the weights (twice where vllm samples, in two processes), one session with its adapter, an update of one
completion, and keys and values of `width` rows as long as the context. What is left goes to more sessions, to wider
passes of the update and longer segments of its prompt, and to more rows.

Limits: sizes by `footprint.py`; the rest below are allowances, not measurements. Teachers' prompts (self-distillation)
and a second configuration of adapters are not reckoned with; adapters are taken to be on all linear layers. A
completion longer than `completion_tokens` takes more when it is trained on.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pot_agent.errors import ConfigError, DoesNotFitError
from pot_agent.policy.footprint import CHOICE_BYTES, Footprint

logger = logging.getLogger(__name__)

MIB, GIB = 1024**2, 1024**3
NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
PROCESS_BYTES = GIB // 2
"""A process before it has loaded anything: its CUDA context, or Python and torch."""
GPU_ENGINE_BYTES = 3 * GIB // 2
"""vLLM's CUDA graphs and workspaces; on a CPU it has none and takes `PROCESS_BYTES`."""
ENGINE_BATCH_TOKENS = 2048
"""Tokens that vLLM runs together, its default."""
MARGIN = 0.03
"""Of the whole, lost between what is allocated."""
MALLOC = 1.4
"""On a CPU an update's growth of the process over what it allocates: 1.75 GiB for 1.29 with the embedded model
(1.36; `benchmarks/bench_internalize.py` at 1024:256)."""
PACK_LIMIT_BYTES = 4 * GIB
"""`cpu_linear.py`'s; a test compares them."""
LONGEST_COMPLETION = 2048
"""The paper's."""
LEAST_CONTEXT, STEP, AMPLE_CONTEXT = 512, 256, 4096
LEAST_SEGMENT = 256
MOST_SEGMENT, MOST_PASS = {"cpu": 1024, "gpu": 4096}, {"cpu": 384, "gpu": 8192}
"""`prompt.py`'s and `forward.py`'s defaults."""

SamplerKind = Literal["transformers", "vllm"]
Part = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to run, and where."""

    model: str
    footprint: Footprint
    dtype: str
    on_cpu: bool
    total: int
    """Bytes of the device's memory."""
    free: int
    """Bytes that nobody else holds."""
    sampler: SamplerKind
    context_tokens: int
    completion_tokens: int = LONGEST_COMPLETION
    """The longest completion that is trained on; never more than half of the context."""
    width: int = 3
    """Completions of one prompt: the group."""
    rank: int = 16
    slots: int = 8
    """Adapters in one batch, where vllm samples."""
    rows: int = 64
    """Completions in one batch, at most."""
    sessions: int = 64
    """Sessions open at once, at most."""
    together: int = 1
    """Sessions that must have room at least, with `width` rows each."""

    def __post_init__(self) -> None:
        if self.dtype not in NUMBER_BYTES:
            raise ConfigError(f"dtype must be one of {', '.join(NUMBER_BYTES)}, got {self.dtype!r}", value=self.dtype)
        if self.sampler not in ("transformers", "vllm"):
            raise ConfigError(f"a plan is for transformers or vllm, got {self.sampler!r}", value=self.sampler)
        names = ("total", "context_tokens", "completion_tokens", "width", "rank", "slots", "rows", "sessions")
        for name in (*names, "together"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}", value=getattr(self, name))

    @property
    def number(self) -> int:
        """Bytes of one number."""
        return NUMBER_BYTES[self.dtype]

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""
        return "cpu" if self.on_cpu else "gpu"

    @property
    def completion(self) -> int:
        """Tokens of the longest completion that is trained on."""
        return max(1, min(self.completion_tokens, self.context_tokens // 2))

    @property
    def prompt(self) -> int:
        """Tokens of the longest prompt before it."""
        return self.context_tokens - self.completion


@dataclass(frozen=True, kw_only=True)
class Share:
    """What of the memory that is left goes where."""

    sessions: int
    rows: int
    segment: int
    own: int


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What each part takes, and the sizes to build it with."""

    wish: Wish
    fits: bool
    parts: tuple[Part, ...]
    """What and how many bytes; the sampler's own parts begin with `vllm`."""
    needed: int
    sessions: int
    """Sessions that have room."""
    kv_rows: int
    """Completions as long as the context whose keys and values have room at once."""
    kv_cache_bytes: int
    pass_tokens: int
    """For `Trainer`: completion tokens of one pass."""
    segment_tokens: int
    """For `Trainer`: prompt tokens whose graph is kept."""
    advice: tuple[str, ...] = ()
    """Settings with which it would fit; empty where it does."""

    @property
    def engine_bytes(self) -> int:
        """All that vLLM takes but its process: what its memory fraction is of."""
        return sum(size for name, size in self.parts if name.startswith("vllm") and "process" not in name)

    @property
    def fraction(self) -> float:
        """vLLM's `gpu_memory_utilization`: of the device's whole memory; 0 where it does not sample."""
        return min(1.0, math.ceil(1000 * self.engine_bytes / self.wish.total) / 1000)

    def lines(self) -> list[str]:
        """A table to read."""
        wish = self.wish
        head = f"{wish.model} in {wish.dtype}, sampler {wish.sampler}, context {wish.context_tokens:,}, calculated:"
        rows = [(name, f"{size / GIB:8.2f} GiB") for name, size in self.parts]
        rows += [("together", f"{self.needed / GIB:8.2f} GiB"), ("there is", f"{wish.free / GIB:8.2f} GiB")]
        table = [f"  {name:<58}{size}" for name, size in rows]
        if not self.fits:
            return [head, *table, "it does not fit", *(f"  it would with {way}" for way in self.advice)]
        room = f"room for {self.sessions} of {wish.sessions} sessions, and {self.kv_rows} completions at once"
        return [head, *table, room]

    def check(self) -> None:
        """Raises `DoesNotFitError` where it does not fit."""
        if self.fits:
            return
        wish = self.wish
        ways = "; ".join(self.advice) if self.advice else "take a smaller model, or a device with more memory"
        raise DoesNotFitError(
            f"{wish.model} in {wish.dtype} with a context of {wish.context_tokens:,} tokens and sampler={wish.sampler} "
            f"needs {self.needed / GIB:.1f} GiB, and {wish.free / GIB:.1f} of {wish.total / GIB:.1f} GiB are free. "
            f"It would fit with: {ways}",
            value={"needed": self.needed, "free": wish.free, "total": wish.total},
        )


def plan(wish: Wish) -> MemoryPlan:
    """Where everything goes; `fits` says whether it can, and `advice` what could."""
    share = _least(wish)
    found = _planned(wish, share)
    if not found.fits:
        from pot_agent.policy.memory_advice import advice

        return replace(found, advice=advice(wish))
    return _planned(wish, _grown(wish, share))


def fits(wish: Wish) -> bool:
    """Whether the least that must fit does."""
    return _planned(wish, _least(wish)).fits


def largest_context(wish: Wish, most: int) -> int | None:
    """The longest context up to `most` with which it fits, in steps of 256 tokens; None where none does."""
    sizes = [*range(LEAST_CONTEXT, most, STEP), most] if most > LEAST_CONTEXT else [most]
    return largest(sizes, lambda size: fits(replace(wish, context_tokens=size)))


def largest(sizes: Sequence[int], good: Callable[[int], bool]) -> int | None:
    """The largest of these sizes, ascending, that is good, where every smaller one is too."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if good(sizes[middle]) else (low, middle)
    return sizes[low - 1] if low else None


def with_context(wish: Wish, most: int) -> Wish:
    """The wish with the longest context that leaves room for all that are sampled together, else for fewer."""
    together = min(wish.sessions, wish.slots)
    while True:
        tried = replace(wish, together=together)
        found = largest_context(tried, most)
        if found is not None and (found >= min(most, AMPLE_CONTEXT) or together == 1):
            return replace(tried, context_tokens=found)
        if together == 1:
            return replace(tried, context_tokens=min(most, LEAST_CONTEXT))
        together //= 2


def _least(wish: Wish) -> Share:
    return Share(
        sessions=min(wish.together, wish.sessions),
        rows=wish.width * wish.together,
        segment=min(LEAST_SEGMENT, max(1, wish.prompt)),
        own=wish.completion,
    )


def _grown(wish: Wish, share: Share) -> Share:
    """Sessions, then an update, may each take half of what is left; keys and values the rest."""

    def grown(name: str, sizes: Sequence[int], part: float) -> Share:
        left = wish.free - _planned(wish, share).needed
        limit = wish.free - int(left * (1 - part))
        found = largest(sizes, lambda size: _planned(wish, replace(share, **{name: size})).needed <= limit)
        return share if found is None else replace(share, **{name: max(found, getattr(share, name))})

    share = grown("sessions", range(share.sessions, wish.sessions + 1), 0.5)
    share = grown("segment", _doubled(share.segment, min(MOST_SEGMENT[wish.kind], max(1, wish.prompt))), 0.3)
    group = min(MOST_PASS[wish.kind], wish.width * wish.completion)
    share = grown("own", _doubled(share.own, max(share.own, group)), 0.3)
    return grown("rows", range(share.rows, max(share.rows, wish.rows) + 1), 1.0)


def _doubled(first: int, last: int) -> list[int]:
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(min(2 * sizes[-1], last))
    return sizes


def _planned(wish: Wish, share: Share) -> MemoryPlan:
    parts = (*_trainer(wish, share), *(_vllm(wish, share) if wish.sampler == "vllm" else ()))
    parts = (*parts, ("margin", int(MARGIN * wish.total)))
    needed = sum(size for _, size in parts)
    return MemoryPlan(
        wish=wish,
        fits=needed <= wish.free,
        parts=parts,
        needed=needed,
        sessions=share.sessions,
        kv_rows=share.rows,
        kv_cache_bytes=_kv(wish, share),
        pass_tokens=share.own,
        segment_tokens=share.segment,
    )


def _trainer(wish: Wish, share: Share) -> list[Part]:
    foot, number = wish.footprint, wish.number
    update = foot.update(
        prompt=wish.prompt,
        own=share.own,
        rows=wish.width,
        segment=share.segment,
        rank=wish.rank,
        number=number,
        cpu=wish.on_cpu,
    )
    update = int(update * MALLOC) if wish.on_cpu else update
    parts = [
        ("process", PROCESS_BYTES),
        ("weights", foot.weights(number)),
        (f"adapters of rank {wish.rank}, {share.sessions} sessions", foot.sessions(wish.rank, share.sessions)),
    ]
    if wish.sampler == "vllm":
        return [*parts, (f"an update, {wish.completion:,} tokens after {wish.prompt:,}", update)]
    packed = foot.packed(number) if wish.on_cpu and wish.dtype == "float32" else 0
    step = foot.sampling(context=wish.context_tokens, rows=share.rows, number=number)
    return [
        *parts,
        *([("weights packed for sampling", packed)] if 0 < packed <= PACK_LIMIT_BYTES else []),
        (f"keys and values, {share.rows} rows of {wish.context_tokens:,}", _kv(wish, share)),
        (f"an update, {wish.completion:,} tokens after {wish.prompt:,}, or a step", max(update, step)),
    ]


def _kv(wish: Wish, share: Share) -> int:
    """Every row holds its own prompt: sessions have different ones, and rows of one are not always shared."""
    return wish.footprint.keys_and_values(share.rows * wish.context_tokens, wish.number)


def _vllm(wish: Wish, share: Share) -> list[Part]:
    foot, number = wish.footprint, wish.number
    slot = wish.rank * (foot.sides + foot.vocabulary + foot.hidden) * min(number, 2)
    layer = ENGINE_BATCH_TOKENS * (3 * foot.gated + 6 * foot.hidden + 3 * foot.queries) * number
    return [
        ("vllm: process", PROCESS_BYTES),
        ("vllm: weights", foot.weights(number)),
        (f"vllm: {wish.slots + 1} slots for adapters of rank {wish.rank}", (wish.slots + 1) * slot),
        ("vllm: a batch", layer + wish.rows * foot.vocabulary * CHOICE_BYTES),
        ("vllm: graphs and workspaces", PROCESS_BYTES if wish.on_cpu else GPU_ENGINE_BYTES),
        (f"vllm: keys and values, {share.rows} rows of {wish.context_tokens:,}", _kv(wish, share)),
    ]


def show(found: MemoryPlan, *, say: Callable[..., Any] = logger.info) -> None:
    """Print the plan through logging."""
    for line in found.lines():
        say("%s", line)
