"""Methods over a real (tiny) model: what is drawn alike, what is learned, and what an adapter carries on.

The tiny model writes noise; programs are scored by the share of characters below a middle one, so that groups differ.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pot_agent import ConfigError, LocalPolicy, PotConfig
from pot_agent.config import GrpoConfig
from pot_agent.methods import METHODS, find
from pot_agent.methods.persistent import session_of
from pot_agent.policy.base import Message
from pot_agent.policy.client import HttpPolicy
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation
from tests.policy.serving import serving
from tests.tiny import make_tiny_model

PROBLEMS = [
    {"problem": "Write add.", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]},
    {"problem": "Write twice.", "tests": ["assert twice(1) == 2", "assert twice(2) == 4"]},
]
CONFIG = PotConfig.quick(
    iterations=2, width=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2)
)
ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]


class Lowness:
    """A reward that any text has: the share of its characters below `m`."""

    def evaluate(self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Any) -> Evaluation:
        low = sum(character < "m" for character in program)
        return Evaluation(score=0.9 * low / max(1, len(program)), verdict="wrong_answer", passed=0, total=2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPolicy]:
    folder = make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", context=1024)
    with LocalPolicy(str(folder), threads=1, batch=False) as policy:
        yield policy


@pytest.fixture(autouse=True)
def lowness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward of every method's graph; none of them takes one."""
    monkeypatch.setattr("pot_agent.handles.ExecutionReward", Lowness)


def ran(name: str, policy: Any, sandbox: Any, problem: Any = PROBLEMS[0], **changes: Any) -> dict[str, Any]:
    """The last state."""
    graph = find(name).build(policy, sandbox, CONFIG.change(**changes))
    return dict(list(graph.stream(problem, stream_mode="values"))[-1])


def texts(state: dict[str, Any]) -> list[str]:
    return [program["text"] for program in state["programs"]]


def weights(policy: LocalPolicy) -> list[torch.Tensor]:
    model = policy._engine._loaded.model
    return [weight.clone() for name, weight in model.named_parameters() if "lora" not in name]


def first_group(state: dict[str, Any]) -> list[str]:
    """The thoughts of the first draw, commits left out, in order."""
    nodes = [node for node in state["tree"][1:] if node["iteration"] == 1]
    return [texts(state)[node["program"]] for node in nodes if not node["committed"] or len(node["samples"]) > 1]


def test_mcts_pot_and_best_of_n_draw_the_same_first_group(policy: LocalPolicy, sandbox: Any) -> None:
    pot, mcts = ran("pot", policy, sandbox), ran("mcts", policy, sandbox)
    best = ran("best_of_n", policy, sandbox)
    assert pot["solution"]["updates"] == 2
    assert first_group(pot) == first_group(mcts) == first_group(best)[:3]
    assert len(first_group(pot)) == 3
    assert len(first_group(best)) == 4
    assert texts(pot) != texts(mcts)  # the commit is of another policy, and all after it


def test_with_one_thought_an_expansion_pot_is_mcts(policy: LocalPolicy, sandbox: Any) -> None:
    pot, mcts = (ran(name, policy, sandbox, width=1, iterations=3) for name in ("pot", "mcts"))
    assert pot["solution"]["updates"] == 0
    assert texts(pot) == texts(mcts)
    plain = [[{k: v for k, v in n.items() if k != "samples"} for n in state["tree"]] for state in (pot, mcts)]
    assert plain[0] == plain[1]


def test_a_persistent_adapter_goes_on_over_two_problems_and_leaves_the_base_as_it_was(
    policy: LocalPolicy, sandbox: Any
) -> None:
    before, method = weights(policy), METHODS["persistent"]
    first, second = (ran("persistent", policy, sandbox, problem) for problem in PROBLEMS)
    assert (first["solution"]["updates"], first["solution"]["adapter_version"]) == (2, 2)
    assert (second["solution"]["updates"], second["solution"]["adapter_version"]) == (2, 4)
    assert {node["version"] for node in second["tree"][1:]} <= {2, 3, 4}
    assert [(info.session, info.version) for info in policy.list_sessions()] == [(session_of(CONFIG), 4)]
    assert method.end is not None
    method.end(policy, CONFIG)
    assert policy.list_sessions() == []
    assert all(torch.equal(a, b) for a, b in zip(before, weights(policy), strict=True))


def test_what_was_learned_on_one_problem_changes_what_is_drawn_for_the_next(policy: LocalPolicy, sandbox: Any) -> None:
    alone = ran("pot", policy, sandbox, PROBLEMS[1])
    ran("persistent", policy, sandbox, PROBLEMS[0])
    after = ran("persistent", policy, sandbox, PROBLEMS[1])
    METHODS["persistent"].end(policy, CONFIG)  # type: ignore[misc]
    afresh = ran("persistent", policy, sandbox, PROBLEMS[1])
    METHODS["persistent"].end(policy, CONFIG)  # type: ignore[misc]
    assert first_group(after) != first_group(alone)
    assert texts(afresh) == texts(alone)


def test_a_persistent_adapter_goes_on_behind_a_server(policy: LocalPolicy, sandbox: Any, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tiny-llama", context=1024)
    with serving(LocalPolicy(str(folder), threads=1, batch=False)) as url, HttpPolicy(url) as remote:
        found = [ran("persistent", remote, sandbox, problem) for problem in PROBLEMS]
        assert [state["solution"]["adapter_version"] for state in found] == [2, 4]
        METHODS["persistent"].end(remote, CONFIG)  # type: ignore[misc]
        assert remote.list_sessions() == []
        assert remote.capabilities.shape == policy.capabilities.shape
        remote.open("one")
        (sample,) = remote.sample("one", version=0, messages=ASK, max_tokens=8, temperature=1.0)
        certainty = remote.score("one", version=0, sample_ids=[sample.sample_id], measure="self_certainty")
    policy.open("one")
    (same,) = policy.sample("one", version=0, messages=ASK, max_tokens=8, temperature=1.0)
    assert policy.score("one", version=0, sample_ids=[same.sample_id], measure="self_certainty") == certainty
    policy.close("one")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_self_certainty_is_the_mean_divergence_of_the_uniform_from_the_models_own(
    policy: LocalPolicy, temperature: float
) -> None:
    policy.open("certain")
    drawn = policy.sample("certain", version=0, messages=ASK, n=3, max_tokens=9, temperature=1.0)
    ids = [sample.sample_id for sample in drawn]
    found = policy.score("certain", version=0, sample_ids=ids, temperature=temperature, measure="self_certainty")
    samples = policy._sessions._open["certain"].journal.get(ids)
    policy.close("certain")
    model = policy._engine._loaded.model
    for value, sample in zip(found, samples, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*sample.prompt_ids, *sample.ids]])).logits[0].double()
        p_TV = (logits[len(sample.prompt_ids) - 1 : -1] / temperature).softmax(1)
        uniform_TV = torch.full_like(p_TV, 1 / p_TV.shape[1])
        divergence = (uniform_TV * (uniform_TV / p_TV).log()).sum(1).mean()
        assert value == pytest.approx(float(divergence), abs=1e-4)
        assert value > 0


def test_an_unknown_measure_is_an_error_at_the_door(policy: LocalPolicy) -> None:
    with pytest.raises(ConfigError, match="measure must be one of logprob, self_certainty, got 'entropy'"):
        policy.score("any", version=0, sample_ids=["a"], measure="entropy")  # type: ignore[arg-type]


def test_self_certainty_draws_what_best_of_n_draws_and_answers_with_the_most_certain(
    policy: LocalPolicy, sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lowness, "evaluate", lambda *a, **k: Evaluation(score=0.5, verdict="wrong_answer", total=2))
    certain, best = ran("self_certainty", policy, sandbox), ran("best_of_n", policy, sandbox)
    assert texts(certain) == texts(best)
    assert best["solution"]["program"] == texts(best)[0]
    assert certain["solution"]["program"] in texts(certain)
    assert certain["solution"]["program"] != texts(certain)[0]
