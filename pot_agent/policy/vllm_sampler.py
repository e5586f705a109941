"""Sampling by vLLM: continuous batching over all sessions, each completion under its own session's adapter version.

Every row is a request of its own, given as ids and read as ids; where a completion ends is decided here, token by
token, by the same code as in the transformers sampler. What keeps versions apart: an id, a name and a path for each
(`published.py`), and a salt for the prefix cache. That the engine runs an adapter at all is shown at the start
(`proof.py`), and again at each update.

Limits: the adapter runs in the engine's precision (16 bits on a GPU) while the trainer keeps float32; the batch that a
request happens to share changes rounding, so equal seeds may give unequal samples under load. On a CPU seeds are not
given to the engine at all (it dies of one in the middle of a chunked prompt), and samples say `seeded=False`.
"""

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pot_agent.errors import ConfigError, PolicyError, PolicyUnavailableError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.published import Publications, Published
from pot_agent.policy.sampler import Drawn, Request
from pot_agent.policy.vllm_engine import VllmEngine, VllmOptions

if TYPE_CHECKING:
    from pot_agent.policy.text import Chat

logger = logging.getLogger(__name__)

Outputs = AsyncGenerator[Any, None]
"""Of one request, as vLLM gives them."""


class VllmSampler:
    """A `policy.samplers.Sampler` over one vLLM engine. Thread-safe."""

    name = "vllm"
    concurrent = True
    caches_prompts = True

    def __init__(self, options: VllmOptions, chat: "Chat", *, dtype: torch.dtype, device: torch.device) -> None:
        self._options = options
        self._end_ids = chat.end_ids
        self.seeded = device.type != "cpu"
        self._engine = VllmEngine(options)
        self._published = Publications(dtype, load=self._load, unload=self._unload, wake=self._wake)
        self._closed = False

    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw `request.n` completions of one prompt from a version; from the base where either is None."""
        rows = [Drawn(index) for index in range(request.n)]
        tell = _Teller(rows, request)
        with self._leased(layout, vector) as adapter:
            self._ask(lambda engine: self._draw(engine, request, adapter, rows), tell)
        tell()
        tell.end()
        return rows

    def check_layout(self, layout: AdapterLayout) -> None:
        """Raises `ConfigError` for a rank beyond what the engine was built for."""
        if layout.lora.rank > self._options.max_rank:
            raise ConfigError(
                f"lora.rank is {layout.lora.rank}, and this policy's sampler was built for {self._options.max_rank} at "
                "most: lower it, or start the policy with a larger max_rank (POT_MAX_RANK)",
                value=layout.lora.rank,
            )

    def adapters(self) -> set[int]:
        """Numbers of the adapters that the engine holds just now."""
        return set(self._engine.run(self._engine.running().list_loras()))

    def check_alive(self) -> None:
        """Raises `PolicyUnavailableError` where the engine has died; it is then being started again."""
        self._engine.check_alive()

    def close(self) -> None:
        """End the engine, and remove every adapter's files. Idempotent."""
        if not self._closed:
            self._closed = True
            self._engine.close()
            self._published.close()

    def _leased(self, layout: AdapterLayout | None, vector: Tensor | None) -> AbstractContextManager[Published | None]:
        return nullcontext() if layout is None or vector is None else self._published.lease(layout, vector)

    def _ask(self, work: Callable[[Any], Any], check: Callable[[], None] = lambda: None) -> Any:
        engine = self._engine.running()
        try:
            return self._engine.run(work(engine), check)
        except Exception as error:
            if not engine.errored:
                raise
            raise PolicyUnavailableError(
                "the sampling engine died during this call (its own log says why); nothing was recorded, and the next "
                "call starts it again",
                value=type(error).__name__,
            ) from error

    async def _draw(self, engine: Any, request: Request, adapter: Published | None, rows: list[Drawn]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for row in rows:
                    group.create_task(self._draw_row(engine, request, adapter, row))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _draw_row(self, engine: Any, request: Request, adapter: Published | None, row: Drawn) -> None:
        async with aclosing(self._outputs(engine, request, adapter, row.index)) as outputs:
            async for output in outputs:
                part = output.outputs[0]
                for token, chances in zip(part.token_ids, part.logprobs or (), strict=True):
                    if row.take(token, chances[token].logprob, request, self._end_ids):
                        return
        raise PolicyError(
            f"the sampling engine ended a completion after {len(row.ids)} of {request.max_tokens} tokens without a "
            "reason; its log may say why",
            value=len(row.ids),
        )

    def _outputs(self, engine: Any, request: Request, adapter: Published | None, index: int) -> "Outputs":
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=_seed(request.seed, index) if self.seeded else None,
            logprobs=0,  # of the token that was drawn alone
            stop_token_ids=sorted(self._end_ids),
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = {
            "type": "token",
            "prompt_token_ids": list(request.prompt_ids),
            "cache_salt": "base" if adapter is None else adapter.name,
        }
        lora = None if adapter is None else LoRARequest(adapter.name, adapter.number, str(adapter.folder))
        outputs: Outputs = engine.generate(prompt, parameters, f"pot-{uuid.uuid4().hex}", lora_request=lora)
        return outputs

    def _load(self, adapter: Published) -> None:
        from vllm.lora.request import LoRARequest

        request = LoRARequest(adapter.name, adapter.number, str(adapter.folder))
        if not self._ask(lambda engine: engine.add_lora(request)):
            raise PolicyError(f"vLLM did not take adapter {adapter.name}; its log says why", value=adapter.name)

    def _unload(self, adapter: Published) -> None:
        if not self._closed:
            self._engine.run(self._engine.running().remove_lora(adapter.number))

    def _wake(self) -> None:
        loop = self._engine.loop
        if not self._closed and not loop.is_closed():
            loop.call_soon_threadsafe(loop.run_in_executor, None, self._published.clean)


class _Teller:
    """Called now and then while rows are drawn, in the thread of the caller: may stop it, and tells how far it is."""

    def __init__(self, rows: list[Drawn], request: Request) -> None:
        self._rows = rows
        self._request = request
        self._told = 0
        self._written = request.written()

    def __call__(self) -> None:
        self._request.check()
        total = sum(len(row.ids) for row in self._rows)
        if self._request.on_tokens is not None and total > self._told:
            self._told = total
            self._request.on_tokens(total)
        for row, written in zip(self._rows, self._written, strict=False):
            written.advance(row.ids)

    def end(self) -> None:
        """All rows are drawn."""
        for row, written in zip(self._rows, self._written, strict=False):
            written.end(row.ids)


def _seed(text: str, index: int) -> int:
    digest = hashlib.sha256(f"{text}/{index}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
