"""The HTTP policy against a real server: what it raises is what the policy in process raises, and nothing is lost."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import (
    ConfigError,
    PermissionDeniedError,
    PolicyUnavailableError,
    PotError,
    SessionNotFoundError,
)
from pot_agent.policy.base import Policy
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import ASK, free_port, serving

LORA = LoraConfig(rank=2, alpha=4.0)
GRPO = GrpoConfig(epochs=1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with serving(LocalPolicy(str(tiny))) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[HttpPolicy]:
    with HttpPolicy(url) as client:
        yield client


def train(policy: Policy, session: str, seed: int) -> list[Any]:
    """One whole episode; everything that it showed, but for ids and seconds."""
    policy.open(session, lora=LORA, seed=seed)
    drawn = policy.sample(session, version=0, messages=ASK, n=3, max_tokens=12, seed=seed)
    ids = [completion.sample_id for completion in drawn]
    receipt = policy.internalize(session, version=0, rewards=dict(zip(ids, (1.0, 0.5, 0.0), strict=True)), grpo=GRPO)
    scores = policy.score(session, version=receipt.version, sample_ids=ids)
    after = policy.sample(session, version=receipt.version, messages=ASK, temperature=0, max_tokens=12)
    policy.close(session)
    return [[c.text for c in drawn], [c.logprob for c in drawn], receipt.loss, receipt.kl, scores, after[0].text]


def test_it_is_a_policy_and_says_where_the_weights_are(client: HttpPolicy, local: LocalPolicy) -> None:
    assert isinstance(client, Policy)
    assert client.capabilities.device == f"{local.capabilities.device} (remote)"
    assert client.capabilities.context_tokens == local.capabilities.context_tokens


def test_an_episode_over_http_is_the_episode_in_process(client: HttpPolicy, local: LocalPolicy) -> None:
    assert train(client, "same", seed=5) == train(local, "same", seed=5)


def at_once(url: str, seeds: Sequence[int]) -> list[list[Any]]:
    """An episode of each seed, each by a client of its own, all at once."""

    def episode(seed: int) -> list[Any]:
        with HttpPolicy(url) as client:
            return train(client, f"client-{seed}", seed)

    with ThreadPoolExecutor(len(seeds)) as threads:
        return list(threads.map(episode, seeds))


def test_clients_at_once_do_not_see_each_other(tiny: Path, local: LocalPolicy) -> None:
    with serving(LocalPolicy(str(tiny), batch=False)) as url:
        assert at_once(url, range(4)) == [train(local, f"client-{seed}", seed) for seed in range(4)]


def test_clients_that_are_sampled_together_differ_from_each_alone_by_rounding_only(
    url: str, local: LocalPolicy
) -> None:
    for seed, (texts, logprobs, *numbers, scores, after) in enumerate(at_once(url, range(4))):
        own = train(local, f"client-{seed}", seed)
        assert (texts, after) == (own[0], own[-1])
        assert [*logprobs, *numbers, *scores] == pytest.approx([*own[1], *own[2:4], *own[4]], abs=1e-5)


BAD_CALLS: dict[str, Callable[[Policy], object]] = {
    "unknown session": lambda p: p.sample("ghost", version=0, messages=ASK),
    "conflict": lambda p: p.open("s", lora=LORA, seed=99),
    "bad name": lambda p: p.open("line\nend", lora=LORA),
    "empty name": lambda p: p.open("", lora=LORA),
    "a line end in an unknown name": lambda p: p.sample("line\nend", version=0, messages=ASK),
    "seed": lambda p: p.open("t", seed=1.5),
    "targets": lambda p: p.open("t", lora=LoraConfig(targets=("no_such_layer",))),
    "n": lambda p: p.sample("s", version=0, messages=ASK, n=0),
    "nan temperature": lambda p: p.sample("s", version=0, messages=ASK, temperature=math.nan),
    "max_tokens": lambda p: p.sample("s", version=0, messages=ASK, max_tokens=-3),
    "context": lambda p: p.sample("s", version=0, messages=ASK, max_tokens=100_000),
    "stop": lambda p: p.sample("s", version=0, messages=ASK, stop="text"),
    "version": lambda p: p.sample("s", version=7, messages=ASK),
    "no messages": lambda p: p.sample("s", version=0, messages=[]),
    "role": lambda p: p.sample("s", version=0, messages=[{"role": "robot", "content": "a"}]),
    "unknown sample": lambda p: p.score("s", version=0, sample_ids=["x"]),
    "greedy score": lambda p: p.score("s", version=0, sample_ids=["x"], temperature=0),
    "nan reward": lambda p: p.internalize("s", version=0, rewards={"x": math.nan}, grpo=GRPO),
    "infinite reward": lambda p: p.internalize("s", version=0, rewards={"x": -math.inf}, grpo=GRPO),
    "reward of another type": lambda p: p.internalize("s", version=0, rewards={"x": "1"}, grpo=GRPO),
    "no rewards": lambda p: p.internalize("s", version=0, rewards={}, grpo=GRPO),
    "unknown reward": lambda p: p.internalize("s", version=0, rewards={"x": 1.0, "y": 0.0}, grpo=GRPO),
    "cannot learn": lambda p: p.internalize("base", version=0, rewards={"x": 1.0}, grpo=GRPO),
    "no messages to count": lambda p: p.count_tokens([]),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_call_raises_what_it_raises_in_process(
    call: Callable[[Policy], object], client: HttpPolicy, local: LocalPolicy
) -> None:
    raised: list[PotError] = []
    for policy in (local, client):
        policy.open("s", lora=LORA, seed=1)
        policy.open("base", seed=1)
        with pytest.raises(PotError) as caught:
            call(policy)
        raised.append(caught.value)
    in_process, over_http = raised
    assert type(over_http) is type(in_process)
    assert over_http.message == in_process.message
    assert json.dumps(over_http.value) == json.dumps(in_process.value)  # as text: nan is not equal to itself


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a/open", "?x=1#y", "%2F", "naïve ü", "a" * 200])
def test_any_name_that_a_session_may_have_crosses(name: str, client: HttpPolicy) -> None:
    assert client.open(name, lora=LORA).session == name
    (drawn,) = client.sample(name, version=0, messages=ASK, max_tokens=2)
    assert len(client.score(name, version=0, sample_ids=[drawn.sample_id])) == 1
    client.close(name)
    with pytest.raises(SessionNotFoundError):
        client.sample(name, version=0, messages=ASK)


@pytest.mark.parametrize("text", ["", "naïve 例 🎉", "null\x00byte", "lone\ud800surrogate", "x" * 100_000])
def test_any_text_counts_as_in_process(text: str, client: HttpPolicy, local: LocalPolicy) -> None:
    assert client.count_tokens(text) == local.count_tokens(text)
    message = [{"role": "user", "content": text}]
    assert client.count_tokens(message) == local.count_tokens(message)


@pytest.mark.parametrize(
    "url",
    ["localhost:8719", "127.0.0.1", "ftp://host", "http://", "http://h:99999", "http://h?x=1", "http://a b", "", None],
)
def test_what_is_no_url_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(ConfigError, match="URL of a policy server") as refused:
        HttpPolicy(url)
    assert refused.value.value == url


def test_a_password_in_the_url_is_refused_unseen() -> None:
    with pytest.raises(ConfigError, match="POT_TOKEN") as refused:
        HttpPolicy("http://me:hunter2@host")
    assert "hunter2" not in repr(refused.value) + repr(refused.value.value)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_that_cannot_be_is_refused(timeout: float) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        HttpPolicy("http://127.0.0.1:1", timeout=timeout)


def test_a_server_that_does_not_run_is_named_with_the_command_that_starts_one() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with HttpPolicy(url) as client, pytest.raises(PolicyUnavailableError, match="pot serve") as refused:
        client.open("s")
    assert refused.value.value == url
    assert url in str(refused.value)


def test_another_path_of_a_policy_server_is_no_policy_server(url: str) -> None:
    with HttpPolicy(f"{url}/elsewhere") as client, pytest.raises(PolicyUnavailableError, match="/elsewhere"):
        client.open("s")


class OtherServer(BaseHTTPRequestHandler):
    """A web server of another kind: `answer` is what it says to everything."""

    answer: tuple[int, bytes] = (200, b"<html>hello</html>")

    def do_GET(self) -> None:
        status, body = self.answer
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Location", "http://elsewhere.example/")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>hello</html>"),
        (200, b'{"hello": 1}'),
        (200, b"[" * 100_000),
        (200, b'{"model": "m", "learns": true}'),
        (404, b'{"detail": "Not Found"}'),
        (301, b""),
        (500, b"oops"),
        (503, b"the gateway has no server behind it"),
    ],
)
def test_a_server_of_another_kind_is_told_apart(answer: tuple[int, bytes]) -> None:
    handler = type("Other", (OtherServer,), {"answer": answer})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with HttpPolicy(f"http://127.0.0.1:{server.server_address[1]}") as client:
            with pytest.raises(PolicyUnavailableError, match="pot serve"):
                _ = client.capabilities
            with pytest.raises(PolicyUnavailableError, match="pot serve"):
                client.sample("s", version=0, messages=ASK)
        server.shutdown()


@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_the_token_permission_is_denied(tiny: Path, token: str | None) -> None:
    with serving(LocalPolicy(str(tiny)), token="right") as url:
        with HttpPolicy(url, token=token) as client, pytest.raises(PermissionDeniedError, match="token"):
            client.open("s")
        with HttpPolicy(url, token="right") as client:
            assert client.open("s").version == 0
