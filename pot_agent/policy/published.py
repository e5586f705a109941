"""Adapter versions as an inference engine wants them: files in memory, each under an id, a name and a path of its own.

Nothing is ever published twice under one name, and nothing in place: engines cache by name, and by path. A version is
published when it is first sampled. It is retired when nobody holds its vector any more (its session closed, or went on
by two versions, or a candidate was dropped) *and* nobody samples it: only then does the engine forget it, and only
after that are its files removed, because an engine may read an evicted adapter again in the middle of a step.

Limits: the files are as large as the vector in the engine's precision; a full shared memory is a `DiskFullError`. What
a killed process left behind is removed by the next one that starts.
"""

import fcntl
import itertools
import json
import logging
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from safetensors.torch import save
from torch import Tensor

from pot_agent.errors import DiskFullError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.files import is_full, write_new

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "pot-adapters-"
_LOCK = "lock"


@dataclass(eq=False)
class Published:
    """One published version."""

    number: int
    """Unique in the life of this process; above 0."""
    folder: Path
    vector: "weakref.ref[Tensor]"
    name: str = field(default_factory=lambda: f"pot-{uuid.uuid4().hex}")
    leases: int = 0
    retired: bool = False


class Publications:
    """All versions that an engine knows. Thread-safe.

    `load` makes the engine read a version, and `unload` makes it forget one; both may block. `wake` is called whenever
    there may be something to clean, from any thread, a garbage collector's too: it must not block, and is to have
    `clean` called elsewhere.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        *,
        load: Callable[[Published], None],
        unload: Callable[[Published], None],
        wake: Callable[[], None],
        parent: Path | None = None,
    ) -> None:
        self._dtype = dtype
        self._load = load
        self._unload = unload
        self._wake = wake
        self._root, self._held = _own_folder(parent or _parent())
        self._numbers = itertools.count(1)
        self._by_vector: dict[int, Published] = {}
        self._dead: deque[Published] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Versions that the engine knows, as far as this side has been cleaned."""
        return len(self._by_vector) + len(self._dead)

    @contextmanager
    def lease(self, layout: AdapterLayout, vector: Tensor) -> Iterator[Published]:
        """This version, published; it stays so inside, whatever happens to its session."""
        with self._lock:
            found = self._by_vector.get(id(vector))
            if found is None or found.vector() is not vector:  # an id is used again after its object's end
                found = self._publish(layout, vector)
            found.leases += 1
        try:
            yield found
        finally:
            with self._lock:
                found.leases -= 1
            if found.retired:
                self._wake()

    def clean(self) -> None:
        """Retire what nobody holds and nobody samples."""
        for _ in range(len(self._dead)):
            with self._lock:
                if not self._dead:
                    return
                published = self._dead.popleft()
                if published.leases:
                    self._dead.append(published)
                    continue
            try:
                self._unload(published)
            except Exception:  # the engine may be gone; its files are not needed then either
                logger.warning("adapter %s could not be removed from the engine", published.name, exc_info=True)
            shutil.rmtree(published.folder, ignore_errors=True)

    def close(self) -> None:
        """Remove every file."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._held.close()

    def _publish(self, layout: AdapterLayout, vector: Tensor) -> Published:
        number = next(self._numbers)
        published = Published(number=number, folder=self._root / f"{number}", vector=weakref.ref(vector))
        try:
            _write(published.folder, layout, vector, self._dtype)
            self._load(published)
        except BaseException as error:
            shutil.rmtree(published.folder, ignore_errors=True)
            if is_full(error):
                raise DiskFullError(
                    f"no room for another adapter in {self._root.parent}: enlarge it (docker: --shm-size), or close "
                    "sessions, and call again; nothing has changed",
                    value=str(self._root.parent),
                ) from error
            raise
        self._by_vector[id(vector)] = published
        weakref.finalize(vector, self._retire, id(vector), published).atexit = False
        return published

    def _retire(self, key: int, published: Published) -> None:
        """The vector is gone. A garbage collector may run this in any thread, so it waits for nothing."""
        published.retired = True
        if self._by_vector.get(key) is published:
            self._by_vector.pop(key, None)
        self._dead.append(published)
        self._wake()


def _write(folder: Path, layout: AdapterLayout, vector: Tensor, dtype: torch.dtype) -> None:
    """The adapter in peft's format."""
    tensors: dict[str, Tensor] = {}
    for layer, a_RI, b_OR in layout.views(vector.detach().to(device="cpu", dtype=dtype)):
        tensors[f"base_model.model.{layer}.lora_A.weight"] = a_RI.clone()
        tensors[f"base_model.model.{layer}.lora_B.weight"] = b_OR.clone()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": layout.lora.rank,
        "lora_alpha": layout.lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({site.name.rsplit(".", 1)[-1] for site in layout.sites}),
    }
    folder.mkdir(mode=0o700)
    write_new(folder / "adapter_config.json", json.dumps(config).encode())
    write_new(folder / "adapter_model.safetensors", save(tensors))


def _parent() -> Path:
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def _own_folder(parent: Path) -> tuple[Path, IO[bytes]]:
    """A new folder, held by a lock of the kernel that ends with the process; those whose process ended are removed."""
    for other in parent.glob(f"{_PREFIX}*"):
        _remove_if_left_behind(other)
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    held = (root / _LOCK).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return root, held


def _remove_if_left_behind(folder: Path) -> None:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            logger.info("removing %s, which a process that ended left behind", folder)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # held by its process, somebody else's, or just being made
        return
