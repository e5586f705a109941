"""The canary: a sampler that runs anything but the adapter that was just trained is caught at the update."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pot_agent.config import GrpoConfig
from pot_agent.errors import AdapterNotSampledError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.canary import CLEAR, judge
from pot_agent.policy.local import LocalPolicy
from tests.policy.contract import GRPO, draw, opened, told

SAMPLED = (-1.0, -2.0, -3.0)
BEFORE = (-1.5, -2.5, -3.5)
BASE = (-2.0, -3.0, -4.0)
Runs = Callable[[Tensor | None], Tensor | None]


@pytest.fixture
def own(tiny: Path) -> LocalPolicy:
    """A policy that a test may spoil."""
    return LocalPolicy(str(tiny), threads=1)


def update(policy: LocalPolicy, session: str, version: int, grpo: GrpoConfig = GRPO) -> Any:
    group = draw(policy, session, version=version, seed=version)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    return policy.internalize(session, version=version, rewards=rewards, grpo=grpo)


def plant(monkeypatch: pytest.MonkeyPatch, policy: LocalPolicy, runs: Runs) -> None:
    """The sampler runs what `runs` makes of the version that it was asked for."""
    sampler = policy._engine._sampler
    honest = sampler.draw

    def draw(request: Any, layout: AdapterLayout | None, vector: Tensor | None) -> Any:
        return honest(request, layout, runs(vector))

    monkeypatch.setattr(sampler, "draw", draw)


def test_an_adapter_reaches_the_sampler(own: LocalPolicy) -> None:
    session = opened(own)
    for version in range(4):
        receipt = update(own, session, version)
        assert receipt.canary == "reached"
        assert receipt.canary_gap < 1e-4


def test_a_sampler_one_version_behind_is_caught(own: LocalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(own)
    update(own, session, 0)
    update(own, session, 1)
    with own._using(session) as kept:
        newest = kept.vector_of(2)
        behind: dict[int, Tensor | None] = {}
    with monkeypatch.context() as patch:
        plant(patch, own, lambda vector: vector if vector is newest else behind.setdefault(0, newest))
        with pytest.raises(AdapterNotSampledError, match="from the version before"):
            update(own, session, 2)
    assert update(own, session, 2).version == 3


def test_a_sampler_that_runs_the_base_is_caught(own: LocalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(own)
    with monkeypatch.context() as patch:
        plant(patch, own, lambda vector: None)
        with pytest.raises(AdapterNotSampledError, match="from the base"):
            update(own, session, 0)


def test_a_sampler_that_scales_the_adapter_wrongly_is_caught(own: LocalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(own)
    with monkeypatch.context() as patch:
        plant(patch, own, lambda vector: None if vector is None else vector * 1.5)
        with pytest.raises(AdapterNotSampledError):
            update(own, session, 0)


def test_a_caught_update_leaves_the_session_as_it_was(own: LocalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    caught, clean = opened(own), opened(own)
    with monkeypatch.context() as patch:
        plant(patch, own, lambda vector: None)
        with pytest.raises(AdapterNotSampledError):
            update(own, caught, 0)
    receipts = [update(own, session, 0) for session in (caught, clean)]
    assert receipts[0].loss == receipts[1].loss
    assert receipts[0].adapter_norm == receipts[1].adapter_norm
    assert told(draw(own, caught, version=1)) == told(draw(own, clean, version=1))


def test_a_step_too_small_to_see_is_undetermined_and_no_error(
    own: LocalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = update(own, opened(own), 0, GrpoConfig(learning_rate=1e-9))
    assert (receipt.version, receipt.canary) == (1, "undetermined")
    plant(monkeypatch, own, lambda vector: None)
    assert update(own, opened(own), 0, GrpoConfig(learning_rate=1e-9)).canary == "undetermined"


def test_the_nearest_of_those_it_must_not_be_decides() -> None:
    found = judge(SAMPLED, SAMPLED, {"the base": BASE, "the version before": BEFORE}, noise=1e-3)
    assert (found.verdict, found.gap, found.separation) == ("reached", 0.0, pytest.approx(0.5))
    with pytest.raises(AdapterNotSampledError, match=r"0\.5 nats from the new version and 0 from the version before"):
        judge(BEFORE, SAMPLED, {"the base": BASE, "the version before": BEFORE}, noise=1e-3)


def test_one_that_cannot_be_told_apart_leaves_the_others_to_decide() -> None:
    near = tuple(value + 1e-3 for value in SAMPLED)
    noise = 1e-3 / CLEAR * 1.01
    assert judge(near, SAMPLED, {"the base": BASE, "the version before": near}, noise).verdict == "undetermined"
    with pytest.raises(AdapterNotSampledError, match="from the base"):
        judge(BASE, SAMPLED, {"the base": BASE, "the version before": near}, noise)


def test_a_sampler_that_says_nothing_finite_is_caught() -> None:
    with pytest.raises(AdapterNotSampledError):
        judge((float("nan"),) * 3, SAMPLED, {"the base": BASE}, noise=1e-3)
