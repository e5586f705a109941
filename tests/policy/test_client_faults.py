"""The HTTP policy when things go wrong: cancelled, late, lost, restarted, shut down; no call is done twice."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import httpx
import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, PolicyUnavailableError, PotError, SessionNotFoundError
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import ASK, LossyProxy, WatchedPolicy, free_port, serving

LORA = LoraConfig(rank=2, alpha=4.0)
GRPO = GrpoConfig(epochs=1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny))) as url:
        yield url


def test_cancelling_stops_the_generation_on_the_server(tiny: Path) -> None:
    policy, cancel = WatchedPolicy(tiny), Event()
    with serving(policy) as url, HttpPolicy(url) as client:
        client.open("s")
        Thread(target=lambda: policy.sampling.wait(30) and cancel.set()).start()
        with pytest.raises(CancelledError):
            client.sample("s", version=0, messages=ASK, n=4, max_tokens=400, cancel=cancel)
        outcome, drawn = policy.outcomes.get(timeout=30)
        assert (outcome, drawn < 400) == ("cancelled", True)
        assert client.sample("s", version=0, messages=ASK, max_tokens=2)[0].tokens > 0


def test_a_call_cancelled_before_it_is_made_never_reaches_the_server(tiny: Path) -> None:
    policy, cancel = WatchedPolicy(tiny), Event()
    cancel.set()
    with serving(policy) as url, HttpPolicy(url) as client:
        client.open("s")
        with pytest.raises(CancelledError):
            client.sample("s", version=0, messages=ASK, cancel=cancel)
    assert not policy.sampling.is_set()


def test_cancelling_ends_the_wait_for_a_server_that_is_not_there() -> None:
    cancel = Event()
    Timer(0.05, cancel.set).start()
    with HttpPolicy(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(CancelledError):
        client.sample("s", version=0, messages=ASK, cancel=cancel)


def test_an_answer_that_takes_too_long_is_given_up_and_its_generation_stops(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    with serving(policy) as url, HttpPolicy(url, timeout=1.0) as client:
        policy.open("s")
        with pytest.raises(PolicyUnavailableError, match="within 1 s"):
            client.sample("s", version=0, messages=ASK, n=4, max_tokens=400)
        assert policy.outcomes.get(timeout=30)[0] == "cancelled"


def test_after_a_restart_the_session_is_gone_and_says_so(tiny: Path) -> None:
    port = free_port()
    with HttpPolicy(f"http://127.0.0.1:{port}") as client:
        with serving(LocalPolicy(str(tiny)), port=port):
            client.open("s", lora=LORA)
            client.sample("s", version=0, messages=ASK, max_tokens=2)
        with serving(LocalPolicy(str(tiny)), port=port), pytest.raises(SessionNotFoundError, match="'s'"):
            client.sample("s", version=0, messages=ASK, max_tokens=2)


def test_a_call_that_was_refused_is_made_once_the_server_is_up(tiny: Path) -> None:
    policy, port = WatchedPolicy(tiny), free_port()
    policy.open("s")
    drawn: list[Any] = []
    with HttpPolicy(f"http://127.0.0.1:{port}") as client:
        early = Thread(target=lambda: drawn.extend(client.sample("s", version=0, messages=ASK, max_tokens=2)))
        early.start()
        time.sleep(0.05)
        with serving(policy, port=port):
            early.join()
    assert len(drawn) == 1


def test_an_update_whose_answer_was_lost_is_not_trained_twice(url: str) -> None:
    with LossyProxy(url) as proxy, HttpPolicy(proxy.url) as client:
        client.open("lost", lora=LORA)
        drawn = client.sample("lost", version=0, messages=ASK, n=2, max_tokens=8)
        rewards = {completion.sample_id: float(at) for at, completion in enumerate(drawn)}
        proxy.lose = 2
        receipt = client.internalize("lost", version=0, rewards=rewards, grpo=GRPO)
        assert proxy.forwarded.count("/v1/sessions/lost/internalize") == 3
        assert (receipt.version, receipt.total_steps) == (1, 1)
        client.close("lost")


def test_a_sample_whose_answer_was_lost_is_not_drawn_twice(url: str) -> None:
    with LossyProxy(url) as proxy, HttpPolicy(proxy.url) as client:
        client.open("once", lora=LORA)
        proxy.lose = 1
        with pytest.raises(PolicyUnavailableError, match="lost"):
            client.sample("once", version=0, messages=ASK, max_tokens=2)
        assert proxy.forwarded.count("/v1/sessions/once/sample") == 1
        client.close("once")


def test_shutting_the_client_down_leaves_the_server_and_its_sessions(url: str) -> None:
    first = HttpPolicy(url)
    first.open("kept", lora=LORA, seed=4)
    first.shutdown()
    first.shutdown()
    with pytest.raises(PolicyUnavailableError, match="shut down"):
        first.count_tokens("a")
    with HttpPolicy(url) as second:
        assert second.sample("kept", version=0, messages=ASK, max_tokens=2)
        second.close("kept")
    assert httpx.get(f"{url}/ready").status_code == 200


def test_shutting_down_ends_a_call_in_flight(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    raised: list[PotError] = []

    def call(client: HttpPolicy) -> None:
        try:
            client.sample("s", version=0, messages=ASK, n=4, max_tokens=400)
        except PotError as error:
            raised.append(error)

    with serving(policy) as url:
        client = HttpPolicy(url)
        client.open("s")
        thread = Thread(target=call, args=(client,))
        thread.start()
        assert policy.sampling.wait(30)
        client.shutdown()
        thread.join(30)
        assert policy.outcomes.get(timeout=30)[0] == "cancelled"
    assert [type(error) for error in raised] == [PolicyUnavailableError]
