"""The door of the policy server: who may come in, where it listens, how much a caller may bring."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pot_agent.errors import ConfigError
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.server import create_app, listen
from pot_agent.settings import Settings
from tests.policy.serving import free_port, serving

TOKEN = "correct-horse"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny))) as url:
        yield url


@pytest.fixture(scope="module")
def guarded(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny)), token=TOKEN) as url:
        yield url


def test_probes_need_no_token(guarded: str) -> None:
    assert httpx.get(f"{guarded}/health").json() == {"status": "ok"}
    assert httpx.get(f"{guarded}/ready").json() == {"status": "ready"}


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer"}],
    ids=["none", "wrong", "another scheme", "empty"],
)
@pytest.mark.parametrize("path", ["/v1/capabilities", "/v1/sessions/x/close", "/openapi.json", "/nowhere", "/v1/count"])
def test_every_other_path_wants_the_token(guarded: str, path: str, headers: dict[str, str]) -> None:
    answer = httpx.post(guarded + path, headers=headers, content=b"not even JSON")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "permission_denied"
    assert TOKEN not in answer.text


def test_the_token_opens_the_door(guarded: str) -> None:
    answer = httpx.get(f"{guarded}/v1/capabilities", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.json()["learns"] is True


@pytest.mark.parametrize("header", [{"Host": "attacker.example"}, {"Origin": "https://attacker.example"}])
def test_without_a_token_a_web_page_is_a_stranger(url: str, guarded: str, header: dict[str, str]) -> None:
    refused = httpx.post(f"{url}/v1/sessions/x/close", headers=header)
    assert refused.status_code == 403
    assert refused.json()["value"].endswith("attacker.example")
    header["Authorization"] = f"Bearer {TOKEN}"
    assert httpx.post(f"{guarded}/v1/sessions/x/close", headers=header).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "pot.example.com"])
def test_listening_beyond_loopback_wants_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="POT_TOKEN") as refused:
        listen(Settings(host=host, port=free_port()))
    assert refused.value.value == host


def test_with_a_token_it_may_listen_beyond_loopback(caplog: pytest.LogCaptureFixture) -> None:
    with listen(Settings(host="0.0.0.0", port=free_port(), token=TOKEN)) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"
    assert "without TLS" in caplog.text


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use.*POT_PORT"):
            listen(Settings(port=port))


@pytest.mark.parametrize("token", ["", "two words", "naïve", "line\n"])
def test_a_token_that_no_header_carries_is_refused_unseen(token: str, tiny: Path) -> None:
    with pytest.raises(ConfigError, match="POT_TOKEN") as refused:
        create_app(LocalPolicy(str(tiny)), token=token)
    assert not token or token not in str(refused.value)
    assert refused.value.value is None


def test_a_body_over_the_limit_is_refused_announced_or_not(tiny: Path) -> None:
    body = b'{"content": "' + b"a" * 5000 + b'"}'
    with serving(LocalPolicy(str(tiny)), max_body_bytes=1000) as url:
        announced = httpx.post(f"{url}/v1/count", content=body, headers=JSON)
        chunked = httpx.post(f"{url}/v1/count", content=(body[i : i + 100] for i in range(0, 5013, 100)), headers=JSON)
        fits = httpx.post(f"{url}/v1/count", content=b'{"content": "a"}', headers=JSON)
    assert announced.status_code == chunked.status_code == 413
    assert announced.json()["code"] == "config"
    assert announced.json()["value"] == len(body)
    assert "1,000" in chunked.json()["message"]
    assert fits.status_code == 200


def test_a_body_that_never_comes_does_not_hold_the_server(tiny: Path) -> None:
    head = b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    with serving(LocalPolicy(str(tiny)), body_seconds=0.2) as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as sock:
            sock.sendall(head)
            answer = sock.recv(10_000)
        assert httpx.get(f"{url}/health").status_code == 200
    assert answer.startswith(b"HTTP/1.1 408")
