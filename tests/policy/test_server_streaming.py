"""A call whose text is streamed over HTTP ends as any does: with its answer, its error, or its caller leaving."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pot_agent.errors import CancelledError, PolicyUnavailableError, SessionNotFoundError, VersionError
from pot_agent.policy.client import HttpPolicy
from tests.policy.contract import opened
from tests.policy.serving import ASK, LossyProxy, WatchedPolicy, serving

LONG: dict[str, Any] = {"version": 0, "messages": ASK, "n": 2, "max_tokens": 300, "temperature": 1.0}


@pytest.fixture(scope="module")
def watched(tiny: Path) -> Iterator[WatchedPolicy]:
    with WatchedPolicy(tiny, threads=1, token_seconds=0.01) as policy:
        yield policy


@pytest.fixture(scope="module")
def url(watched: WatchedPolicy) -> Iterator[str]:
    with serving(watched, max_calls_per_session=2) as url:
        yield url


@pytest.fixture
def remote(url: str) -> Iterator[HttpPolicy]:
    with HttpPolicy(url, busy_seconds=0) as policy:
        yield policy


def body_of(**changes: Any) -> dict[str, Any]:
    return {**LONG, "stream": True, **changes}


def test_lines_of_text_come_before_the_answer_that_they_join_to(remote: HttpPolicy, url: str) -> None:
    session, texts = opened(remote), {"0": "", "1": ""}
    with httpx.stream("POST", f"{url}/v1/sessions/{session}/sample", json=body_of(max_tokens=30)) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert len(lines) > 3
    for line in lines[:-1]:
        assert list(line) == ["text"]
        for index, piece in line["text"].items():
            texts[index] += piece
    assert list(texts.values()) == [completion["text"] for completion in lines[-1]["completions"]]


def test_what_is_refused_before_any_text_is_refused_with_its_status(remote: HttpPolicy, url: str) -> None:
    session = opened(remote)
    for version, name, status in ((7, session, 409), (0, "nobody", 404)):
        answer = httpx.post(f"{url}/v1/sessions/{name}/sample", json=body_of(version=version))
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
    told: list[Any] = []
    with pytest.raises(VersionError, match="version 7"):
        remote.sample(session, **{**LONG, "version": 7}, on_text=lambda *piece: told.append(piece))
    assert told == []


def test_an_error_after_some_text_is_the_one_that_it_is_in_process(remote: HttpPolicy, url: str) -> None:
    session, told = opened(remote), threading.Event()

    def close(*_: Any) -> None:
        if not told.is_set():
            told.set()
            httpx.post(f"{url}/v1/sessions/{session}/close")

    with pytest.raises(SessionNotFoundError, match="was closed during the call"):
        remote.sample(session, **LONG, on_text=close)
    assert told.is_set()


def ended(watched: WatchedPolicy) -> tuple[str, int]:
    """How the newest call ended, and after how many tokens."""
    found = watched.outcomes.get(timeout=10)
    while not watched.outcomes.empty():
        found = watched.outcomes.get()
    return found


def forget(watched: WatchedPolicy) -> None:
    while not watched.outcomes.empty():
        watched.outcomes.get()


def test_a_caller_that_cancels_in_the_middle_ends_the_drawing(watched: WatchedPolicy, remote: HttpPolicy) -> None:
    session, cancel = opened(remote), threading.Event()
    forget(watched)
    with pytest.raises(CancelledError):
        remote.sample(session, **LONG, cancel=cancel, on_text=lambda *_: cancel.set())
    code, drawn = ended(watched)
    assert code == "cancelled"
    assert drawn < 2 * 300


def test_a_listener_that_fails_ends_the_drawing_with_its_error(watched: WatchedPolicy, remote: HttpPolicy) -> None:
    session = opened(remote)
    forget(watched)

    def broken(*_: Any) -> None:
        raise RuntimeError("a listener's own")

    with pytest.raises(RuntimeError, match="a listener's own"):
        remote.sample(session, **LONG, on_text=broken)
    assert ended(watched)[0] == "cancelled"


def test_a_busy_server_is_asked_again_and_tells_every_piece_once(watched: WatchedPolicy, url: str) -> None:
    told = {0: "", 1: ""}

    def tell(index: int, piece: str) -> None:
        told[index] += piece

    with HttpPolicy(url, busy_seconds=60) as patient:
        session = opened(patient)
        others = [
            threading.Thread(target=patient.sample, args=(session,), kwargs=LONG | {"max_tokens": 60}) for _ in range(2)
        ]
        watched.sampling.clear()
        for other in others:
            other.start()
        watched.sampling.wait(10)
        found = patient.sample(session, **{**LONG, "max_tokens": 20}, on_text=tell)
        for other in others:
            other.join()
    assert [completion.text for completion in found] == list(told.values())


def test_a_stream_that_breaks_off_is_a_lost_connection_and_is_not_sent_twice(url: str) -> None:
    with LossyProxy(url) as proxy, HttpPolicy(proxy.url) as policy:
        session = opened(HttpPolicy(url))
        policy._capabilities = HttpPolicy(url).capabilities
        proxy.lose = 1
        with pytest.raises(PolicyUnavailableError, match="the connection was lost"):
            policy.sample(session, **{**LONG, "max_tokens": 5}, on_text=lambda *_: None)
        assert len(proxy.forwarded) == 1


@pytest.mark.parametrize("answer", ["", "no json\n", '{"text": {"0": "a"}}\n', "[1]\n", "3\n"])
def test_lines_that_no_server_of_this_kind_sends_are_an_error_that_names_the_url(answer: str) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/capabilities":
            known = {"model": "m", "learns": True, "logprobs": True, "context_tokens": 512, "streams": True}
            return httpx.Response(200, json=known)
        return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=answer.encode())

    with HttpPolicy("http://127.0.0.1:9") as policy:
        policy._connection._client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
        with pytest.raises(PolicyUnavailableError, match=r"127\.0\.0\.1:9"):
            policy.sample("s", **LONG, on_text=lambda *_: None)


def test_an_older_server_is_not_asked_to_stream_and_its_texts_come_whole(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[int, str] = {}
    with HttpPolicy(url) as policy:
        older = {name: value for name, value in httpx.get(f"{url}/v1/capabilities").json().items() if name != "streams"}
        call, sent = policy._connection.call, []

        def calling(method: str, path: str, body: Any = None, **options: Any) -> Any:
            sent.append(body)
            return older if path == "/v1/capabilities" else call(method, path, body, **options)

        monkeypatch.setattr(policy._connection, "call", calling)
        found = policy.sample(opened(policy), **{**LONG, "max_tokens": 5}, on_text=told.__setitem__)
    assert list(told.values()) == [completion.text for completion in found]
    assert "stream" not in sent[-1]
