"""The model as the sampler runs it: frozen linear layers by the shortest way, one adapter version on top.

Models of the Llama family go through the lean decoder (`lean.py`), all others through transformers, whose linear
layers' forward is then replaced, for the duration of a call, by its (packed) product plus the adapter's part: peft's
forward costs more Python than arithmetic when there are three rows. That sampler and trainer agree is tested, never
assumed.

Limits: the forward methods are swapped on the modules themselves, so only one thread may be inside at a time, and
nothing may train meanwhile: callers hold the policy's lock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.cache import DecodingCache
from pot_agent.policy.cpu_linear import Linear, can_pack, packed_linear, plain_linear
from pot_agent.policy.head import backbone_of
from pot_agent.policy.kept_prompts import Place
from pot_agent.policy.lean import LeanDecoder, LeanModel, lean_model
from pot_agent.policy.low_rank import adapted


class Decoder(Protocol):
    """One call's decoding: the prompt in parts, then rows token by token."""

    def prefill(self, ids_P: Tensor, check: Callable[[], None]) -> Tensor:
        """The hidden state after these tokens, [1, H]. `check` is called now and then, and may raise."""
        ...

    def widen(self, rows: int, room: int) -> None:
        """The prompt becomes `rows` equal rows, with room for so many tokens each."""
        ...

    def step(self, ids_N: Tensor) -> Tensor:
        """The hidden state after one more token of each row, [N, H]."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        ...


class FastForward:
    """One model's decoders; weights are packed at first use where that helps."""

    def __init__(self, model: PreTrainedModel, linears: Mapping[str, nn.Linear]) -> None:
        self._model = model
        self._linears = dict(linears)
        head = model.get_output_embeddings()
        self._head = {_name_of(model, head): head} if isinstance(head, nn.Linear) else {}
        every = [*self._linears.values(), *self._head.values()]
        bytes_ = sum(layer.weight.numel() * layer.weight.element_size() for layer in every)
        self.packs = can_pack(bytes_, model.device, model.dtype)
        self.may_be_lean = True
        self._lean: LeanModel | None = None
        self._products: dict[str, Linear] = {}
        self._built = False

    @contextmanager
    def running(
        self, layout: AdapterLayout | None, vector: Tensor | None, prompt_tokens: int, place: Place | None = None
    ) -> Iterator[Decoder]:
        """A decoder for a prompt of so many tokens, on this adapter version, or on the base where either is None.

        The model's output head, and all of the model where it decodes through transformers, runs this way inside.
        """
        if self.lean is not None:
            with self.head_running():
                yield self.decoder(layout, vector, prompt_tokens, place)
            return
        adapters = [] if layout is None or vector is None else list(layout.views(vector))
        scale = 0.0 if layout is None else layout.scale
        forwards = dict(self._products)
        forwards |= {name: adapted(forwards[name], a_RI, b_OR, scale) for name, a_RI, b_OR in adapters}
        with self._swapped(forwards):
            yield _ThroughTransformers(self._model, prompt_tokens)

    @property
    def lean(self) -> LeanModel | None:
        """The lean model, built at first use; None where this model has none."""
        if not self._built:
            self._build()
        return self._lean

    def decoder(
        self, layout: AdapterLayout | None, vector: Tensor | None, prompt_tokens: int, place: Place | None = None
    ) -> LeanDecoder:
        """A decoder of the lean model, which must be there; to be used inside `head_running`."""
        if self.lean is None:
            raise TypeError("this model has no lean decoder")
        factors = {} if layout is None or vector is None else {name: (a, b) for name, a, b in layout.views(vector)}
        return self.lean.decoder(prompt_tokens, factors, 0.0 if layout is None else layout.scale, place)

    def head_running(self) -> AbstractContextManager[None]:
        """The output head runs by its packed product inside, where the lean model decodes."""
        return self._swapped(self._products if self.lean is not None else {})

    def _build(self) -> None:
        """Nothing is packed twice: what the lean model holds is not among the products."""
        self._lean = lean_model(self._model, self._linears, pack=self.packs) if self.may_be_lean else None
        pack = packed_linear if self.packs else plain_linear
        layers = self._head if self._lean is not None else self._linears | self._head
        self._products = {name: pack(layer) for name, layer in layers.items()}
        self._built = True

    @contextmanager
    def _swapped(self, forwards: Mapping[str, Linear]) -> Iterator[None]:
        modules = [self._model.get_submodule(name) for name in forwards]
        try:
            for module, forward in zip(modules, forwards.values(), strict=True):
                module.forward = forward
            yield
        finally:
            for module in modules:
                module.__dict__.pop("forward", None)


class _ThroughTransformers:
    """Any model, by its own forward."""

    def __init__(self, model: PreTrainedModel, prompt_tokens: int) -> None:
        self._backbone = backbone_of(model)
        self._cache = DecodingCache(model.config.get_text_config().num_hidden_layers, prompt_tokens)

    def prefill(self, ids_P: Tensor, check: Callable[[], None]) -> Tensor:
        check()
        return self._run(ids_P.unsqueeze(0))

    def widen(self, rows: int, room: int) -> None:
        self._cache.widen(rows, room)

    def step(self, ids_N: Tensor) -> Tensor:
        return self._run(ids_N.unsqueeze(1))

    def keep(self, rows: Sequence[int]) -> None:
        self._cache.keep(rows)

    def _run(self, ids_NT: Tensor) -> Tensor:
        """Hidden state of the last position."""
        hidden: Tensor = self._backbone(input_ids=ids_NT, past_key_values=self._cache, use_cache=True).last_hidden_state
        return hidden[:, -1]


def _name_of(model: nn.Module, wanted: nn.Module) -> str:
    return next(str(name) for name, module in model.named_modules() if module is wanted)
