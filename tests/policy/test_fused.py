"""The trainer's fast layers and attention against torch's own autograd, in float64 where exactness is the claim."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import inject_adapter_in_model
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pot_agent.config import LoraConfig
from pot_agent.policy import attention, fused
from pot_agent.policy.adapters import Adapters, AdapterSlot, layout_of, linear_layers
from pot_agent.policy.head import _Logprobs

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
IDS = torch.arange(3, 23).unsqueeze(0)


def draw(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)
    return made.to(dtype).requires_grad_(grad)


def frozen(model: Any, dtype: torch.dtype = torch.float32) -> Any:
    return model.to(dtype).eval().requires_grad_(False)


def slot_of(model: Any, **lora: Any) -> AdapterSlot:
    """An adapter whose B is not zero, loaded."""
    layout = layout_of(linear_layers(model), LoraConfig(rank=3, **lora))
    slot = Adapters(model).slot(layout)
    vector = layout.initial(0, torch.empty(0, dtype=model.dtype))
    for _, _, b_OR in layout.views(vector):
        b_OR.copy_(torch.randn(b_OR.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    slot.load(vector)
    return slot


def switch_on(model: Any, slot: AdapterSlot) -> None:
    for layer in [m for m in model.modules() if hasattr(m, "lora_A")]:
        layer.set_adapter(slot.name)
        layer.enable_adapters(True)


def gradient(model: Any, slot: AdapterSlot, running: Any) -> tuple[Tensor, Tensor]:
    """Hidden states, and the adapter's gradient of some scalar of them."""
    switch_on(model, slot)
    slot.clear_gradients()
    with running:
        hidden = model.model(input_ids=IDS, use_cache=False).last_hidden_state
        hidden.square().mul(draw(*hidden.shape, dtype=hidden.dtype)).sum().backward()
    return hidden.detach(), slot.gradient()


@pytest.mark.parametrize("bias", [False, True])
def test_a_lora_layers_gradients_are_those_of_its_formula(bias: bool) -> None:
    weight, offset = draw(5, 7), draw(5) if bias else None
    x, a, b = draw(2, 3, 7, grad=True), draw(2, 7, grad=True), draw(5, 2, grad=True)

    def layer(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return fused._LoraLinear.apply(x, weight, offset, a, b, 1.7)

    assert torch.allclose(layer(x, a, b), linear(x, weight, offset) + 1.7 * (x @ a.T) @ b.T, rtol=1e-12)
    assert torch.autograd.gradcheck(layer, (x, a, b))


def test_the_gradient_of_a_plain_layer_and_of_log_probabilities_is_that_of_their_formulas() -> None:
    weight, offset, targets = draw(5, 7), draw(5), torch.tensor([0, 6, 3])
    assert torch.autograd.gradcheck(lambda x: fused._FrozenLinear.apply(x, weight, offset), (draw(2, 3, 7, grad=True),))
    logits = draw(3, 7, grad=True)
    assert torch.allclose(_Logprobs.apply(logits, targets), logits.log_softmax(1)[range(3), targets], rtol=1e-12)
    assert torch.autograd.gradcheck(lambda logits: _Logprobs.apply(logits, targets), (logits,))


def test_a_norms_and_a_gates_gradients_are_those_of_their_formulas() -> None:
    weight = draw(6)
    x, gate, up = draw(4, 6, grad=True), draw(3, 5, grad=True), draw(5, 3, grad=True).t()
    assert torch.autograd.gradcheck(lambda x: fused._RmsNorm.apply(x, weight, 1e-5), (x,))
    assert torch.allclose(fused._SiluProduct.apply(gate, up), silu(gate) * up, rtol=1e-12)
    assert torch.autograd.gradcheck(fused._SiluProduct.apply, (gate, up))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_equals_transformers_own(dtype: torch.dtype) -> None:
    norm = LlamaRMSNorm(16).to(dtype)
    norm.weight.data = draw(16, dtype=dtype)
    x = draw(8, 16, dtype=dtype)
    assert torch.equal(fused._RmsNorm.apply(x, norm.weight, norm.variance_epsilon), norm(x))


def test_a_bf16_base_with_a_float32_adapter_computes_as_peft_does() -> None:
    layer = nn.Sequential(nn.Linear(32, 16, bias=False)).to(torch.bfloat16).requires_grad_(False)
    model = inject_adapter_in_model(PeftLoraConfig(r=4, lora_alpha=8, target_modules=["0"]), layer)
    a, b = draw(4, 32, dtype=torch.float32, grad=True), draw(16, 4, dtype=torch.float32, grad=True)
    lora: Any = model[0]
    lora.lora_A["default"].weight, lora.lora_B["default"].weight = nn.Parameter(a), nn.Parameter(b)
    slopes = draw(8, 16, dtype=torch.bfloat16)
    found = []
    for forward in (lora, lambda x: fused._LoraLinear.apply(x, lora.base_layer.weight, None, *pair(lora), 2.0)):
        x = draw(8, 32, dtype=torch.bfloat16, grad=True)
        result = forward(x)
        found.append([result.detach(), *torch.autograd.grad(result, [x, *pair(lora)], slopes)])
    for theirs, ours in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - theirs).float().norm() <= 0.01 * theirs.float().norm()


def pair(lora: Any) -> tuple[Tensor, Tensor]:
    return lora.lora_A["default"].weight, lora.lora_B["default"].weight


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "down_proj")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", [(LlamaConfig, LlamaForCausalLM), (Qwen3Config, Qwen3ForCausalLM)])
def test_a_model_of_fast_layers_has_the_gradient_of_its_own(family: Any, dtype: torch.dtype, targets: Any) -> None:
    torch.manual_seed(0)
    model = frozen(family[1](family[0](**SMALL)), dtype)
    fast = fused.FusedLayers(model)
    slot = slot_of(model, targets=targets)
    own_hidden, own = gradient(model, slot, nullcontext())
    hidden, ours = gradient(model, slot, fast.running(slot))
    # In float64 transformers' norms still round to float32, ours do not: no closer than that.
    assert (hidden - own_hidden).norm() <= 1e-5 * own_hidden.norm()
    assert (ours - own).norm() <= 1e-5 * own.norm()
    norms = 2 * model.config.num_hidden_layers + 1 + (4 if family[0] is Qwen3Config else 0)
    kinds = [type(module).__name__ for module in fast._forwards]
    assert sum(kind.endswith("RMSNorm") for kind in kinds) == norms
    assert sum(kind.endswith("MLP") for kind in kinds) == model.config.num_hidden_layers


def test_less_of_a_model_is_kept_for_the_backward_pass() -> None:
    torch.manual_seed(0)
    model = frozen(LlamaForCausalLM(LlamaConfig(**SMALL)))
    fast, slot = fused.FusedLayers(model), slot_of(model)
    assert kept_bytes(model, slot, fast.running(slot)) < 0.9 * kept_bytes(model, slot, nullcontext())


def kept_bytes(model: Any, slot: AdapterSlot, running: Any) -> int:
    """Bytes of all distinct tensors that a backward pass would need, the weights aside."""
    weights = {p.data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # holds them, lest an address be used again

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    switch_on(model, slot)
    with running, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.model(input_ids=IDS, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def test_a_norm_that_computes_something_else_is_left_alone() -> None:
    gemma, llama = GemmaRMSNorm(8), LlamaRMSNorm(8)
    gemma.weight.data.normal_()
    llama.weight.data.normal_()
    fast = fused.FusedLayers(nn.ModuleList([gemma, llama]))
    assert list(fast._forwards) == [llama]


def test_a_gated_unit_of_another_activation_is_left_alone() -> None:
    gelu = LlamaForCausalLM(LlamaConfig(**SMALL, hidden_act="gelu"))
    kinds = {type(module).__name__ for module in fused.FusedLayers(frozen(gelu))._forwards}
    assert "LlamaMLP" not in kinds
    assert "LlamaRMSNorm" in kinds


def test_the_models_own_forwards_are_back_afterwards_whatever_happened() -> None:
    model = frozen(LlamaForCausalLM(LlamaConfig(**SMALL)))
    fast, slot = fused.FusedLayers(model), slot_of(model)
    special = model.model.norm
    special.forward = special.forward
    with pytest.raises(ZeroDivisionError), fast.running(slot):
        raise ZeroDivisionError
    assert [module for module in model.modules() if "forward" in module.__dict__] == [special]


@pytest.mark.parametrize(("rows", "keys"), [(3, 9), (9, 9), (1, 9), (1, 1)])
def test_attention_is_causal_and_aligned_to_the_last_row(rows: int, keys: int) -> None:
    query, key, value = (
        draw(2, 4, rows, 6, grad=True),
        draw(2, 2, keys, 6, grad=True),
        draw(2, 2, keys, 6).requires_grad_(),
    )
    seen = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
    scores = (query @ key.repeat_interleave(2, 1).mT * 0.3).masked_fill(~seen, float("-inf"))
    wanted = (scores.softmax(-1) @ value.repeat_interleave(2, 1)).transpose(1, 2)
    got, _ = attention.attend(nn.Module(), query, key, value, None, scaling=0.3)
    slopes = draw(*wanted.shape)
    assert torch.allclose(got, wanted, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(got, [query, key, value], slopes),
        torch.autograd.grad(wanted, [query, key, value], slopes),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-12)


def test_the_mask_that_a_gpu_is_told_is_the_one_that_a_cpu_forms() -> None:
    query, key, value = draw(1, 4, 3, 8), draw(1, 2, 9, 8), draw(1, 2, 9, 8)
    told = attention._lower_right(3, 9, torch.device("cuda"), torch.float64)
    theirs = scaled_dot_product_attention(query, key, value, attn_mask=told, scale=0.3, enable_gqa=True)
    ours, _ = attention.attend(nn.Module(), query, key, value, None, scaling=0.3)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-12)
    repeated = attention._repeated(key, 4), attention._repeated(value, 4)
    copies, _ = attention.attend(nn.Module(), query, *repeated, None, scaling=0.3)
    assert torch.allclose(ours, copies, atol=1e-12)


def test_a_model_with_sliding_windows_keeps_its_own_attention() -> None:
    config = MistralConfig(**SMALL, sliding_window=4)
    config._attn_implementation = "sdpa"
    model = frozen(MistralForCausalLM(config))
    own = attention.TrainingAttention(model.model, model.config)
    assert not own.fits
    with own.running():
        assert model.config._attn_implementation == "sdpa"


def test_a_full_attention_model_attends_the_same_and_is_switched_back() -> None:
    model = frozen(Qwen3ForCausalLM(Qwen3Config(**SMALL)), torch.float64)
    switch = attention.TrainingAttention(model.model, model.config)
    assert switch.fits
    own = model.model(input_ids=IDS).last_hidden_state
    with switch.running():
        assert model.config._attn_implementation == attention.NAME
        ours = model.model(input_ids=IDS).last_hidden_state
    assert model.config._attn_implementation == "sdpa"
    assert torch.allclose(ours, own, atol=1e-10)


def test_the_trainer_of_a_llama_runs_all_of_it(tiny: Path, tmp_path: Path) -> None:
    from pot_agent.policy.engine import Engine

    trainer = Engine(str(tiny), device="cpu", dtype="float64", home=tmp_path)._trainer
    kinds = {type(module).__name__ for module in trainer._forward._fused._forwards}
    assert {"LlamaRMSNorm", "LlamaMLP"} <= kinds
    assert trainer._forward._attention.fits
