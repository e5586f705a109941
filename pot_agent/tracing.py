"""Sampling as LangChain's callbacks see it, and LangSmith through them.

Each sampling call is a run of type `llm` with its messages, its thoughts and their tokens, below the node that made it.

Limits: a handler that fails is logged by LangChain and never ends a run, unless it asks to (`raise_error`). These runs
carry prompts and programs; `spans.py` carries none.
"""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackManager, CallbackManager, CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.config import get_config

from pot_agent.policy.base import Completion, Message

_PROVIDER = "pot"


def sampling(
    call: Callable[[], list[Completion]], messages: Sequence[Message], *, model: str, **parameters: Any
) -> list[Completion]:
    """What `call` samples, shown to whoever listens as one `llm` run with its use of tokens."""
    manager = _callbacks()
    if manager is None or not manager.handlers:
        return call()
    run = _started(manager, messages, model, parameters)
    try:
        completions = call()
    except BaseException as error:
        run.on_llm_error(error)
        raise
    run.on_llm_end(_result(completions, model))
    return completions


def _callbacks() -> CallbackManager | None:
    """The callbacks of the node that this is called in, for calls from its own thread."""
    try:
        found = get_config().get("callbacks")
    except RuntimeError:  # outside a graph
        return None
    if isinstance(found, list):
        return CallbackManager.configure(inheritable_callbacks=found)
    if not isinstance(found, BaseCallbackManager):
        return None
    return CallbackManager(
        handlers=list(found.handlers),
        inheritable_handlers=list(found.inheritable_handlers),
        parent_run_id=found.parent_run_id,
        tags=list(found.tags),
        inheritable_tags=list(found.inheritable_tags),
        metadata=dict(found.metadata),
        inheritable_metadata=dict(found.inheritable_metadata),
    )


def _started(
    manager: CallbackManager, messages: Sequence[Message], model: str, parameters: dict[str, Any]
) -> CallbackManagerForLLMRun:
    kept = {f"ls_{name}": parameters[name] for name in ("temperature", "max_tokens") if name in parameters}
    manager.add_metadata({"ls_provider": _PROVIDER, "ls_model_name": model, "ls_model_type": "chat", **kept}, False)
    (run,) = manager.on_chat_model_start(
        {"name": f"{_PROVIDER}.sample", "id": ["pot_agent", "policy", "sample"], "lc": 1, "type": "not_implemented"},
        [convert_to_messages([dict(message) for message in messages])],
        invocation_params={"model": model, **parameters},
        name=f"sample {parameters.get('phase', '')}".strip(),
    )
    return run


def _result(completions: Sequence[Completion], model: str) -> LLMResult:
    """One generation for each completion; the prompt, which they share, is counted once."""
    generations: list[Any] = []
    for order, completion in enumerate(completions):
        read = completion.prompt_tokens if order == 0 else 0
        message = AIMessage(
            completion.text,
            id=completion.sample_id,
            usage_metadata={
                "input_tokens": read,
                "output_tokens": completion.tokens,
                "total_tokens": read + completion.tokens,
            },
            response_metadata={"finish_reason": completion.finish_reason, "model_name": model},
        )
        generations.append(ChatGeneration(message=message, generation_info={"logprob": completion.logprob}))
    sampled, read = sum(completion.tokens for completion in completions), completions[0].prompt_tokens
    usage = {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}
    return LLMResult(generations=[generations], llm_output={"token_usage": usage, "model_name": model})
