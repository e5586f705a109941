"""Records that are whole or refused, and digests that tell one base from another."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.errors import RestoreError
from pot_agent.policy.files import Log, replace_file, sealed, unsealed
from pot_agent.policy.fingerprint import digest_of
from pot_agent.policy.journal import Sample, from_record, prompt_digest, to_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_a_record_is_one_line_of_json_and_comes_back_as_it_was(data: Any) -> None:
    line = sealed(data)
    assert unsealed(line) == data == json.loads(line)["data"]
    assert b"\n" not in line


@given(JSON, st.integers(0, 10**6), st.integers(1, 255))
def test_any_changed_byte_of_a_record_is_found(data: Any, place: int, change: int) -> None:
    line = bytearray(sealed(data))
    line[place % len(line)] ^= change
    with pytest.raises(ValueError, match="checksum"):
        unsealed(bytes(line))


@given(JSON, st.integers(0, 10**6))
def test_a_record_cut_short_is_found(data: Any, length: int) -> None:
    line = sealed(data)
    with pytest.raises(ValueError, match="checksum"):
        unsealed(line[: length % len(line)])


def test_a_log_goes_on_after_a_line_that_was_never_finished_and_refuses_one_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    log, _ = Log.read(path)
    for number in range(3):
        log.append({"number": number})
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[2])):
        path.write_bytes(whole[:-cut])
        log, records = Log.read(path)
        assert [record["number"] for record in records] == [0, 1]
    log.append({"number": 2})
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b'"number":1', b'"number":7'))
    with pytest.raises(RestoreError, match=r"line 2 of .*log was changed"):
        Log.read(path)


def test_a_replaced_file_is_the_old_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fails)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    replace_file(path, b"new")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("file", b"new")]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.floats(max_value=0, allow_nan=False, allow_infinity=False)), min_size=1
    ),
    st.floats(0, 2),
)
def test_a_group_of_samples_comes_back_bit_for_bit(tokens: list[tuple[int, float]], temperature: float) -> None:
    prompt = (1, 2, 3)
    group = [
        Sample(
            sample_id=f"s-{place}",
            version=place,
            prompt_ids=prompt,
            prompt_digest=prompt_digest(prompt),
            ids=tuple(token for token, _ in tokens),
            logprobs=tuple(logprob for _, logprob in tokens),
            temperature=temperature,
            finish="stop",
        )
        for place in range(2)
    ]
    assert from_record(unsealed(sealed(to_record(group)))) == group


def test_a_digest_tells_names_shapes_types_and_single_bits_apart() -> None:
    weight = torch.arange(6, dtype=torch.float32)
    flipped = weight.clone()
    flipped.view(torch.int32)[3] ^= 1
    different = [
        {"w": weight},
        {"v": weight},
        {"w": flipped},
        {"w": weight.view(2, 3)},
        {"w": weight.view(3, 2)},
        {"w": weight.bfloat16()},
        {"w": weight.view(torch.int32)},
        {"w": weight, "scale": torch.tensor(2.0)},
    ]
    assert len({digest_of(tensors) for tensors in different}) == len(different)
    transposed = weight.view(2, 3).t().contiguous().t()  # equal numbers, laid out otherwise
    assert digest_of({"w": transposed}) == digest_of({"w": weight.view(2, 3)})
