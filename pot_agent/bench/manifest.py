"""What a run is, written before its first problem: enough to run it again, and to refuse to go on with another.

Compared on `--resume` and between shards: data, problems, arms with their whole configuration, seeds, model, budget and
the versions that decide a result. Not compared: the machine, the command, the estimate, the time, Ray's version, and
the longest context, which is what the memory that is free at a start allows.

Limits: a model behind a server is known by what it says of itself; only a model in this process has a digest of its
weights. Versions are of this process; a server's own are not known.
"""

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pot_agent.bench.arms import Arm
from pot_agent.bench.checking import parse_manifest
from pot_agent.bench.record import RECORD_VERSION, Manifest
from pot_agent.bench.results import DiskErrors
from pot_agent.bench.servers import NOT_COMPARED
from pot_agent.bench.sharding import Choice
from pot_agent.errors import RunFolderError
from pot_agent.policy.base import Policy
from pot_agent.policy.files import sync_path
from pot_agent.version import __version__

FILE = "manifest.json"
COMPARED = ("record_version", "benchmark", "data", "methods", "seeds", "model", "budget", "versions")
_PACKAGES = ("torch", "transformers", "peft", "langgraph", "langchain-core", "vllm", "ray")
_DECIDES_NOTHING = frozenset({"ray"})
"""Packages that are told and not compared: where problems run is no part of what a run is."""
_SHOWN = 6


_CREDENTIALS = re.compile(r"://[^/@\s]+@")
"""A name and a password in a URL; a report shows the command."""


def manifest_of(
    *,
    name: str,
    command: Sequence[str],
    benchmark: str,
    data: Mapping[str, Any],
    choice: Choice,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    model: Mapping[str, Any],
    budget: Mapping[str, Any],
) -> Manifest:
    """The manifest of a run on this machine, its estimate still empty; `model` is as `model_of` gives it."""
    ids = [task.id for task in choice.tasks]
    return Manifest(
        record_version=RECORD_VERSION,
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=[_CREDENTIALS.sub("://***@", word) for word in command],
        benchmark=benchmark,
        data={**data, "count": len(ids), "ids": ids, "chosen": choice.how},
        methods={arm.name: _arm(arm, model["parameters"]) for arm in arms},
        seeds=list(seeds),
        model=dict(model),
        budget=dict(budget),
        versions=versions(),
        machine=machine(),
        estimate={},
    )


def _arm(arm: Arm, parameters: int | None) -> dict[str, Any]:
    about = {"method": arm.method.name, "summary": arm.method.summary, "learns": arm.method.learns}
    return {**about, "config": arm.config.to_dict(), "grpo": asdict(arm.config.grpo_for(parameters))}


def model_of(policy: Policy) -> dict[str, Any]:
    """What is known of the model: its capabilities, and the digest of its weights where it is in this process."""
    return {**asdict(policy.capabilities), "base_digest": getattr(policy, "base_digest", None)}


def versions() -> dict[str, str]:
    """Of this package, of Python, and of the libraries that a result rests on."""
    found = {"policy-of-thoughts": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """This machine, as far as it tells."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 1e9, 1),
        "gpus": _gpus(),
    }


def _gpus() -> list[str]:
    torch = sys.modules.get("torch")  # a model behind a server needs none here, and then nothing is loaded to ask
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def read(folder: Path) -> Manifest | None:
    """The manifest of a run's folder; None where there is none. Raises `RunFolderError`."""
    path = folder / FILE
    try:
        return parse_manifest(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}, or choose another folder (--out)", value=path) from error


def write(folder: Path, manifest: Manifest) -> bool:
    """Write it as a whole, unless another process of this run has just done so; whether it was written.

    Raises `DiskFullError`, and `RunFolderError` where the folder cannot be written to.
    """
    path, text = folder / FILE, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    with DiskErrors(path):
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{FILE}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.link(name, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(name)
        sync_path(folder)
    return True


def check_same(folder: Path, found: Manifest, wanted: Manifest) -> None:
    """Raise `RunFolderError` naming what differs, where the run in the folder is not the one that is wanted."""
    different = differences(_compared(found), _compared(json.loads(json.dumps(wanted))))
    if different:
        more = f"; and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        raise RunFolderError(
            f"{folder / FILE} is of another run: {'; '.join(different[:_SHOWN])}{more}. Give the arguments that it was "
            "begun with, or choose another folder (--out)",
            value=different,
        )


def _compared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: manifest.get(name) for name in COMPARED}
    versions = {name: version for name, version in (kept["versions"] or {}).items() if name not in _DECIDES_NOTHING}
    model = {name: value for name, value in (kept["model"] or {}).items() if name not in NOT_COMPARED}
    return {**kept, "model": model, "versions": versions}


def differences(there: Any, wanted: Any, at: str = "") -> list[str]:
    """Where two values of plain JSON differ, each as `path: there -> wanted`."""
    if isinstance(there, Mapping) and isinstance(wanted, Mapping):
        keys = [*there, *(key for key in wanted if key not in there)]
        return [
            found
            for key in keys
            for found in differences(there.get(key), wanted.get(key), f"{at}.{key}" if at else str(key))
        ]
    return [] if there == wanted else [f"{at}: {_short(there)} there, {_short(wanted)} now"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
