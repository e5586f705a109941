"""Base models by name: a hub id, a folder, a GGUF file, or `embedded`.

Limits: causal language models whose every layer is attention (no recurrent or convolutional ones: their caches cannot
be shared between completions); no code from a model's repository is ever run; nothing is downloaded for a name that is
on this machine already.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from pot_agent.errors import ConfigError, ModelNotFoundError
from pot_agent.policy.conversion import convert
from pot_agent.policy.embedded import (
    EMBEDDED,
    EMBEDDED_HUB_ID,
    EMBEDDED_NAME,
    find_embedded,
    places_of_the_embedded,
    setup_embedded,
)

__all__ = ["LoadedModel", "find_embedded", "load_model", "setup_embedded"]

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
FALLBACK_CONTEXT_TOKENS = 2048
HUB_TIMEOUT_SECONDS = 5.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SAYS_NOTHING = ("model", "ggml-model", "weights")
"""Names of files that tell of no model; the folder's name is put before them."""
_WEIGHTS = ("*.safetensors",)
_WEIGHTS_NAME = "weights (*.safetensors)"
_CONVERT = (
    "where you trust it, convert it with transformers, "
    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
_GET_ONE = "give a hub id, a model folder, a GGUF file, or `embedded` (fetched by `pot setup`)"
_OTHER_LAYERS = ("linear_attention", "mamba", "conv", "recurrent", "hybrid")


@dataclass(frozen=True)
class LoadedModel:
    """A base model, frozen and in evaluation mode, with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    context_tokens: int
    parameters: int
    folder: Path | None = None
    """Where it was read from."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        dtype: torch.dtype = self.model.dtype
        return dtype


def load_model(
    model: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    home: Path | None = None,
    context_tokens: int | None = None,
) -> LoadedModel:
    """Load a base model.

    `device=None`: cuda where there is one, else cpu. `dtype=None`: bfloat16 on a GPU, float32 on a CPU (gradients and
    log-probabilities are then exact to rounding, and nothing here depends on bf16 units). `context_tokens` lowers the
    model's own limit, and never raises it.
    Raises `ModelNotFoundError`, `DiskFullError`, `ConfigError`.
    """
    target = resolve_device(device)
    kind = resolve_dtype(dtype, target)
    folder, name = locate_model(model, home or Path.home() / ".cache" / "policy-of-thoughts")
    with _quiet():
        network, tokenizer = _read_folder(folder, kind)
    _check_layers(network.config, name)
    own = _context_tokens(network.config, tokenizer, name)
    network = network.to(target).eval().requires_grad_(False)
    return LoadedModel(
        model=network,
        tokenizer=tokenizer,
        name=name,
        context_tokens=min(own, context_tokens or own),
        parameters=network.num_parameters(),
        folder=folder,
    )


def locate_model(model: str, home: Path) -> tuple[Path, str]:
    """The folder of a model, fetched or converted where it must be, and its name. Raises `ModelNotFoundError`."""
    with _quiet():
        return _locate(model, home)


def resolve_device(device: str | None) -> torch.device:
    """The torch device of that name; `ConfigError` for one that is not here."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {device!r} cannot be used here ({reason}); try `cpu`", value=device) from error
    return found


def resolve_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """The torch dtype of that name, or the device's default."""
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}", value=dtype)
    return DTYPES[dtype]


def _locate(model: str, home: Path) -> tuple[Path, str]:
    if not isinstance(model, str) or not model.strip() or "\x00" in model:
        raise ConfigError(f"model must be a hub id, a folder, a GGUF file or `embedded`, got {model!r}", value=model)
    if model == EMBEDDED:
        return _locate_embedded(home), EMBEDDED_NAME
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked_folder(path), path.resolve().name
    if path.is_file() or path.suffix == ".gguf":
        if not path.is_file():
            raise ModelNotFoundError(f"no such GGUF file: {path}; {_GET_ONE}", value=model)
        said = path.stem.lower() not in _SAYS_NOTHING
        return convert(path, home), path.stem if said else f"{path.resolve().parent.name}/{path.stem}"
    if not _HUB_ID.fullmatch(model):
        raise ModelNotFoundError(f"no such model folder or file: {path}; {_GET_ONE}", value=model)
    return _from_hub(model, f"neither a folder nor a file here; {_GET_ONE}"), model


def _locate_embedded(home: Path) -> Path:
    found = find_embedded(home)
    if found is None:
        return _from_hub(EMBEDDED_HUB_ID, places_of_the_embedded(home), asked="embedded")
    return found if found.is_dir() else convert(found, home)


def _checked_folder(folder: Path) -> Path:
    wanted = {"config.json": ("config.json",), _WEIGHTS_NAME: _WEIGHTS, "a tokenizer": _TOKENIZERS}
    missing = [what for what, patterns in wanted.items() if not any(any(folder.glob(p)) for p in patterns)]
    if missing:
        hint = "; it holds a GGUF file: name that file" if any(folder.glob("*.gguf")) else ""
        if _WEIGHTS_NAME in missing and any(folder.glob("*.bin")):
            hint = f"; its *.bin is a pickle, which can run code, and is never read: {_CONVERT}"
        raise ModelNotFoundError(
            f"the model folder {folder} has no {', no '.join(missing)}{hint}; {_GET_ONE}", value=str(folder)
        )
    return folder


def _from_hub(hub_id: str, otherwise: str, *, asked: str | None = None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return _checked_folder(Path(snapshot_download(hub_id, local_files_only=True)))
    except (OSError, ValueError):
        logger.debug("%s is not in the hub's cache", hub_id)
    import httpx

    try:
        fetched = snapshot_download(hub_id, etag_timeout=HUB_TIMEOUT_SECONDS, allow_patterns=_HUB_FILES)
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise ModelNotFoundError(
            f"no model {asked or hub_id!r}: {otherwise} (the hub: {reason})", value=asked or hub_id
        ) from None
    return _checked_folder(Path(fetched))


def _read_folder(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model, loading = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # whatever a loader raises for a broken folder, the folder is what is wrong
        reason = " ".join(str(error).split())[:300]
        if "trust_remote_code" in reason:
            reason = "it needs code from its repository, and such code is never run"
        raise ModelNotFoundError(
            f"the model folder {folder} cannot be loaded ({type(error).__name__}: {reason}); {_GET_ONE}",
            value=str(folder),
        ) from error
    missing = sorted(loading["missing_keys"])  # tied ones are not among them; these have random numbers
    if missing:
        raise ModelNotFoundError(
            f"the weights in {folder} lack {len(missing):,} of the model's tensors ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}); fetch the model again, or {_GET_ONE}",
            value=str(folder),
        )
    return model, tokenizer


def _check_layers(config: Any, name: str) -> None:
    kinds = {str(kind) for kind in getattr(config, "layer_types", None) or ()}
    other = sorted(kind for kind in kinds if any(part in kind for part in _OTHER_LAYERS))
    if other:
        raise ConfigError(
            f"{name} has layers that are not attention ({', '.join(other)}), whose state cannot be shared between the "
            "completions of a prompt; choose a model with attention only",
            value=name,
        )


def _context_tokens(config: Any, tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    for limit in (getattr(config, "max_position_embeddings", None), tokenizer.model_max_length):
        if isinstance(limit, int) and 0 < limit < 10**9:
            return limit
    logger.warning("%s does not say how long its context is; %s tokens are assumed", name, FALLBACK_CONTEXT_TOKENS)
    return FALLBACK_CONTEXT_TOKENS


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars of transformers on standard error while a model loads."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
