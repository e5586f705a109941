"""State that survives: a session in a state folder goes on bit for bit, whatever ended in between."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pot_agent.config import LoraConfig
from pot_agent.errors import (
    RestoreError,
    SessionConflictError,
    SessionNotFoundError,
    VersionError,
)
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.contract import GRPO, told
from tests.policy.durable import (
    LORA,
    again,
    draw,
    essence,
    flip,
    folder_of,
    grown,
    in_memory,
    learn,
    on_disk,
    process,
    versions_in,
)
from tests.policy.serving import serving


def test_a_session_interrupted_at_every_step_goes_on_bit_for_bit(tiny: Path, state: Path) -> None:
    with process(tiny, None) as policy:
        policy.open("s", lora=LORA, seed=3)
        whole = []
        for step in range(6):  # the reference is synced after the fourth update, to the version itself
            whole.append((told(draw(policy, step, step)), learn(policy, step, step)))
        expected = essence(in_memory(policy))
    pieces = []
    for step in range(6):
        with process(tiny, state) as policy:
            if step == 0:
                policy.open("s", lora=LORA, seed=3)
            group = told(draw(policy, step, step))
        with process(tiny, state) as policy:
            pieces.append((group, learn(policy, step, step)))
            found = essence(in_memory(policy))
    for (group, receipt), (expected_group, expected_receipt) in zip(pieces, whole, strict=True):
        assert group == expected_group
        for name in ("version", "steps", "loss", "loss_last", "kl", "grad_norm", "adapter_norm", "sampler_gap"):
            assert getattr(receipt, name) == getattr(expected_receipt, name), name
    for name in ("counters", "tensors", "reference is the newest"):
        assert found[name] == expected[name], name
    assert expected["tensors"]["reference"] != expected["tensors"]["version 6"]


def test_what_is_on_the_disk_is_what_is_in_memory_at_every_version(tiny: Path, state: Path, tmp_path: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA, seed=3)
        synced = []
        for step in range(6):
            learn(policy, step, step)
            found = on_disk(policy, state, tmp_path / "copy")
            assert found == essence(in_memory(policy))
            synced.append(found["reference is the newest"])
    assert synced == [False, False, False, True, False, False]


def test_without_a_state_folder_a_session_ends_with_its_process_and_the_error_names_the_setting(tiny: Path) -> None:
    with process(tiny, None) as policy:
        policy.open("s", lora=LORA)
    with process(tiny, None) as policy, pytest.raises(SessionNotFoundError, match="POT_STATE"):
        policy.restore("s")


def test_every_call_restores_a_session_that_is_not_in_memory(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        group = draw(policy, 9, 1)
        ids = [sample.sample_id for sample in group]
        scores = policy.score("s", version=1, sample_ids=ids)
    calls: list[Callable[[LocalPolicy], Any]] = [
        lambda policy: policy.open("s", lora=LORA, seed=3).version == 1,
        lambda policy: policy.restore("s").version == 1,
        lambda policy: policy.snapshot("s").version == 1,
        lambda policy: policy.score("s", version=1, sample_ids=ids) == scores,
        lambda policy: told(draw(policy, 9, 1)) == told(group),
        lambda policy: policy.internalize("s", version=1, rewards=dict.fromkeys(ids, 1.0), grpo=GRPO).skipped,
    ]
    for call in calls:
        with process(tiny, state) as policy:
            assert call(policy)


def test_other_arguments_conflict_with_a_session_on_the_disk(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LoraConfig(rank=2, targets=("q_proj", "v_proj")), seed=3)
        policy.open("bare")
    with process(tiny, state) as policy:
        for lora, seed in ((LoraConfig(rank=2), 3), (None, 3), (LoraConfig(rank=2, targets=("q_proj", "v_proj")), 4)):
            with pytest.raises(SessionConflictError, match="seed=3, not"):
                policy.open("s", lora=lora, seed=seed)
        assert policy.open("s", lora=LoraConfig(rank=2, targets=("q_proj", "v_proj")), seed=3).version == 0
        assert policy.open("bare").version == 0
        with pytest.raises(SessionConflictError):
            policy.open("bare", lora=LORA)


def test_receipts_of_updates_and_of_skipped_ones_survive_and_nothing_is_trained_again(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        receipts = grown(policy, 2)
        receipts.append(learn(policy, 2, 2, equal=True))
        receipts += [learn(policy, step, step - 1) for step in (3, 4, 5)]
        before = essence(in_memory(policy))
    assert [receipt.version for receipt in receipts] == [1, 2, 2, 3, 4, 5]
    assert versions_in(state) == {"4", "5"}
    with process(tiny, state) as policy:
        assert [again(policy, receipt) for receipt in receipts] == receipts
        assert essence(in_memory(policy)) == before
        with pytest.raises(VersionError, match=r"version 0 .* version 5"):
            policy.internalize("s", version=0, rewards=receipts[0].rewards, grpo=replace(GRPO, epochs=2))


def test_a_snapshot_keeps_its_version_in_memory_and_on_the_disk(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        assert policy.snapshot("s").version == 1
        pinned = told(draw(policy, 50, 1))
        for step in (1, 2, 3):
            learn(policy, step, step)
        assert told(draw(policy, 50, 1)) == pinned
        with pytest.raises(VersionError, match="0, 1, 3, 4 are kept"):
            draw(policy, 50, 2)
        assert versions_in(state) == {"1", "3", "4"}
    with process(tiny, state) as policy:
        assert told(draw(policy, 50, 1)) == pinned
        learn(policy, 4, 4)
        assert told(draw(policy, 50, 1)) == pinned
    assert versions_in(state) == {"1", "4", "5"}


def test_a_session_without_an_adapter_is_kept_too(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("s", seed=4)
        group = draw(policy, 0, 0)
    with process(tiny, state) as policy:
        assert policy.snapshot("s").version == 0
        ids = [sample.sample_id for sample in group]
        assert policy.score("s", version=0, sample_ids=ids, temperature=1.0) == pytest.approx(
            [sample.logprob for sample in group], abs=1e-4
        )


def test_samples_that_threads_draw_at_once_keep_their_order(tiny: Path, state: Path, tmp_path: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)
        threads = [threading.Thread(target=draw, args=(policy, step, 0)) for step in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert on_disk(policy, state, tmp_path / "copy")["samples"] == essence(in_memory(policy))["samples"]


def test_a_client_goes_on_after_its_server_was_replaced(tiny: Path, state: Path) -> None:
    with serving(LocalPolicy(str(tiny), threads=1, state_dir=state)) as url, HttpPolicy(url) as client:
        receipts = grown(client, 3)
        client.snapshot("s")
    with serving(LocalPolicy(str(tiny), threads=1, state_dir=state)) as url, HttpPolicy(url) as client:
        assert [again(client, receipt) for receipt in receipts] == receipts
        assert learn(client, 3, 3).version == 4
        assert client.restore("s").version == 4
        flip(folder_of(state) / "samples.jsonl")
    with serving(LocalPolicy(str(tiny), threads=1, state_dir=state)) as url, HttpPolicy(url) as client:
        with pytest.raises(RestoreError, match=r"samples\.jsonl"):
            client.restore("s")
        client.close("s")
        with pytest.raises(SessionNotFoundError):
            client.restore("s")


@pytest.mark.long
@pytest.mark.parametrize("durable", [False, True])
def test_memory_returns_to_the_start_after_200_sessions(tiny: Path, state: Path, durable: bool) -> None:
    """The cycles are equal: a product of a new shape compiles a kernel, which torch keeps and no session holds."""
    with process(tiny, state if durable else None) as policy:
        held = []
        for _ in range(220):
            policy.open("s", lora=LoraConfig(rank=24), seed=0)
            for version in range(3):
                learn(policy, version, version)
            policy.close("s")
            held.append(_resident_bytes())
        assert held[-1] - held[19] < 2 * 2**20, held[19::20]  # 200 sessions would hold more than 100 MB
        assert len(policy._sessions) == 0
    if durable:
        assert [path.name for path in state.iterdir()] == [".lock"]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
