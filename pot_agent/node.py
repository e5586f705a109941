"""How a step becomes a graph node: one body, a sync and an async form, and what happens when it is stopped or fails.

A thread cannot be killed, so the async form runs the body in a thread of its own (LangGraph's and asyncio's executors
are small) and sets the step's stop signal when it is cancelled; the body then ends within one decoding step.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langgraph.errors import GraphBubbleUp, GraphDrained
from langgraph.runtime import get_runtime

from pot_agent.durable import checkpointer_of
from pot_agent.spans import span
from pot_agent.state import PotState
from pot_agent.stopping import StopSignal

_IN_SPANS = ("session", "iteration", "version", "updates", "tokens", "tier", "stop_reason")
_LOOP_SECONDS = 30.0  # a loop that has not run a callback for so long has ended

Update = dict[str, Any]
Body = Callable[[PotState, threading.Event], Update]

CANCEL_KEY = "cancel"
"""Key of `config["configurable"]` under which a caller may give a `threading.Event` that ends the run early, with the
best so far."""


class Unseen(Runnable[PotState, Any]):
    """A function of the state in both forms that is no run of its own in a trace: the step around it is one already."""

    def __init__(
        self,
        name: str,
        run: Callable[[PotState, RunnableConfig], Any],
        arun: Callable[[PotState, RunnableConfig], Awaitable[Any]] | None = None,
    ) -> None:
        self.name = name
        self._run = run
        self._arun = arun

    def invoke(self, input: PotState, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Call it."""
        return self._run(input, ensure_config(config))

    async def ainvoke(self, input: PotState, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Await it; one without an async form is quick."""
        if self._arun is None:
            return self._run(input, ensure_config(config))
        return await self._arun(input, ensure_config(config))


def as_router(route: Callable[[PotState], Any]) -> Unseen:
    """Where to go next, by the state."""
    return Unseen(route.__name__, lambda state, _: route(state))


def as_node(name: str, body: Body, *, abandon: Callable[[PotState], None]) -> Unseen:
    """A node in both forms. `abandon` is called when the body fails in a run that nothing can resume."""

    def guarded(state: PotState, config: RunnableConfig, signal: StopSignal) -> Update:
        is_resumable = checkpointer_of(config) is not None
        try:
            with span(name, **_shown(state)) as put:
                update = body(state, signal)
                put(**_shown(update))
        except BaseException as error:
            # An interrupt or a drain of a run with a checkpointer: it goes on later, and its adapter with it.
            if not is_resumable and (isinstance(error, GraphDrained) or not isinstance(error, GraphBubbleUp)):
                abandon(state)
            raise
        if signal.reason == "drained" and not is_resumable:  # LangGraph ends the run at the next step, and tells nobody
            abandon(_after(state, update))
        return update

    def run(state: PotState, config: RunnableConfig) -> Update:
        return guarded(state, config, _signal_for(config))

    async def arun(state: PotState, config: RunnableConfig) -> Update:
        signal = _signal_for(config)

        def missed(update: Update) -> None:
            if checkpointer_of(config) is None:
                abandon(_after(state, update))

        return await _in_thread(name, lambda: guarded(state, config, signal), signal, missed)

    return Unseen(name, run, arun)


def _cancel_of(config: RunnableConfig) -> threading.Event | None:
    given = config.get("configurable", {}).get(CANCEL_KEY)
    return given if isinstance(given, threading.Event) else None


def _signal_for(config: RunnableConfig) -> StopSignal:
    control = get_runtime().control
    return StopSignal(
        parent=_cancel_of(config), is_draining=None if control is None else lambda: control.drain_requested
    )


def _after(state: PotState, update: Update) -> PotState:
    after = state.copy()
    after.update(update)  # type: ignore[typeddict-item]  # an update names fields of the state
    return after


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a span says of a state or an update: names and numbers."""
    return {name: values[name] for name in _IN_SPANS if values.get(name) is not None}


async def _in_thread(
    name: str, call: Callable[[], Update], signal: StopSignal, missed: Callable[[Update], None]
) -> Update:
    """Await `call` in a thread of its own; `missed` gets the result that a cancelled caller no longer takes."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Update] = loop.create_future()

    taken: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        taken.put(not done.done())
        if not done.done():
            set_outcome(outcome)

    def work() -> None:
        try:
            outcome: Any = call()
            setter: Callable[[Any], None] = done.set_result
        except BaseException as error:
            outcome, setter = error, done.set_exception
        if not (_called_soon(loop, settle, setter, outcome) and _was_taken(taken)) and isinstance(outcome, dict):
            missed(outcome)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name=f"pot-{name}", daemon=True)
    thread.start()
    try:
        return await done
    except asyncio.CancelledError:
        signal.set()
        raise


def _was_taken(taken: "queue.SimpleQueue[bool]") -> bool:
    """Whether the caller took the outcome; a loop that ended before it could say so did not."""
    try:
        return taken.get(timeout=_LOOP_SECONDS)
    except queue.Empty:
        return False


def _called_soon(loop: asyncio.AbstractEventLoop, *call: Any) -> bool:
    """Whether the loop still runs and took the call."""
    try:
        loop.call_soon_threadsafe(*call)
    except RuntimeError:
        return False
    return True
