"""`ChatPoT`: a LangChain chat model that answers by running PoT, so that PoT drops into any chain.

Limits: it answers with programs, one for each call; it calls no tools and gives no structured output. Its answer takes
as long as a run of PoT does, and streaming yields it as one chunk at the end (what happens meanwhile is told by custom
events named `pot`). What a problem's prompts hold is counted in `input_tokens`, once for each expansion. Runs inside it
are not shown to the callbacks of the chain around it: whoever counts tokens by callbacks counts its message alone.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator, Mapping
from threading import Event, Lock
from typing import Any, Literal

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    BaseCallbackHandler,
    CallbackManager,
    CallbackManagerForLLMRun,
    UsageMetadataCallbackHandler,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr

from pot_agent.config import PotConfig
from pot_agent.errors import ConfigError
from pot_agent.integrations.conversation import answer_of, problem_in
from pot_agent.node import CANCEL_KEY
from pot_agent.policy.base import Policy
from pot_agent.settings import Settings
from pot_agent.state import INPUT_KEYS, KNOBS
from pot_agent.stopping import StopSignal
from pot_agent.values import shorten

_GIVEN = tuple(name for name in INPUT_KEYS if name != "problem")
EVENT = "pot"
"""Name of the custom events that tell of progress; their data are PoT's own events."""


class ChatPoT(BaseChatModel):
    """Answers the last human message with a program that PoT found, and `response_metadata["solution"]`.

    Turns before it are context. Tests come from the message, from `tests=`, or from a call's own
    `invoke(messages, tests=[...])`, as do `entry_point`, `starter_code`, `setup` and `limits`; a call takes the knobs
    of a run (`iterations=3`, `learn=False`, ...) too. Whatever else a call is given is a `ConfigError`.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())

    model: str = "embedded"
    """Hub id, folder, GGUF file or `embedded`."""
    policy: str | None = None
    """URL of `pot serve`, used instead of a model in process."""
    api_key: SecretStr | None = Field(default_factory=lambda: _token())
    """Bearer token of that server; read from POT_TOKEN where it is not given, and never written down."""
    graph: Runnable[Any, Any] | None = Field(default=None, exclude=True, repr=False)
    """A graph of `create_pot_agent`, used instead of both; such a model cannot be pickled."""
    budget: Literal["quick", "paper"] | None = None
    """None: quick on a CPU, paper elsewhere. Ignored when a graph is given."""
    learn: bool | None = None
    """Whether adapters are trained; None: as the budget says."""
    iterations: int | None = None
    width: int | None = None
    temperature: float | None = None
    """Of the thoughts that are proposed; above 0."""
    max_tokens: int | None = None
    """Tokens of one thought, not of the run."""
    timeout: float | None = None
    """Seconds for one answer; then the best so far is the answer."""
    seed: int | None = None
    stop: list[str] | None = None
    """The answer's text is cut before the first of these."""
    max_retries: int | None = None
    """Taken so that settings shared with other chat models can be; a run is never retried."""
    streaming: bool = False
    """Whether `invoke` goes by way of the stream, which tells of progress."""
    tests: list[Any] | None = None
    """Tests of every problem; None: those found in the message."""

    _built: Runnable[Any, Any] | None = PrivateAttr(default=None)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "pot"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        names = ("model", "policy", "budget", "tests", "stop")
        given = {name: getattr(self, name) for name in names} | self._knobs({})
        return given if self.graph is None else given | {"graph": id(self.graph)}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "pot"
        params["ls_model_name"] = kwargs.get("model") or self.policy or self.model
        return params

    def __getstate__(self) -> dict[Any, Any]:
        if self.graph is not None:
            raise ConfigError(
                "a ChatPoT with a graph of its own cannot be pickled; give model= or policy= instead", value=self.graph
            )
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {**(state["__pydantic_private__"] or {}), "_built": None}}

    # -- answering -------------------------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _Call(self, messages, stop, kwargs)
        for event in call.run():
            _tell(event, run_manager)
        return ChatResult(generations=[ChatGeneration(message=call.answer())])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _Call(self, messages, stop, kwargs)
        async for event in call.arun():
            await _atell(event, run_manager)
        return ChatResult(generations=[ChatGeneration(message=call.answer())])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = _Call(self, messages, stop, kwargs)
        for event in call.run():
            _tell(event, run_manager)
        chunk = _chunk(call.answer())
        if run_manager is not None:
            run_manager.on_llm_new_token(chunk.text, chunk=chunk)
        yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = _Call(self, messages, stop, kwargs)
        async for event in call.arun():
            await _atell(event, run_manager)
        chunk = _chunk(call.answer())
        if run_manager is not None:
            await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
        yield chunk

    # -- what a call is made of ------------------------------------------------------------------------------------

    def _solver(self) -> Runnable[Any, Any]:
        if self.graph is not None:
            return self.graph
        with _building:
            if self._built is None:
                from pot_agent.graph import create_pot_agent

                config = None if self.budget is None else PotConfig.of(self.budget)
                self._built = create_pot_agent(self._remote(), model=self.model, config=config)
            return self._built

    def _remote(self) -> Policy | str | None:
        token = None if self.api_key is None else self.api_key.get_secret_value()
        if self.policy is None or token == Settings.from_env().token:
            return self.policy  # a URL: the server is asked nothing before the first run
        from pot_agent.policy.client import HttpPolicy

        return HttpPolicy(self.policy, token=token)

    def _knobs(self, call: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("learn", "iterations", "width", "temperature", "seed")}
        own |= {"max_new_tokens": self.max_tokens, "max_seconds": self.timeout}
        renamed = {"max_tokens": "max_new_tokens", "timeout": "max_seconds"}
        own |= {renamed.get(name, name): value for name, value in call.items() if renamed.get(name, name) in KNOBS}
        return {name: value for name, value in own.items() if value is not None}


_building = Lock()


def _token() -> SecretStr | None:
    token = Settings.from_env().token
    return None if token is None else SecretStr(token)


class _Call:
    """One answer: the run's input, its events as they come, and the message that it ends in."""

    def __init__(self, model: ChatPoT, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]):
        unknown = sorted(set(given) - {*_GIVEN, *KNOBS, "max_tokens", "timeout", "stream"})
        if unknown:
            known = ", ".join((*_GIVEN, *KNOBS))
            raise ConfigError(
                f"ChatPoT takes no {', '.join(unknown)} in a call; it takes {known}",
                value={name: shorten(given[name]) for name in unknown},
            )
        problem = {name: given[name] for name in _GIVEN if name in given}
        self._input = problem_in(messages, **{"tests": model.tests, **problem})
        self._context = model._knobs(given)
        self._graph: Any = model._solver()
        self._stop = stop if stop is not None else model.stop or []
        self._cancel = StopSignal(parent=_callers_event())
        self._usage = UsageMetadataCallbackHandler()
        self._solution: dict[str, Any] = {}

    def run(self) -> Iterator[dict[str, Any]]:
        """The events of the run; whoever leaves early stops it."""
        around = _surroundings()
        parts = around.run(self._graph.stream, self._input, **self._how())
        try:
            while (part := around.run(next, parts, None)) is not None:
                yield from self._taken(part)
        finally:
            self._cancel.set()
            around.run(parts.close)

    async def arun(self) -> AsyncIterator[dict[str, Any]]:
        """The same, awaited; cancelling it stops the run."""
        parts: asyncio.Queue[Any] = asyncio.Queue()

        async def consume() -> None:
            async for part in self._graph.astream(self._input, **self._how()):
                parts.put_nowait(part)

        running = asyncio.create_task(consume(), context=_surroundings())
        running.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                for event in self._taken(part):
                    yield event
            await running
        finally:
            self._cancel.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def answer(self) -> AIMessage:
        """The message, when the run has ended."""
        message = answer_of(self._solution)
        text = str(message.content)
        cut = min((at for mark in self._stop if mark and (at := text.find(mark)) >= 0), default=len(text))
        return message.model_copy(update={"content": text[:cut], "usage_metadata": self._used()})

    def _taken(self, part: tuple[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        mode, data = part
        if mode == "custom":
            yield data
        elif data.get("solution"):
            self._solution = data["solution"]

    def _how(self) -> dict[str, Any]:
        config: RunnableConfig = {"callbacks": [self._usage], "configurable": {CANCEL_KEY: self._cancel}}
        return {"config": config, "context": self._context, "stream_mode": ["custom", "values"]}

    def _used(self) -> UsageMetadata:
        read = sum(usage["input_tokens"] for usage in self._usage.usage_metadata.values())
        wrote = self._solution["tokens"]
        return UsageMetadata(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)


def _surroundings() -> contextvars.Context:
    """The caller's context without its callbacks (they would count tokens twice) and without its checkpoints."""
    around = contextvars.copy_context()
    around.run(var_child_runnable_config.set, None)
    for variable, value in list(around.items()):
        if isinstance(value, BaseCallbackHandler):
            around.run(variable.set, None)
    return around


def _callers_event() -> Event | None:
    """The event by which a graph around this call is cancelled, if it was given one."""
    given = (var_child_runnable_config.get() or {}).get("configurable", {}).get(CANCEL_KEY)
    return given if isinstance(given, Event) else None


def _tell(event: dict[str, Any], run: CallbackManagerForLLMRun | None) -> None:
    if run is not None and run.handlers:
        CallbackManager(run.handlers).on_custom_event(EVENT, event, run_id=run.run_id)


async def _atell(event: dict[str, Any], run: AsyncCallbackManagerForLLMRun | None) -> None:
    if run is not None and run.handlers:
        await AsyncCallbackManager(run.handlers).on_custom_event(EVENT, event, run_id=run.run_id)


def _chunk(message: AIMessage) -> ChatGenerationChunk:
    names = ("content", "name", "response_metadata", "usage_metadata")
    return ChatGenerationChunk(message=AIMessageChunk(**{name: getattr(message, name) for name in names}))
