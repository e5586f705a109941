"""What a policy server bounds, and what it shows of itself."""

import socket
import threading
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from pot_agent.errors import AdapterNotSampledError, PolicyBusyError, PolicyUnavailableError, SampleError
from pot_agent.policy.base import Policy
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.patience import Patient
from pot_agent.policy.server import create_app
from tests.policy.contract import ASK, GRPO, draw, learn, opened
from tests.policy.serving import WatchedPolicy, serving
from tests.policy.test_canary import plant


def metrics(url: str) -> dict[tuple[str, ...], float]:
    """Value of each sample, by name and labels."""
    text = httpx.get(f"{url}/metrics").text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_are_what_was_done(tiny: Path) -> None:
    with serving(LocalPolicy(str(tiny), threads=1)) as url, HttpPolicy(url) as policy:
        session = opened(policy)
        group = learn(policy, session)
        skipped = draw(policy, session, version=1, n=2)
        policy.internalize(session, version=1, rewards=dict.fromkeys([s.sample_id for s in skipped], 1.0), grpo=GRPO)
        with pytest.raises(SampleError):
            policy.score(session, version=1, sample_ids=["nobody's"])
        found = metrics(url)
    assert found["pot_requests_total", "sample", "200"] == 2
    assert found["pot_requests_total", "internalize", "200"] == 2
    assert found["pot_requests_total", "score", "422"] == 1
    assert found["pot_request_seconds_count", "sample"] == 2
    assert found["pot_tokens_total", "completion"] == sum(sample.tokens for sample in [*group, *skipped])
    assert found["pot_tokens_total", "prompt"] == 2 * group[0].prompt_tokens
    assert found["pot_updates_total", "moved"] == found["pot_updates_total", "skipped"] == 1
    assert found["pot_canaries_total", "reached"] == 1
    assert found["pot_update_seconds_count",] == 1
    assert found["pot_sessions",] == 1
    assert found["pot_calls_in_flight",] == 0


def test_an_update_that_the_sampler_does_not_run_is_counted(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalPolicy(str(tiny), threads=1)
    plant(monkeypatch, local, lambda vector: None)
    with serving(local) as url, HttpPolicy(url) as policy:
        session = opened(policy)
        with pytest.raises(AdapterNotSampledError):
            learn(policy, session)
        found = metrics(url)
        assert policy.snapshot(session).version == 0
    assert found["pot_canaries_total", "not_reached"] == 1
    assert ("pot_updates_total", "moved") not in found


def test_no_label_is_the_clients_to_choose(tiny: Path) -> None:
    with serving(LocalPolicy(str(tiny), threads=1)) as url:
        for name in ("a", "b/sample/c", "metrics"):
            httpx.get(f"{url}/{name}")
            httpx.post(f"{url}/v1/sessions/{name}/nowhere")
        labels = {key[1] for key in metrics(url) if key[0] == "pot_requests_total"}
    assert labels == {"other"}


def test_the_metrics_want_the_token(tiny: Path) -> None:
    with serving(LocalPolicy(str(tiny), threads=1), token="t") as url:
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert httpx.get(f"{url}/metrics", headers={"Authorization": "Bearer t"}).status_code == 200


def test_sessions_are_listed_by_name_with_their_newest_version(policy: Policy) -> None:
    first, second = sorted([opened(policy), opened(policy)])
    learn(policy, second)
    listed = {info.session: info.version for info in policy.list_sessions()}
    assert (listed[first], listed[second]) == (0, 1)
    assert list(listed) == sorted(listed)
    policy.close(first)
    assert first not in {info.session for info in policy.list_sessions()}


def test_one_session_may_not_take_every_place(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("busy")
    policy.open("other")
    with serving(policy, max_calls_per_session=1) as url, HttpPolicy(url, busy_seconds=0) as client:
        slow = Thread(target=lambda: client.sample("busy", version=0, messages=ASK, max_tokens=40))
        slow.start()
        assert policy.sampling.wait(30)
        with pytest.raises(PolicyBusyError, match="of this session"):
            client.snapshot("busy")
        assert client.snapshot("other").version == 0
        slow.join()


def test_a_client_told_that_the_server_is_busy_comes_again(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("busy")
    policy.open("later")
    with serving(policy, max_calls=1) as url, HttpPolicy(url) as client:
        slow = Thread(target=lambda: client.sample("busy", version=0, messages=ASK, max_tokens=40))
        slow.start()
        assert policy.sampling.wait(30)
        assert len(client.sample("later", version=0, messages=ASK, max_tokens=2)) == 1
        slow.join()


def test_a_call_that_takes_too_long_is_stopped_and_says_what_to_change(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("slow")
    with serving(policy, call_seconds=0.3) as url, HttpPolicy(url) as client:
        with pytest.raises(PolicyUnavailableError, match="POT_CALL_SECONDS"):
            client.sample("slow", version=0, messages=ASK, max_tokens=400)
        assert policy.outcomes.get(timeout=30)[0] == "cancelled"
        policy.token_seconds = 0.0
        assert len(client.sample("slow", version=0, messages=ASK, max_tokens=2)) == 1


def test_a_session_holds_no_more_samples_than_its_limit(tiny: Path) -> None:
    with LocalPolicy(str(tiny), threads=1, max_samples=5) as policy:
        session = opened(policy)
        draw(policy, session, n=3)
        with pytest.raises(SampleError, match="POT_MAX_SAMPLES"):
            draw(policy, session, n=3)
        assert len(draw(policy, session, n=2)) == 2


def test_a_server_that_is_ending_is_alive_and_not_ready(tiny: Path) -> None:
    policy = LocalPolicy(str(tiny), threads=1)
    app = create_app(policy)
    app.state.calls.ending = True
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        ready = httpx.get(f"http://127.0.0.1:{port}/ready")
        assert (ready.status_code, ready.json()["code"]) == (503, "policy_unavailable")
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/count HTTP/1.1\r\nHost: local", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGE"]
)
def test_who_sends_half_a_head_and_waits_is_let_go(tiny: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(Patient, "head_seconds", 0.3)
    app = create_app(LocalPolicy(str(tiny), threads=1))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", http=Patient))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(sent)
            while connection.recv(4096):
                pass
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    finally:
        server.should_exit = True
        thread.join()


def test_a_thousand_threads_are_not_needed_to_refuse(tiny: Path) -> None:
    """Calls over the bound cost no thread."""
    policy = WatchedPolicy(tiny)
    policy.open("busy")
    with serving(policy, max_calls=2) as url, HttpPolicy(url, busy_seconds=0) as client:
        done = Event()
        slow = Thread(target=lambda: (client.sample("busy", version=0, messages=ASK, max_tokens=60), done.set()))
        slow.start()
        assert policy.sampling.wait(30)
        before = threading.active_count()
        refused: list[Any] = []
        while not done.is_set() and len(refused) < 20:
            answers = [httpx.post(f"{url}/v1/sessions/busy/snapshot") for _ in range(5)]
            refused += [answer for answer in answers if answer.status_code == 429]
            if not refused:
                break
        assert threading.active_count() <= before + 2
        slow.join()
