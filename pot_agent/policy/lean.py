"""The lean decoder: models of the Llama family without transformers' Python around every operator.

The arithmetic is the model's: its own weights, norms, activation and rotary module, which is asked at every step, so
that scalings which depend on the position are right. That it is so is found out and not assumed: `lean_model` runs a
few tokens through both, and a model on which they differ decodes through transformers, with a warning.

Limits: llama, qwen2 and qwen3 (by the class of the model), full attention in every layer, all layers plain linear;
`lean_model` gives None for any other.
"""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaModel, PreTrainedModel, Qwen2Model, Qwen3Model

from pot_agent.policy.head import backbone_of
from pot_agent.policy.kept_prompts import KeptPrompt, Place
from pot_agent.policy.lean_attention import PromptAttention, RowsAttention, SharedPrompt
from pot_agent.policy.lean_layer import Company, Factors, LeanLayer, OneByOne, Rotation, norm_of, unwrapped
from pot_agent.policy.lean_stack import Stack, StackLayer, StackStep

logger = logging.getLogger(__name__)

_FAMILIES = {"llama": LlamaModel, "qwen2": Qwen2Model, "qwen3": Qwen3Model}
_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_PROBE = ((1, 2, 3, 5, 8, 13, 21), (1, 2, 3, 5, 4, 3, 2))
_PROBE_PROMPT = 4
_CLOSE = {torch.float64: 1e-6, torch.float32: 1e-3}
_CLOSE_IN_HALF_PRECISION = 5e-2


class LeanDecoder:
    """One call's decoding: the prompt in parts, then rows token by token."""

    def __init__(
        self, model: "LeanModel", layers: Sequence[LeanLayer], prompt_tokens: int, place: Place | None = None
    ) -> None:
        self._model = model
        self._layers = layers
        self.stack: Stack | None = None
        """Where it has a slot, while it has one."""
        self.slot = 0
        self._place = place
        self._kept = None if place is None else place.find()
        like = model.embed.weight
        self._prompts: list[PromptAttention] = []
        if self._kept is None:
            self._prompts = [layer.prompt_attention(like, prompt_tokens) for layer in layers]
        self._rows: list[RowsAttention] = []
        self._prompt = 0 if self._kept is None else self._kept.tokens
        self._own = 0
        self._hidden_1H = like.new_empty(0)

    def prefill(self, ids_P: Tensor, check: Callable[[], None]) -> Tensor:
        """The hidden state after these tokens, [1, H]. `check` is called at every layer.

        Of a prompt that was kept, the state after all of it, and nothing is run.
        """
        if self._kept is not None:
            return self._kept.hidden
        x_PH = self._model.embed(ids_P)
        rotation = self._model.rotation(x_PH, self._prompt)
        for layer, attention in zip(self._layers, self._prompts, strict=True):
            check()
            x_PH = layer.run(x_PH, rotation, attention, self._prompt)
        self._prompt += len(ids_P)
        self._hidden_1H = self._model.norm(x_PH[-1:])
        return self._hidden_1H

    def widen(self, rows: int, room: int) -> None:
        """The prompt becomes `rows` equal rows, with room for so many tokens each."""
        if self._kept is not None:
            self._rows = [
                SharedPrompt(keys_KDP, values_KPD, rows=rows, room=room, scaling=layer.scaling)
                for layer, (keys_KDP, values_KPD) in zip(self._layers, self._kept.layers, strict=True)
            ]
        while self._prompts:
            self._rows.append(self._prompts.pop(0).widened(rows, room))
        if self._kept is None and self._place is not None:
            shared = [attention.prompt for attention in self._rows if isinstance(attention, SharedPrompt)]
            if len(shared) == len(self._rows):
                self._place.keep(KeptPrompt(shared, self._hidden_1H, self._prompt))

    def step(self, ids_N: Tensor) -> Tensor:
        """The hidden state after one more token of each row, [N, H]."""
        return self.step_together([self], [ids_N])

    @staticmethod
    def step_together(decoders: "Sequence[LeanDecoder]", ids: Sequence[Tensor]) -> Tensor:
        """One more token of each row of several calls on one model: hidden states, in order, [N, H].

        Each call's rows are what they would be alone, to rounding: products of more rows add up in another order.
        """
        model = decoders[0]._model
        ends = list(itertools.accumulate(len(ids_N) for ids_N in ids))
        spans = [slice(end - len(ids_N), end) for end, ids_N in zip(ends, ids, strict=True)]
        x_NH = model.embed(ids[0] if len(ids) == 1 else torch.cat(list(ids)))
        rotations = [
            model.rotation(x_NH[:1], decoder._prompt + decoder._own).of_rows(1 if len(ids) == 1 else len(ids_N))
            for decoder, ids_N in zip(decoders, ids, strict=True)
        ]
        rotation = Rotation.joined(rotations)
        stack = Stack.of(decoders)
        together = None if stack is None else StackStep(stack, decoders)
        owns = [decoder._own for decoder in decoders]
        for at, layer in enumerate(model.layers):
            company: Company
            if together is not None:
                company = StackLayer(together, at, layer)
            else:
                attentions = [decoder._rows[at] for decoder in decoders]
                company = OneByOne([decoder._layers[at] for decoder in decoders], attentions, owns, spans)
            x_NH = layer.run_rows(x_NH, rotation, company)
        for decoder in decoders:
            decoder._own += 1
        return model.norm(x_NH)

    @property
    def prompt_tokens(self) -> int:
        """Of the prompt so far."""
        return self._prompt

    @property
    def own_tokens(self) -> int:
        """That each row has made so far."""
        return self._own

    @property
    def layers(self) -> Sequence[LeanLayer]:
        """With its adapter."""
        return self._layers

    @property
    def like(self) -> Tensor:
        """Of the type and device of all that it computes."""
        return self._model.embed.weight

    @property
    def shared(self) -> list[SharedPrompt]:
        """Each layer's attention, where that can be stacked; empty otherwise."""
        found = [attention for attention in self._rows if isinstance(attention, SharedPrompt)]
        return found if self.like.device.type == "cpu" and len(found) == len(self._rows) else []

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self.stack = None
        kept = torch.tensor(rows, device=self._model.embed.weight.device)
        for attention in self._rows:
            attention.keep(kept)


class LeanModel:
    """A model's weights, packed where asked, and decoders on them."""

    def __init__(self, backbone: nn.Module, linears: Mapping[str, nn.Linear], *, pack: bool) -> None:
        parts: Any = backbone
        names: dict[nn.Module, str] = {module: name for name, module in linears.items()}
        self.embed: nn.Embedding = parts.embed_tokens
        self.norm = norm_of(parts.norm)
        self._rotary = parts.rotary_emb
        self.layers = [LeanLayer.of(layer, names, pack=pack) for layer in parts.layers]

    def decoder(self, prompt_tokens: int, factors: Factors, scale: float, place: Place | None = None) -> LeanDecoder:
        """For one prompt of so many tokens, kept in `place`, with this adapter (no factors: the base)."""
        layers = [layer.adapted(factors, scale) for layer in self.layers] if factors else self.layers
        return LeanDecoder(self, layers, prompt_tokens, place)

    def rotation(self, x_NH: Tensor, start: int) -> Rotation:
        """Of as many positions as there are rows, from `start` on."""
        positions_N = torch.arange(start, start + len(x_NH), device=x_NH.device)
        return Rotation.of(self._rotary, x_NH, positions_N)


def lean_model(model: PreTrainedModel, linears: Mapping[str, nn.Linear], *, pack: bool) -> LeanModel | None:
    """The model as a lean one; None, with a warning where it looked like one, for a model that is not."""
    if not _is_known(model, linears):
        return None
    backbone = backbone_of(model)
    lean = LeanModel(backbone, linears, pack=pack)
    try:
        difference = _difference(lean, backbone)
    except RuntimeError as error:
        logger.warning("the lean decoder cannot run this %s (%s); it decodes through transformers", _kind(model), error)
        return None
    if not difference <= _CLOSE.get(model.dtype, _CLOSE_IN_HALF_PRECISION):  # not a number is not close either
        text = "the lean decoder differs from this %s by %.1e of its hidden state; it decodes through transformers"
        logger.warning(text, _kind(model), difference)
        return None
    return lean


def _is_known(model: PreTrainedModel, linears: Mapping[str, nn.Linear]) -> bool:
    backbone: Any = backbone_of(model)
    if _FAMILIES.get(_kind(model)) is not type(backbone):
        return False
    if any(kind != "full_attention" for kind in getattr(model.config, "layer_types", None) or ()):
        return False
    known = {layer for layer in linears.values() if type(layer) is nn.Linear}
    halves = [half for layer in backbone.layers for half in (layer.self_attn, layer.mlp)]
    found = [unwrapped(getattr(half, name)) for half in halves for name in _LINEARS if hasattr(half, name)]
    return len(found) == len(_LINEARS) * len(backbone.layers) and known.issuperset(found)


def _kind(model: PreTrainedModel) -> str:
    return str(getattr(model.config, "model_type", "unknown"))


@torch.no_grad()
def _difference(lean: LeanModel, backbone: nn.Module) -> float:
    """The greatest relative difference (L2) of a hidden state, over two rows of one prompt."""
    ids_NT = torch.tensor(_PROBE, device=lean.embed.weight.device).clamp(max=lean.embed.num_embeddings - 1)
    wanted_NTH = backbone(input_ids=ids_NT, use_cache=False).last_hidden_state[:, _PROBE_PROMPT:]
    decoder = lean.decoder(_PROBE_PROMPT, {}, 0.0)
    decoder.prefill(ids_NT[0, :_PROBE_PROMPT], lambda: None)
    decoder.widen(len(_PROBE), len(_PROBE[0]))
    found_NTH = torch.stack([decoder.step(ids_N) for ids_N in ids_NT[:, _PROBE_PROMPT:].t()], 1)
    return float(((found_NTH - wanted_NTH).norm(dim=2) / wanted_NTH.norm(dim=2)).max())
