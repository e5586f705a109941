"""The commands that the documentation gives: each is read by the program itself, its arms too."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pot_agent.bench.arms import parse_arm
from pot_agent.cli import app
from pot_agent.config import PotConfig

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def commands(page: Path, verb: str) -> Iterator[list[str]]:
    """The arguments of every `pot VERB` in a block of code, continued lines joined."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.split()[:2] == ["pot", verb]:
                yield shlex.split(line, comments=True)[2:]


def parsed(verb: str, words: list[str]) -> dict[str, Any]:
    """What the command is given; raises where it knows no such option, or the value does not fit."""
    root: Any = typer.main.get_command(app)  # typer brings a click of its own
    return dict(root.commands[verb].make_context(verb, list(words)).params)


BENCH = [(page.name, words) for page in PAGES for words in commands(page, "bench")]


@pytest.mark.parametrize(("page", "words"), BENCH, ids=[f"{page}-{at}" for at, (page, _) in enumerate(BENCH)])
def test_every_bench_command_of_the_docs_is_one(page: str, words: list[str]) -> None:
    given = parsed("bench", words)
    base = PotConfig.of(given["budget"] or "quick", profile=given["profile"] or "paper")
    for option in ("iterations", "width", "max_new_tokens"):
        if given[option] is not None:
            base = base.change(**{option: given[option]})
    names = [parse_arm(text, base, parameters=4_000_000_000).name for text in given["method"] or ()]
    assert len(set(names)) == len(names)


def test_the_ablation_at_equal_programs_runs_equally_many_programs() -> None:
    base = PotConfig.of("paper", iterations=16)
    programs = {k: parse_arm(f"pot:k={k}", base).programs for k in (1, 3, 7, 15, 31)}
    assert set(programs.values()) == {64}
    assert parse_arm("pot:k=32,iterations=2", base).programs == 66


def test_the_docs_have_such_commands() -> None:
    assert sum(page == "reproducing.md" for page, _ in BENCH) >= 5
