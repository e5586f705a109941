"""Which sampler, and how large: decided before it is loaded.

Limits: `auto` takes vLLM on a GPU alone, where it is installed and a second copy of the weights fits; on a CPU the
transformers sampler is faster for one problem, and vLLM (whose CPU build must be asked for by name) for many at once.
"""

import importlib.util
import logging
from collections.abc import Mapping

from torch import nn

from pot_agent.errors import ConfigError
from pot_agent.policy.decoding import FastForward
from pot_agent.policy.head import Head
from pot_agent.policy.models import LoadedModel
from pot_agent.policy.sampler import Sampler as TransformersSampler
from pot_agent.policy.samplers import Sampler
from pot_agent.policy.sizes import SamplerName, SamplerSizes
from pot_agent.policy.text import Chat

logger = logging.getLogger(__name__)

GIB = 1024**3


def make_sampler(
    wanted: SamplerName,
    loaded: LoadedModel,
    chat: Chat,
    linears: Mapping[str, nn.Linear],
    head: Head,
    sizes: SamplerSizes,
) -> Sampler:
    """The sampler asked for, or the one that `auto` means here."""
    on_gpu = loaded.device.type != "cpu"
    if wanted == "vllm" or (wanted == "auto" and on_gpu and importlib.util.find_spec("vllm")):
        return _vllm(loaded, chat, sizes)
    return TransformersSampler(loaded, chat, FastForward(loaded.model, linears), head)


def _vllm(loaded: LoadedModel, chat: Chat, sizes: SamplerSizes) -> Sampler:
    from pot_agent.policy.vllm_engine import VllmOptions, rank_for
    from pot_agent.policy.vllm_sampler import VllmSampler

    if loaded.folder is None:
        raise ConfigError("vLLM reads a model from its folder, and this one has none", value=loaded.name)
    options = VllmOptions(
        folder=loaded.folder,
        dtype=str(loaded.dtype).removeprefix("torch."),
        context_tokens=loaded.context_tokens,
        max_rank=rank_for(sizes.max_rank),
        slots=sizes.lora_slots,
        rows=sizes.rows,
        kv_cache_bytes=GIB,
        memory_fraction=0.4,
        eager=loaded.device.type == "cpu",
    )
    return VllmSampler(options, chat, dtype=loaded.dtype, device=loaded.device)
