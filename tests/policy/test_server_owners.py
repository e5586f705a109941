"""Whose sessions: what one token opened, another can neither use nor find."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import PermissionDeniedError, SampleError, SessionNotFoundError
from pot_agent.policy.base import SessionInfo
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.owners import Owner
from tests.policy.contract import ASK, draw, learn, opened
from tests.policy.serving import serving

ALICE, BOB = "alice-token", "bob-token"


@pytest.fixture
def url(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny), threads=1), token=ALICE, tokens=(BOB,)) as url:
        yield url


@pytest.fixture
def alice(url: str) -> Iterator[HttpPolicy]:
    with HttpPolicy(url, token=ALICE) as policy:
        yield policy


@pytest.fixture
def bob(url: str) -> Iterator[HttpPolicy]:
    with HttpPolicy(url, token=BOB) as policy:
        yield policy


def test_another_token_meets_a_session_as_if_it_were_not_there(alice: HttpPolicy, bob: HttpPolicy) -> None:
    session = opened(alice)
    group = learn(alice, session)
    ids = [sample.sample_id for sample in group]
    rewards = dict.fromkeys(ids, 1.0)
    for call in (
        lambda: bob.sample(session, version=0, messages=ASK),
        lambda: bob.score(session, version=0, sample_ids=ids),
        lambda: bob.internalize(session, version=0, rewards=rewards, grpo=GrpoConfig()),
        lambda: bob.snapshot(session),
        lambda: bob.restore(session),
    ):
        with pytest.raises(SessionNotFoundError) as theirs:
            call()
        with pytest.raises(SessionNotFoundError) as nobodys:
            bob.snapshot("never opened")
        assert str(theirs.value).replace(session, "never opened") == str(nobodys.value)
        assert theirs.value.value == session
    bob.close(session)
    assert alice.snapshot(session).version == 1


def test_the_same_name_is_a_session_of_each_token(alice: HttpPolicy, bob: HttpPolicy) -> None:
    assert alice.open("ours", lora=LoraConfig(rank=2)) == SessionInfo(session="ours", version=0)
    assert bob.open("ours", lora=LoraConfig(rank=3), seed=5) == SessionInfo(session="ours", version=0)
    learn(alice, "ours")
    assert alice.list_sessions() == [SessionInfo(session="ours", version=1)]
    assert bob.list_sessions() == [SessionInfo(session="ours", version=0)]
    with pytest.raises(SampleError):
        bob.score("ours", version=0, sample_ids=[sample.sample_id for sample in draw(alice, "ours", version=1)])


def test_a_token_that_is_not_known_lists_nothing(url: str) -> None:
    with HttpPolicy(url, token="eve-token") as eve, pytest.raises(PermissionDeniedError):
        eve.list_sessions()


def test_no_answer_and_no_error_shows_the_name_inside(url: str) -> None:
    headers = {"Authorization": f"Bearer {ALICE}"}
    mark = Owner.of(ALICE).inside("x").removeprefix("x")
    answers = [
        httpx.post(f"{url}/v1/sessions/mine/open", headers=headers, json={"seed": 1}),
        httpx.post(f"{url}/v1/sessions/mine/open", headers=headers, json={"seed": 2}),
        httpx.post(f"{url}/v1/sessions/none/snapshot", headers=headers),
        httpx.post(f"{url}/v1/sessions/mine/snapshot", headers=headers),
        httpx.get(f"{url}/v1/sessions", headers=headers),
        httpx.post(
            f"{url}/v1/sessions/mine/sample",
            headers=headers,
            json={"version": 0, "messages": ASK, "max_tokens": 2},
            timeout=30,
        ),
        httpx.post(f"{url}/v1/sessions/mine/score", headers=headers, json={"version": 0, "sample_ids": ["mine@x-1"]}),
    ]
    assert [answer.status_code for answer in answers] == [200, 409, 404, 200, 200, 200, 422]
    assert "'mine@x-1'" in answers[-1].json()["message"]
    assert not any(mark in answer.text for answer in answers)


@pytest.mark.parametrize("name", ["x" * 200, "x" * 188, "ends@0123456789ab"])
def test_every_name_that_may_be_is_kept_apart(alice: HttpPolicy, bob: HttpPolicy, name: str) -> None:
    for policy in (alice, bob):
        assert policy.open(name).session == name
        assert policy.snapshot(name).session == name
        policy.close(name)
        with pytest.raises(SessionNotFoundError) as gone:
            policy.snapshot(name)
        assert gone.value.value == name
        assert repr(name) in gone.value.message


def test_ownership_outlives_the_server(tiny: Path, state: Path) -> None:
    def served() -> LocalPolicy:
        return LocalPolicy(str(tiny), threads=1, state_dir=state)

    with serving(served(), tokens=(ALICE, BOB)) as url, HttpPolicy(url, token=ALICE) as alice:
        alice.open("kept", lora=LoraConfig(rank=2))
        learn(alice, "kept")
    with serving(served(), tokens=(BOB, ALICE)) as url:
        with HttpPolicy(url, token=BOB) as bob:
            assert bob.list_sessions() == []
            with pytest.raises(SessionNotFoundError):
                bob.restore("kept")
        with HttpPolicy(url, token=ALICE) as alice:
            assert alice.list_sessions() == [SessionInfo(session="kept", version=1)]
            assert alice.restore("kept") == SessionInfo(session="kept", version=1)
