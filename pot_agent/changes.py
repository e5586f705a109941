"""Lists of the state that grow, written to checkpoints as what changed: `{"3": item}` instead of the whole list.

A checkpointer that keeps every step would otherwise keep every program once for each step after it: 27 MB for a run of
the paper's budget with thoughts of 4 kB, instead of less than 2.

Limits: LangGraph's `DeltaChannel` is in beta; a list that gets shorter is written whole.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph.channels import DeltaChannel

SNAPSHOT_EVERY = 500
"""Changes after which the whole list is written once, so that reading never replays more."""


def changes(before: Sequence[Any], after: Sequence[Any]) -> list[Any] | dict[str, Any]:
    """What makes `after` of `before`: the items that differ or are new, by index; or all of `after`."""
    if len(after) < len(before):
        return list(after)
    return {str(at): item for at, item in enumerate(after) if at >= len(before) or item != before[at]}


def changed(before: list[Any] | None, writes: Sequence[Any]) -> list[Any]:
    """The list after these writes, each a whole list or changes by index."""
    after = list(before or ())
    for write in writes:
        if not isinstance(write, Mapping):
            after = list(write)
            continue
        for at, item in sorted((int(at), item) for at, item in write.items()):
            after[at : at + 1] = [item]
    return after


def growing() -> "DeltaChannel[list[Any]]":
    """The channel of a list that is written as changes."""
    from langgraph.channels import DeltaChannel  # a shell that only reads changes needs no graph

    return DeltaChannel(changed, list, snapshot_frequency=SNAPSHOT_EVERY)
