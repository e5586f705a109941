"""What an update may touch: its own session, once it has succeeded, and nothing else; bit for bit, in float32."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pot_agent.errors import CancelledError
from pot_agent.policy.base import Receipt
from pot_agent.policy.local import LocalPolicy
from tests.policy.inside import (
    GRPO,
    Fault,
    after_steps,
    base_digests,
    draw,
    inner,
    learn,
    learned,
    opened,
    to_a_crash_in_the_backward_pass,
    to_a_gradient_too_large_for_its_norm,
    to_infinite_gradient,
    to_nan,
)


@pytest.fixture
def own(tiny: Path) -> Iterator[LocalPolicy]:
    """A policy that a test may spoil."""
    with LocalPolicy(str(tiny), threads=1) as policy:
        yield policy


@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("spoil", [to_nan, to_infinite_gradient, to_a_gradient_too_large_for_its_norm])
def test_what_is_not_finite_in_any_epoch_is_given_up_and_the_next_update_is_as_ever(
    own: LocalPolicy, spoil: Callable[[Tensor], Tensor | None], epoch: int
) -> None:
    name, other = opened(own, "s"), opened(own, "other")
    for session in (name, other):
        learn(own, session, 1)
    before, base, fault = learned(inner(own, name)), base_digests(own), Fault(own, spoil)
    group = draw(own, name, 2)
    rewards = {sample.sample_id: float(at == 0) for at, sample in enumerate(group)}
    with after_steps(epoch - 1, fault.plant):
        receipt = own.internalize(name, version=1, rewards=rewards, grpo=GRPO)
    fault.remove()
    assert receipt.skipped is not None
    assert "not finite" in receipt.skipped
    assert (receipt.version, receipt.parent_version, receipt.steps, receipt.total_steps) == (1, 1, 0, 3)
    assert learned(inner(own, name)) == before
    assert base_digests(own) == base
    for session in (name, other):
        assert learn(own, session, 3).skipped is None
    assert learned(inner(own, name)) == learned(inner(own, other))


@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("way", ["cancelled", "crashed"])
def test_an_update_that_ends_in_the_middle_leaves_session_and_base_as_they_were(
    own: LocalPolicy, way: str, epoch: int
) -> None:
    name, other = opened(own, "s"), opened(own, "other")
    for session in (name, other):
        learn(own, session, 1)
    before, base = learned(inner(own, name)), base_digests(own)
    cancel, fault = threading.Event(), Fault(own, to_a_crash_in_the_backward_pass)
    if way == "cancelled":
        # Epoch 1 is under way once the layer runs: the event is set from within it.
        fault = Fault(own, lambda hidden: cancel.set() if hidden.requires_grad else None)
    group = draw(own, name, 2)
    rewards = {sample.sample_id: float(at == 0) for at, sample in enumerate(group)}
    with after_steps(epoch - 1, fault.plant), pytest.raises(CancelledError if way == "cancelled" else MemoryError):
        own.internalize(name, version=1, rewards=rewards, grpo=GRPO, cancel=cancel)
    fault.remove()
    assert learned(inner(own, name)) == before
    assert base_digests(own) == base
    # The same group again: nothing of the update that ended was left behind, no receipt either.
    own.internalize(name, version=1, rewards=rewards, grpo=GRPO)
    learn(own, other, 2)
    assert learned(inner(own, name)) == learned(inner(own, other))
    own.close(name)
    assert base_digests(own) == base


def told(receipt: Receipt) -> dict[str, Any]:
    """A receipt without what names samples, and without clocks."""
    plain = receipt.to_dict()
    for name in ("digest", "seconds", "phases"):
        plain.pop(name)
    return plain | {name: list(plain[name].values()) for name in ("rewards", "advantages")}


def test_sessions_of_any_ranks_interleaved_are_bit_for_bit_each_as_if_alone(tiny: Path) -> None:
    who = {"a": (3, 1), "same rank": (3, 2), "wider": (5, 1)}

    def run(names: list[str]) -> dict[str, Any]:
        with LocalPolicy(str(tiny), threads=1) as policy:
            for name in names:
                opened(policy, name, *who[name])
            receipts: dict[str, list[Any]] = {name: [] for name in names}
            for turn in range(3):
                groups = {name: draw(policy, name, turn) for name in names}
                for name in reversed(names):
                    rewards = {sample.sample_id: float(at == turn) for at, sample in enumerate(groups[name])}
                    receipt = policy.internalize(name, version=turn, rewards=rewards, grpo=GRPO)
                    receipts[name].append(told(receipt))
            sessions = {name: inner(policy, name) for name in names}
            return {
                name: (
                    receipts[name],
                    learned(session),
                    [asdict(replace(sample, sample_id="")) for sample in session.journal._samples.values()],
                )
                for name, session in sessions.items()
            }

    together = run(list(who))
    assert together["a"][1]["version"] == 3
    for name in who:
        assert run([name])[name] == together[name], name


@pytest.mark.parametrize(("n", "why"), [(3, "all rewards are equal"), (1, "fewer than two samples")])
def test_a_group_that_teaches_nothing_changes_no_bit_and_the_next_update_is_as_if_it_had_not_been(
    own: LocalPolicy, n: int, why: str
) -> None:
    name, other = opened(own, "s"), opened(own, "other")
    for session in (name, other):
        learn(own, session, 1)
        learn(own, session, 2)
    before, base = learned(inner(own, name)), base_digests(own)
    assert before["moments"] is not None
    assert before["reference"] is not None
    for seed, reward in ((3, 0.0), (4, 1 / 3), (5, 1.0)):
        group = draw(own, name, seed, n=n)
        rewards = {sample.sample_id: reward for sample in group}
        receipt = own.internalize(name, version=2, rewards=rewards, grpo=GRPO)
        assert (receipt.skipped, receipt.version, receipt.steps, receipt.total_steps) == (why, 2, 0, 6)
        assert learned(inner(own, name)) == before
    assert base_digests(own) == base
    for session in (name, other):
        learn(own, session, 6)
    assert learned(inner(own, name)) == learned(inner(own, other)) != before
