"""The policy in this process: what holds beyond the contract."""

import hashlib
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import (
    CancelledError,
    ConfigError,
    ModelNotFoundError,
    PolicyBusyError,
    PolicyUnavailableError,
    SessionNotFoundError,
)
from pot_agent.policy import choice
from pot_agent.policy.adapters import SPARE_SLOTS
from pot_agent.policy.base import Message, Receipt
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.sessions import Sessions
from pot_agent.policy.shared import default_policy
from pot_agent.settings import Settings

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
GRPO = GrpoConfig(learning_rate=1e-2)


def learn(policy: LocalPolicy, session: str, *, version: int = 0, seed: int = 0, grpo: GrpoConfig = GRPO) -> Receipt:
    group = policy.sample(session, version=version, messages=ASK, n=3, max_tokens=8, seed=seed, temperature=1.0)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    return policy.internalize(session, version=version, rewards=rewards, grpo=grpo)


def base_digest(policy: LocalPolicy) -> str:
    """Every weight of the base, bit for bit, by the name it had before any adapter came."""
    digest = hashlib.sha256()
    for name, tensor in policy._engine._loaded.model.state_dict().items():
        if ".lora_" not in name:
            digest.update(name.replace(".base_layer", "").encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture
def own(tiny: Path) -> LocalPolicy:
    """A policy that a test may spoil."""
    return LocalPolicy(str(tiny), threads=1, max_sessions=3)


def test_the_base_is_bit_identical_after_open_train_and_close(own: LocalPolicy) -> None:
    before = base_digest(own)
    (greedy,) = own.sample(_opened(own, "before", None), version=0, messages=ASK, temperature=0, max_tokens=20)
    own.close("before")
    for index in range(SPARE_SLOTS + 2):  # more configurations than slots: some are deleted and built anew
        session = _opened(own, "s", LoraConfig(rank=1 + index))
        learn(own, session)
        learn(own, session, version=1)
        own.close(session)
    assert base_digest(own) == before
    (after,) = own.sample(_opened(own, "after", None), version=0, messages=ASK, temperature=0, max_tokens=20)
    assert (after.text, after.logprob) == (greedy.text, greedy.logprob)
    assert len(own._engine._adapters._slots) == SPARE_SLOTS


def _opened(policy: LocalPolicy, session: str, lora: LoraConfig | None) -> str:
    policy.open(session, lora=lora)
    return session


def test_adapters_may_aim_at_some_layers_only(own: LocalPolicy) -> None:
    few = _opened(own, "few", LoraConfig(rank=2, targets=("q_proj", "v_proj")))
    names = tuple(f"layers.1.mlp.{part}_proj" for part in ("gate", "up", "down"))
    one_block = _opened(own, "one block", LoraConfig(rank=2, targets=names))
    assert learn(own, few).skipped is None
    assert learn(own, one_block).skipped is None
    layouts = own._engine._layouts.values()
    assert {site.name for layout in layouts for site in layout.sites if "layers.1.mlp" in site.name} == {
        f"model.layers.1.mlp.{part}_proj" for part in ("gate", "up", "down")
    }
    assert learn(own, few, version=1).skipped is None


def test_the_reference_is_synced_at_the_first_boundary_after_ten_steps(own: LocalPolicy) -> None:
    session = _opened(own, "s", LoraConfig(rank=2))
    inner = own._sessions._open[session]
    synced = []
    for version in range(9):
        learn(own, session, version=version, seed=version, grpo=GrpoConfig(learning_rate=1e-3))
        synced.append(inner.reference is not None and torch.equal(inner.reference, inner.vectors[version + 1]))
    assert synced == [False, False, False, True, False, False, False, True, False]  # after 12 and 24 steps of 3


@pytest.mark.parametrize(("reference", "kl_is_zero"), [("base", False), ("current", True), ("synced", False)])
def test_the_kl_is_to_the_reference_that_was_asked_for(own: LocalPolicy, reference: str, kl_is_zero: bool) -> None:
    session = _opened(own, "s", LoraConfig(rank=2))
    learn(own, session)
    one_epoch = GrpoConfig(epochs=1, reference=reference)  # type: ignore[arg-type]
    receipt = learn(own, session, version=1, seed=1, grpo=one_epoch)
    assert receipt.kl is not None
    assert (receipt.kl == 0.0) == kl_is_zero


def test_a_loss_that_overflows_is_skipped_and_nothing_moves(own: LocalPolicy) -> None:
    session = _opened(own, "s", LoraConfig(rank=2))
    learn(own, session)
    inner = own._sessions._open[session]
    moments = inner.moments
    receipt = learn(own, session, version=1, grpo=GrpoConfig(epochs=3, learning_rate=1e30, beta=1.0))
    assert receipt.skipped is not None
    assert "not finite" in receipt.skipped
    assert (receipt.version, inner.version, inner.steps, receipt.steps) == (1, 1, 3, 0)
    assert inner.moments is moments
    assert learn(own, session, version=1, seed=5).version == 2


@pytest.mark.parametrize(
    ("lora", "grpo"),
    [
        ({"alpha": 1e30}, {}),
        ({}, {"learning_rate": 1e30, "adam_betas": (0.999999, 0.999999)}),
        ({}, {"learning_rate": 1e30, "weight_decay": 1e300}),
        ({}, {"loss_normalisation": "constant", "constant_length": 2**63 - 1}),
    ],
    ids=str,
)
def test_the_largest_numbers_that_are_allowed_move_weights_or_are_skipped(
    own: LocalPolicy, lora: dict[str, Any], grpo: dict[str, Any]
) -> None:
    session = _opened(own, "s", LoraConfig(rank=2, **lora))
    group = own.sample(session, version=0, messages=ASK, n=2, max_tokens=4, temperature=1.0)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    receipt = own.internalize(session, version=0, rewards=rewards, grpo=GrpoConfig(**grpo))
    assert receipt.version == (0 if receipt.skipped else 1)
    assert own.sample(session, version=receipt.version, messages=ASK, n=1, max_tokens=2)


def test_a_cancel_between_epochs_keeps_version_and_moments(own: LocalPolicy) -> None:
    session = _opened(own, "s", LoraConfig(rank=2))
    group = own.sample(session, version=0, messages=ASK, n=3, max_tokens=8, temperature=1.0)
    rewards = {sample.sample_id: float(index == 0) for index, sample in enumerate(group)}
    cancel = threading.Event()
    epoch = own._engine._trainer._epoch

    def one_epoch_then_cancel(*arguments: object, **options: object) -> object:
        result = epoch(*arguments, **options)  # type: ignore[arg-type]
        cancel.set()
        return result

    own._engine._trainer._epoch = one_epoch_then_cancel  # type: ignore[assignment,method-assign]
    with pytest.raises(CancelledError):
        own.internalize(session, version=0, rewards=rewards, grpo=GRPO, cancel=cancel)
    del own._engine._trainer._epoch
    inner = own._sessions._open[session]
    assert (inner.version, inner.moments, inner.receipts) == (0, None, {})
    other = _opened(own, "other", LoraConfig(rank=2))
    own.internalize(session, version=0, rewards=rewards, grpo=GRPO)
    learn(own, other)
    assert torch.equal(inner.vectors[1], own._sessions._open[other].vectors[1])


def test_a_call_that_waits_for_its_turn_can_be_cancelled(own: LocalPolicy) -> None:
    session = _opened(own, "s", None)
    cancel = threading.Event()
    outcome: list[str] = []

    def wait() -> None:
        try:
            own.sample(session, version=0, messages=ASK, cancel=cancel)
        except CancelledError:
            outcome.append("cancelled")

    with own._turns.taken():
        thread = threading.Thread(target=wait)
        thread.start()
        cancel.set()
        thread.join(timeout=30)
    assert outcome == ["cancelled"]


def test_closing_a_session_ends_the_call_that_runs_in_it(own: LocalPolicy) -> None:
    session = _opened(own, "s", None)
    with pytest.raises(SessionNotFoundError, match="closed during the call"):
        own.sample(
            session, version=0, messages=ASK, max_tokens=40, temperature=1.0, on_tokens=lambda _: own.close(session)
        )


def test_sessions_beyond_the_cap_are_refused_until_one_is_closed(own: LocalPolicy) -> None:
    for index in range(3):
        _opened(own, f"s{index}", None)
    with pytest.raises(PolicyBusyError, match="cap is 3"):
        own.open("one too many")
    own.open("s1")
    own.close("s1")
    own.open("one too many")


def test_an_unused_session_expires_and_the_error_says_so() -> None:
    now = 0.0
    sessions = Sessions(most=2, lease_seconds=10.0, clock=lambda: now)
    sessions.open("idle", None, 0, None)
    sessions.open("busy", None, 0, None)
    with sessions.using("busy"):
        now = 11.0
        with pytest.raises(SessionNotFoundError, match=r"expired: .* 10 s"), sessions.using("idle"):
            pass
        with sessions.using("busy"):
            pass
    now = 20.0
    with sessions.using("busy"):
        pass
    with pytest.raises(SessionNotFoundError, match="never opened"), sessions.using("stranger"):
        pass
    now = 31.0
    sessions.open("third", None, 0, None)
    sessions.open("fourth", None, 0, None)
    assert len(sessions) == 2


def test_a_policy_that_was_shut_down_says_so(own: LocalPolicy) -> None:
    session = _opened(own, "s", None)
    own.shutdown()
    own.shutdown()
    for call in (
        lambda: own.open("s"),
        lambda: own.sample(session, version=0, messages=ASK),
        lambda: own.count_tokens("x"),
    ):
        with pytest.raises(PolicyUnavailableError, match="shut down"):
            call()
    own.close(session)
    assert own.capabilities.model == "tiny-llama"


def test_closed_sessions_give_their_memory_back(own: LocalPolicy) -> None:
    for _ in range(3):
        learn(own, _opened(own, "s", LoraConfig(rank=2)))
        own.close("s")
    held = [t for t in _live_tensors() if t.numel() > 1000 and t.ndim == 1]
    for _ in range(10):
        learn(own, _opened(own, "s", LoraConfig(rank=2)))
        own.close("s")
    assert len([t for t in _live_tensors() if t.numel() > 1000 and t.ndim == 1]) <= len(held)


def _live_tensors() -> list[torch.Tensor]:
    import gc

    gc.collect()
    return [found for found in gc.get_objects() if type(found) is torch.Tensor]


def test_sample_ids_are_unique_and_cannot_be_guessed(own: LocalPolicy) -> None:
    session = _opened(own, "s", None)
    ids = [own.sample(session, version=0, messages=ASK, n=8, max_tokens=1)[i].sample_id for i in range(8)]
    assert len(set(ids)) == 8
    assert all(one.startswith("s-") and len(one) == 34 for one in ids)


@pytest.mark.parametrize("session", ["", "x" * 201, "a\nb", 7])
def test_a_session_name_that_cannot_be_is_refused(own: LocalPolicy, session: str) -> None:
    with pytest.raises(ConfigError, match="printable"):
        own.open(session)


def test_the_default_policy_is_built_once_by_threads_that_ask_at_once(tiny: Path) -> None:
    built: list[LocalPolicy] = []
    settings = Settings(model=str(tiny), threads=1)
    threads = [threading.Thread(target=lambda: built.append(default_policy(settings))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(policy) for policy in built}) == 1
    assert default_policy(replace(settings, threads=None)) is built[0]
    assert default_policy(replace(settings, dtype="bfloat16")) is not built[0]
    built[0].shutdown()
    assert default_policy(settings) is not built[0]


def test_a_model_that_is_not_there_fails_when_the_policy_is_built() -> None:
    with pytest.raises(ModelNotFoundError, match="/nowhere"):
        LocalPolicy("/nowhere")


def test_importing_the_policy_imports_no_torch_and_without_torch_it_names_the_extra() -> None:
    code = (
        "import sys\n"
        "import pot_agent.policy.local as local\n"
        "assert not {'torch', 'transformers', 'peft'} & set(sys.modules)\n"
        "sys.modules['torch'] = None\n"
        "try:\n    local.LocalPolicy('/nowhere')\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    assert done.stdout.startswith("MissingExtraError")
    assert 'pip install "policy-of-thoughts[local]"' in done.stdout


def test_no_more_sessions_are_opened_than_the_memory_plan_has_room_for(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "SMALL_BYTES", 0)  # this model is planned for too
    plan_for = choice.plan_for
    monkeypatch.setattr(choice, "plan_for", lambda *given, **named: replace(plan_for(*given, **named), sessions=2))
    with LocalPolicy(str(tiny), threads=1, max_sessions=9) as policy:
        for name in ("a", "b"):
            _opened(policy, name, None)
        with pytest.raises(PolicyBusyError, match="2 sessions are open"):
            policy.open("c")
