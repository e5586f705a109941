"""Any LangChain chat model as a policy that proposes and cannot learn.

It has no weights here, so `internalize` is refused; it gives no exact token ids and (as it is used here) no
log-probabilities, so the search prior is uniform. Token counts of prompts are estimates
(`count_tokens_approximately`), those of completions come from `usage_metadata` where the model reports it. A call that
is under way at a provider cannot be stopped: `cancel` ends the waiting for it.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event, Lock
from types import TracebackType
from typing import Any, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import convert_to_messages, count_tokens_approximately

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, CannotLearnError, PolicyError, SessionConflictError, SessionNotFoundError
from pot_agent.policy.base import Capabilities, Completion, FinishReason, Message, Receipt, SessionInfo
from pot_agent.policy.blocks import end_of_first_block

log = logging.getLogger(__name__)

_LENGTH = {"length", "max_tokens", "MAX_TOKENS"}  # what providers call running out of tokens
_POLL = 0.05  # seconds between two looks at `cancel`


class ChatModelPolicy:
    """A policy over a LangChain chat model, for search without learning.

    Args:
        chat_model: the model; `temperature`, `max_tokens` and `stop` are passed to each call.
        context_tokens: longest prompt plus completion, in tokens; chat models do not say it.
        max_concurrency: calls at once for one expansion.
        parameters: names of the call parameters that the model takes; leave one out and it is not sent, and a warning
            says so once.
    """

    def __init__(
        self,
        chat_model: BaseChatModel,
        *,
        context_tokens: int = 32_768,
        max_concurrency: int = 8,
        parameters: Sequence[str] = ("temperature", "max_tokens", "stop"),
    ) -> None:
        self._model = chat_model
        self._context_tokens = context_tokens
        self._max_concurrency = max_concurrency
        self._parameters = frozenset(parameters)
        self._sessions: dict[str, tuple[LoraConfig | None, int]] = {}
        self._reported: set[str] = set()
        self._lock = Lock()

    @property
    def capabilities(self) -> Capabilities:
        """It proposes; it does not learn, and gives no log-probabilities."""
        name = getattr(self._model, "model_name", None) or getattr(self._model, "model", None)
        return Capabilities(
            model=str(name or type(self._model).__name__),
            learns=False,
            logprobs=False,
            context_tokens=self._context_tokens,
            device="remote",
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
    ) -> list[Completion]:
        """`n` calls side by side. `seed` is sent only where `parameters` names it; `end_at_block` cuts what comes."""
        if session not in self._sessions:
            raise SessionNotFoundError(f"session {session} is not open; open it first", value=session)
        wanted = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        bound = self._accepted(wanted | ({"stop": list(stop)} if stop else {}))
        prompt = convert_to_messages([dict(message) for message in messages])
        replies = self._call_all(prompt, bound, n, cancel)
        completions = [_completion(session, reply, end_at_block) for reply in replies]
        if on_tokens is not None:
            on_tokens(sum(completion.tokens for completion in completions))
        return completions

    def _accepted(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        left_out = sorted(set(wanted) - self._parameters - self._reported - {"seed"})
        if left_out:
            self._reported.update(left_out)
            log.warning("%s is not sent %s: not among its parameters", self.capabilities.model, ", ".join(left_out))
        return {name: value for name, value in wanted.items() if name in self._parameters}

    def _call_all(
        self, prompt: list[BaseMessage], bound: Mapping[str, Any], n: int, cancel: Event | None
    ) -> list[AIMessage]:
        pool = ThreadPoolExecutor(max_workers=min(n, self._max_concurrency), thread_name_prefix="pot-chat")
        try:
            calls: list[Future[AIMessage]] = [pool.submit(self._model.invoke, prompt, **bound) for _ in range(n)]
            waiting: set[Future[AIMessage]] = set(calls)
            while waiting:
                if cancel is not None and cancel.is_set():
                    raise CancelledError("sampling was cancelled", value=n)
                _, waiting = wait(waiting, timeout=_POLL, return_when=FIRST_COMPLETED)
            return [call.result() for call in calls]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def score(
        self, session: str, *, version: int, sample_ids: Sequence[str], temperature: float | None = None
    ) -> list[float]:
        """Refused: a chat model gives no log-probabilities of given tokens."""
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

    def restore(self, session: str) -> SessionInfo:
        """The session where it is open; nothing is kept beyond this process."""
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
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _completion(session: str, reply: AIMessage, end_at_block: bool) -> Completion:
    usage = reply.usage_metadata
    reason = reply.response_metadata.get("finish_reason") or reply.response_metadata.get("stop_reason")
    finish: FinishReason = "length" if reason in _LENGTH else "stop"
    text = str(reply.text).encode("utf-8", "replace").decode("utf-8")
    return Completion(
        sample_id=f"{session}:{uuid.uuid4().hex}",
        text=text[: end_of_first_block(text)] if end_at_block else text,
        tokens=usage["output_tokens"] if usage else count_tokens_approximately([reply]),
        logprob=None,
        finish_reason=finish,
        prompt_tokens=usage["input_tokens"] if usage else 0,
    )
