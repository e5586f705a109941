"""vLLM's asynchronous engine in this process: started, asked, restarted when it died, shut down.

The engine computes in processes of its own; here are its front and one thread with an event loop. All calls are made
from other threads and go to that loop.

Limits: the processes are spawned, so a script that builds a policy with this sampler needs the usual
`if __name__ == "__main__":`. A Ctrl-C in a terminal reaches those processes too.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pot_agent.errors import ConfigError, MissingExtraError, PolicyError, PolicyUnavailableError, PotError
from pot_agent.settings import set_where_unset

logger = logging.getLogger(__name__)

T = TypeVar("T")

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that the engine may be built for; an adapter of a rank between two takes the room of the larger."""
LOOK_SECONDS = 0.02
STOP_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class VllmOptions:
    """What the engine is built with."""

    folder: Path
    """The model's folder, safetensors."""
    dtype: str
    context_tokens: int
    max_rank: int
    slots: int
    """Adapters that one batch may hold; the engine gets one more."""
    rows: int
    """Completions that one batch may hold."""
    kv_cache_bytes: int
    memory_fraction: float
    """Of the device's whole memory, all that the engine takes: weights, activations, cache."""
    eager: bool
    """No compilation and no CUDA graphs."""

    def __post_init__(self) -> None:
        if self.max_rank not in RANKS:
            raise ConfigError(
                f"the engine is built for one of the ranks {RANKS}, got {self.max_rank}", value=self.max_rank
            )


def rank_for(rank: int) -> int:
    """The smallest rank that the engine can be built for and that holds this one."""
    found = next((one for one in RANKS if one >= rank), None)
    if found is None:
        raise ConfigError(f"vLLM runs adapters of rank {RANKS[-1]} at most, got {rank}", value=rank)
    return found


class VllmEngine:
    """One engine at a time; a new one where the last has died. Thread-safe."""

    def __init__(self, options: VllmOptions) -> None:
        """Start it: 10 s to minutes. Raises `MissingExtraError`, `PolicyError` naming the engine's own reason."""
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pot-vllm", daemon=True)
        self._thread.start()
        self._starting = threading.Lock()
        self._closed = False
        self._engine: Any = None
        try:
            self._engine = self._start()
        except BaseException:
            self.close()
            raise

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the engine's front runs."""
        return self._loop

    def running(self) -> Any:
        """The engine, started again where it has died. Call it outside the loop."""
        with self._starting:
            if self._closed:
                raise PolicyUnavailableError("this policy was shut down; build another one", value=None)
            if self._engine is None or self._engine.errored:
                logger.error("the sampling engine has died, and is started again; its own log says why")
                self._stop_engine()
                self._engine = self._start()
            return self._engine

    def check_alive(self) -> None:
        """Raises `PolicyUnavailableError` where it has died, and has it started again: who asks whether it is alive may
        send no call before it is."""
        if self._starting.locked():
            raise PolicyUnavailableError("the sampling engine is being started, or shut down", value=None)
        if self._engine is None or self._engine.errored:
            threading.Thread(target=self._start_again, name="pot-vllm-start", daemon=True).start()
            raise PolicyUnavailableError("the sampling engine has died, and is being started again", value=None)

    def _start_again(self) -> None:
        try:
            self.running()
        except PotError as error:  # whoever calls or asks next tries again
            logger.error("%s", error)

    def run(self, work: Coroutine[Any, Any, T], check: Callable[[], None] = lambda: None) -> T:
        """Do this on the loop and wait. `check` is called meanwhile, and may raise: nothing then runs on."""
        ended = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            while True:
                try:
                    return future.result(LOOK_SECONDS)
                except TimeoutError:
                    if future.done():  # the work's own
                        raise
                    check()
        except BaseException:
            if not future.done():
                future.cancel()
                ended.wait(STOP_SECONDS)
            raise

    def close(self) -> None:
        """End the engine and its processes. Idempotent."""
        with self._starting:
            if self._closed:
                return
            self._closed = True
            self._stop_engine()
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result(STOP_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()

    def _stop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            try:
                engine.shutdown(timeout=STOP_SECONDS / 2)
            except Exception:  # it is ended either way, and its reason is in its log
                logger.warning("the sampling engine did not end cleanly", exc_info=True)

    def _start(self) -> Any:
        _prepare()
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise MissingExtraError(
                f'the sampler vllm needs the extra `vllm`: pip install "policy-of-thoughts[vllm]" ({error})',
                value=error.name,
            ) from error

        async def start() -> Any:
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(self._options)))

        try:
            return self.run(start())
        except PolicyError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:400]
            raise PolicyError(
                f"vLLM could not be started ({type(error).__name__}: {reason}); its own log says more, and "
                "sampler=transformers (POT_SAMPLER) does without it",
                value=str(self._options.folder),
            ) from error


async def _end_tasks() -> None:
    """The engine's front leaves tasks behind."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def engine_arguments(options: VllmOptions) -> dict[str, Any]:
    """The engine's arguments; those that are not sizes are what the samples' meaning rests on."""
    return {
        "model": str(options.folder),
        "dtype": options.dtype,
        "trust_remote_code": False,
        "skip_tokenizer_init": True,  # it is given ids and gives ids
        "generation_config": "vllm",  # no top-p, top-k or penalty out of the model's folder
        "logprobs_mode": "processed_logprobs",  # after the temperature
        "max_logprobs": 1,
        "max_model_len": options.context_tokens,
        "max_num_seqs": options.rows,
        "enable_prefix_caching": True,
        "enable_lora": True,
        "max_lora_rank": options.max_rank,
        "max_loras": options.slots + 1,
        "max_cpu_loras": 4 * (options.slots + 1),
        "lora_dtype": "auto",
        "enable_sleep_mode": False,  # it does not go with adapters
        "gpu_memory_utilization": options.memory_fraction,
        "kv_cache_memory_bytes": options.kv_cache_bytes,
        "enforce_eager": options.eager,
        "disable_log_stats": True,
        "enable_log_requests": False,
    }


def _prepare() -> None:
    """What vLLM reads from the environment, where the user has not said otherwise."""
    set_where_unset(
        {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads, and CUDA
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        }
    )
