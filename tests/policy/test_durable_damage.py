"""What restores from a damaged state folder, and what does not fit and is refused."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pot_agent.errors import (
    RestoreError,
    SampleError,
    VersionError,
)
from pot_agent.policy.files import sealed
from pot_agent.policy.local import LocalPolicy
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
from tests.tiny import make_tiny_model


def test_a_last_line_that_was_never_finished_is_dropped(
    tiny: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)
        first, second = draw(policy, 0, 0), draw(policy, 1, 0)
    file = folder_of(state) / "samples.jsonl"
    for cut in (1, 20, len(file.read_bytes().splitlines()[1])):
        content = file.read_bytes()
        file.write_bytes(content[:-cut])
        caplog.clear()
        with process(tiny, state) as policy:
            assert len(policy.score("s", version=0, sample_ids=[sample.sample_id for sample in first])) == 3
            with pytest.raises(SampleError, match="has no sample"):
                policy.score("s", version=0, sample_ids=[second[0].sample_id])
            assert str(file) in caplog.text
            second = draw(policy, 1, 0)  # what is left of the line is not in its way
        with process(tiny, state) as policy:
            assert len(policy.score("s", version=0, sample_ids=[sample.sample_id for sample in first + second])) == 6


@pytest.mark.parametrize("name", ["samples.jsonl", "receipts.jsonl", "session.json"])
def test_a_changed_byte_is_an_error_that_names_the_file(tiny: Path, state: Path, name: str) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)
        learn(policy, 0, 0, equal=True)
    file = folder_of(state) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with process(tiny, state) as policy:
        for call in (lambda: policy.restore("s"), lambda: draw(policy, 1, 0), lambda: policy.open("s", lora=LORA)):
            with pytest.raises(RestoreError, match=name) as caught:
                call()
        assert isinstance(caught.value, ValueError)
        policy.close("s")
        assert policy.open("s", lora=LORA, seed=9).version == 0


@pytest.mark.parametrize("name", ["samples.jsonl", "receipts.jsonl", "session.json", "versions"])
def test_a_file_that_is_gone_is_an_error_that_names_it(tiny: Path, state: Path, name: str) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)
    (folder_of(state) / name).rename(state / f".{name}")
    with process(tiny, state) as policy:
        with pytest.raises(RestoreError, match=name):
            policy.restore("s")
        (state / f".{name}").rename(folder_of(state) / name)
        assert policy.restore("s").version == 0


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a changed byte of the tensors": lambda path: flip(path / "state.safetensors"),
    "tensors cut short": lambda path: os.truncate(path / "state.safetensors", 1000),
    "no tensors": lambda path: (path / "state.safetensors").unlink(),
    "a changed byte of the record": lambda path: flip(path / "version.json"),
    "an empty record": lambda path: os.truncate(path / "version.json", 0),
    "an empty folder": lambda path: [file.unlink() for file in path.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_broken_version_is_named_and_the_last_good_one_goes_on(
    tiny: Path, state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], Any]
) -> None:
    with process(tiny, state) as policy:
        receipts = grown(policy, 2)
        good = essence(in_memory(policy))
        receipts.append(learn(policy, 2, 2))
        lost, skipped = draw(policy, 3, 3), learn(policy, 4, 3, equal=True)
        assert good["tensors"]["version 2"] == essence(in_memory(policy))["tensors"]["version 2"]
    damage(folder_of(state) / "versions" / "3")
    with process(tiny, state) as policy:
        assert policy.restore("s").version == 2
        assert f"{folder_of(state) / 'versions' / '3'}" in caplog.text
        found = essence(in_memory(policy))
        assert found["counters"] == good["counters"]
        assert {name: found["tensors"][name] for name in ("version 2", "first", "second")} == {
            name: good["tensors"][name] for name in ("version 2", "first", "second")
        }
        with pytest.raises(SampleError):  # a sample of a version that is no more must not pass for one of its successor
            policy.score("s", version=0, sample_ids=[lost[0].sample_id])
        with pytest.raises(VersionError, match=r"version 3 .* version 2"):
            again(policy, skipped)
        assert [again(policy, receipt) for receipt in receipts[:2]] == receipts[:2]
        renewed = again(policy, receipts[2])  # not the old receipt: it is trained again, and alike
        assert (renewed.version, renewed.loss_last) == (3, receipts[2].loss_last)
        assert on_disk(policy, state, tmp_path / "copy") == essence(in_memory(policy))


def test_where_no_version_is_good_the_base_goes_on(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 2)
    for version in ("1", "2"):
        flip(folder_of(state) / "versions" / version / "state.safetensors")
    with process(tiny, state) as policy:
        assert policy.restore("s").version == 0
        assert in_memory(policy).receipts == {}
        assert learn(policy, 0, 0).version == 1


def test_what_killed_writers_left_is_swept(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
    folder = folder_of(state)
    shutil.copytree(folder, state / ".gone-0123")
    shutil.copytree(folder, state / f".{'0' * 32}.part")
    shutil.copytree(folder / "versions" / "1", folder / "versions" / ".2.part")
    shutil.copytree(folder / "versions" / "1", folder / "versions" / ".gone-4567")
    with process(tiny, state) as policy:
        assert policy.restore("s").version == 1
        assert {path.name for path in state.iterdir()} == {".lock", folder.name}
        assert versions_in(state) == {"1"}


def test_another_base_model_is_refused(tiny: Path, state: Path, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path / "other", seed=1)
    with process(tiny, state) as policy:
        grown(policy, 1)
    with process(other, state) as policy, pytest.raises(RestoreError, match=f"{tiny.name}, float32.*other, float32"):
        policy.restore("s")
    with process(tiny, state, dtype="bfloat16") as policy, pytest.raises(RestoreError, match="bfloat16"):
        policy.restore("s")
    with process(tiny, state) as policy:
        assert policy.restore("s").version == 1


@pytest.mark.parametrize("file", ["session.json", "versions/1/version.json"])
def test_another_format_is_refused(tiny: Path, state: Path, file: str) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
    path = folder_of(state) / file
    path.write_bytes(sealed(json.loads(path.read_bytes())["data"] | {"format": 2}))
    with process(tiny, state) as policy, pytest.raises(RestoreError, match=r"format 2, .* reads 1") as caught:
        policy.restore("s")
    assert caught.value.value == 2


def test_a_folder_under_another_name_is_refused(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)
        target = policy._sessions._store._folder.path_of("t")  # type: ignore[union-attr]
    shutil.copytree(folder_of(state), target)
    with process(tiny, state) as policy, pytest.raises(RestoreError, match="is of session 's', not 't'"):
        policy.restore("t")


def test_another_number_of_threads_is_a_warning(tiny: Path, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
    with process(tiny, state) as policy:
        policy.restore("s")
        assert "bit for bit" not in caplog.text
    try:
        with LocalPolicy(str(tiny), threads=2, state_dir=state) as policy:
            assert policy.restore("s").version == 1
    finally:
        torch.set_num_threads(1)
    assert "threads 1 and has 2 now: it goes on, but not bit for bit" in caplog.text
