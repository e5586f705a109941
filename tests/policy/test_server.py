"""The policy server as any HTTP caller meets it: who may call, what is refused and how, what ends when."""

import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from pot_agent.policy import api
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import ASK, WatchedPolicy, free_port, serving

ROOT = Path(__file__).parents[2]
JSON = {"Content-Type": "application/json"}
CALLS = ("open", "sample", "score", "internalize", "snapshot", "restore", "close")
SAMPLE = {"version": 0, "messages": ASK, "n": 2, "max_tokens": 4, "seed": 1}


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny))) as url:
        yield url


def test_the_contract_in_five_plain_calls(url: str) -> None:
    session = f"{url}/v1/sessions/plain"
    opened = httpx.post(f"{session}/open", json={"lora": {"rank": 2, "alpha": 4.0}, "seed": 3})
    assert opened.json() == {"session": "plain", "version": 0}
    drawn = httpx.post(f"{session}/sample", json=SAMPLE).json()["completions"]
    first, second = (completion["sample_id"] for completion in drawn)
    update = {"version": 0, "rewards": {first: 1.0, second: 0}, "grpo": {"epochs": 1}}
    receipt = httpx.post(f"{session}/internalize", json=update).json()
    assert (receipt["version"], receipt["steps"], receipt["skipped"]) == (1, 1, None)
    scored = httpx.post(f"{session}/score", json={"version": 1, "sample_ids": [first, second]})
    assert len(scored.json()["logprobs"]) == 2
    assert httpx.post(f"{session}/close").json() == {"closed": "plain"}
    assert httpx.post(f"{session}/sample", json=SAMPLE).status_code == 404


@pytest.mark.parametrize(
    ("content", "headers", "says"),
    [
        (b"{bad", JSON, "not JSON"),
        (b"", JSON, "Field required"),
        (b"\xff\xfe\x00", JSON, "UTF-8"),
        (b"[" * 100_000, JSON, "nested"),
        (b"[]", JSON, "dictionary"),
        (b"{}", JSON, "content: Field required"),
        (b'{"content": 3}', JSON, "content"),
        (b'{"content": "a", "more": 1}', JSON, "more: Extra inputs are not permitted"),
        (b'{"content": "a"}', {"Content-Type": "text/plain"}, "Content-Type: application/json"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(url: str, content: bytes, headers: dict[str, str], says: str) -> None:
    answer = httpx.post(f"{url}/v1/count", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] == "config"
    assert says in answer.json()["message"]


@pytest.mark.parametrize(
    ("call", "body", "code", "says"),
    [
        ("open", {"lora": {"rank": 0}}, "config", "rank must be a whole number, 1 or more, got 0"),
        ("open", {"lora": {"rang": 4}}, "config", "lora.rang"),
        ("open", {"lora": {"rank": 2, "targets": "([a-z0-9._]+)+!"}}, "config", "targets must be `all-linear`"),
        ("open", {"lora": {"rank": 10**9}}, "config", "rank must be at most 24"),
        ("open", {"seed": "7"}, "config", "seed"),
        ("sample", {**SAMPLE, "n": 0}, "config", "n must be a whole number from 1"),
        ("sample", {**SAMPLE, "n": True}, "config", "n"),
        ("sample", {**SAMPLE, "max_tokens": 10_000}, "context_length", "512"),
        ("sample", {**SAMPLE, "version": 5}, "version", "no version 5"),
        ("sample", {**SAMPLE, "messages": []}, "config", "messages must be a list"),
        ("sample", {**SAMPLE, "temperature": {"$float": "nan"}}, "config", "temperature must be a finite number"),
        ("score", {"version": 0, "sample_ids": ["x"]}, "sample", "x"),
        ("score", {"version": 0, "sample_ids": ["x"] * 1025}, "config", "at most 1,024, got 1,025"),
        ("internalize", {"version": 0, "rewards": {"x": {"$float": "inf"}}, "grpo": {}}, "sample", "finite"),
        ("internalize", {"version": 0, "rewards": {"x": 1.0}, "grpo": {"clip": 2}}, "config", "clip must be in (0, 1)"),
        ("internalize", {"version": 0, "rewards": {"x": True}, "grpo": {}}, "config", "rewards.x"),
    ],
)
def test_a_bad_argument_is_refused_by_name(url: str, call: str, body: dict[str, Any], code: str, says: str) -> None:
    httpx.post(f"{url}/v1/sessions/bad/open", json={"lora": {}}).raise_for_status()
    answer = httpx.post(f"{url}/v1/sessions/{'other' if call == 'open' else 'bad'}/{call}", json=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"] == code
    assert says in answer.json()["message"]


def test_not_a_number_as_bare_json_is_refused_too(url: str) -> None:
    httpx.post(f"{url}/v1/sessions/nan/open", json={"lora": {}}).raise_for_status()
    body = b'{"version": 0, "rewards": {"x": NaN}, "grpo": {}}'
    answer = httpx.post(f"{url}/v1/sessions/nan/internalize", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "sample")
    assert answer.json()["value"] == {"$float": "nan"}


def test_a_path_that_is_not_there_is_not_a_session_that_is_not_there(url: str) -> None:
    path, session = httpx.post(f"{url}/v1/nowhere"), httpx.post(f"{url}/v1/sessions/ghost/sample", json=SAMPLE)
    assert path.status_code == session.status_code == 404
    assert path.json()["code"] == "no_such_path"
    assert session.json()["code"] == "session_not_found"
    assert httpx.get(f"{url}/v1/count").status_code == 405


def test_an_unexpected_failure_gives_an_id_and_keeps_the_trace(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> int:
        raise ZeroDivisionError("secret of the house")

    policy = LocalPolicy(str(tiny))
    monkeypatch.setattr(policy, "count_tokens", breaks)
    with serving(policy) as url, caplog.at_level(logging.ERROR):
        answer = httpx.post(f"{url}/v1/count", json={"content": "a"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert f"error id {answer.json()['value']}" in caplog.text
    assert "secret of the house" in caplog.text


def test_a_client_that_vanishes_stops_its_generation(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("gone")
    with serving(policy) as url:
        body = b'{"version": 0, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400, "n": 4}'
        head = f"POST /v1/sessions/gone/sample HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as sock:
            sock.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            assert policy.sampling.wait(30)
        outcome, drawn = policy.outcomes.get(timeout=30)
    assert outcome == "cancelled"
    assert 0 < drawn < 400


def test_a_call_over_the_bound_is_told_to_come_again(tiny: Path) -> None:
    policy = WatchedPolicy(tiny)
    policy.open("busy")
    with serving(policy, max_calls=1) as url:
        slow = Thread(
            target=httpx.post,
            args=(f"{url}/v1/sessions/busy/sample",),
            kwargs={"json": {**SAMPLE, "n": 1, "max_tokens": 40}, "timeout": 60},
        )
        slow.start()
        assert policy.sampling.wait(30)
        refused = httpx.post(f"{url}/v1/count", json={"content": "a"})
        slow.join()
        assert policy.outcomes.get(timeout=30)[0] == "done"
        deadline = time.monotonic() + 10
        while httpx.post(f"{url}/v1/count", json={"content": "a"}).status_code != 200:
            assert time.monotonic() < deadline, "the server never took a call again"
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["code"] == "policy_busy"


def test_the_end_of_the_server_shuts_the_policy_down(tiny: Path) -> None:
    policy = LocalPolicy(str(tiny))
    with serving(policy) as url:
        httpx.post(f"{url}/v1/count", json={"content": "a"}).raise_for_status()
    with pytest.raises(ConnectionError, match="shut down"):
        policy.count_tokens("a")


def test_serve_ends_on_a_signal_after_the_call_in_flight(tiny: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    code = f"""
        from pot_agent.settings import Settings
        from pot_agent.policy.server import serve
        from tests.policy.serving import WatchedPolicy
        serve(Settings(port={port}), policy=WatchedPolicy({str(tiny)!r}, token_seconds=0.1))
    """
    answers: list[Any] = []
    with log.open("w") as errors:
        command = [sys.executable, "-c", textwrap.dedent(code)]
        process = subprocess.Popen(command, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        with HttpPolicy(f"http://127.0.0.1:{port}") as client:
            client.open("s")
            call = Thread(target=lambda: answers.append(client.sample("s", version=0, messages=ASK, max_tokens=20)))
            call.start()
            time.sleep(0.5)
            assert call.is_alive(), "the call ended before the signal; ask for more tokens"
            process.send_signal(signal.SIGTERM)
            call.join(60)
            assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    assert len(answers) == 1, log.read_text()
    assert f"on http://127.0.0.1:{port}" in log.read_text()
    assert "Traceback" not in log.read_text()


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"the server was not ready: {log.read_text()}")


def test_openapi_shows_every_call_with_examples_that_are_valid(url: str) -> None:
    described = httpx.get(f"{url}/openapi.json").json()
    calls = {f"/v1/sessions/{{session}}/{call}" for call in CALLS}
    others = {"/v1/sessions", "/v1/count", "/v1/capabilities", "/health", "/ready", "/metrics"}
    assert calls | others == set(described["paths"])
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for name in ("OpenBody", "SampleBody", "ScoreBody", "InternalizeBody", "CountBody", "ErrorBody"):
        for example in described["components"]["schemas"][name]["examples"]:
            getattr(api, name).model_validate(example)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_the_extra_the_error_names_it(missing: str) -> None:
    code = f"""
        import sys
        sys.modules[{missing!r}] = None
        from pot_agent.errors import MissingExtraError
        try:
            import pot_agent.policy.server
        except MissingExtraError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert missing in done.stdout
    assert "policy-of-thoughts[server]" in done.stdout
