"""A prompt that is kept gives what running it again gives, bit for bit, and is never another's or out of date."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pot_agent.policy.engine import Engine
from pot_agent.policy.kept_prompts import KeptPrompt, KeptPrompts
from pot_agent.policy.lean_attention import PromptAttention
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.sampler import Drawn
from tests.policy.contract import GRPO, LORA, draw, opened, told


class Keeper:
    """Stands for a session's journal."""


@pytest.fixture(scope="module")
def engine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path_factory.mktemp("home"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each part of a prompt that a layer was asked to run."""
    found: list[int] = []
    own = PromptAttention.attend

    def attend(self: PromptAttention, queries: Tensor, *rest: Any) -> Tensor:
        found.append(len(queries))
        return own(self, queries, *rest)

    monkeypatch.setattr(PromptAttention, "attend", attend)
    return found


def drawn(engine: Engine, vector: Tensor | None, keeper: object, prompt: str = "Add two numbers.", **other: Any) -> Any:
    options = {"n": 3, "temperature": 0.9, "max_tokens": 12, "seed": "s", "stop": (), "check": lambda: None, **other}
    ids = engine.chat.encode([{"role": "user", "content": prompt}])
    rows = engine.draw(engine.request(prompt_ids=ids, keeper=keeper, **options), engine.layout(LORA), vector)
    return exactly(rows)


def exactly(rows: list[Drawn]) -> list[Any]:
    return [(row.ids, row.logprobs, row.finish) for row in rows]


@pytest.mark.parametrize("adapted", [False, True])
def test_a_draw_from_a_kept_prompt_is_bit_for_bit_the_draw_that_runs_it(
    engine: Engine, runs: list[int], adapted: bool
) -> None:
    vector = engine.noisy(engine.layout(LORA), 1, 0.3) if adapted else None
    keeper = Keeper()
    drawn(engine, vector, keeper)
    once = len(runs)
    for other in ({}, {"n": 1, "temperature": 0.0}, {"n": 5, "max_tokens": 20, "seed": "t"}):
        kept = drawn(engine, vector, keeper, **other)
        assert len(runs) == once
        assert kept == drawn(engine, vector, None, **other)
        del runs[once:]


def test_a_prompt_of_another_session_version_or_text_is_run_anew(engine: Engine, runs: list[int]) -> None:
    one, other = (engine.noisy(engine.layout(LORA), seed, 0.3) for seed in (1, 2))
    keeper = Keeper()
    drawn(engine, one, keeper)
    for vector, who, prompt in (
        (other, keeper, "Add two numbers."),
        (one, keeper, "Add two numbers!"),
        (one.clone(), keeper, "Add two numbers!"),
        (None, keeper, "Add two numbers!"),
        (None, Keeper(), "Add two numbers!"),
    ):
        before = len(runs)
        found = drawn(engine, vector, who, prompt)
        assert len(runs) > before
        assert found == drawn(engine, vector, None, prompt)


def test_weights_that_were_written_to_are_another_version(engine: Engine) -> None:
    vector, keeper = engine.noisy(engine.layout(LORA), 1, 0.3), Keeper()
    before = drawn(engine, vector, keeper)
    vector.mul_(2.0)  # not -1: (-B)(-A) is BA
    after = drawn(engine, vector, keeper)
    assert after != before
    assert after == drawn(engine, vector.clone(), None)


def test_one_prompt_a_keeper_is_kept_and_the_longest_unused_make_room() -> None:
    def prompt(tokens: int) -> KeptPrompt:
        return KeptPrompt([(torch.zeros(1, 4, tokens), torch.zeros(1, tokens, 4))], torch.zeros(1, 4), tokens)

    prompts, keepers = KeptPrompts(most_bytes=32 * 10), [Keeper() for _ in range(4)]
    places = [prompts.place(keeper, [1, 2], None, None) for keeper in keepers]
    for place, tokens in zip(places, (4, 4, 2, 11), strict=True):
        assert place is not None
        place.keep(prompt(tokens))
    one, two, three, too_long = (place for place in places if place is not None)
    assert too_long.find() is None
    assert one.find() is not None  # and is the newest used now
    three.keep(prompt(4))
    assert two.find() is None
    assert one.find() is not None
    assert three.find() is not None
    assert prompts.place(keepers[0], [1, 3], None, None).find() is None  # type: ignore[union-attr]
    assert KeptPrompts(0).place(keepers[0], [1], None, None) is None
    assert prompts.place(None, [1], None, None) is None


@pytest.fixture
def policies(tiny: Path) -> Iterator[tuple[LocalPolicy, LocalPolicy]]:
    """One that keeps prompts, and one that does not."""
    with LocalPolicy(str(tiny), threads=1) as keeping, LocalPolicy(str(tiny), threads=1) as forgetting:
        forgetting._engine._sampler._kept = KeptPrompts(0)  # type: ignore[attr-defined]
        yield keeping, forgetting


def iteration(policy: LocalPolicy, session: str, version: int) -> list[Any]:
    """Propose, learn, commit: all that can be seen of it."""
    group = draw(policy, session, version=version, seed=version)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    receipt = policy.internalize(session, version=version, rewards=rewards, grpo=GRPO)
    commit = draw(policy, session, version=version + 1, n=1, temperature=0.0)
    prior = policy.score(session, version=version + 1, sample_ids=[commit[0].sample_id], temperature=1.0)
    numbers = (receipt.loss, receipt.kl, receipt.grad_norm, receipt.adapter_norm, receipt.canary, receipt.canary_gap)
    return [told(group), numbers, told(commit), prior]


def test_a_run_that_keeps_prompts_is_bit_for_bit_one_that_does_not(
    policies: tuple[LocalPolicy, LocalPolicy], runs: list[int]
) -> None:
    found, prompts = [], []
    for policy in policies:
        session = opened(policy, seed=3)
        runs.clear()
        found.append([iteration(policy, session, version) for version in range(3)])
        prompts.append(len(runs))
    assert found[0] == found[1]
    layers = 2
    assert prompts == [4 * layers, 9 * layers]  # the commit, and the next draw at the root, go on from the canary's


def test_what_is_kept_ends_with_its_session(policies: tuple[LocalPolicy, LocalPolicy]) -> None:
    policy, _ = policies
    sessions = [opened(policy, seed=seed) for seed in range(3)]
    for session in sessions:
        iteration(policy, session, 0)
    entries = policy._engine._sampler._kept._entries  # type: ignore[attr-defined]
    assert len(entries) == 3
    for session in sessions:
        policy.close(session)
    gc.collect()
    assert len(entries) == 0
