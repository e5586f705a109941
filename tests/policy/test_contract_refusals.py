"""What every implementation of the policy contract refuses, and that nothing is lost by it."""

from typing import Any

import pytest

from pot_agent.config import LoraConfig
from pot_agent.errors import (
    CannotLearnError,
    ConfigError,
    ContextLengthError,
    SampleError,
    SessionConflictError,
    SessionNotFoundError,
    VersionError,
)
from pot_agent.policy.base import Policy
from tests.policy.contract import ASK, GRPO, LORA, OTHER, draw, learn, opened


def test_other_arguments_for_an_open_session_are_a_conflict(policy: Policy) -> None:
    session = opened(policy, seed=3)
    with pytest.raises(SessionConflictError, match="seed=3, not"):
        policy.open(session, lora=LORA, seed=4)
    with pytest.raises(SessionConflictError):
        policy.open(session, lora=None, seed=3)
    policy.close(session)
    assert policy.open(session, lora=None, seed=4).version == 0


def test_old_versions_are_let_go_and_the_error_names_those_kept(policy: Policy) -> None:
    session = opened(policy)
    for version in range(3):
        learn(policy, session, version=version, seed=version)
    for version in (0, 2, 3):
        draw(policy, session, version=version)
    with pytest.raises(VersionError, match="no version 1: the newest is 3, and 0, 2, 3 are kept"):
        draw(policy, session, version=1)
    with pytest.raises(VersionError, match="no version 4"):
        draw(policy, session, version=4)


def test_samples_that_are_no_group_are_refused_and_nothing_is_lost(policy: Policy) -> None:
    session, neighbour = opened(policy), opened(policy)
    group = draw(policy, session)
    ids = [sample.sample_id for sample in group]
    (foreign,) = draw(policy, neighbour, n=1)
    (elsewhere,) = draw(policy, session, n=1, messages=OTHER)
    (greedy,) = draw(policy, session, n=1, temperature=0)
    (hotter,) = draw(policy, session, n=1, temperature=1.3)
    for stranger, complaint in (
        (foreign.sample_id, "has no sample"),
        ("made-up", "has no sample 'made-up'"),
        (elsewhere.sample_id, "2 different prompts"),
        (greedy.sample_id, "greedily"),
        (hotter.sample_id, "2 different temperatures"),
    ):
        with pytest.raises(SampleError, match=complaint):
            policy.internalize(session, version=0, rewards={ids[0]: 1.0, stranger: 0.0}, grpo=GRPO)
    learn(policy, session)
    mixed = {ids[0]: 0.0, draw(policy, session, n=1, version=1)[0].sample_id: 1.0}
    with pytest.raises(SampleError, match="is of version 0, the update of version 1"):
        policy.internalize(session, version=1, rewards=mixed, grpo=GRPO)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "1", None, True])
def test_a_reward_that_is_not_a_finite_number_is_refused(policy: Policy, reward: Any) -> None:
    session = opened(policy)
    group = draw(policy, session, n=2)
    rewards = {group[0].sample_id: 1.0, group[1].sample_id: reward}
    with pytest.raises(SampleError, match="finite number"):
        policy.internalize(session, version=0, rewards=rewards, grpo=GRPO)


def test_a_session_without_an_adapter_samples_and_cannot_learn(policy: Policy) -> None:
    session = opened(policy, lora=None)
    group = draw(policy, session)
    with pytest.raises(CannotLearnError, match="without an adapter"):
        policy.internalize(session, version=0, rewards={s.sample_id: float(i) for i, s in enumerate(group)}, grpo=GRPO)


def test_a_closed_session_is_not_found_and_closing_twice_is_no_error(policy: Policy) -> None:
    session = opened(policy)
    (sample,) = draw(policy, session, n=1)
    policy.close(session)
    policy.close(session)
    with pytest.raises(SessionNotFoundError, match=session):
        draw(policy, session)
    with pytest.raises(SessionNotFoundError):
        policy.score(session, version=0, sample_ids=[sample.sample_id])
    with pytest.raises(SessionNotFoundError):
        policy.internalize(session, version=0, rewards={sample.sample_id: 1.0}, grpo=GRPO)
    for call in (policy.snapshot, policy.restore):
        with pytest.raises(SessionNotFoundError, match=session):
            call(session)


def test_a_prompt_beyond_the_context_names_the_limit(policy: Policy) -> None:
    session = opened(policy)
    with pytest.raises(ContextLengthError, match="512"):
        draw(policy, session, messages=[{"role": "user", "content": "add " * 2000}])
    with pytest.raises(ContextLengthError, match="500 more"):
        draw(policy, session, max_tokens=500)
    room = policy.capabilities.context_tokens - policy.count_tokens(ASK)
    with pytest.raises(ContextLengthError):
        draw(policy, session, n=1, max_tokens=room + 1)
    assert draw(policy, session, n=1, max_tokens=room, temperature=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"n": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": 1e-38},
        {"max_tokens": 0},
        {"stop": [""]},
    ],
    ids=str,
)
def test_arguments_that_cannot_be_are_refused(policy: Policy, wrong: dict[str, Any]) -> None:
    session = opened(policy)
    with pytest.raises(ConfigError):
        draw(policy, session, **wrong)


def test_targets_that_the_model_does_not_have_are_refused_when_the_session_is_opened(policy: Policy) -> None:
    with pytest.raises(ConfigError, match="q_proj"):
        policy.open("targets", lora=LoraConfig(targets=("nowhere",)))
    with pytest.raises(ConfigError, match="dropout must be 0"):
        policy.open("dropout", lora=LoraConfig(dropout=0.1))


@pytest.mark.parametrize("rank", [25, 10**9])
def test_a_rank_beyond_the_smallest_side_is_refused_when_the_session_is_opened(policy: Policy, rank: int) -> None:
    if policy.capabilities.sampler == "vllm":
        pytest.skip("the figures are the tiny model's; vLLM's own limit has a test of its own")
    with pytest.raises(ConfigError, match=r"rank must be at most 24, .*[kv]_proj") as caught:
        policy.open("rank", lora=LoraConfig(rank=rank))
    assert caught.value.value == rank
    with pytest.raises(ConfigError, match=r"rank must be at most 48, .*q_proj"):
        policy.open("rank", lora=LoraConfig(rank=49, targets=("q_proj",)))
    learn(policy, opened(policy, LoraConfig(rank=24)))


def test_scores_of_more_than_1024_samples_at_once_are_refused(policy: Policy) -> None:
    session = opened(policy)
    (sample,) = draw(policy, session, n=1, max_tokens=1)
    with pytest.raises(ConfigError, match="sample_ids must be at most 1,024, got 1,025"):
        policy.score(session, version=0, sample_ids=[sample.sample_id] * 1025)
    with pytest.raises(ConfigError, match="sample_ids must be a list"):
        policy.score(session, version=0, sample_ids=sample.sample_id)
    assert len(policy.score(session, version=0, sample_ids=[sample.sample_id] * 1024)) == 1024
