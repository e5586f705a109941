"""The pieces of a completion that are told while it is written join to its text, whatever its tokens are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from pot_agent.errors import CancelledError
from pot_agent.policy.base import Completion
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.engine import Engine
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.text import Chat, Stops
from pot_agent.policy.written import KEPT, MOST, Written
from tests.policy.contract import ASK, LORA, opened
from tests.policy.serving import serving
from tests.tiny import make_tiny_model, make_tokenizer

WORDS = "def é漢 ➜\U0001f600 x\n```python ~~~ <think> </think> \x00"
PIECES = ["▁", "▁de", "f", "▁x", "(", "é", "```", "\n", "▁漢", "```\n"]


def written_in_bytes() -> PreTrainedTokenizerFast:
    """As Llama 2, Mistral and Gemma have it: spaces as marks, and rare characters as one token for each byte."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    tokenizer = Tokenizer(
        models.BPE({name: i for i, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True)
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)  # type: ignore[arg-type]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def chat_of(tokenizer: PreTrainedTokenizerFast) -> Chat:
    loaded: Any = SimpleNamespace(tokenizer=tokenizer, name="test", model=SimpleNamespace(generation_config=None))
    return Chat(loaded)


CHATS = {"bytes inside tokens": chat_of(make_tokenizer()), "bytes as tokens": chat_of(written_in_bytes())}
VOCABULARY = {name: len(chat._tokenizer) for name, chat in CHATS.items()}


def pieces_of(stops: Stops, ids: list[int]) -> list[str]:
    """What is told, when the tokens come one by one and end where a completion would."""
    told: list[str] = []
    written = Written(stops, told.append)
    for count in range(1, len(ids) + 1):
        written.advance(ids[:count])  # the last token too: who looks now and then does not know that it is
        if stops.reached(ids[:count]) or count == len(ids):
            written.end(ids[:count])
            assert "".join(told) == stops.text_of(ids[:count])
            break
    assert all(told)
    return told


@given(data=st.data())
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("kind", CHATS)
def test_the_pieces_of_any_tokens_join_to_the_text(kind: str, data: st.DataObject) -> None:
    chat = CHATS[kind]
    mostly = chat._tokenizer(WORDS * 3, add_special_tokens=False)["input_ids"]
    token = st.one_of(st.sampled_from(mostly), st.integers(0, VOCABULARY[kind] - 1))
    ids = data.draw(st.lists(token, min_size=1, max_size=3 * MOST))
    stop = data.draw(st.lists(st.sampled_from(["f ", "\n\n", "é漢", "x", "``", "\ufffd"]), max_size=2))
    pieces_of(Stops(chat, stop, end_at_block=data.draw(st.booleans())), ids)


@pytest.mark.parametrize("kind", CHATS)
def test_characters_of_several_bytes_are_never_told_in_halves(kind: str) -> None:
    chat = CHATS[kind]
    text = "é漢➜\U0001f600 def x(\n" * 12
    ids = chat._tokenizer(text, add_special_tokens=False)["input_ids"]
    told = pieces_of(Stops(chat, ()), ids)
    assert len(told) > 12
    assert not any("\ufffd" in piece for piece in told)


@pytest.mark.parametrize("kind", CHATS)
def test_a_window_may_be_cut_at_any_byte_of_a_character(kind: str) -> None:
    chat = CHATS[kind]
    for offset in range(4):
        ids = chat._tokenizer("(" * offset + "\U0001f600" * MOST, add_special_tokens=False)["input_ids"]
        pieces_of(Stops(chat, ()), ids)


@pytest.mark.parametrize("kind", CHATS)
def test_a_stop_string_is_never_told_wherever_it_begins_and_ends(kind: str) -> None:
    chat, text = CHATS[kind], "def x(é漢\n\n```x f(\n``"
    ids = chat._tokenizer(text, add_special_tokens=False)["input_ids"]
    for begin in range(len(text)):
        for end in range(begin + 1, len(text) + 1):
            pieces_of(Stops(chat, [text[begin:end]]), ids)


def test_what_a_last_token_has_beyond_the_end_of_its_block_is_never_told() -> None:
    chat = CHATS["bytes as tokens"]
    ids = [chat._tokenizer.convert_tokens_to_ids(name) for name in ("```\n", "▁x", "\n", "```\n", "▁x")]
    assert "".join(pieces_of(Stops(chat, (), end_at_block=True), ids)) == "```\n x\n```"


@pytest.mark.parametrize("kind", CHATS)
def test_a_long_completion_is_never_decoded_again_from_its_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, decoded = CHATS[kind], []
    ids = chat._tokenizer("def é x(\n" * 150, add_special_tokens=False)["input_ids"]
    decode = chat.decode
    monkeypatch.setattr(chat, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    written = Written(Stops(chat, ()), lambda _: None)
    for count in range(1, len(ids) + 1):
        written.advance(ids[:count])
    assert len(ids) > 500
    assert max(decoded) <= MOST + KEPT
    written.end(ids)
    assert decoded[-1] == len(ids)  # once, for the text itself


def test_a_tokenizer_that_takes_text_back_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    chat = CHATS["bytes inside tokens"]
    stops = Stops(chat, ())
    written = Written(stops, lambda _: None)
    ids = chat._tokenizer("def add", add_special_tokens=False)["input_ids"]
    written.advance(ids)
    written.end(ids[:0])
    assert "changed after it was told" in caplog.text


class Told(dict[int, str]):
    """The text of each completion, as it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __call__(self, index: int, piece: str) -> None:
        assert piece
        self.calls += 1
        self[index] = self.get(index, "") + piece

    def texts(self, completions: list[Completion]) -> list[str]:
        return [self.get(index, "") for index in range(len(completions))]


def draw(policy: Any, told: Told, **changes: Any) -> list[Completion]:
    fields = {"version": 0, "messages": ASK, "n": 4, "temperature": 1.0, "max_tokens": 40, "seed": 3, **changes}
    found: list[Completion] = policy.sample(opened(policy), on_text=told, **fields)
    return found


@pytest.mark.parametrize("way", ["batched", "alone", "through transformers", "over HTTP"])
def test_a_real_model_tells_each_completion_exactly(way: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "through transformers":
        monkeypatch.setattr("pot_agent.policy.decoding.lean_model", lambda *_, **__: None)
    with LocalPolicy(str(tiny), threads=1, batch=way == "batched") as local:
        assert local.capabilities.streams
        if way == "over HTTP":
            with serving(local) as url, HttpPolicy(url) as policy:
                assert_told(policy)
        else:
            assert_told(local)
            assert (local._engine._sampler._fast.lean is None) == (way == "through transformers")  # type: ignore[attr-defined]


def assert_told(policy: Any) -> None:
    for changes in ({}, {"temperature": 0.0, "n": 1}, {"end_at_block": True}):
        told = Told()
        found = draw(policy, told, **changes)
        assert told.texts(found) == [completion.text for completion in found]
        assert told.calls > len(found)
    whole = draw(policy, Told(), n=1, temperature=0.0)[0].text
    stop = whole[len(whole) // 2 :][:3]
    told = Told()
    (cut,) = draw(policy, told, n=1, temperature=0.0, stop=[stop])
    assert told[0] == cut.text == whole[: whole.index(stop)]


def test_what_is_told_changes_no_sample(local: LocalPolicy) -> None:
    told = Told()
    heard = draw(local, told)
    unheard = local.sample(opened(local), version=0, messages=ASK, n=4, temperature=1.0, max_tokens=40, seed=3)
    assert [(one.text, one.logprob) for one in heard] == [(one.text, one.logprob) for one in unheard]


def test_nothing_is_decoded_on_the_way_where_nobody_listens(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.chat, "decode", lambda ids: pytest.fail("decoded"))
    request = engine.request(
        prompt_ids=engine.chat.encode(ASK), n=2, temperature=1.0, max_tokens=8, seed="0", stop=(), check=lambda: None
    )
    assert len(engine.draw(request, engine.layout(LORA), None)) == 2


@pytest.fixture(scope="module")
def engine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(str(tiny), device="cpu", dtype="float32", home=tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("batch", [True, False])
def test_who_listens_can_end_the_call_and_the_policy_goes_on(tiny: Path, batch: bool) -> None:
    def enough(index: int, piece: str) -> None:
        raise CancelledError("enough")

    with LocalPolicy(str(tiny), threads=1, batch=batch) as policy:
        with pytest.raises(CancelledError, match="enough"):
            policy.sample(opened(policy), version=0, messages=ASK, n=2, max_tokens=40, on_text=enough)
        assert len(draw(policy, Told(), n=2)) == 2


def test_a_reasoning_models_opening_is_told_first(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "thinking")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("assistant\n", "assistant\n<think>\n"))
    with LocalPolicy(str(folder), threads=1) as policy:
        told = Told()
        (found,) = draw(policy, told, n=1)
    assert told[0] == found.text
    assert found.text.startswith("<think>\n")
