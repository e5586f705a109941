"""Waiting until the checkpoint that a step follows is written, before the step changes what no checkpoint can undo.

LangGraph's default durability, "async", writes a checkpoint while the next step runs already. A gradient step, or the
end of an adapter, must not be ahead of it: a run that was killed then goes on from a checkpoint whose adapter is gone.

Limits: durability "exit" writes nothing until the end, so there is nothing to wait for and nothing survives a kill. A
checkpointer that cannot be read from a node (one that is async alone) is not waited for, and a log line says so.
"""

import logging
import time
from threading import Event
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from pot_agent.errors import StateError

log = logging.getLogger(__name__)

WAIT_SECONDS = 60.0
_SLICE = 0.005  # seconds between two looks, at first
_LONGEST_SLICE = 0.1

# LangGraph's own names for what is in force, sub-graphs included; no public call gives them.
_CHECKPOINTER_KEY = "__pregel_checkpointer"
_DURABILITY_KEY = "__pregel_durability"
_NAMESPACE_END = "|"


def checkpointer_of(config: RunnableConfig) -> Any:
    """The checkpointer in force; None where nothing can resume this run."""
    return config.get("configurable", {}).get(_CHECKPOINTER_KEY) or None


def wait_until_saved(stop: Event, *, seconds: float = WAIT_SECONDS) -> None:
    """Return when the checkpoint that this node was started from can be read back, or when `stop` is set.

    Raises `StateError` when it cannot be after so many seconds.
    """
    config = get_config()
    checkpointer, wanted = checkpointer_of(config), _checkpoint_before(config)
    if checkpointer is None or wanted is None or config["configurable"].get(_DURABILITY_KEY) == "exit":
        return
    end, pause = time.monotonic() + seconds, _SLICE
    while not _has(checkpointer, wanted):
        if stop.wait(pause):
            return
        pause = min(2 * pause, _LONGEST_SLICE)
        if time.monotonic() >= end:
            raise StateError(
                f"the checkpointer has not written checkpoint {wanted['configurable']['checkpoint_id']} after "
                f"{seconds:g} s, and learning ahead of it could not be resumed; look at the checkpointer's database, "
                'or run with durability="exit" if nothing is to be resumed',
                value=wanted["configurable"]["checkpoint_id"],
            )


def _checkpoint_before(config: RunnableConfig) -> RunnableConfig | None:
    """Where the checkpoint lies that the node of this configuration was started from."""
    given = config.get("configurable", {})
    namespace = str(given.get("checkpoint_ns", "")).rpartition(_NAMESPACE_END)[0]
    checkpoint = given.get("checkpoint_map", {}).get(namespace)
    if checkpoint is None or "thread_id" not in given:
        return None
    return {"configurable": {"thread_id": given["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _has(checkpointer: Any, wanted: RunnableConfig) -> bool:
    try:
        return checkpointer.get_tuple(wanted) is not None
    except NotImplementedError:
        log.warning(
            "%s cannot be read from a node: a run killed at the wrong moment may have to be started again",
            type(checkpointer).__name__,
        )
        return True
