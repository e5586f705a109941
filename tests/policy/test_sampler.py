"""The sampler's own decode loop: against the model's plain forward, and row by row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from pot_agent.config import LoraConfig
from pot_agent.errors import CancelledError, PolicyError
from pot_agent.policy import cpu_linear, sampler
from pot_agent.policy.base import Message
from pot_agent.policy.cpu_linear import can_pack, packed_linear
from pot_agent.policy.engine import Engine
from pot_agent.policy.sampler import Drawn, _invert
from tests.tiny import make_tiny_model, make_tokenizer

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]
LORA = LoraConfig(rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def engine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path_factory.mktemp("home"))


def nothing() -> None:
    """Nobody cancels."""


def draw(engine: Engine, vector: torch.Tensor | None = None, **changes: Any) -> list[Drawn]:
    fields: dict[str, Any] = {
        "prompt_ids": engine.chat.encode(ASK),
        "n": 3,
        "temperature": 1.0,
        "max_tokens": 24,
        "seed": "0",
        "stop": (),
        "check": nothing,
        **changes,
    }
    return engine.draw(engine.request(**fields), engine.layout(LORA), vector)


def trained(engine: Engine, seed: int = 1) -> torch.Tensor:
    layout = engine.layout(LORA)
    vector = layout.initial(seed, engine._like)
    noise = torch.Generator().manual_seed(seed)
    for _, _, b_OR in layout.views(vector):
        b_OR.normal_(std=0.05, generator=noise)
    return vector


def trainers(engine: Engine, vector: torch.Tensor | None, rows: list[Drawn], temperature: float) -> list[torch.Tensor]:
    slot = None if vector is None else engine._adapters.slot(engine.layout(LORA))
    prompt = engine.chat.encode(ASK)
    return engine._trainer.logprobs(slot, vector, prompt, [row.ids for row in rows], temperature)


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
@pytest.mark.parametrize("adapted", [False, True])
def test_recorded_logprobs_are_the_trainers_to_rounding(engine: Engine, temperature: float, adapted: bool) -> None:
    vector = trained(engine) if adapted else None
    rows = draw(engine, vector, temperature=temperature)
    for row, wanted in zip(rows, trainers(engine, vector, rows, temperature), strict=True):
        assert row_gap(row, wanted) < 3e-5 / min(temperature, 1.0)  # a low temperature multiplies logits' rounding


def test_greedy_decoding_equals_generate(engine: Engine, tiny: Path) -> None:
    prompt = engine.chat.encode(ASK)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    wanted = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :].tolist()
    (row,) = draw(engine, n=1, temperature=0.0)
    assert row.ids == wanted


def test_greedy_logprobs_are_recorded_at_temperature_one(engine: Engine) -> None:
    rows = draw(engine, n=1, temperature=0.0)
    (wanted,) = trainers(engine, None, rows, 1.0)
    assert row_gap(rows[0], wanted) < 2e-5


def row_gap(row: Drawn, wanted: torch.Tensor) -> float:
    return float((torch.tensor(row.logprobs) - wanted).abs().max())


def test_the_end_token_is_counted_and_ends_its_row_alone(engine: Engine) -> None:
    """Rows of different lengths: those that go on are not disturbed by those that end."""
    end_ids, engine._sampler._end_ids = engine._sampler._end_ids, frozenset(range(100, 140))
    try:
        rows = draw(engine, n=8, max_tokens=40, seed="ends")
        lengths = {len(row.ids) for row in rows}
        assert len(lengths) > 2
        for row in rows:
            assert row.finish == ("stop" if row.ids[-1] in range(100, 140) else "length")
            assert not any(token in range(100, 140) for token in row.ids[:-1])
    finally:
        engine._sampler._end_ids = end_ids
    for row, wanted in zip(rows, trainers(engine, None, rows, 1.0), strict=True):
        assert row_gap(row, wanted) < 2e-5
    free = draw(engine, n=8, max_tokens=40, seed="ends")
    assert all(open_.ids[: len(row.ids)] == row.ids for row, open_ in zip(rows, free, strict=True))


@pytest.mark.parametrize("stop_at", [1, 2, 7])
def test_a_cancel_stops_within_one_token(engine: Engine, stop_at: int) -> None:
    told: list[int] = []

    def cancelled() -> None:
        if len(told) == stop_at:
            raise CancelledError("enough")

    with pytest.raises(CancelledError):
        draw(engine, n=2, max_tokens=40, check=cancelled, on_tokens=told.append)
    assert told == [2 * (step + 1) for step in range(stop_at)]
    draw(engine, n=1, max_tokens=2)  # and the model is in order


def test_a_prompt_prefilled_in_parts_gives_the_same_samples(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(engine, trained(engine))
    monkeypatch.setattr(sampler, "PREFILL_TOKENS", 5)
    parts = draw(engine, trained(engine))
    assert [row.ids for row in parts] == [row.ids for row in whole]
    for one, other in zip(parts, whole, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_tokens_are_the_inverse_of_the_cumulative_distribution() -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]]).expand(6, -1)
    uniforms = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert _invert(probabilities, uniforms).tolist() == [1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize("vocabulary", [1, 127, 128, 129, 384, 1000])
def test_tokens_are_those_of_one_sum_over_the_whole_vocabulary(vocabulary: int) -> None:
    """The blocks that are summed apart change no draw: against a plain cumulative sum, zeros and all."""
    torch.manual_seed(vocabulary)
    logits = torch.randn(500, vocabulary) * 4
    logits[torch.rand_like(logits) < 0.3] = float("-inf")
    logits[:, vocabulary // 2] = 0.0
    probabilities, uniforms = logits.softmax(1), torch.rand(500, dtype=torch.float64)
    sums = probabilities.double().cumsum(1)
    plain = torch.searchsorted(sums, uniforms.unsqueeze(1) * sums[:, -1:], right=True).squeeze(1)
    assert _invert(probabilities, uniforms).tolist() == plain.tolist()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_token_of_probability_zero_is_drawn_at_any_uniform(data: st.DataObject) -> None:
    """Uniforms at and beside the edges of blocks, where two orders of summation may differ by a rounding."""
    size = data.draw(st.integers(2, 400))
    weights = torch.rand(1, size, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 10**6))))
    weights[:, data.draw(st.lists(st.integers(0, size - 1), max_size=size - 1))] = 0.0
    if not weights.any():
        weights[0, 0] = 1.0
    probabilities = weights / weights.sum()
    sums = probabilities.double().cumsum(1)
    edge = sums[0, data.draw(st.integers(0, size - 1))] / sums[0, -1]
    nudged = data.draw(st.sampled_from([edge, edge.nextafter(torch.tensor(0.0)), edge.nextafter(torch.tensor(2.0))]))
    uniform = nudged.clamp(0.0, 1 - 2**-53).unsqueeze(0)
    drawn = int(_invert(probabilities, uniform))
    assert probabilities[0, drawn] > 0
    before = float(sums[0, drawn] - probabilities[0, drawn].double())
    assert before - 1e-12 <= float(uniform * sums[0, -1]) <= float(sums[0, drawn]) + 1e-12


def test_logits_that_are_not_finite_are_an_error_and_not_a_sample(tiny: Path, tmp_path: Path) -> None:
    engine = Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path)
    engine._loaded.model.model.norm.weight.data.fill_(float("nan"))
    with pytest.raises(PolicyError, match="not finite"):
        draw(engine, n=1)


@pytest.mark.parametrize("rows", range(1, 18))
@pytest.mark.parametrize("bias", [False, True])
def test_packed_layers_equal_plain_ones_to_rounding(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    layer = nn.Linear(96, 200, bias=bias).requires_grad_(False)
    assert can_pack(1000, torch.device("cpu"), torch.float32)
    x = torch.randn(rows, 1, 96)
    got, wanted = packed_linear(layer)(x), layer(x)
    assert got.shape == wanted.shape
    assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_weights_beyond_the_limit_or_not_in_float32_are_not_packed() -> None:
    cpu = torch.device("cpu")
    assert not can_pack(cpu_linear.PACK_LIMIT_BYTES + 1, cpu, torch.float32)
    assert not can_pack(1000, cpu, torch.bfloat16)
    assert not can_pack(1000, torch.device("meta"), torch.float32)


def test_packed_and_plain_layers_give_the_same_samples(engine: Engine, tiny: Path, tmp_path: Path) -> None:
    plain = Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path)
    plain._sampler._fast.packs = False
    assert engine._sampler._fast.packs
    vector = trained(engine)
    packed_rows, plain_rows = draw(engine, vector), draw(plain, vector)
    assert [row.ids for row in packed_rows] == [row.ids for row in plain_rows]


def sliding(folder: Path) -> None:
    tokenizer = make_tokenizer()
    config = MistralConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=7, max_position_embeddings=256, initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def biased(folder: Path) -> None:
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, initializer_range=0.3,
        max_position_embeddings=256, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("make", [sliding, biased])
def test_other_architectures_sample_and_train_alike(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A sliding window shorter than the prompt, biases, tied embeddings: sampler, trainer and plain forward agree."""
    torch.manual_seed(0)
    make(tmp_path)
    engine = Engine(str(tmp_path), device="cpu", dtype="float32", home=tmp_path)
    prompt = engine.chat.encode(ASK)
    rows = draw(engine, max_tokens=30)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    for row, by_trainer in zip(rows, trainers(engine, None, rows, 1.0), strict=True):
        logits = model(torch.tensor([prompt + row.ids]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        plain = logits.log_softmax(1)[range(len(row.ids)), row.ids]
        assert row_gap(row, plain.detach()) < 5e-5
        assert (by_trainer - plain).abs().max().item() < 5e-5


def test_a_half_precision_base_keeps_a_float32_adapter_and_agrees_with_the_trainer(tmp_path: Path) -> None:
    engine = Engine(str(make_tiny_model(tmp_path / "m")), device="cpu", dtype="bfloat16", home=tmp_path)
    vector = trained(engine)
    assert vector.dtype == torch.float32
    rows = draw(engine, vector, max_tokens=12)
    for row, wanted in zip(rows, trainers(engine, vector, rows, 1.0), strict=True):
        assert row_gap(row, wanted) < 0.3  # one bf16 rounding of a logit of about 8 is 0.03
