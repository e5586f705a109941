"""The log-probability of a greedy sample at its siblings' temperature: noted as it is drawn, and only for that."""

from pathlib import Path
from typing import Any

import pytest

from pot_agent.policy.engine import Engine
from pot_agent.policy.local import LocalPolicy
from tests.policy.contract import draw, learn, opened


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples the trainer was asked to score, at each call."""
    found: list[int] = []
    own = Engine.score

    def score(self: Engine, layout: Any, vector: Any, samples: Any, *rest: Any) -> list[float]:
        found.append(len(samples))
        return own(self, layout, vector, samples, *rest)

    monkeypatch.setattr(Engine, "score", score)
    return found


def greedy(policy: LocalPolicy, session: str, version: int = 0) -> str:
    (sample,) = draw(policy, session, version=version, n=1, temperature=0.0, max_tokens=20)
    return sample.sample_id


def test_a_greedy_samples_prior_is_that_of_the_trainer_and_costs_nothing(
    local: LocalPolicy, scored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(local)
    learn(local, session)
    draw(local, session, version=1, temperature=0.6)
    sample = greedy(local, session, 1)
    scored.clear()
    (noted,) = local.score(session, version=1, sample_ids=[sample], temperature=0.6)
    assert scored == []
    monkeypatch.setattr("pot_agent.policy.journal.Sample.noted_at", lambda *_: None)
    (trained,) = local.score(session, version=1, sample_ids=[sample], temperature=0.6)
    assert noted == pytest.approx(trained, abs=1e-5)
    (other,) = local.score(session, version=1, sample_ids=[sample], temperature=1.0)
    assert abs(noted - other) > 1e-2


def test_all_that_was_not_noted_is_scored_by_the_trainer(local: LocalPolicy, scored: list[int]) -> None:
    session = opened(local)
    early = greedy(local, session)  # nothing was sampled yet: no temperature is known
    group = draw(local, session, temperature=0.6)
    ids = [early, greedy(local, session), *(sample.sample_id for sample in group)]
    learn(local, session)
    scored.clear()
    mixed = local.score(session, version=0, sample_ids=ids, temperature=0.6)
    assert scored == [4]
    for at, sample in enumerate(ids):
        assert local.score(session, version=0, sample_ids=[sample], temperature=0.6) == pytest.approx([mixed[at]])
    assert scored == [4, 1, 1, 1, 1]
    moved = local.score(session, version=1, sample_ids=[ids[1]], temperature=0.6)
    warmer = local.score(session, version=0, sample_ids=[ids[1]], temperature=0.7)
    certain = local.score(session, version=0, sample_ids=[ids[1]], temperature=0.6, measure="self_certainty")
    assert len(scored) == 8
    assert len({mixed[1], *moved, *warmer, *certain}) == 4


def test_what_was_noted_survives_the_process(tiny: Path, state: Path, scored: list[int]) -> None:
    found = []
    with LocalPolicy(str(tiny), threads=1, state_dir=state) as policy:
        session = opened(policy)
        draw(policy, session, temperature=0.6)
        sample = greedy(policy, session)
        found.append(policy.score(session, version=0, sample_ids=[sample], temperature=0.6))
    with LocalPolicy(str(tiny), threads=1, state_dir=state) as policy:
        found.append(policy.score(session, version=0, sample_ids=[sample], temperature=0.6))
        again = greedy(policy, session)  # the temperature of what was sampled before the end is known too
        found.append(policy.score(session, version=0, sample_ids=[again], temperature=0.6))
    assert found[0] == found[1] == found[2]
    assert scored == []
