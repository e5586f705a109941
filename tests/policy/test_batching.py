"""Requests of several sessions drawn together are, each of them, what they would be alone."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, PolicyUnavailableError
from pot_agent.policy import batching
from pot_agent.policy.batching import Batcher
from pot_agent.policy.engine import Engine
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.sampler import Drawn, Request
from pot_agent.policy.turns import Turns
from tests.policy.contract import ASK, draw, learn, opened

LORA = LoraConfig(rank=3)


def requests(engine: Engine, count: int) -> list[tuple[Request, Tensor | None]]:
    """Unequal ones: prompts, rows, lengths, temperatures; every third of the base."""
    layout = engine.layout(LORA)
    made = []
    for index in range(count):
        words = "Write a function that adds two numbers. " * (1 + index % 3)
        request = engine.request(
            prompt_ids=engine.chat.encode([{"role": "user", "content": f"{words}{index}"}]),
            n=1 + index % 4,
            temperature=0.5 + 0.2 * (index % 3),
            max_tokens=5 + 3 * (index % 5),
            seed=f"seed {index}",
            stop=(),
            check=lambda: None,
        )
        made.append((request, None if index % 3 == 2 else engine.noisy(layout, index, 0.3)))
    return made


def alone(engine: Engine, asked: list[tuple[Request, Tensor | None]]) -> list[list[Drawn]]:
    return [engine.draw(request, engine.layout(LORA), vector) for request, vector in asked]


def together(
    engine: Engine, asked: list[tuple[Request, Tensor | None]], turns: Turns | None = None, most_rows: int = 64
) -> list[list[Drawn]]:
    """Drawn by one batch: all of them wait when it starts."""
    turns = turns or Turns()
    batcher = Batcher(engine._sampler, turns, most_rows=most_rows)  # type: ignore[arg-type]
    try:
        with ThreadPoolExecutor(len(asked)) as threads:
            with turns.taken():
                found = [
                    threads.submit(batcher.draw, request, engine.layout(LORA), vector) for request, vector in asked
                ]
                while len(batcher._waiting) < len(asked):
                    time.sleep(0.001)
            return [each.result() for each in found]
    finally:
        batcher.close()


def assert_equal(found: list[list[Drawn]], wanted: list[list[Drawn]], tolerance: float) -> None:
    for rows, others in zip(found, wanted, strict=True):
        assert [(row.ids, row.finish) for row in rows] == [(row.ids, row.finish) for row in others]
        for row, other in zip(rows, others, strict=True):
            assert row.logprobs == pytest.approx(other.logprobs, abs=tolerance)


def test_requests_drawn_together_are_those_drawn_alone(exact: Engine) -> None:
    asked = requests(exact, 9)
    assert_equal(together(exact, asked), alone(exact, asked), 1e-10)


def test_requests_beyond_the_batch_wait_and_are_drawn_all_the_same(exact: Engine) -> None:
    asked = requests(exact, 7)
    assert_equal(together(exact, asked, most_rows=4), alone(exact, asked), 1e-10)


def test_a_request_alone_is_bit_for_bit_what_it_is_without_a_batch(tiny: Path, tmp_path: Path) -> None:
    engine = Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path)
    asked = requests(engine, 4)
    found = [rows for each in asked for rows in together(engine, [each])]
    assert_equal(found, alone(engine, asked), 0.0)


@pytest.fixture
def batched(tiny: Path) -> Iterator[LocalPolicy]:
    with LocalPolicy(str(tiny), threads=1, batch=True) as policy:
        yield policy


def test_sessions_that_sample_at_once_sample_each_its_own_adapter(batched: LocalPolicy) -> None:
    sessions = [opened(batched, seed=seed) for seed in range(6)]
    for seed, session in enumerate(sessions):
        learn(batched, session, seed=seed)

    def gaps(session: str) -> tuple[float, float]:
        fresh = draw(batched, session, version=1, n=3, seed=5)
        ids = [sample.sample_id for sample in fresh]
        own = batched.score(session, version=1, sample_ids=ids, temperature=1.0)
        base = batched.score(session, version=0, sample_ids=ids, temperature=1.0)
        sampled = [sample.logprob or 0.0 for sample in fresh]
        return (
            max(abs(a - b) for a, b in zip(sampled, own, strict=True)),
            min(abs(a - b) for a, b in zip(sampled, base, strict=True)),
        )

    with ThreadPoolExecutor(len(sessions)) as threads:
        for own, base in threads.map(gaps, sessions):
            assert own < 1e-4
            assert base > 1e-2


def test_an_update_gets_its_turn_while_others_sample(batched: LocalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "SHARE_SECONDS", 0.0)
    trained, sampled = opened(batched, seed=1), opened(batched, seed=2)
    group = draw(batched, trained)
    rewards = {sample.sample_id: float(index) for index, sample in enumerate(group)}
    sampling, stop = threading.Event(), threading.Event()

    def pace(_: int) -> None:
        sampling.set()
        time.sleep(0.005)

    def sample() -> None:
        with pytest.raises(CancelledError):
            draw(batched, sampled, max_tokens=400, cancel=stop, on_tokens=pace)

    thread = threading.Thread(target=sample)
    thread.start()
    sampling.wait()
    assert batched.internalize(trained, version=0, rewards=rewards, grpo=GrpoConfig()).version == 1
    assert thread.is_alive()
    stop.set()
    thread.join()


def test_a_request_that_is_cancelled_or_fails_leaves_the_others_be(exact: Engine) -> None:
    asked = requests(exact, 6)
    wanted = alone(exact, asked)
    left = threading.Event()

    def give_up(*_: Any) -> None:
        if left.is_set():
            raise CancelledError("given up")

    victims = (0, 3)
    for at in victims:
        object.__setattr__(asked[at][0], "on_tokens", lambda _: left.set())
        object.__setattr__(asked[at][0], "check", give_up)
    batcher = Batcher(exact._sampler, Turns())  # type: ignore[arg-type]
    with ThreadPoolExecutor(6) as threads:
        found = [threads.submit(batcher.draw, request, exact.layout(LORA), vector) for request, vector in asked]
        errors = [each.exception() for each in found]
    batcher.close()
    assert [isinstance(error, CancelledError) for error in errors] == [at in victims for at in range(6)]
    others = [at for at in range(6) if at not in victims]
    assert_equal([found[at].result() for at in others], [wanted[at] for at in others], 1e-10)


def test_shutting_down_ends_those_who_wait_and_those_who_draw(tiny: Path) -> None:
    policy = LocalPolicy(str(tiny), threads=1, batch=True)
    sessions = [opened(policy, seed=seed) for seed in range(3)]
    sampling = threading.Event()

    def pace(_: int) -> None:
        sampling.set()
        time.sleep(0.005)

    with ThreadPoolExecutor(3) as threads:
        found = [
            threads.submit(policy.sample, session, version=0, messages=ASK, max_tokens=400, on_tokens=pace)
            for session in sessions
        ]
        sampling.wait()
        policy.shutdown()
        assert all(isinstance(each.exception(30), PolicyUnavailableError) for each in found)


def test_the_thread_that_draws_ends_when_there_is_nothing_to_do(
    batched: LocalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "IDLE_SECONDS", 0.05)
    session = opened(batched)
    for _ in range(2):
        draw(batched, session)
        end = time.monotonic() + 30
        while any(thread.name == "pot-batch" for thread in threading.enumerate()) and time.monotonic() < end:
            time.sleep(0.01)
        assert not any(thread.name == "pot-batch" for thread in threading.enumerate())
    assert torch.is_grad_enabled()
