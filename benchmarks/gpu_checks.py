"""The checks of `check_gpu.py`: each a function of one policy that says what it found, or raises why it failed.

Limits: a passed check says that it was so once, on these token ids. Some look inside the policy, where the contract
shows too little.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from gpu_figures import memory, speed, update
from gpu_subject import LORA, STRONG, CheckFailedError, CheckSkippedError, Subject

from pot_agent.errors import VersionError
from pot_agent.policy.base import Receipt
from pot_agent.policy.canary import distance
from pot_agent.policy.journal import Sample

MOST_GAP = {torch.float32: 1e-3, torch.float64: 1e-6}
MOST_GAP_IN_16_BITS = 0.1
"""Nats a token between sampler and trainer, mean."""


def contract(subject: Subject) -> str:
    """Open, sample, score, internalize twice with one receipt, an old version refused, close."""
    policy, session = subject.policy, subject.open()
    subject.digest = subject.weights()
    group = subject.draw(session)
    if len({sample.sample_id for sample in group}) != 3 or any(sample.tokens < 1 for sample in group):
        raise CheckFailedError(f"three samples with tokens were asked for, got {group}")
    scored = policy.score(session, version=0, sample_ids=[sample.sample_id for sample in group], temperature=0.7)
    apart = distance([sample.logprob or 0.0 for sample in group], scored)
    if not apart <= most_gap(subject):
        raise CheckFailedError(f"the samples' log-probabilities and their scores lie {apart:.2e} nats apart")
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    first = policy.internalize(session, version=0, rewards=rewards, grpo=STRONG, cancel=subject.cancel)
    again = policy.internalize(session, version=0, rewards=rewards, grpo=STRONG, cancel=subject.cancel)
    if first != again or first.version != 1:
        raise CheckFailedError(
            f"one update was asked for twice; the receipts name versions {first.version} and {again.version}"
        )
    subject.receipt = first
    try:
        policy.sample(session, version=2, messages=subject.ask(), max_tokens=1)
    except VersionError:
        policy.close(session)
        return f"{sum(sample.tokens for sample in group)} tokens, loss {first.loss:+.4f} to {first.loss_last:+.4f}"
    raise CheckFailedError("version 2 was sampled, and there is none")


def gap(subject: Subject) -> str:
    """Sampler and trainer give the same log-probabilities under the base."""
    receipt = _receipt(subject)
    most = most_gap(subject)
    found = receipt.sampler_gap or 0.0
    text = f"{found:.2e} nats a token, KL {receipt.sampler_kl or 0.0:.1e} ({most:g} at most)"
    if not found <= most:
        raise CheckFailedError(text)
    return text


def canary(subject: Subject) -> str:
    """The sampler was seen to run the new version."""
    receipt = _receipt(subject)
    if receipt.canary != "reached":
        raise CheckFailedError(f"{receipt.canary} after a step at learning rate {STRONG.learning_rate:g}")
    return f"reached; {receipt.canary_gap or 0.0:.1e} nats from the new version"


def two_sessions(subject: Subject) -> str:
    """Sessions trained on opposite rewards, sampled at the same time, each sample as their own adapter."""
    return _each_its_own(subject, 2)


def many_sessions(subject: Subject) -> str:
    """More sessions than the sampler has slots, at the same time."""
    return _each_its_own(subject, subject.load.sessions)


def base(subject: Subject) -> str:
    """After all that, the base's weights are those of the beginning, bit for bit."""
    if not subject.digest:
        raise CheckSkippedError("the contract's check did not come so far")
    found = subject.weights()
    if found != subject.digest:
        raise CheckFailedError(f"digest {found[:12]}, and {subject.digest[:12]} before")
    return f"digest {found[:12]}"


def versions(subject: Subject) -> str:
    """Each version is sampled as itself when it is new, and again when all are live."""
    policy, session = subject.policy, subject.open()
    engine = policy._engine
    layout = engine.layout(LORA)
    vectors: dict[int, Any] = {0: None}

    def nearest(version: int) -> int:
        request = engine.request(
            prompt_ids=engine.chat.encode(subject.ask(200)),
            n=1,
            temperature=0.7,
            max_tokens=12,
            seed="",
            stop=(),
            check=subject.go_on,
        )
        (drawn,) = engine.draw(request, layout, vectors[version])
        gaps = {}
        for other, vector in vectors.items():
            subject.go_on()
            gaps[other] = distance(drawn.logprobs, engine.score_tokens(layout, vector, request, drawn))
        return min(gaps, key=lambda other: gaps[other])

    for version in range(1, subject.load.versions + 1):
        policy.snapshot(session)  # all stay live
        subject.learn(session, version - 1)
        vectors[version] = policy._sessions._open[session].vector_of(version)
        if (found := nearest(version)) != version:
            raise CheckFailedError(f"version {version}, just published, is sampled as version {found}")
    again = {version: nearest(version) for version in vectors}
    policy.close(session)
    if any(version != found for version, found in again.items()):
        raise CheckFailedError(f"version: what it is sampled as, all live: {again}")
    return f"{len(vectors)} versions, each nearest itself, new and again"


CHECKS: tuple[Callable[[Subject], str], ...] = (
    contract,
    gap,
    canary,
    two_sessions,
    versions,
    many_sessions,
    speed,
    update,
    base,
    memory,
)
"""In this order: later ones use what earlier ones left."""


def most_gap(subject: Subject) -> float:
    """How far sampler and trainer may be apart, in nats a token."""
    return MOST_GAP.get(subject.policy._engine.dtype, MOST_GAP_IN_16_BITS)


def _receipt(subject: Subject) -> Receipt:
    if subject.receipt is None:
        raise CheckSkippedError("the contract's check did not come so far")
    return subject.receipt


def _each_its_own(subject: Subject, count: int) -> str:
    policy = subject.policy
    sessions = [subject.open() for _ in range(count)]
    for at, session in enumerate(sessions):
        subject.learn(session, best=at % 3)
    with ThreadPoolExecutor(count) as pool:
        calls = {session: pool.submit(subject.draw, session, 1, seed=7) for session in sessions}
        drawn = {session: call.result() for session, call in calls.items()}
    held = {session: policy._sessions._open[session] for session in sessions}
    versions = {"the base": None} | {session: opened.vector_of(1) for session, opened in held.items()}
    worst = 0.0
    for session in sessions:
        samples = held[session].journal.get([sample.sample_id for sample in drawn[session]])
        gaps = {name: _apart(subject, vector, samples) for name, vector in versions.items()}
        own, (nearest, other) = gaps.pop(session), min(gaps.items(), key=lambda pair: pair[1])
        if not own < other:
            raise CheckFailedError(
                f"{session}'s samples: {own:.2e} nats from its version, {other:.2e} from {nearest}'s"
            )
        worst = max(worst, own / other)
    said = {tuple((sample.text, sample.logprob) for sample in drawn[session]) for session in sessions}
    for session in sessions:
        policy.close(session)
    if len(said) < count:
        raise CheckFailedError(f"{count} sessions that were trained differently say only {len(said)} different things")
    return f"{count} at once; the nearest other version at least {1 / max(worst, 1e-9):,.1f} times as far as its own"


def _apart(subject: Subject, vector: Any, samples: Sequence[Sample]) -> float:
    """Between what the sampler recorded and what the trainer says under a version: root mean square over all tokens."""
    engine, recorded, scored = subject.policy._engine, [], []
    for sample in samples:
        subject.go_on()
        recorded += sample.logprobs
        scored += engine.score_tokens(engine.layout(LORA), vector, sample, sample)
    return distance(recorded, scored)
