"""A look inside a policy of this process: what a session has learned, bit for bit, and faults to plant."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Completion, Message, Receipt
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.session import Session

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
GRPO = GrpoConfig(learning_rate=3e-3, beta=0.1, reference_sync_steps=3, weight_decay=0.1)


def opened(policy: LocalPolicy, name: str, rank: int = 3, seed: int = 0) -> str:
    policy.open(name, lora=LoraConfig(rank=rank), seed=seed)
    return name


def inner(policy: LocalPolicy, name: str) -> Session:
    return policy._sessions._open[name]


def draw(policy: LocalPolicy, name: str, seed: int, n: int = 3, **options: Any) -> list[Completion]:
    options = {"max_tokens": 8, "temperature": 0.7, **options}
    return policy.sample(name, version=inner(policy, name).version, messages=ASK, n=n, seed=seed, **options)


def learn(policy: LocalPolicy, name: str, seed: int, grpo: GrpoConfig = GRPO, **options: Any) -> Receipt:
    """One update that rewards the first sample."""
    rewards = {sample.sample_id: float(at == 0) for at, sample in enumerate(draw(policy, name, seed))}
    return policy.internalize(name, version=inner(policy, name).version, rewards=rewards, grpo=grpo, **options)


def base_digests(policy: LocalPolicy) -> dict[str, str]:
    """sha256 of every parameter and buffer of the base, by the name it had before any adapter came."""
    model = policy._engine._loaded.model
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name.replace(".base_layer", ""): hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
        if ".lora_" not in name
    }


def learned(session: Session) -> dict[str, Any]:
    """All that a session has learned, tensors as bytes."""

    def exactly(tensor: Tensor | None) -> bytes | None:
        return None if tensor is None else tensor.numpy().tobytes()

    moments = session.moments
    return {
        "version": session.version,
        "vectors": {version: exactly(vector) for version, vector in session.vectors.items()},
        "moments": moments and (exactly(moments.first), exactly(moments.second), moments.steps),
        "reference": exactly(session.reference),
        "steps": (session.steps, session.steps_since_sync),
    }


@contextmanager
def after_steps(steps: int, act: Callable[[], object]) -> Iterator[None]:
    """`act` once the optimizer has taken so many steps; at once for none."""
    taken = 0

    def count(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == steps:
            act()

    if steps == 0:
        act()
    handle = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        handle.remove()


class Fault:
    """A fault in the last decoder layer, from the moment it is planted."""

    def __init__(self, policy: LocalPolicy, spoil: Callable[[Tensor], Tensor | None]) -> None:
        layers: Any = policy._engine._loaded.model.get_decoder().layers
        self._spoil = spoil
        self._layer: nn.Module = layers[-1]

    def plant(self) -> None:
        self._handle = self._layer.register_forward_hook(lambda module, inputs, output: self._spoil(output))

    def remove(self) -> None:
        self._handle.remove()


def to_nan(hidden: Tensor) -> Tensor:
    return hidden * float("nan")


def to_infinite_gradient(hidden: Tensor) -> None:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]


def to_a_gradient_too_large_for_its_norm(hidden: Tensor) -> None:
    """Each number is finite, the sum of their squares is not: clipped by that norm, no step would be left."""
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient * 1e28)  # type: ignore[no-untyped-call]


def to_a_crash_in_the_backward_pass(hidden: Tensor) -> None:
    def crash(gradient: Tensor) -> None:
        raise MemoryError("planted")

    if hidden.requires_grad:
        hidden.register_hook(crash)  # type: ignore[no-untyped-call]
