"""Progress, as custom stream events: one flat dictionary each, `event` plus plain values.

| event | when | values |
|---|---|---|
| started | the problem was read | session, model, device, tests, evidence, iterations, width, learn, max_seconds |
| warning | something a person should know | message |
| selected | a leaf was chosen | iteration, leaf, depth, prompt_tokens, dropped (pairs cut from the history) |
| tokens | while sampling | iteration, phase (propose, commit), tokens, seconds |
| thought | a thought was written | iteration, phase, index, tokens, finish_reason, logprob, program |
| verdict | a thought was run | iteration, phase, index, verdict, score, passed, total, failure, cached |
| update | internalize ended | iteration, and the receipt: version, skipped, loss, kl, grad_norm, ... |
| committed | the greedy thought joined the tree | iteration, node, score, best |
| finished | the run ended | stop_reason, solved, score, iterations, updates, seconds, tokens |
"""

from typing import Any

from langgraph.config import get_stream_writer


def emit(event: str, **values: Any) -> None:
    """Send one event to whoever streams `custom`; outside a graph nobody listens."""
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):
        return
    writer({"event": event, **values})
