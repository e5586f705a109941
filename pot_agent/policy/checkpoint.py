"""One version of a session on the disk: `state.safetensors`, and `version.json` with its checksum, counters, receipt.

Whole: an update that goes on from it needs nothing else. Each has a copy of the reference, so that any of them may be
the last good one.

Limits: about 12 bytes a parameter of the adapter, 16 where the reference is neither the base nor the version itself;
all of it is in memory once more while it is written or read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from pot_agent.errors import RestoreError
from pot_agent.policy.base import Receipt
from pot_agent.policy.files import appearing, discard, read_sealed, sealed, sync_path, write_new
from pot_agent.policy.trainer import Moments

if TYPE_CHECKING:
    from pot_agent.policy.session import Session

FORMAT = 1
"""Of all files of a session."""

_TENSORS, _RECORD, _PINNED = "state.safetensors", "version.json", "pinned"

ReferenceKind = Literal["base", "itself", "stored"]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One version whole: all that the next update goes on from."""

    version: int
    vector: Tensor
    moments: Moments
    reference: Tensor | None
    """None: the base. The very object `vector` where the version is its own reference."""
    steps: int
    steps_since_sync: int
    receipt: Receipt
    """Of the update that made it."""
    pinned: bool


def write_checkpoint(path: Path, session: "Session", base: str, receipt: Receipt) -> None:
    """Write the session's newest version; it is at `path` when all of it is on the disk, or not at all."""
    tensors, record = _newest(session)
    content = tensors_to_bytes(tensors)
    record |= {"format": FORMAT, "base": base, "sha256": hashlib.sha256(content).hexdigest()}
    if path.exists():  # of an update that failed, and could not be taken back
        discard(path)
    with appearing(path) as temporary:
        write_new(temporary / _TENSORS, content)
        write_new(temporary / _RECORD, sealed(record | {"receipt": receipt.to_dict()}))


def read_checkpoint(path: Path, base: str, device: torch.device) -> Checkpoint:
    """The version at `path`.

    Raises `RestoreError` for another format or base; `ValueError`, `KeyError`, `TypeError` or `FileNotFoundError` for
    one that is broken.
    """
    record = read_sealed(path / _RECORD)
    check_format(record, path / _RECORD)
    content = (path / _TENSORS).read_bytes()
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise ValueError(f"{path / _TENSORS}: the bytes do not match their checksum")
    if record["base"] != base or str(record["version"]) != path.name:
        raise RestoreError(
            f"{path} is version {record['version']} of another base or place; put it back, or close the session",
            value=str(path),
        )
    # Copies: the C library's own allocation has the alignment that products depend on, bit for bit.
    tensors = {name: tensor.clone().to(device) for name, tensor in tensors_from_bytes(content).items()}
    references = {"base": None, "itself": tensors["vector"], "stored": tensors.get("reference")}
    return Checkpoint(
        version=record["version"],
        vector=tensors["vector"],
        moments=Moments(first=tensors["first"], second=tensors["second"], steps=record["moment_steps"]),
        reference=references[record["reference"]],
        steps=record["steps"],
        steps_since_sync=record["steps_since_sync"],
        receipt=receipt_from(record["receipt"]),
        pinned=(path / _PINNED).exists(),
    )


def pin_checkpoint(path: Path) -> None:
    """Mark a version, so that it is kept until the session is closed."""
    mark = path / _PINNED
    mark.unlink(missing_ok=True)  # of a pin that failed, and could not be taken back
    write_new(mark, b"")
    try:
        sync_path(path)
    except OSError:
        mark.unlink()
        raise


def put_aside(path: Path) -> None:
    """Keep a broken version for who wants to look into it: it goes with its session."""
    aside = path.with_name(f"broken-{path.name}")
    if aside.exists():
        discard(aside)
    path.rename(aside)


def check_format(record: Mapping[str, Any], file: Path) -> None:
    """Raises `RestoreError` for a record that another version of this package wrote."""
    if record.get("format") != FORMAT:
        raise RestoreError(
            f"{file} has format {record.get('format')!r}, and this version of the package reads {FORMAT}; go on with "
            "the version that wrote it, or close the session",
            value=record.get("format"),
        )


def receipt_from(record: Mapping[str, Any]) -> Receipt:
    """The inverse of `Receipt.to_dict`; fields that this version does not know are left out."""
    known = {field.name for field in fields(Receipt)}
    return Receipt(**{name: value for name, value in record.items() if name in known})


def _newest(session: "Session") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the counters of the newest version."""
    vector, moments, reference = session.vectors[session.version], session.moments, session.reference
    if moments is None:  # a version is made by steps of an optimizer, which has moments then
        raise TypeError(f"version {session.version} has no moments")
    tensors = {"vector": vector, "first": moments.first, "second": moments.second}
    kind: ReferenceKind = "base" if reference is None else "itself" if reference is vector else "stored"
    if reference is not None and kind == "stored":
        tensors["reference"] = reference
    counters = {
        "version": session.version,
        "steps": session.steps,
        "steps_since_sync": session.steps_since_sync,
        "moment_steps": moments.steps,
        "reference": kind,
    }
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, counters
