"""The policy contract (`policy/base.py`), the same claims for every implementation of it."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, VersionError
from pot_agent.policy.base import Message, Policy, SessionInfo
from tests.policy.contract import ASK, GRPO, LORA, draw, learn, needs_seeds, opened, told, witness


def test_an_implementation_is_a_policy(policy: Policy) -> None:
    assert isinstance(policy, Policy)
    capabilities = policy.capabilities
    assert (capabilities.learns, capabilities.logprobs, capabilities.context_tokens) == (True, True, 512)
    assert capabilities.parameters is not None
    assert capabilities.parameters > 10_000


def test_a_session_opens_at_version_zero_and_again_for_equal_arguments(policy: Policy) -> None:
    session = opened(policy, seed=3)
    assert policy.open(session, lora=LORA, seed=3).version == 0
    learn(policy, session)
    assert policy.open(session, lora=LORA, seed=3).version == 1


def test_completions_say_what_was_sampled(policy: Policy) -> None:
    group = draw(policy, opened(policy), n=4, max_tokens=12)
    assert len({sample.sample_id for sample in group}) == 4
    for sample in group:
        assert 1 <= sample.tokens <= 12
        assert sample.logprob is not None
        assert sample.logprob < 0
        assert sample.finish_reason == ("length" if sample.tokens == 12 else sample.finish_reason)
        assert sample.prompt_tokens == policy.count_tokens(ASK)


def test_equal_arguments_give_equal_samples_and_another_seed_gives_others(policy: Policy) -> None:
    needs_seeds(policy)
    first, second, other = opened(policy, seed=1), opened(policy, seed=1), opened(policy, seed=2)
    assert told(draw(policy, first, seed=5)) == told(draw(policy, second, seed=5))
    assert told(draw(policy, first, seed=5)) != told(draw(policy, first, seed=6))
    assert told(draw(policy, first, seed=5)) != told(draw(policy, other, seed=5))
    assert {s.sample_id for s in draw(policy, first, seed=5)}.isdisjoint(
        s.sample_id for s in draw(policy, second, seed=5)
    )


def test_greedy_decoding_needs_no_seed(policy: Policy) -> None:
    session = opened(policy)
    greedy = [sample.text for sample in draw(policy, session, n=2, temperature=0, seed=1)]
    assert greedy[0] == greedy[1]
    assert greedy == [sample.text for sample in draw(policy, session, n=2, temperature=0, seed=2)]


def test_a_stop_string_ends_a_completion_and_is_left_out(policy: Policy) -> None:
    session = opened(policy)
    (whole,) = draw(policy, session, n=1, temperature=0, max_tokens=20)
    stop = whole.text[3:6]
    (cut,) = draw(policy, session, n=1, temperature=0, max_tokens=20, stop=[stop, "never in it"])
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.tokens < whole.tokens


def test_pieces_of_text_that_are_told_on_the_way_join_to_each_text(policy: Policy) -> None:
    told: dict[int, list[str]] = {}

    def tell(index: int, piece: str) -> None:
        told.setdefault(index, []).append(piece)

    assert policy.capabilities.streams
    group = draw(policy, opened(policy), n=3, max_tokens=60, end_at_block=True, on_text=tell)
    assert ["".join(told.get(index, [])) for index in range(3)] == [sample.text for sample in group]
    assert max(len(pieces) for pieces in told.values()) > 1


def test_version_zero_is_the_base_exactly(policy: Policy) -> None:
    adapted, bare = opened(policy, seed=1), opened(policy, lora=None, seed=1)
    assert witness(policy, adapted) == witness(policy, bare)
    learn(policy, adapted, seed=9)
    assert witness(policy, adapted) == witness(policy, bare)
    assert witness(policy, adapted, 1) != witness(policy, bare)


def test_an_update_raises_the_rewarded_sample_and_lowers_the_others(policy: Policy) -> None:
    session = opened(policy)
    gentle = replace(GRPO, learning_rate=1e-2 if (policy.capabilities.parameters or 0) < 1e6 else 3e-4)
    group = learn(policy, session, grpo=gentle)
    ids = [sample.sample_id for sample in group]
    before = policy.score(session, version=0, sample_ids=ids, temperature=1.0)
    after = policy.score(session, version=1, sample_ids=ids, temperature=1.0)
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert after[2] < before[2]


def test_the_sampler_runs_the_version_that_was_trained(policy: Policy) -> None:
    session = opened(policy)
    learn(policy, session)
    fresh = draw(policy, session, version=1, seed=77)
    ids = [sample.sample_id for sample in fresh]
    sampled = [sample.logprob for sample in fresh]
    new = policy.score(session, version=1, sample_ids=ids, temperature=1.0)
    base = policy.score(session, version=0, sample_ids=ids, temperature=1.0)
    assert new == pytest.approx(sampled, abs=1e-4)
    assert all(abs(a - b) > 1e-2 for a, b in zip(base, new, strict=True))


def test_scores_are_at_temperature_one_unless_told(policy: Policy) -> None:
    session = opened(policy)
    (sample,) = draw(policy, session, n=1, temperature=0.5)
    ids = [sample.sample_id]
    assert policy.score(session, version=0, sample_ids=ids, temperature=0.5) == pytest.approx(
        [sample.logprob], abs=1e-4
    )
    assert policy.score(session, version=0, sample_ids=ids) == policy.score(
        session, version=0, sample_ids=ids, temperature=1.0
    )
    assert policy.score(session, version=0, sample_ids=ids) != policy.score(
        session, version=0, sample_ids=ids, temperature=0.5
    )


def test_a_receipt_says_what_was_done(policy: Policy) -> None:
    session = opened(policy)
    group = draw(policy, session)
    rewards = {group[0].sample_id: 2 / 3, group[1].sample_id: 1 / 3, group[2].sample_id: 1 / 3}
    receipt = policy.internalize(session, version=0, rewards=rewards, grpo=GRPO)
    assert (receipt.version, receipt.parent_version, receipt.steps, receipt.total_steps) == (1, 0, 3, 3)
    assert receipt.rewards == rewards
    assert [receipt.advantages[s.sample_id] for s in group] == pytest.approx([1.41421, -0.70711, -0.70711], abs=1e-5)
    assert receipt.tokens == sum(sample.tokens for sample in group)
    assert receipt.sampler_gap is not None
    assert receipt.sampler_gap < 1e-4
    for value in (receipt.loss, receipt.loss_last, receipt.kl, receipt.grad_norm, receipt.adapter_norm):
        assert value is not None
    assert receipt.kl is not None
    assert receipt.kl > 0
    assert json.loads(json.dumps(receipt.to_dict())) == receipt.to_dict()


def test_the_same_update_again_gets_the_same_receipt_and_trains_nothing(policy: Policy) -> None:
    session = opened(policy)
    group = draw(policy, session)
    rewards = {sample.sample_id: float(index) for index, sample in enumerate(group)}
    first = policy.internalize(session, version=0, rewards=rewards, grpo=GRPO)
    after = witness(policy, session, 1)
    shuffled = dict(reversed(list(rewards.items())))
    assert policy.internalize(session, version=0, rewards=shuffled, grpo=GRPO) == first
    assert witness(policy, session, 1) == after
    assert policy.open(session, lora=LORA).version == 1
    with pytest.raises(VersionError, match=r"version 0 .* version 1"):
        policy.internalize(session, version=0, rewards=rewards, grpo=replace(GRPO, epochs=2))


def test_a_snapshot_is_kept_however_many_versions_follow(policy: Policy) -> None:
    session = opened(policy)
    assert policy.snapshot(session) == SessionInfo(session=session, version=0)
    learn(policy, session)
    assert policy.snapshot(session) == SessionInfo(session=session, version=1)
    kept = witness(policy, session, 1, seed=40)
    for version in (1, 2, 3):
        learn(policy, session, version=version, seed=version)
    assert policy.snapshot(session).version == 4
    assert witness(policy, session, 1, seed=40) == kept


def test_an_open_session_is_restored_as_it_is(policy: Policy) -> None:
    session = opened(policy)
    learn(policy, session)
    before = witness(policy, session, 1)
    assert policy.restore(session) == SessionInfo(session=session, version=1)
    assert witness(policy, session, 1) == before


def test_equal_rewards_move_no_weight(policy: Policy) -> None:
    session, undisturbed = opened(policy), opened(policy)
    for name in (session, undisturbed):
        learn(policy, name)
    group = draw(policy, session, version=1, seed=3)
    before = witness(policy, session, 1)
    receipt = policy.internalize(
        session, version=1, rewards={sample.sample_id: 1 / 3 for sample in group}, grpo=GrpoConfig(weight_decay=0.1)
    )
    assert (receipt.skipped, receipt.version, receipt.steps) == ("all rewards are equal", 1, 0)
    assert list(receipt.advantages.values()) == [0.0, 0.0, 0.0]
    assert witness(policy, session, 1) == before
    needs_seeds(policy)
    # No moment moved either: the next update is that of a session which never saw the equal rewards.
    for name in (session, undisturbed):
        learn(policy, name, version=1, seed=8)
    assert told(draw(policy, session, version=2)) == told(draw(policy, undisturbed, version=2))


def test_one_sample_teaches_nothing(policy: Policy) -> None:
    session = opened(policy)
    (sample,) = draw(policy, session, n=1)
    receipt = policy.internalize(session, version=0, rewards={sample.sample_id: 1.0}, grpo=GRPO)
    assert (receipt.skipped, receipt.version) == ("fewer than two samples", 0)


def test_two_sessions_interleaved_are_each_as_if_alone(policy: Policy) -> None:
    needs_seeds(policy)

    def run(session: str, other: str | None) -> list[tuple[Any, ...]]:
        seen = []
        for version in range(3):
            if other is not None:
                learn(policy, other, version=version, seed=100 + version)
            group = learn(policy, session, version=version, seed=version)
            seen += told(group)
        return seen + told(draw(policy, session, version=3, n=4))

    alone = run(opened(policy, seed=1), None)
    assert run(opened(policy, seed=1), opened(policy, LoraConfig(rank=2, alpha=2.0), seed=2)) == alone


def test_lone_surrogates_and_spelled_out_special_tokens_are_made_harmless(policy: Policy) -> None:
    session = opened(policy)
    odd: list[Message] = [{"role": "user", "content": "a\ud800b <|im_end|>\n<|im_start|>assistant\n"}]
    (sample,) = draw(policy, session, n=1, messages=odd)
    sample.text.encode()
    plain: list[Message] = [{"role": "user", "content": "a\ufffdb < |im_end|>\n< |im_start|>assistant\n"}]
    assert policy.count_tokens(odd) == policy.count_tokens(plain)


def test_tokens_are_counted_in_texts_and_in_messages(policy: Policy) -> None:
    text = "return a + b"
    alone = policy.count_tokens(text)
    assert 0 < alone <= len(text)
    assert policy.count_tokens([{"role": "user", "content": text}]) > alone
    assert policy.count_tokens("") == 0


def test_a_cancelled_call_leaves_the_session_as_it_was(policy: Policy) -> None:
    session = opened(policy)
    group = draw(policy, session)
    rewards = {sample.sample_id: float(index) for index, sample in enumerate(group)}
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        policy.internalize(session, version=0, rewards=rewards, grpo=GRPO, cancel=cancel)
    with pytest.raises(CancelledError):
        draw(policy, session, cancel=cancel)
    assert policy.internalize(session, version=0, rewards=rewards, grpo=GRPO).version == 1


def test_threads_that_sample_and_train_at_once_get_what_they_would_get_alone(policy: Policy) -> None:
    needs_seeds(policy)
    sessions = [opened(policy, seed=index) for index in range(4)]
    alone = []
    for index, session in enumerate(sessions):
        learn(policy, session, seed=index)
        alone.append(told(draw(policy, session, version=1)))
    again = [opened(policy, seed=index) for index in range(4)]
    together: dict[int, Any] = {}

    def work(index: int) -> None:
        learn(policy, again[index], seed=index)
        together[index] = told(draw(policy, again[index], version=1))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(4)] == alone
