"""Self-distillation from feedback, against the same formed by hand over whole sequences and the whole vocabulary."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from pot_agent.config import Divergence, GrpoConfig
from pot_agent.errors import ConfigError, ContextLengthError, SampleError
from pot_agent.policy.base import Message, Policy
from pot_agent.policy.distillation import divergences
from pot_agent.policy.engine import Engine
from pot_agent.policy.head import CHUNK_TOKENS
from tests.policy.blackboard import PROMPT, ROWS, TEMPERATURE, adapter, group_of, naive_logits, nothing, slot_of
from tests.policy.contract import ASK, GRPO, draw, opened, told

KINDS = get_args(Divergence)
READS: list[Message] = [*ASK, {"role": "assistant", "content": "x"}, {"role": "user", "content": "add(1, 2) gave 4"}]
DISTIL = replace(GRPO, distil=1.0)
TEACHERS = (tuple(range(20, 40)), None, (1, 40, 41, 99, 98, 97, 5))


def by_definition(student_NV: Tensor, teacher_NV: Tensor, kind: str) -> Tensor:
    p, q = student_NV.softmax(1), teacher_NV.softmax(1)
    if kind == "reverse":
        return (p * (p / q).log()).sum(1)
    if kind == "forward":
        return (q * (q / p).log()).sum(1)
    m = (p + q) / 2
    return ((p * (p / m).log()).sum(1) + (q * (q / m).log()).sum(1)) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, CHUNK_TOKENS, CHUNK_TOKENS + 3])
def test_divergence_and_gradient_equal_the_definition(kind: Divergence, tokens: int) -> None:
    noise = torch.Generator().manual_seed(tokens)
    weight = torch.randn(31, 8, generator=noise, dtype=torch.float64)
    student, teacher = (torch.randn(tokens, 8, generator=noise, dtype=torch.float64) for _ in range(2))
    scale = torch.rand(tokens, generator=noise, dtype=torch.float64)
    ours, theirs = student.clone().requires_grad_(), student.clone().requires_grad_()
    got = divergences(ours, teacher, lambda hidden: hidden @ weight.T, TEMPERATURE, kind)
    wanted = by_definition(theirs @ weight.T / TEMPERATURE, teacher @ weight.T / TEMPERATURE, kind)
    assert torch.allclose(got, wanted, atol=1e-12)
    (got * scale).sum().backward()
    (wanted * scale).sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    assert got.min() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_that_read_nothing_new_teaches_nothing(kind: Divergence) -> None:
    hidden = torch.randn(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.randn(31, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = divergences(hidden, hidden.detach(), lambda h: h @ weight.T, 1.0, kind)
    found.sum().backward()
    assert found.abs().max() < 1e-12
    assert hidden.grad is not None
    assert hidden.grad.abs().max() < 1e-12


def taught_by_definition(engine: Engine, vector: Tensor, config: GrpoConfig) -> Tensor:
    """The distillation loss with the paper's normalisation, 1/|tau| and the mean over the group."""
    loss = torch.zeros((), dtype=torch.float64)
    for ids, prompt in zip(ROWS, TEACHERS, strict=True):
        if prompt is not None:
            with torch.no_grad():
                teacher = naive_logits(engine, adapter(engine, 1), prompt, ids)
            found = by_definition(naive_logits(engine, vector, PROMPT, ids), teacher, config.distil_divergence)
            loss = loss + config.distil * found.mean() / len(ROWS)
    return loss


@pytest.mark.parametrize("kind", KINDS)
def test_the_updates_gradient_is_that_of_the_definition(exact: Engine, kind: Divergence) -> None:
    config = GrpoConfig(beta=0.0, distil=0.3, distil_divergence=kind)
    flat = torch.zeros(3, dtype=torch.float64)  # advantages of a group of equal rewards: nothing but the teacher
    group = group_of(exact, teachers=TEACHERS, advantages=flat)
    vector = adapter(exact, 1).requires_grad_()
    wanted = taught_by_definition(exact, vector, config)
    wanted.backward()  # type: ignore[no-untyped-call]
    trainer, slot = exact._trainer, slot_of(exact)
    taught = trainer._teachers(slot, group)
    loss, stats, _ = trainer._epoch(
        slot, group.parent, group, trainer._mask(group, config), [], None, config, nothing, teachers=taught
    )
    assert loss == pytest.approx(wanted.item(), abs=1e-10)
    assert stats.distil_loss == pytest.approx(wanted.item(), abs=1e-10)
    assert vector.grad is not None
    assert (slot.gradient() - vector.grad).abs().max() < 1e-10
    assert vector.grad.abs().max() > 1e-4


def test_the_parts_of_the_loss_add_up(exact: Engine) -> None:
    config = GrpoConfig(learning_rate=1e-2, distil=0.5)
    got = exact._trainer.update(slot_of(exact), group_of(exact, teachers=TEACHERS), config, nothing)
    assert got.losses[-1] == pytest.approx(got.policy_loss + got.kl_loss + got.distil_loss, abs=1e-12)
    assert min(abs(got.policy_loss), got.kl_loss, got.distil_loss) > 1e-6


def failed_alike(policy: Policy, session: str, **options: Any) -> tuple[dict[str, float], dict[str, list[Message]]]:
    ids = [sample.sample_id for sample in draw(policy, session, **options)]
    return dict.fromkeys(ids, 0.5), dict.fromkeys(ids, READS)


def test_a_group_that_fails_alike_learns_from_its_feedback(policy: Policy) -> None:
    session = opened(policy)
    rewards, teachers = failed_alike(policy, session)
    receipt = policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers=teachers)
    assert (receipt.skipped, receipt.version, receipt.steps) == (None, 1, 3)
    assert receipt.distil_loss is not None
    assert receipt.distil_loss > 0
    assert set(receipt.advantages.values()) == {0.0}
    again = policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers=teachers)
    assert again == receipt


def test_one_thought_alone_can_be_taught(policy: Policy) -> None:
    session = opened(policy)
    rewards, teachers = failed_alike(policy, session, n=1)
    assert policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers=teachers).skipped is None


def test_without_weight_a_teacher_is_not_heard(policy: Policy) -> None:
    session = opened(policy)
    rewards, teachers = failed_alike(policy, session)
    receipt = policy.internalize(session, version=0, rewards=rewards, grpo=GRPO, teachers=teachers)
    assert receipt.skipped == "all rewards are equal"
    assert policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL).skipped == "all rewards are equal"


def test_another_feedback_is_another_update(policy: Policy) -> None:
    one, two = opened(policy), opened(policy)
    for session, said in ((one, "add(1, 2) gave 4"), (two, "NameError: name 'b' is not defined")):
        rewards, _ = failed_alike(policy, session)
        reads: list[Message] = [*ASK, {"role": "user", "content": said}]
        receipt = policy.internalize(
            session, version=0, rewards=rewards, grpo=DISTIL, teachers=dict.fromkeys(rewards, reads)
        )
        assert receipt.skipped is None
    assert told(draw(policy, one, version=1)) != told(draw(policy, two, version=1))


def test_a_teacher_of_a_sample_without_reward_is_refused(policy: Policy) -> None:
    session = opened(policy)
    rewards, teachers = failed_alike(policy, session)
    with pytest.raises(SampleError, match="no reward"):
        policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers={**teachers, "nobody": READS})


def test_a_teacher_without_messages_is_refused(policy: Policy) -> None:
    session = opened(policy)
    rewards, _ = failed_alike(policy, session)
    with pytest.raises(ConfigError, match="messages must be a list"):
        policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers={key: [] for key in rewards})


def test_a_teachers_prompt_beyond_the_context_is_an_error_and_nothing_moves(policy: Policy) -> None:
    session = opened(policy)
    rewards, _ = failed_alike(policy, session)
    long: list[Message] = [{"role": "user", "content": "word " * 600}]
    with pytest.raises(ContextLengthError, match="512"):
        policy.internalize(session, version=0, rewards=rewards, grpo=DISTIL, teachers=dict.fromkeys(rewards, long))
    assert draw(policy, session, version=0)
