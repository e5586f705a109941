"""A tiny model that is real in every part but its size: for tests of mechanics, never of quality.

Two Llama layers with random weights from a seed, and a byte-level BPE tokenizer with a chat template, saved to a folder
as any model is. Its text is noise.
"""

from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRMSNorm

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "def add(a, b):\n    return a + b\n",
    "for i in range(10):\n    print(i)\n",
    "Write a function that adds two numbers and returns the sum.\n",
    "import sys\nprint(sum(int(x) for x in sys.stdin.read().split()))\n",
]


def make_tokenizer(vocabulary: int = 384) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on a few lines of Python; every text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def make_tiny_model(folder: Path, *, seed: int = 0, context: int = 512, hidden: int = 48, layers: int = 2) -> Path:
    """Save the tiny model and its tokenizer to `folder`, and return it. Equal arguments, equal weights."""
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # Wider than usual, so that the distribution over tokens is far from uniform and log-probabilities differ.
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_norms_exact(model: nn.Module) -> None:
    """Let a float64 model compute in float64 throughout: Llama's norms always pass through float32."""
    for module in model.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = partial(_exact_norm, module.weight, module.variance_epsilon)


def _exact_norm(weight_H: Tensor, epsilon: float, x_NTH: Tensor) -> Tensor:
    return weight_H * x_NTH * torch.rsqrt(x_NTH.square().mean(-1, keepdim=True) + epsilon)
