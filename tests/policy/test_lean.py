"""The lean decoder: against transformers in float64, step by step, and the models that it must leave alone."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from pot_agent.config import LoraConfig
from pot_agent.policy import cpu_linear, lean, lean_attention, lean_layer
from pot_agent.policy.engine import Engine
from pot_agent.policy.lean import LeanDecoder
from pot_agent.settings import Settings
from tests.policy import lean_models
from tests.policy.lean_models import LORA, PROMPT, ROOM, SHAPE, Made, decoding, difference, lean_logits, make, tokens
from tests.policy.lean_models import transformers_logits as by_transformers


@pytest.fixture(scope="module", params=lean_models.CONFIGS, ids=lambda name: name.replace(", ", "-").replace(" ", "_"))
def exact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Each kind of model in float64."""
    return make(lean_models.CONFIGS[request.param], tmp_path_factory.mktemp("exact"), "float64")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A llama in float64."""
    return make(LlamaConfig(**SHAPE), tmp_path_factory.mktemp("llama"), "float64")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A qwen3 in float32, its weights packed."""
    return make(Qwen3Config(**SHAPE, head_dim=16), tmp_path_factory.mktemp("single"), "float32")


@pytest.mark.parametrize("adapted", [False, True])
def test_logits_are_those_of_transformers_at_every_step(exact: Made, adapted: bool) -> None:
    assert difference(exact, exact.vector if adapted else None) < 1e-10


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_any_number_of_rows_shares_one_prompt(llama: Made, rows: int) -> None:
    assert difference(llama, llama.vector, rows) < 1e-10


def test_the_rows_that_go_on_are_not_disturbed_by_those_that_are_dropped(exact: Made) -> None:
    ids_NT, kept, head = tokens(5, 12), [0, 1, 2, 3, 4], exact.engine._sampler._head
    wanted_NTV = by_transformers(exact, exact.vector, ids_NT)
    with decoding(exact, exact.vector) as decoder:
        decoder.prefill(torch.tensor(PROMPT), lambda: None)
        decoder.widen(5, 12)
        for step, left in enumerate([5, 5, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1]):
            if left < len(kept):
                at = [1, 2, 3, 4] if left == 4 else [3, 0] if left == 2 else [1]
                decoder.keep(at)
                kept = [kept[i] for i in at]
            found_NV = head(decoder.step(ids_NT[kept, step]))
            assert (found_NV - wanted_NTV[kept, step + 1]).abs().max().item() < 1e-10
    assert kept == [1]


@pytest.mark.parametrize("targets", [("q_proj",), ("v_proj", "up_proj"), ("k_proj", "down_proj", "gate_proj")])
def test_an_adapter_on_some_layers_touches_no_other(llama: Made, targets: tuple[str, ...]) -> None:
    """Layers are joined into one product; what is adapted of them may be any part."""
    engine, lora = llama.engine, LoraConfig(rank=2, targets=targets)
    layout = engine.layout(lora)
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 0.3
    slot, ids_P = engine._adapters.slot(layout), torch.tensor(PROMPT)
    with torch.no_grad(), engine._sampler._fast.running(layout, vector, len(PROMPT)) as decoder:
        found_1V = engine._sampler._head(decoder.prefill(ids_P, lambda: None))
    with torch.no_grad(), engine._adapters.running(slot, vector):
        wanted_1V = engine._loaded.model(input_ids=ids_P.unsqueeze(0)).logits[:, -1]
    assert (found_1V - wanted_1V).abs().max().item() < 1e-10


def scale_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    add = lean_layer.add_adapter_
    monkeypatch.setattr(lean_layer, "add_adapter_", lambda result, x, a, b, scale: add(result, x, a, b, scale * 1.01))


def positions_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    rotation = lean.LeanModel.rotation
    late = lambda self, x, start: rotation(self, x, start - (start > len(PROMPT) + 20))  # noqa: E731
    monkeypatch.setattr(lean.LeanModel, "rotation", late)


def keys_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = lean_attention.SharedPrompt.attend
    early = lambda self, q, k, v, at: attend(self, q, k, v, min(at, ROOM - 2))  # noqa: E731
    monkeypatch.setattr(lean_attention.SharedPrompt, "attend", early)


@pytest.mark.parametrize("fault", [scale_wrong, positions_stale, keys_overwritten])
def test_a_planted_fault_is_seen_by_the_comparison(llama: Made, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    assert difference(llama, llama.vector) > 1e-4


@pytest.mark.parametrize("adapted", [False, True])
def test_packed_float32_logits_are_those_of_transformers_to_rounding(single: Made, adapted: bool) -> None:
    assert single.engine._sampler._fast.packs
    assert difference(single, single.vector if adapted else None) < 2e-4  # logits of about 10


def test_the_embedded_models_logits_are_those_of_transformers_to_rounding() -> None:
    made = lean_models.with_noise(Engine("embedded", device="cpu", dtype="float32", home=Settings().home), std=0.03)
    ids_NT = tokens(2, 6)
    wanted = by_transformers(made, made.vector, ids_NT)
    assert ((lean_logits(made, made.vector, ids_NT) - wanted).norm(dim=2) / wanted.norm(dim=2)).max().item() < 1e-3
    assert ((by_transformers(made, None, ids_NT) - wanted).norm() / wanted.norm()).item() > 0.01  # it has an adapter


def test_half_precision_decodes_lean_and_as_close_to_the_truth_as_transformers(tmp_path: Path) -> None:
    config, ids_NT = LlamaConfig(**SHAPE), tokens(3)
    half = make(config, tmp_path / "half", "bfloat16", stored=torch.bfloat16)
    truth = make(config, tmp_path / "truth", "float64", stored=torch.bfloat16)
    assert half.vector.dtype == torch.float32
    wanted = lean_logits(truth, half.vector.double(), ids_NT)
    error = (lean_logits(half, half.vector, ids_NT) - wanted).norm()
    theirs = (by_transformers(half, half.vector, ids_NT) - wanted).norm()
    assert error / wanted.norm() < 0.05
    assert error < 1.2 * theirs


def test_both_kinds_of_attention_for_rows_are_attention_over_the_whole() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 9, 8, dtype=torch.float64)
    made = [
        lean_attention.SharedPrompt(keys.transpose(1, 2).contiguous(), values, rows=2, room=4, scaling=0.5),
        lean_attention.Widened(keys, values, rows=2, room=4, scaling=0.5),
    ]
    own_keys, own_values = torch.randn(2, 2, 4, 3, 8, dtype=torch.float64)
    for at in range(4):
        queries = torch.randn(2, 6, 8, dtype=torch.float64)
        found = [attention.attend(queries, own_keys[:, at], own_values[:, at], at) for attention in made]
        for row in range(2):
            all_keys = torch.cat((keys, own_keys[row, : at + 1].transpose(0, 1)), 1).repeat_interleave(2, 0)
            all_values = torch.cat((values, own_values[row, : at + 1].transpose(0, 1)), 1).repeat_interleave(2, 0)
            scores = (all_keys @ queries[row].unsqueeze(2)).squeeze(2) * 0.5
            wanted = (scores.softmax(1).unsqueeze(1) @ all_values).reshape(-1)
            assert all(torch.allclose(rows[row], wanted, rtol=0, atol=1e-12) for rows in found)


def test_no_weight_is_packed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    reorder = cpu_linear._reorder
    monkeypatch.setattr(cpu_linear, "_reorder", lambda weight: packed.append(weight.numel()) or reorder(weight))
    made = make(LlamaConfig(**SHAPE), tmp_path, "float32")
    head = made.engine._loaded.model.get_output_embeddings()
    assert packed == []  # not before it is used
    for _ in range(2):
        lean_logits(made, made.vector, tokens(2, 3))
    assert len(packed) == 4 * SHAPE["num_hidden_layers"] + 1
    assert sum(packed) == sum(layer.weight.numel() for layer in [*made.engine._linears.values(), head])


def test_a_prompt_is_held_once_however_many_rows_go_on_from_it(llama: Made) -> None:
    held = {}
    for rows in (1, 8):
        with decoding(llama, None) as decoder:
            decoder.prefill(torch.tensor(PROMPT), lambda: None)
            decoder.widen(rows, ROOM)
            tensors = [value for attention in decoder._rows for value in vars(attention).values()]
            held[rows] = sum(t.untyped_storage().nbytes() for t in tensors if isinstance(t, torch.Tensor))
    one_token = 8 * SHAPE["num_hidden_layers"] * 2 * SHAPE["num_key_value_heads"] * 12
    assert held == {rows: one_token * (len(PROMPT) + rows * ROOM) for rows in (1, 8)}


def test_a_cancel_is_looked_at_in_every_layer_of_the_prompt(llama: Made) -> None:
    looks: list[int] = []
    with decoding(llama, None) as decoder:
        decoder.prefill(torch.tensor(PROMPT), lambda: looks.append(1))
    assert len(looks) == SHAPE["num_hidden_layers"]


WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}


@pytest.mark.parametrize(
    "config", [Qwen2Config(**SHAPE, **WINDOW), Qwen3Config(**SHAPE, **WINDOW), MistralConfig(**SHAPE, sliding_window=5)]
)
def test_models_of_other_kinds_go_through_transformers_and_agree_with_it(
    config: PretrainedConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(config, tmp_path, "float64")
    ids_NT, fast, head = tokens(2, 12), made.engine._sampler._fast, made.engine._sampler._head
    with torch.no_grad(), fast.running(made.engine.layout(LORA), made.vector, len(PROMPT)) as decoder:
        assert not isinstance(decoder, LeanDecoder)
        hidden = [decoder.prefill(torch.tensor(PROMPT), lambda: None).expand(2, -1)]
        decoder.widen(2, 12)
        hidden += [decoder.step(ids_N) for ids_N in ids_NT.t()]
        found = torch.stack([head(hidden_NH) for hidden_NH in hidden], 1)
    assert (found - by_transformers(made, made.vector, ids_NT)).abs().max().item() < 1e-10
    assert not caplog.records  # nothing is wrong with them


def other_scaling(model: Any) -> None:
    model.model.layers[1].self_attn.forward = partial(_half, model.model.layers[1].self_attn.forward)


def _half(forward: Any, *args: Any, **kwargs: Any) -> Any:
    output, weights = forward(*args, **kwargs)
    return output * 0.5, weights


def rotary_of_fewer_numbers(model: Any) -> None:
    rotary = model.model.rotary_emb
    rotary.register_buffer("inv_freq", rotary.inv_freq[:4], persistent=False)
    model.model.layers[0].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    model.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)


@pytest.mark.parametrize("change", [other_scaling, rotary_of_fewer_numbers])
def test_a_model_that_computes_otherwise_than_it_looks_falls_back_with_a_warning(
    change: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(LlamaConfig(**SHAPE), tmp_path, "float32")
    change(made.engine._loaded.model)
    fast = made.engine._sampler._fast
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for _ in range(2):
            with fast.running(None, None, len(PROMPT)) as decoder:
                assert not isinstance(decoder, LeanDecoder)
    (said,) = caplog.messages
    assert "decodes through transformers" in said
