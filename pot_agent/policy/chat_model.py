"""Any LangChain chat model as a policy that proposes and cannot learn.

It has no weights here, so `internalize` is refused; it gives no exact token ids and (as it is used here) no
log-probabilities, so the search prior is uniform. Token counts of prompts are estimates
(`count_tokens_approximately`), those of completions come from `usage_metadata` where the model reports it. A call that
is under way at a provider cannot be stopped: `cancel` ends the waiting for it, and the call counts against
`max_concurrency` until it ends. Calls carry no callbacks of the graph's run, which shows each expansion as one `llm`
run of its own: nobody's tokens are counted twice.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event, Lock
from types import TracebackType
from typing import Any, Self

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import convert_to_messages, count_tokens_approximately
from langchain_core.runnables import Runnable

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import (
    CancelledError,
    CannotLearnError,
    ConfigError,
    MissingExtraError,
    PolicyError,
    PotError,
    SessionConflictError,
    SessionNotFoundError,
)
from pot_agent.policy.base import Capabilities, Completion, FinishReason, Measure, Message, Receipt, SessionInfo
from pot_agent.policy.blocks import end_of_first_block
from pot_agent.require import require_count

log = logging.getLogger(__name__)

_LENGTH = {"length", "max_tokens", "MAX_TOKENS"}  # what providers call running out of tokens
_POLL = 0.05  # seconds between two looks at `cancel`
_CAN_BE_SENT = ("temperature", "max_tokens", "stop", "seed")

ChatModel = Runnable[LanguageModelInput, AIMessage]
"""A chat model, or one with retries, fallbacks or bound arguments around it."""


class ChatModelPolicy:
    """A policy over a LangChain chat model, for search without learning.

    Args:
        chat_model: the model (bare, or with `with_retry` and the like around it), or a name for langchain's
            `init_chat_model` such as `openai:gpt-5-mini`, which is loaded at the first call.
        context_tokens: longest prompt plus completion, in tokens; chat models do not say it.
        max_concurrency: calls at once, over all the problems that share this policy.
        parameters: names of the call parameters that the model takes, of temperature, max_tokens, stop and seed. One
            that is left out is not sent, and a warning says so once; `stop` then cuts what comes.
    """

    def __init__(
        self,
        chat_model: ChatModel | str,
        *,
        context_tokens: int = 32_768,
        max_concurrency: int = 8,
        parameters: Sequence[str] = ("temperature", "max_tokens", "stop"),
    ) -> None:
        require_count("context_tokens", context_tokens)
        require_count("max_concurrency", max_concurrency)
        unknown = sorted(set(parameters) - set(_CAN_BE_SENT))
        if unknown:
            known = ", ".join(_CAN_BE_SENT)
            raise ConfigError(f"parameters: never sent: {', '.join(unknown)}; there are {known}", value=unknown)
        self._given = chat_model
        self._context_tokens = context_tokens
        self._max_concurrency = max_concurrency
        self._parameters = frozenset(parameters)
        self._sessions: dict[str, tuple[LoraConfig | None, int]] = {}
        self._reported: set[str] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    @cached_property
    def _model(self) -> ChatModel:
        return _loaded(self._given) if isinstance(self._given, str) else self._given

    @property
    def capabilities(self) -> Capabilities:
        """It proposes; it does not learn, and gives no log-probabilities."""
        return Capabilities(
            model=_name_of(self._given),
            learns=False,
            logprobs=False,
            context_tokens=self._context_tokens,
            device="remote",
            sampler="chat model",
            seeded="seed" in self._parameters,
        )

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """An estimate: four characters a token, and a few tokens a message."""
        messages = [Message(role="user", content=content)] if isinstance(content, str) else content
        return count_tokens_approximately([dict(message) for message in messages])

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """Open a session; `lora` must be None."""
        if lora is not None:
            raise CannotLearnError(f"{self.capabilities.model} has no weights here to put an adapter on", value=lora)
        with self._lock:
            known = self._sessions.setdefault(session, (lora, seed))
        if known != (lora, seed):
            raise SessionConflictError(f"session {session} is open with other arguments: {known}", value=session)
        return SessionInfo(session=session, version=0)

    def sample(
        self,
        session: str,
        *,
        version: int,
        messages: Sequence[Message],
        n: int = 1,
        temperature: float = 0.7,
        max_tokens: int = 256,
        seed: int = 0,
        stop: Sequence[str] = (),
        end_at_block: bool = False,
        cancel: Event | None = None,
        on_tokens: Callable[[int], None] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Completion]:
        """`n` calls side by side. What the model takes no part of (`end_at_block`, `stop`) cuts what comes.

        `on_text` gets each text whole, at the end.
        """
        if session not in self._sessions:
            raise SessionNotFoundError(f"session {session} is not open; open it first", value=session)
        wanted = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        bound = self._accepted(wanted | ({"stop": list(stop)} if stop else {}))
        prompt = convert_to_messages([dict(message) for message in messages])
        # One seed for n equal calls would give n equal thoughts.
        each = [bound | {"seed": bound["seed"] + order} if "seed" in bound else bound for order in range(n)]
        replies = self._call_all(prompt, each, cancel, on_tokens)
        completions = [self._completion(session, reply, stop, end_at_block) for reply in replies]
        if on_text is not None:
            for index, completion in enumerate(completions):
                on_text(index, completion.text)
        return completions

    def _accepted(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            left_out = sorted(set(wanted) - self._parameters - self._reported)
            self._reported.update(left_out)
        if left_out:
            log.warning("%s is not sent %s: not among its parameters", self.capabilities.model, ", ".join(left_out))
        return {name: value for name, value in wanted.items() if name in self._parameters}

    def _call_all(
        self,
        prompt: list[BaseMessage],
        each: Sequence[Mapping[str, Any]],
        cancel: Event | None,
        on_tokens: Callable[[int], None] | None,
    ) -> list[AIMessage]:
        calls = [self._workers().submit(self._call, prompt, bound) for bound in each]
        waiting: set[Future[AIMessage]] = set(calls)
        tokens = 0
        try:
            while waiting:
                if cancel is not None and cancel.is_set():
                    raise CancelledError("sampling was cancelled", value=len(each))
                done, waiting = wait(waiting, timeout=_POLL, return_when=FIRST_COMPLETED)
                tokens += sum(_tokens_of(call.result()) for call in done)
                if done and on_tokens is not None:
                    on_tokens(tokens)
        finally:
            for call in waiting:
                call.cancel()
        return [call.result() for call in calls]

    def _call(self, prompt: list[BaseMessage], bound: Mapping[str, Any]) -> AIMessage:
        name = self.capabilities.model
        try:
            reply = self._model.invoke(prompt, **bound)
        except PotError:
            raise
        except Exception as error:
            raise PolicyError(
                f"{name} failed: {_said(error)}. Where it does not take one of {sorted(bound)}, leave "
                "that out of ChatModelPolicy(parameters=...); where it was busy, give chat_model.with_retry()",
                value=name,
            ) from error
        if not isinstance(reply, AIMessage):
            raise PolicyError(f"{name} is no chat model: it answered with {type(reply).__name__}", value=name)
        return reply

    def _workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._max_concurrency, thread_name_prefix="pot-chat")
            return self._pool

    def _completion(self, session: str, reply: AIMessage, stop: Sequence[str], end_at_block: bool) -> Completion:
        usage = reply.usage_metadata
        reason = reply.response_metadata.get("finish_reason") or reply.response_metadata.get("stop_reason")
        finish: FinishReason = "length" if reason in _LENGTH else "stop"
        text = str(reply.text).encode("utf-8", "replace").decode("utf-8")
        text = text[: min((at for mark in stop if (at := text.find(mark)) >= 0), default=len(text))]
        return Completion(
            sample_id=f"{session}:{uuid.uuid4().hex}",
            text=text[: end_of_first_block(text)] if end_at_block else text,
            tokens=_tokens_of(reply),
            logprob=None,
            finish_reason=finish,
            prompt_tokens=usage["input_tokens"] if usage else 0,
            seeded="seed" in self._parameters,
        )

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        """Refused: a chat model gives no log-probabilities of given tokens, nor of any other."""
        raise PolicyError(f"{self.capabilities.model} gives no log-probabilities", value=list(sample_ids))

    def internalize(
        self,
        session: str,
        *,
        version: int,
        rewards: Mapping[str, float],
        grpo: GrpoConfig,
        teachers: Mapping[str, Sequence[Message]] | None = None,
        cancel: Event | None = None,
    ) -> Receipt:
        """Refused: a chat model has no weights here."""
        raise CannotLearnError(
            f"{self.capabilities.model} cannot learn: it has no weights to train here; search with learn=False",
            value=self.capabilities.model,
        )

    def snapshot(self, session: str) -> SessionInfo:
        """The base is all there is, and stays."""
        return self.restore(session)

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """The session where it is open; nothing is kept beyond this process, and the base is all there is."""
        if session not in self._sessions:
            raise SessionNotFoundError(f"session {session} is not open; open it first", value=session)
        return SessionInfo(session=session, version=0)

    def list_sessions(self) -> list[SessionInfo]:
        """The sessions that are open, by name."""
        with self._lock:
            return [SessionInfo(session=name, version=0) for name in sorted(self._sessions)]

    def close(self, session: str) -> None:
        """Forget the session."""
        with self._lock:
            self._sessions.pop(session, None)

    def shutdown(self) -> None:
        """Let the threads go; calls that are under way end by themselves. Idempotent."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _tokens_of(reply: AIMessage) -> int:
    usage = reply.usage_metadata
    return usage["output_tokens"] if usage else count_tokens_approximately([reply])


def _name_of(model: ChatModel | str) -> str:
    if isinstance(model, str):
        return model
    while True:  # what stands around a model (retries, fallbacks, bound arguments) has it inside
        inside = getattr(model, "bound", None) or getattr(model, "runnable", None)
        if not isinstance(inside, Runnable):
            break
        model = inside
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    return str(name or type(model).__name__)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _loaded(name: str) -> ChatModel:
    try:
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)
    except ImportError as error:
        raise MissingExtraError(
            f"the chat model {name!r} needs packages that are not installed ({error}): pip install langchain and the "
            "provider's own, such as langchain-openai",
            value=name,
        ) from error
    except Exception as error:  # each provider has its own for a name or a key that is not there
        raise ConfigError(
            f"the chat model {name!r} cannot be loaded: {type(error).__name__}: {error}", value=name
        ) from error
