"""Pooled groups and generated tests with a real policy: real samples, a real adapter, real updates, a real sandbox."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import LocalPolicy, PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.policy.base import Completion
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation
from tests.fakes import block
from tests.tiny import make_tiny_model

ONE = {"problem": "Write add.", "tests": ["assert add(1, 2) == 3"], "entry_point": "add"}
CONFIG = PotConfig.quick(width=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", context=1024)


class Worded(LocalPolicy):
    """The real policy whose words are replaced by a script (the tiny model writes noise); ids and updates are real."""

    script: Iterator[str]
    written: str

    def sample(self, session: str, **arguments: Any) -> list[Completion]:
        asked = "Do not write the" in arguments["messages"][-1]["content"]
        completions = super().sample(session, **arguments)
        return [replace(found, text=self.written if asked else next(self.script)) for found in completions]


def ran(policy: LocalPolicy, sandbox: Any, *, reward: Any = None, **changes: Any) -> dict[str, Any]:
    graph = create_pot_agent(
        policy, sandbox, config=CONFIG.change(**changes), reward=reward, checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(ONE, config)
    return dict(graph.get_state(config).values)


def test_one_visible_test_moves_the_adapter_where_generated_tests_tell_programs_apart(tiny: Path, sandbox: Any) -> None:
    programs = [block(f"def add(a, b):\n    return {value}") for value in ("a", "0", "None", "a")]
    for number, updates in ((0, 0), (4, 1)):
        with Worded(str(tiny), threads=1) as policy:
            policy.script, policy.written = iter(programs), "assert add(5, 0) == 5\nassert add(0, 0) == 0"
            state = ran(policy, sandbox, iterations=1, generated_tests=number)
        assert state["solution"]["updates"] == state["solution"]["adapter_version"] == updates
        assert (state["solution"]["solved"], state["solution"]["score"]) == (False, 0.0)
    assert list(state["receipt"]["rewards"].values()) == [0.3, 0.15, 0.0]


class AlikeAtFirst:
    """Scores the first `alike` programs 0.5 and every later one by the share of its characters below `m`."""

    def __init__(self, alike: int) -> None:
        self.alike, self.lock = alike, threading.Lock()

    def evaluate(self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Any) -> Evaluation:
        with self.lock:
            self.alike -= 1
            alike = self.alike >= 0
        score = 0.5 if alike else 0.9 * sum(character < "m" for character in program) / max(1, len(program))
        return Evaluation(score=score, verdict="wrong_answer", passed=0, total=2, feedback="Wrong.")


def test_the_union_of_two_draws_is_one_update_of_the_real_policy(tiny: Path, sandbox: Any) -> None:
    with LocalPolicy(str(tiny), threads=1) as policy:
        state = ran(policy, sandbox, reward=AlikeAtFirst(4), iterations=2, pool=2)
    receipt = state["receipt"]
    assert len(receipt["rewards"]) == len(state["rewards"]) == 6
    assert receipt["skipped"] is None
    assert (receipt["parent_version"], receipt["version"], receipt["steps"]) == (0, 1, 3)
    assert sum(receipt["advantages"].values()) == pytest.approx(0.0, abs=1e-9)
    assert state["solution"]["updates"] == 1


def test_noise_in_place_of_tests_is_warned_of_and_breaks_nothing(tiny: Path, sandbox: Any) -> None:
    with LocalPolicy(str(tiny), threads=1) as policy:
        state = ran(policy, sandbox, iterations=2, generated_tests=4, pool=2)
    assert state["generated"] == []
    assert "wrote no test that can be used" in state["solution"]["warnings"][-1]
    assert (state["solution"]["iterations"], state["solution"]["updates"]) == (2, 0)
