"""Progress, as custom stream events: one flat dictionary each, `event` plus plain values.

| event | when | values |
|---|---|---|
| started | the problem was read | session, model, device, tests, evidence, iterations, width, learn, max_seconds |
| warning | something a person should know | message |
| selected | a leaf was chosen | iteration, leaf, depth, draw, prompt_tokens, dropped (pairs cut from the history) |
| tokens | while sampling | iteration, phase (propose, commit, tests), tokens, seconds |
| text | while sampling, where `stream_text` asks for it | iteration, phase, index, text (the next piece) |
| thought | a thought was written | iteration, phase, index, tokens, finish_reason, logprob, program |
| generated | the model wrote tests | iteration, asked, kept, tokens, seconds |
| verdict | a thought was run | iteration, phase, index, verdict, score, passed, total, failure, cached, generated |
| update | internalize ended | iteration, and the receipt: version, skipped, loss, kl, grad_norm, ... |
| committed | the greedy thought joined the tree | iteration, node, score, best |
| chosen | a method chose among equals | iteration, by, among, certainty |
| finished | the run ended | stop_reason, solved, score, iterations, updates, seconds, tokens |

`text` events are off unless the configuration or the context of a run says `stream_text=True`. The pieces of one
iteration, phase and index join to what the model wrote, exactly, reasoning and fences included; they come at most ten
times a second for each thought. Where a run was killed while it sampled, the step is done again and its pieces come
again. A policy that tells no text (a chat model, an older server) is warned of by an event.

`draw` is 1, more where draws at one node are pooled; a verdict's `generated` is the share of generated tests, apart.
"""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from langgraph.config import get_stream_writer


def emit(event: str, **values: Any) -> None:
    """Send one event to whoever streams `custom`; outside a graph nobody listens."""
    emitter()(event, **values)


def emitter() -> Callable[..., None]:
    """`emit` for this node, to be called from any thread: a policy may report from one that knows of no graph."""
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):
        return lambda event, **values: None
    context = copy_context()  # LangGraph's writer asks it which node writes

    def write(event: str, **values: Any) -> None:
        context.copy().run(writer, {"event": event, **values})

    return write
