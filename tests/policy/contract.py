"""What the tests of the contract share: a session, a group, one update, and completions without their ids."""

from typing import Any
from uuid import uuid4

import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Completion, Message, Policy

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
OTHER: list[Message] = [{"role": "user", "content": "Print every number below ten."}]
LORA = LoraConfig(rank=4, alpha=8.0)
GRPO = GrpoConfig(learning_rate=1e-2)


def opened(policy: Policy, lora: LoraConfig | None = LORA, seed: int = 0) -> str:
    session = f"test-{uuid4().hex[:8]}"
    policy.open(session, lora=lora, seed=seed)
    return session


def draw(policy: Policy, session: str, *, version: int = 0, **options: Any) -> list[Completion]:
    options = {"messages": ASK, "n": 3, "max_tokens": 10, "temperature": 1.0, **options}
    return policy.sample(session, version=version, **options)


def learn(
    policy: Policy, session: str, *, version: int = 0, seed: int = 0, grpo: GrpoConfig = GRPO
) -> list[Completion]:
    """One update that rewards the first sample; returns the group."""
    group = draw(policy, session, version=version, seed=seed)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    receipt = policy.internalize(session, version=version, rewards=rewards, grpo=grpo)
    assert receipt.skipped is None
    return group


def needs_seeds(policy: Policy) -> None:
    """Skip where draws cannot be repeated."""
    if not policy.capabilities.seeded:
        pytest.skip("this sampler takes no seeds here")


def witness(policy: Policy, session: str, version: int = 0, seed: int = 0) -> list[tuple[Any, ...]]:
    """What a version says, for comparison: equal for equal versions. Exact, but where no seed is taken: greedy then."""
    if policy.capabilities.seeded:
        return told(draw(policy, session, version=version, seed=seed))
    (sample,) = draw(policy, session, version=version, n=1, temperature=0)
    return [(sample.text, sample.tokens, round(sample.logprob or 0.0, 3))]


def told(samples: list[Completion]) -> list[tuple[Any, ...]]:
    """All of a completion but its id."""
    return [(s.text, s.tokens, s.logprob, s.finish_reason, s.prompt_tokens) for s in samples]
