"""The whole line with real parts: a real (tiny or embedded) model that samples and learns, a real sandbox, the graph.

The tiny model writes noise, which never passes a test; its reward is the share of characters below a middle one, so
that groups differ and the adapter is trained. What is claimed is that the parts meet, not that anything is solved.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import LocalPolicy, LoraConfig, PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.policy.base import Receipt
from pot_agent.policy.client import HttpPolicy
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation
from tests.policy.serving import serving
from tests.tiny import make_tiny_model

PROBLEM = {"problem": "Write add.", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
CONFIG = PotConfig.quick(
    iterations=2, width=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2)
)
EXAMPLES = Path(__file__).parent.parent / "examples" / "problems"


class Lowness:
    """A reward that any text has: the share of its characters below `m`."""

    def evaluate(self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Any) -> Evaluation:
        low = sum(character < "m" for character in program)
        score = 0.9 * low / max(1, len(program))
        return Evaluation(score=score, verdict="wrong_answer", passed=0, total=2, feedback="Wrong.")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", context=1024)


@pytest.fixture
def policy(tiny: Path) -> Iterator[LocalPolicy]:
    with LocalPolicy(str(tiny), threads=1) as policy:
        yield policy


def weights(policy: LocalPolicy) -> list[torch.Tensor]:
    model = policy._engine._loaded.model
    return [weight.clone() for name, weight in model.named_parameters() if "lora" not in name]


def test_a_run_trains_its_adapter_and_leaves_the_base_as_it_was(policy: LocalPolicy, sandbox: Any) -> None:
    before = weights(policy)
    graph = create_pot_agent(policy, sandbox, config=CONFIG, reward=Lowness(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    solution = graph.invoke(PROBLEM, config)["solution"]
    state = graph.get_state(config).values
    assert solution["updates"] == 2
    assert solution["adapter_version"] == 2
    assert state["receipt"]["total_steps"] == 6
    assert state["receipt"]["sampler_gap"] < 1e-4
    assert len(policy._sessions) == 0
    assert all(torch.equal(a, b) for a, b in zip(before, weights(policy), strict=True))
    json.dumps(state, allow_nan=False)


def test_equal_seeds_give_equal_runs_and_another_seed_another(policy: LocalPolicy, sandbox: Any) -> None:
    def programs(seed: int) -> list[str]:
        graph = create_pot_agent(
            policy, sandbox, config=CONFIG.change(seed=seed), reward=Lowness(), checkpointer=InMemorySaver()
        )
        config: Any = {"configurable": {"thread_id": "1"}}
        graph.invoke(PROBLEM, config)
        return [program["text"] for program in graph.get_state(config).values["programs"]]

    assert programs(1) == programs(1) != programs(2)


class LosesAnAnswer(LocalPolicy):
    """The real policy, whose first answer to `internalize` is lost after the gradient steps were taken."""

    lost = False
    receipts: list[Receipt]

    def internalize(self, *given: Any, **named: Any) -> Receipt:
        receipt = super().internalize(*given, **named)
        self.receipts = [*getattr(self, "receipts", []), receipt]
        if not self.lost:
            self.lost = True
            raise ConnectionError("the answer was lost")
        return receipt


def test_a_resumed_internalize_gets_the_same_receipt_and_takes_no_step_twice(tiny: Path, sandbox: Any) -> None:
    with LosesAnAnswer(str(tiny), threads=1) as policy:
        graph = create_pot_agent(policy, sandbox, config=CONFIG, reward=Lowness(), checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "1"}}
        with pytest.raises(ConnectionError):
            graph.invoke(PROBLEM, config)
        solution = graph.invoke(None, config)["solution"]
        assert policy.receipts[0] == policy.receipts[1]
        assert solution["updates"] == 2
        assert policy.receipts[-1].total_steps == 6


def test_a_graph_over_http_finds_what_one_in_process_finds(tiny: Path, sandbox: Any) -> None:
    found = []
    with LocalPolicy(str(tiny), threads=1) as policy:
        graph = create_pot_agent(policy, sandbox, config=CONFIG, reward=Lowness())
        found.append(graph.invoke(PROBLEM)["solution"])
    with serving(LocalPolicy(str(tiny), threads=1)) as url, HttpPolicy(url) as remote:
        graph = create_pot_agent(remote, sandbox, config=CONFIG, reward=Lowness())
        found.append(graph.invoke(PROBLEM)["solution"])
    assert {**found[0], "seconds": 0, "model": ""} == {**found[1], "seconds": 0, "model": ""}
    assert found[0]["updates"] == 2


def test_noise_that_never_parses_is_judged_and_learned_from_by_nobody(policy: LocalPolicy, sandbox: Any) -> None:
    solution = create_pot_agent(policy, sandbox, config=CONFIG).invoke(PROBLEM)["solution"]
    assert solution["solved"] is False
    assert solution["updates"] == 0
    assert solution["score"] == 0.0


def test_a_wide_adapter_is_configuration(policy: LocalPolicy, sandbox: Any) -> None:
    config = CONFIG.change(lora=LoraConfig(rank=2, targets=("q_proj",)), iterations=1)
    solution = create_pot_agent(policy, sandbox, config=config, reward=Lowness()).invoke(PROBLEM)["solution"]
    assert solution["updates"] == 1


@pytest.mark.long
def test_the_embedded_model_runs_a_real_problem_through_the_whole_line(sandbox: Any) -> None:
    problem = json.loads((EXAMPLES / "humaneval_42.json").read_text())
    with LocalPolicy() as policy:
        graph = create_pot_agent(policy, sandbox, config=PotConfig.quick(iterations=2, max_new_tokens=128))
        solution = graph.invoke(problem)["solution"]
    assert solution["tests_total"] == 2
    assert solution["stop_reason"] in ("solved", "iterations")
    assert "def incr_list" in solution["program"]
