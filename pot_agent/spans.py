"""OpenTelemetry spans, where the application has opentelemetry installed and configured; else nothing at all.

Each step of a run is a span `pot.<step>`; each call that a policy server answers is `pot.server.<call>`, in the trace
of who called: the client sends the W3C header `traceparent`.

Limits: spans carry names and numbers, never problems, programs or prompts.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any

_PREFIX = "pot"


@cache
def _opentelemetry() -> Any:
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return trace, propagate


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Callable[..., None]]:
    """An OpenTelemetry span around a block; what it yields sets more attributes. Nothing without opentelemetry."""
    found = _opentelemetry()
    if found is None:
        yield lambda **_: None
        return
    with found[0].get_tracer("pot_agent").start_as_current_span(f"{_PREFIX}.{name}") as current:

        def put(**values: Any) -> None:
            plain = {key: value for key, value in values.items() if isinstance(value, (bool, int, float, str))}
            current.set_attributes({f"{_PREFIX}.{key}": value for key, value in plain.items()})

        put(**attributes)
        yield put


def carry_trace(headers: MutableMapping[str, str]) -> None:
    """Add the W3C `traceparent` of the current span to the headers of a request."""
    found = _opentelemetry()
    if found is not None:
        found[1].inject(headers)


@contextmanager
def continued(headers: Mapping[str, str], name: str, **attributes: Any) -> Iterator[None]:
    """A span that goes on with the trace that a request's headers carry."""
    found = _opentelemetry()
    if found is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(found[1].extract(dict(headers)))
    try:
        with span(name, **attributes):
            yield
    finally:
        context.detach(token)
