"""GGUF files to folders of safetensors, once, kept under `home/models`.

Limits: the GGUF is read by transformers, so only architectures and quantisations that it knows. The weights are kept
in float32 (bfloat16 from one billion parameters on), which takes more room than the quantised file did. The cache key
is the SHA-256 of the file, so each load reads the whole GGUF once.

Two processes that convert the same file are safe: one converts under an inter-process lock into a folder of another
name, syncs it and renames it; the other waits and finds it. A killed one leaves no model, only a folder that the next
one sweeps.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pot_agent.errors import ConfigError, DiskFullError, MissingExtraError, ModelNotFoundError
from pot_agent.policy.files import is_full, sync_path, sync_tree

logger = logging.getLogger(__name__)

ORIGIN = "origin.json"
"""Written last into a converted folder: a folder that has it is whole."""
WIDE_PARAMETERS = 1_000_000_000
"""Models below this many parameters are kept in float32, larger ones in bfloat16."""
SLACK_BYTES = 32 * 2**20
"""Room for the tokenizer and the configuration next to the weights."""
_DIGEST_CHARACTERS = 16


def models_folder(home: Path) -> Path:
    """Where converted models are kept."""
    return home / "models"


def folder_for(name: str, digest: str, home: Path) -> Path:
    """The folder that a GGUF of that name and SHA-256 is converted to."""
    return models_folder(home) / f"{name}-{digest[:_DIGEST_CHARACTERS]}"


def is_whole(folder: Path) -> bool:
    """Whether a conversion into this folder was finished."""
    return (folder / ORIGIN).is_file()


def sha256_of(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def convert(gguf: Path, home: Path) -> Path:
    """The folder of safetensors for a GGUF file; converts it where that was not done before.

    Raises `ModelNotFoundError` for a file that is not a GGUF that transformers can read, `DiskFullError` naming the
    place and the bytes needed, `ConfigError` where `home` cannot be written to.
    """
    _check_magic(gguf)
    digest = sha256_of(gguf)
    folder = folder_for(gguf.stem, digest, home)
    if is_whole(folder):
        return folder
    with _disk_errors(folder.parent), _locked(folder):
        if not is_whole(folder):
            _sweep(folder)
            _convert_into(folder, gguf, digest)
    return folder


def _check_magic(gguf: Path) -> None:
    try:
        with gguf.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelNotFoundError(f"the GGUF file cannot be read: {gguf} ({error.strerror})", value=str(gguf)) from None
    if magic != b"GGUF":
        raise ModelNotFoundError(
            f"not a GGUF file: {gguf} (it starts with {magic!r}); give a GGUF file, a model folder or a hub id",
            value=str(gguf),
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield  # the lock goes with the file, also when the process is killed


def _temporary(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.{os.getpid()}.part"


def _sweep(folder: Path) -> None:
    """Remove what killed conversions left; the lock is held, so nobody is at work on any of it."""
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _convert_into(folder: Path, gguf: Path, digest: str) -> None:
    logger.info("converting %s to safetensors, once; it is kept in %s", gguf, folder)
    model, tokenizer = _read_gguf(gguf)
    needed = model.get_memory_footprint() + SLACK_BYTES
    free = shutil.disk_usage(folder.parent).free
    if free < needed:
        raise _disk_full(folder.parent, needed, free)
    temporary = _temporary(folder)
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        origin = {"file": gguf.name, "sha256": digest, "bytes": gguf.stat().st_size}
        (temporary / ORIGIN).write_text(json.dumps(origin, indent=1))
        sync_tree(temporary)
        temporary.rename(folder)
        sync_path(folder.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_full(error):
            raise _disk_full(folder.parent, needed, shutil.disk_usage(folder.parent).free) from error
        raise


def _read_gguf(gguf: Path) -> tuple[Any, Any]:
    try:
        import gguf as _gguf  # noqa: F401  (transformers needs it)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(
            f'reading a GGUF file needs the extra `local`: pip install "policy-of-thoughts[local]" ({error})',
            value=str(gguf),
        ) from error
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:  # whatever a reader raises for a broken file, the file is what is wrong
        reason = str(error).strip().splitlines()[:1]
        raise ModelNotFoundError(
            f"the GGUF file cannot be read: {gguf} ({type(error).__name__}: {' '.join(reason)[:300]}); it may be cut "
            "short, or of an architecture that transformers cannot read from GGUF: give a folder of safetensors",
            value=str(gguf),
        ) from error
    # Left in place, these make `save_pretrained` refuse, and the saved folder ask for the GGUF again.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return (model.to(torch.bfloat16) if model.num_parameters() >= WIDE_PARAMETERS else model), tokenizer


def _disk_full(place: Path, needed: int, free: int) -> DiskFullError:
    return DiskFullError(
        f"no room for the converted model in {place}: it needs {needed:,} bytes and {free:,} are free; make room, or "
        "put the cache elsewhere with POT_HOME",
        value=str(place),
    )


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except (DiskFullError, ModelNotFoundError, MissingExtraError):
        raise
    except OSError as error:
        if is_full(error):
            raise _disk_full(place, SLACK_BYTES, 0) from error
        raise ConfigError(
            f"the model cache cannot be written: {place} ({error.strerror or error}); set POT_HOME to a folder that "
            "can be",
            value=str(place),
        ) from error
