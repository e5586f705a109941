"""Models that reason before they answer, their chat template having begun the thought itself."""

from pathlib import Path

import pytest

from pot_agent.policy.engine import Engine
from pot_agent.policy.text import Stops
from pot_agent.problem import Problem
from pot_agent.prompts import extract_program
from tests.tiny import make_tiny_model

BLOCK = "```python\nx = 1\n```\n"
PROBLEM = Problem.parse({"problem": "x", "tests": ["assert x == 1"]})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The tiny model with a template that ends in `<think>`, as those of Qwen3-Thinking and DeepSeek-R1 do."""
    folder = make_tiny_model(tmp_path_factory.mktemp("thinking") / "tiny")
    template = folder / "chat_template.jinja"
    begun = template.read_text().replace("<|im_start|>assistant", "<|im_start|>assistant\n<think>")
    assert begun.count("<think>") == 1
    template.write_text(begun)
    return Engine(str(folder), device="cpu", dtype="float32", home=folder)


def ids_of(engine: Engine, text: str) -> list[int]:
    return engine.chat._ids(text)


def test_what_the_template_began_is_part_of_the_answer(engine: Engine, tiny: Path) -> None:
    assert engine.chat.answer(ids_of(engine, "so")) == "<think>\nso"
    assert Engine(str(tiny), device="cpu", dtype="float32", home=tiny).chat.answer(ids_of(engine, "so")) == "so"


def test_a_block_inside_the_thought_ends_nothing_and_the_first_after_it_does(engine: Engine) -> None:
    stops = Stops(engine.chat, (), end_at_block=True)
    assert not stops.reached(ids_of(engine, f"Try this:\n{BLOCK}but no"))
    assert stops.reached(ids_of(engine, f"Try this:\n{BLOCK}but no\n</think>\n{BLOCK}"))


def test_the_program_is_never_taken_out_of_the_thought(engine: Engine) -> None:
    whole = engine.chat.answer(ids_of(engine, f"Try y:\n```python\ny = 2\n```\nno\n</think>\n{BLOCK}"))
    assert extract_program(whole, PROBLEM).program == "x = 1\n"
    cut = engine.chat.answer(ids_of(engine, f"Try y:\n{BLOCK}no"))
    assert extract_program(cut, PROBLEM).program.strip() == ""
