"""The tiny model as a GGUF file, written the way llama.cpp's converter does."""

import json
from pathlib import Path

import gguf
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
CONTROL, NORMAL = 3, 1


def write_tiny_gguf(model: Path, file: Path) -> Path:
    """Write the model in folder `model` to a GGUF file in float32, and return it."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = network.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, model)
    for name, weight in network.state_dict().items():
        writer.add_tensor(_gguf_name(name), _permuted(name, weight, config).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: gguf.GGUFWriter, model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    saved = json.loads((model / "tokenizer.json").read_text())
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    specials = set(tokenizer.all_special_tokens) | {token["content"] for token in saved["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in ordered])
    writer.add_token_types([CONTROL if token in specials else NORMAL for token, _ in ordered])
    writer.add_token_merges([" ".join(pair) for pair in saved["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _gguf_name(name: str) -> str:
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in fixed:
        return fixed[name]
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def _permuted(name: str, weight: Tensor, config: object) -> Tensor:
    """llama.cpp pairs a head's rotary halves, where transformers keeps them apart."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads is None:
        return weight
    count = getattr(config, heads)
    return weight.view(count, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
