"""How things end: the server at a signal, a client that vanishes, a policy that answers no more."""

import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pot_agent.policy import server
from pot_agent.policy.base import Completion
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.vllm_engine import VllmEngine, VllmOptions
from tests.policy.contract import ASK, learn, opened
from tests.policy.real_server import ROOT, metrics_of, real_server
from tests.policy.serving import WatchedPolicy, free_port, serving
from tests.tiny import make_tiny_model


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_signal_lets_the_call_in_flight_end_and_everything_is_in_the_state_folder(tmp_path: Path) -> None:
    model, state, port = make_tiny_model(tmp_path / "tiny", context=1024), tmp_path / "state", free_port()
    url, drawn = f"http://127.0.0.1:{port}", list[Completion]()
    with real_server(model, port, state=state) as process, HttpPolicy(url) as client:
        session = opened(client)
        learn(client, session)

        def sample() -> None:
            drawn.extend(client.sample(session, version=1, messages=ASK, n=16, max_tokens=900))

        call = Thread(target=sample)
        call.start()
        wait_until(lambda: metrics_of(url)["pot_calls_in_flight",] == 1, "the call did not begin")
        assert call.is_alive(), "the call ended before the signal; ask for more tokens"
        process.send_signal(signal.SIGTERM)
        call.join(60)
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert len(drawn) == 16
    with real_server(model, port, state=state), HttpPolicy(url) as client:
        assert client.restore(session).version == 1
        scores = client.score(
            session, version=1, sample_ids=[sample.sample_id for sample in drawn[:2]], temperature=0.7
        )
    assert scores == pytest.approx([sample.logprob for sample in drawn[:2]], abs=1e-3)


def test_a_client_that_vanishes_leaves_nothing_behind_after_its_lease(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.1)
    policy = WatchedPolicy(tiny, lease_seconds=1.0)
    with serving(policy) as url:
        code = f"""
            from pot_agent import HttpPolicy
            client = HttpPolicy({url!r})
            client.open("gone")
            client.sample("gone", version=0, messages={ASK!r}, n=4, max_tokens=400)
        """
        client = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
        assert policy.sampling.wait(60)
        client.kill()
        client.wait()
        outcome, tokens = policy.outcomes.get(timeout=30)
        assert (outcome, tokens < 4 * 400) == ("cancelled", True)
        wait_until(lambda: len(policy._sessions) == 0, "the session stayed, though nobody called any more")
        found = metrics_of(url)
    assert found["pot_calls_in_flight",] == found["pot_sessions",] == 0


def test_a_policy_that_answers_no_more_is_alive_and_not_ready(tiny: Path) -> None:
    policy = LocalPolicy(str(tiny), threads=1)
    with serving(policy) as url:
        assert httpx.get(f"{url}/ready").status_code == 200
        policy.shutdown()
        answer = httpx.get(f"{url}/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, "policy_unavailable")
        assert httpx.get(f"{url}/health").status_code == 200


class Revived(VllmEngine):
    """The engine's front; what it starts stands for vLLM's engine, which is asked no more than whether it has died."""

    def _start(self) -> Any:
        self.starts = getattr(self, "starts", 0) + 1
        assert self.may_start.wait(10)
        return SimpleNamespace(errored=False, shutdown=lambda timeout: None)

    may_start = Event()


def test_a_server_whose_engine_died_is_not_ready_until_it_is_started_again(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Revived.may_start.set()
    sizes: Any = {"max_rank": 8, "slots": 1, "rows": 1, "kv_cache_bytes": 1, "memory_fraction": 0.1, "eager": True}
    engine = Revived(VllmOptions(folder=tmp_path, dtype="float32", context_tokens=512, **sizes))
    policy = LocalPolicy(str(tiny), threads=1)
    monkeypatch.setattr(policy._engine._sampler, "check_alive", engine.check_alive)
    with serving(policy) as url:
        assert httpx.get(f"{url}/ready").status_code == 200
        Revived.may_start.clear()
        engine._engine.errored = True  # as the front does when its processes are gone
        for _ in range(3):  # who asks again and again starts one engine
            assert httpx.get(f"{url}/ready").status_code == 503
        assert httpx.get(f"{url}/health").status_code == 200
        Revived.may_start.set()
        wait_until(lambda: httpx.get(f"{url}/ready").status_code == 200, "it never was ready again")
    assert engine.starts == 2
    engine.close()


def test_a_busy_server_is_ready(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("busy")
    with serving(policy, max_calls=1) as url, HttpPolicy(url) as client:
        slow = Thread(target=lambda: client.sample("busy", version=0, messages=ASK, max_tokens=40))
        slow.start()
        assert policy.sampling.wait(30)
        assert httpx.get(f"{url}/ready").status_code == 200
        slow.join()


def test_bodies_that_do_not_end_do_not_fill_the_memory(tiny: Path) -> None:
    head = b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
    with serving(LocalPolicy(str(tiny), threads=1), max_calls=2) as url:
        port = httpx.URL(url).port or 0
        unfinished = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        for connection in unfinished:
            connection.sendall(head)
        wait_until(
            lambda: httpx.post(f"{url}/v1/count", json={"content": "a"}).status_code == 429, "a fifth was let in"
        )
        assert httpx.get(f"{url}/ready").status_code == 200
        for connection in unfinished:
            connection.close()
        wait_until(lambda: httpx.post(f"{url}/v1/count", json={"content": "a"}).status_code == 200, "none came after")
