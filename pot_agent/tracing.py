"""A run as LangChain's callbacks see it, and LangSmith through them.

Each sampling call is a run of type `llm` with its messages, its thoughts and their tokens, below the node that made it.
A node's own run shows tracers names, numbers and the beginnings of texts (`TRIMMED`), never the whole state, which
grows with every step and is in the `llm` runs and the checkpoints already. Other callbacks get all of it.

Limits: a handler that fails is logged by LangChain and never ends a run, unless it asks to (`raise_error`). `llm` runs
carry whole prompts and thoughts; `spans.py` carries none. LangChain's `UsageMetadataCallbackHandler` looks at the first
generation of a call alone, so that one carries the tokens of all; `response_metadata` says each thought's own.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from langchain_core.callbacks import BaseCallbackManager, CallbackManager, CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, convert_to_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.config import get_config
from langgraph.types import TracePolicy

from pot_agent.policy.base import Completion, Message

_PROVIDER = "pot"

MOST_CHARACTERS = 200
"""Of a text that a node's run shows."""
MOST_ITEMS = 32
"""Of a list or a dictionary that it shows."""
_OF_THE_STATE = ("session", "version", "iteration", "leaf", "draws", "updates", "tokens", "seconds", "stop_reason")
_COUNTED = ("tree", "programs", "thoughts")


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


def shown_state(state: Any) -> dict[str, Any]:
    """What a trace shows of the state that a step starts from: where the run is, and how much there is."""
    if not isinstance(state, Mapping):
        return {}
    shown = {name: state[name] for name in _OF_THE_STATE if state.get(name) is not None}
    if state.get("problem"):  # the first step's
        shown["problem"] = shortened(state["problem"])
    return shown | {name: len(state[name]) for name in _COUNTED if state.get(name)}


def shortened(value: Any) -> Any:
    """A plain value with the ends of its texts and lists left out, and said so."""
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"{value[:MOST_CHARACTERS]}... ({len(value):,} characters)"
    left = len(value) - MOST_ITEMS if isinstance(value, (Mapping, list, tuple)) else 0
    if isinstance(value, Mapping):
        kept = {name: shortened(item) for name, item in islice(value.items(), MOST_ITEMS)}
        return kept | {"...": f"{left:,} more"} if left > 0 else kept
    if isinstance(value, (list, tuple)):
        return [shortened(item) for item in value[:MOST_ITEMS]] + ([f"... ({left:,} more)"] if left > 0 else [])
    return value


TRIMMED = TracePolicy(process_inputs=shown_state, process_outputs=shortened)
"""How the steps of the graph are traced."""


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
    """One generation for each completion; the first carries the call's use of tokens, the shared prompt once."""
    sampled, read = sum(completion.tokens for completion in completions), completions[0].prompt_tokens
    of_all = UsageMetadata(input_tokens=read, output_tokens=sampled, total_tokens=read + sampled)
    generations: list[Any] = []
    for order, completion in enumerate(completions):
        message = AIMessage(
            completion.text,
            id=completion.sample_id,
            usage_metadata=of_all if order == 0 else None,
            response_metadata={
                "finish_reason": completion.finish_reason,
                "model_name": model,
                "completion_tokens": completion.tokens,
            },
        )
        generations.append(ChatGeneration(message=message, generation_info={"logprob": completion.logprob}))
    usage = {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}
    return LLMResult(generations=[generations], llm_output={"token_usage": usage, "model_name": model})
