"""The embedded model itself: it is there, it answers, and it learns."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Message
from pot_agent.policy.blocks import end_of_first_block
from pot_agent.policy.local import LocalPolicy
from pot_agent.settings import Settings

ASK: list[Message] = [{"role": "user", "content": "Write a Python function add(a, b) that returns the sum. Only code."}]
STORY: list[Message] = [{"role": "user", "content": "Begin a story about a robot that learns to paint."}]


@pytest.fixture(scope="module")
def embedded() -> Iterator[LocalPolicy]:
    """Converted once into the user's own cache, where `pot setup` puts it too."""
    with LocalPolicy("embedded", home=Settings().home) as policy:
        yield policy


def test_the_embedded_model_writes_python(embedded: LocalPolicy) -> None:
    embedded.open("answer")
    (answer,) = embedded.sample("answer", version=0, messages=ASK, temperature=0, max_tokens=40)
    assert "def add(a, b)" in answer.text
    assert embedded.capabilities.parameters == 134_515_008
    assert embedded.capabilities.context_tokens == 8192


def test_a_thought_can_end_with_its_first_block(embedded: LocalPolicy) -> None:
    embedded.open("block")
    asked = {"version": 0, "messages": ASK, "n": 3, "temperature": 0.7, "max_tokens": 96, "seed": 4}
    whole = embedded.sample("block", **asked)
    ended = embedded.sample("block", **asked, end_at_block=True)
    closed = 0
    for long, short in zip(whole, ended, strict=True):
        end = end_of_first_block(long.text)
        closed += end is not None
        assert short.text == long.text[:end]
        assert short.tokens <= long.tokens
        assert (short.finish_reason == "stop") or end is None
    assert closed == 3
    assert sum(sample.tokens for sample in ended) < sum(sample.tokens for sample in whole)


def test_the_embedded_model_learns_and_its_sampler_follows(embedded: LocalPolicy) -> None:
    embedded.open("learn", lora=LoraConfig(), seed=1)
    group = embedded.sample("learn", version=0, messages=STORY, n=3, temperature=1.2, max_tokens=16, seed=3)
    assert len({sample.text for sample in group}) == 3
    ids = [sample.sample_id for sample in group]
    rewards = dict(zip(ids, (1.0, 0.0, 0.0), strict=True))
    receipt = embedded.internalize("learn", version=0, rewards=rewards, grpo=GrpoConfig(learning_rate=1e-3))
    assert (receipt.version, receipt.steps) == (1, 3)
    assert receipt.sampler_gap is not None
    assert receipt.sampler_gap < 1e-3
    before = embedded.score("learn", version=0, sample_ids=ids)
    after = embedded.score("learn", version=1, sample_ids=ids)
    assert after[0] > before[0]
    assert all(after[i] < before[i] for i in (1, 2))
    (fresh,) = embedded.sample("learn", version=1, messages=STORY, temperature=0, max_tokens=16)
    assert embedded.score("learn", version=1, sample_ids=[fresh.sample_id]) == pytest.approx([fresh.logprob], abs=1e-3)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.long
def test_updates_from_many_threads_give_their_memory_back(embedded: LocalPolicy) -> None:
    """A graph's nodes run in threads of a pool, and the C library keeps freed memory for each of them."""
    held: list[float] = []

    def learn(seed: int) -> None:
        name = f"memory-{seed}"
        embedded.open(name, lora=LoraConfig())
        group = embedded.sample(name, version=0, messages=STORY, n=3, temperature=1.0, max_tokens=64, seed=seed)
        rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
        embedded.internalize(name, version=0, rewards=rewards, grpo=GrpoConfig(epochs=1))
        embedded.close(name)
        held.append(resident_mb())

    for seed in range(4):
        thread = threading.Thread(target=learn, args=(seed,))
        thread.start()
        thread.join()
    assert held[-1] - held[0] < 200, held
