"""Messages to prompt ids, and sampled ids to text.

Limits: text only. Special tokens spelled out in a message (`<|im_end|>`) are broken apart by a space before the prompt
is formed, so that a problem's statement or a program's output cannot end a turn; lone surrogates become U+FFFD.
"""

import logging
from collections.abc import Sequence
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from pot_agent.errors import ConfigError
from pot_agent.policy.base import Message
from pot_agent.policy.blocks import THOUGHT_BEGINS, end_of_first_block
from pot_agent.policy.models import LoadedModel

logger = logging.getLogger(__name__)


def clean(text: str) -> str:
    """The text with lone surrogates replaced: anything that UTF-8 can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Chat:
    """The chat template and the tokens of one model."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._tokenizer: PreTrainedTokenizerBase = loaded.tokenizer
        self._name = loaded.name
        self._specials = sorted({str(t) for t in loaded.tokenizer.all_special_tokens if len(str(t)) > 1}, key=len)
        self._said_plain = False
        self.opening = self._opening()
        """What the template has begun of the answer, and is part of its text: a reasoning model's `<think>`."""
        self.end_ids = _end_ids(loaded)
        if not self.end_ids:
            logger.warning("%s names no end-of-sequence token; completions end at max_tokens only", self._name)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Prompt ids of messages, up to where the assistant's answer begins."""
        shielded = [{"role": m["role"], "content": self._shield(clean(m["content"]))} for m in messages]
        if self._tokenizer.chat_template is None:
            return self._ids(self._plain(shielded))
        try:
            rendered = self._tokenizer.apply_chat_template(shielded, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # jinja's own errors, and those that a template raises on purpose
            raise ConfigError(
                f"the chat template of {self._name} refuses these messages: {error} (roles: "
                f"{', '.join(m['role'] for m in shielded)})",
                value=[m["role"] for m in shielded],
            ) from error
        return self._ids(str(rendered))

    def count(self, content: str | Sequence[Message]) -> int:
        """Tokens of a text, or of messages with all that the template adds."""
        return len(self._ids(self._shield(clean(content))) if isinstance(content, str) else self.encode(content))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens left out."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return clean(str(text))

    def answer(self, ids: Sequence[int]) -> str:
        """Text of a whole completion, with what the template had begun of it."""
        return self.opening + self.decode(ids)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that no text shows."""
        return frozenset(i for i, token in self._tokenizer.added_tokens_decoder.items() if token.special)

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        """Tokens that are one byte each, `<0x0A>`, of tokenizers that write rare characters so."""
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        found = zip(names, self._tokenizer.convert_tokens_to_ids(names), strict=True)
        return frozenset(i for name, i in found if i is not None and self._tokenizer.convert_ids_to_tokens(i) == name)

    def _opening(self) -> str:
        if self._tokenizer.chat_template is None:
            return ""
        probe = [{"role": "user", "content": "."}]
        try:
            rendered = str(self._tokenizer.apply_chat_template(probe, tokenize=False, add_generation_prompt=True))
        except Exception:  # what such a template refuses is said when it is given real messages
            return ""
        return f"{THOUGHT_BEGINS}\n" if rendered.rstrip().endswith(THOUGHT_BEGINS) else ""

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _shield(self, text: str) -> str:
        for special in self._specials:
            text = text.replace(special, f"{special[0]} {special[1:]}")
        return text

    def _plain(self, messages: Sequence[dict[str, str]]) -> str:
        if not self._said_plain:
            self._said_plain = True
            logger.warning("%s has no chat template; a plain 'User: ... Assistant:' is used", self._name)
        turns = [f"{m['role'].capitalize()}: {m['content']}\n\n" for m in messages]
        bos = self._tokenizer.bos_token
        return f"{bos or ''}{''.join(turns)}Assistant:"


def _end_ids(loaded: LoadedModel) -> frozenset[int]:
    """Every token that ends a turn: the generation configuration's and the tokenizer's."""
    named = getattr(loaded.model.generation_config, "eos_token_id", None)
    listed = named if isinstance(named, (list, tuple)) else [named]
    return frozenset(int(i) for i in [*listed, loaded.tokenizer.eos_token_id] if isinstance(i, int))


class Stops:
    """Where a completion ends before the model ends it: at a stop string, or with its first block of code."""

    def __init__(self, chat: Chat, stop: Sequence[str], *, end_at_block: bool = False) -> None:
        self.chat = chat
        self._stop = tuple(stop)
        self._end_at_block = end_at_block
        # A stop string of b bytes spans at most b tokens; a few more, because some decoders trim the first one's space.
        self._tail = max((len(s.encode("utf-8", "surrogatepass")) for s in self._stop), default=0) + 4

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether a stop string or a block ends within the newest tokens."""
        if not self._stop and not self._end_at_block:
            return False
        tail = self.chat.decode(ids[-self._tail :])
        if any(stop in tail for stop in self._stop):
            return True
        fenced = self._end_at_block and ("`" in tail or "~" in tail)  # else the whole need not be looked at
        return fenced and end_of_first_block(self.chat.answer(ids)) is not None

    @property
    def longest(self) -> int:
        """Characters at the end of a text that may be the beginning of a stop string."""
        return max((len(stop) for stop in self._stop), default=1) - 1

    def text_of(self, ids: Sequence[int]) -> str:
        """Text of a whole completion, up to where it ends."""
        return self.cut(self.chat.answer(ids))

    def cut(self, text: str) -> str:
        """The text before the first stop string, and up to the end of its block where one ends it."""
        if self._end_at_block:
            text = text[: end_of_first_block(text)]
        return text[: min((at for stop in self._stop if (at := text.find(stop)) >= 0), default=len(text))]
