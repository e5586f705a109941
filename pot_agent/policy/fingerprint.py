"""A digest of a model's weights: an adapter means nothing on another base.

Limits: it reads every byte (1 to 5 seconds a GB), weights on a GPU by way of main memory, one tensor at a time.
"""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, those that are shared once, and the buffers that are saved with them: no copies."""
    saved = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    return {**dict(model.named_parameters()), **buffers}


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
