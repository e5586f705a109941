"""The examples: every problem file is read, and every script runs (the long ones in `make test-long`)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.embed import assistant
from pot_agent import PotConfig, Problem, create_pot_agent
from tests.fakes import ScriptedPolicy, block

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "examples" / "problems").glob("*.json"))


def test_there_are_ten_problems_or_more_and_two_of_them_are_stdin_programs() -> None:
    kinds = [{test["type"] for test in Problem.parse(json.loads(f.read_text())).to_dict()["tests"]} for f in FILES]
    assert len(FILES) >= 10
    assert sum(kind == {"stdin"} for kind in kinds) >= 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_problem_names_its_licence_and_source_and_can_be_read(file: Path) -> None:
    given = json.loads(file.read_text())
    assert given["licence"]
    assert given["source"]
    assert "hidden_tests" not in given
    problem = Problem.parse(given)
    assert problem.tests
    assert problem.evidence == "given"


def test_pot_embeds_as_a_node_of_the_example_parent(sandbox: Any) -> None:
    policy = ScriptedPolicy([block("def largest(numbers):\n    return max(numbers)")])
    solver = create_pot_agent(policy, sandbox, config=PotConfig.quick())
    found = assistant(solver).invoke({"request": "Find the largest number."})
    assert "passes 3 of 3 tests" in found["answer"]


@pytest.mark.long
@pytest.mark.parametrize("script", ["solve.py", "embed.py", "demo.py"])
def test_each_script_runs(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{script}"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "POT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "def " in done.stdout
