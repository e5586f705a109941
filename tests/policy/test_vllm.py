"""Sampling by vLLM, with real weights: each version samples as itself, whatever was sampled before and beside it."""

import os
import signal
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import AdapterNotSampledError, CancelledError, ConfigError, PolicyUnavailableError
from pot_agent.policy.base import Message
from pot_agent.policy.canary import distance
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.sampler import Drawn, Request
from tests.policy.contract import LORA, draw, learn, opened
from tests.test_end_to_end import Lowness

pytestmark = pytest.mark.vllm

LONG: list[Message] = [
    {"role": "user", "content": "Write a Python function that returns the largest number of a list. " * 8}
]
"""Several whole blocks of the prefix cache."""
RUNNING = 5.0


def tokens_of(policy: LocalPolicy, session: str, version: int, vector: "Tensor | None") -> tuple[Request, Drawn]:
    """What vLLM draws after the long prompt, under a session's version."""
    engine = policy._engine
    request = engine.request(
        prompt_ids=engine.chat.encode(LONG), n=1, temperature=0.7, max_tokens=12, seed="", stop=(), check=lambda: None
    )
    (drawn,) = engine.draw(request, engine.layout(LORA), vector)
    return request, drawn


def nearest(policy: LocalPolicy, drawn: tuple[Request, Drawn], vectors: "dict[int, Tensor | None]") -> int:
    """The version whose log-probabilities, by the trainer, are those that the sampler recorded."""
    engine = policy._engine
    request, row = drawn
    gaps = {
        version: distance(row.logprobs, engine.score_tokens(engine.layout(LORA), vector, request, row))
        for version, vector in vectors.items()
    }
    return min(gaps, key=lambda version: gaps[version])


def adapters(policy: LocalPolicy) -> set[int]:
    found: set[int] = policy._engine._sampler.adapters()  # type: ignore[attr-defined]
    return found


def settled(condition: Any) -> bool:
    """Whether it comes true within a few seconds: adapters are removed in the background."""
    end = time.monotonic() + RUNNING
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_versions_sampled_as_they_come_and_again_when_all_are_live_are_each_their_own(vllm: LocalPolicy) -> None:
    session = opened(vllm)
    vectors: dict[int, Tensor | None] = {0: None}
    for version in range(1, 6):
        vllm.snapshot(session)  # all stay live
        learn(vllm, session, version=version - 1, seed=version, grpo=GrpoConfig(learning_rate=3e-3))
        vectors[version] = vllm._sessions._open[session].vector_of(version)
        assert nearest(vllm, tokens_of(vllm, session, version, vectors[version]), vectors) == version
    again = {version: tokens_of(vllm, session, version, vector) for version, vector in vectors.items()}
    assert {version: nearest(vllm, drawn, vectors) for version, drawn in again.items()} == {v: v for v in vectors}


def test_more_sessions_than_slots_sample_each_its_own_adapter_at_once(vllm: LocalPolicy) -> None:
    slots = vllm._engine._sampler._options.slots  # type: ignore[attr-defined]
    sessions = [opened(vllm, seed=seed) for seed in range(3 * slots)]
    for seed, session in enumerate(sessions):
        learn(vllm, session, seed=seed, grpo=GrpoConfig(learning_rate=3e-3, epochs=1))
    found: dict[str, list[float | None]] = {}

    def work(session: str) -> None:
        samples = draw(vllm, session, version=1, messages=LONG, n=2, temperature=0.7, max_tokens=16)
        mine = vllm.score(session, version=1, sample_ids=[s.sample_id for s in samples], temperature=0.7)
        base = vllm.score(session, version=0, sample_ids=[s.sample_id for s in samples], temperature=0.7)
        assert mine == pytest.approx([s.logprob for s in samples], abs=1e-3)
        assert mine != pytest.approx(base, abs=1e-3)
        found[session] = [s.logprob for s in samples]

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == set(sessions)


def test_an_adapter_leaves_the_engine_and_the_disk_with_its_session(vllm: LocalPolicy) -> None:
    published = vllm._engine._sampler._published  # type: ignore[attr-defined]
    session = opened(vllm)
    learn(vllm, session)
    draw(vllm, session, version=1)
    held, folders = adapters(vllm), set(Path(published._root).iterdir())
    (number,) = {
        p.number for p in published._by_vector.values() if p.vector() is vllm._sessions._open[session].vectors[1]
    }
    assert number in held
    vllm.close(session)
    assert settled(lambda: number not in adapters(vllm))
    assert settled(lambda: set(Path(published._root).iterdir()) == folders - {published._root / str(number)})


def test_a_version_that_is_being_sampled_outlives_its_session(vllm: LocalPolicy) -> None:
    published = vllm._engine._sampler._published  # type: ignore[attr-defined]
    session = opened(vllm)
    learn(vllm, session)
    vector = vllm._sessions._open[session].vectors[1]
    with published.lease(vllm._engine.layout(LORA), vector) as adapter:
        del vector
        vllm.close(session)
        time.sleep(0.3)
        assert adapter.folder.is_dir()
        assert adapter.number in adapters(vllm)
    assert settled(lambda: not adapter.folder.exists() and adapter.number not in adapters(vllm))


def test_a_sampler_that_stays_at_the_version_before_is_caught(
    vllm: LocalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(vllm)
    learn(vllm, session)
    stale = vllm._sessions._open[session].vectors[1]
    sampler = vllm._engine._sampler
    real = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda request, layout, vector: real(request, layout, stale))
    with pytest.raises(AdapterNotSampledError):
        learn(vllm, session, version=1, seed=1)
    assert vllm.open(session, lora=LORA).version == 1


def test_a_cancelled_draw_leaves_no_request_in_the_engine(vllm: LocalPolicy) -> None:
    session = opened(vllm)
    cancel = threading.Event()
    with pytest.raises(CancelledError):
        draw(vllm, session, n=4, max_tokens=400, cancel=cancel, on_tokens=lambda _: cancel.set())
    engine = vllm._engine._sampler._engine.running()  # type: ignore[attr-defined]
    assert settled(lambda: engine.output_processor.get_num_unfinished_requests() == 0)


def test_a_rank_beyond_what_the_engine_was_built_for_is_refused_when_the_session_is_opened(vllm: LocalPolicy) -> None:
    with pytest.raises(ConfigError, match="POT_MAX_RANK"):
        vllm.open("too large", lora=LoraConfig(rank=17))


def test_samples_go_on_while_another_session_trains(vllm: LocalPolicy) -> None:
    trained, sampled = opened(vllm, seed=1), opened(vllm, seed=2)
    group = draw(vllm, trained, n=4, max_tokens=64)
    rewards = {sample.sample_id: float(at) for at, sample in enumerate(group)}
    training = threading.Event()
    seen: list[bool] = []

    def train() -> None:
        training.set()
        vllm.internalize(trained, version=0, rewards=rewards, grpo=GrpoConfig(epochs=6))

    thread = threading.Thread(target=train)
    thread.start()
    training.wait()
    while not len(vllm._turns):
        time.sleep(0.001)
    while thread.is_alive() and len(seen) < 3:
        draw(vllm, sampled, n=1, max_tokens=4)
        seen.append(thread.is_alive())
    thread.join()
    assert seen[0]


def test_an_engine_that_died_is_an_error_and_the_next_call_has_a_new_one(vllm: LocalPolicy) -> None:
    session = opened(vllm)
    learn(vllm, session)
    engine = vllm._engine._sampler._engine.running()  # type: ignore[attr-defined]
    for process in engine.engine_core.resources.engine_manager.processes:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PolicyUnavailableError, match="died"):
        _draw_until_it_is_noticed(vllm, session)
    fresh = draw(vllm, session, version=1, max_tokens=16)
    scores = vllm.score(session, version=1, sample_ids=[s.sample_id for s in fresh], temperature=1.0)
    assert scores == pytest.approx([s.logprob for s in fresh], abs=1e-3)


def test_an_engine_that_died_is_not_ready_and_is_started_again_by_asking(vllm: LocalPolicy) -> None:
    vllm.check_ready()
    front = vllm._engine._sampler._engine  # type: ignore[attr-defined]
    for process in front.running().engine_core.resources.engine_manager.processes:
        os.kill(process.pid, signal.SIGKILL)
    assert settled(lambda: front._engine.errored)
    with pytest.raises(PolicyUnavailableError, match="has died, and is being started again"):
        vllm.check_ready()
    end = time.monotonic() + 180
    while front._starting.locked() or front._engine is None or front._engine.errored:
        with pytest.raises(PolicyUnavailableError, match="being started"):
            vllm.check_ready()
        assert time.monotonic() < end
        time.sleep(0.1)
    vllm.check_ready()
    assert len(draw(vllm, opened(vllm), n=2)) == 2


def _draw_until_it_is_noticed(policy: LocalPolicy, session: str) -> None:
    for _ in range(50):
        draw(policy, session, version=1, max_tokens=50)


def test_a_problem_goes_through_the_graph_and_its_adapter_is_trained(vllm: LocalPolicy, sandbox: Any) -> None:
    problem = {"problem": "Write add(a, b), which returns the sum.", "tests": ["assert add(1, 2) == 3"]}
    config = PotConfig.quick(iterations=2, width=3, max_new_tokens=64, max_prompt_tokens=400)
    grpo = replace(config.grpo_for(vllm.capabilities.parameters), learning_rate=1e-3)  # steps that no noise hides
    config = config.change(grpo=grpo)
    graph = create_pot_agent(vllm, sandbox, config=config, reward=Lowness())
    events = list(graph.stream(problem, stream_mode="custom"))
    updates = [event for event in events if event["event"] == "update"]
    assert updates
    assert all(update["canary"] == "reached" for update in updates)
    assert [b["version"] > a["version"] for a, b in pairwise(updates)] == [True] * (len(updates) - 1)
    solution = create_pot_agent(vllm, sandbox, config=config).invoke(problem)["solution"]
    assert solution["solved"] in (True, False)
    assert solution["tokens"] > 0
