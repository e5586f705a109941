"""Going on from a checkpoint of the past: the adapter goes back with it, or the error says what is missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import RestoreError, SessionNotFoundError, VersionError
from pot_agent.policy.local import LocalPolicy
from tests.durability.child import CONFIG, PROBLEM, GradedByText
from tests.policy.serving import serving

THREAD: Any = {"configurable": {"thread_id": "1"}}
GRPO = GrpoConfig(learning_rate=1e-2)
LORA = LoraConfig(rank=2, alpha=4.0)


@pytest.fixture
def policy(tiny: Path, tmp_path: Path) -> Iterator[LocalPolicy]:
    with LocalPolicy(str(tiny), threads=1, batch=False, state_dir=tmp_path / "state") as policy:
        yield policy


def agent(policy: Any, sandbox: Any, *, snapshots: bool = True) -> Any:
    config = PotConfig.quick(**CONFIG, grpo=GRPO, snapshots=snapshots)
    return create_pot_agent(policy, sandbox, config=config, reward=GradedByText(), checkpointer=InMemorySaver())


def past(graph: Any, *, iteration: int, ahead: str) -> Any:
    """The checkpoint of that iteration that has this node ahead."""
    (found,) = [
        snapshot
        for snapshot in graph.get_state_history(THREAD)
        if snapshot.next == (ahead,) and snapshot.values.get("iteration") == iteration
    ]
    return found


def without_seconds(solution: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in solution.items() if name != "seconds"}


@pytest.mark.parametrize(("iteration", "ahead"), [(0, "propose"), (1, "propose"), (2, "internalize"), (2, "commit")])
def test_a_run_replayed_from_its_past_takes_the_adapter_back_and_ends_the_same(
    policy: LocalPolicy, sandbox: Any, iteration: int, ahead: str
) -> None:
    graph = agent(policy, sandbox)
    first = graph.invoke(PROBLEM, THREAD)["solution"]
    assert first["updates"] >= 3
    again = graph.invoke(None, past(graph, iteration=iteration, ahead=ahead).config)["solution"]
    assert without_seconds(again) == without_seconds(first)


def test_a_run_replayed_over_http_ends_the_same(policy: LocalPolicy, sandbox: Any) -> None:
    with serving(policy) as url:
        graph = agent(url, sandbox)
        first = graph.invoke(PROBLEM, THREAD)["solution"]
        again = graph.invoke(None, past(graph, iteration=1, ahead="propose").config)["solution"]
    assert without_seconds(again) == without_seconds(first)


def test_another_future_can_be_tried_from_the_same_version(policy: LocalPolicy, sandbox: Any) -> None:
    graph = agent(policy, sandbox)
    first = graph.invoke(PROBLEM, THREAD)["solution"]
    before = past(graph, iteration=2, ahead="propose")
    changed = graph.update_state(before.config, {"knobs": {**before.values["knobs"], "seed": 5}})
    second = graph.invoke(None, changed)["solution"]
    assert second["iterations"] == first["iterations"]
    assert second["tokens"] != first["tokens"] or second["program"] != first["program"]


def test_without_snapshots_a_finished_run_cannot_be_replayed_and_says_how_to_start_again(
    policy: LocalPolicy, sandbox: Any
) -> None:
    graph = agent(policy, sandbox, snapshots=False)
    graph.invoke(PROBLEM, THREAD)
    with pytest.raises(SessionNotFoundError, match="start again"):
        graph.invoke(None, past(graph, iteration=1, ahead="propose").config)


def test_a_version_that_is_not_kept_any_more_is_named(policy: LocalPolicy, sandbox: Any) -> None:
    graph = agent(policy, sandbox, snapshots=False)
    graph.invoke(PROBLEM, THREAD, interrupt_before=["finish"])
    with pytest.raises(VersionError, match=r"version 1 of its adapter.*snapshots=True"):
        graph.invoke(None, past(graph, iteration=1, ahead="propose").config)


def test_in_memory_alone_no_older_version_can_be_gone_on_from(tiny: Path, sandbox: Any) -> None:
    with LocalPolicy(str(tiny), threads=1, batch=False) as policy:
        graph = agent(policy, sandbox)
        first = graph.invoke(PROBLEM, THREAD)["solution"]
        with pytest.raises(RestoreError, match="POT_STATE"):
            graph.invoke(None, past(graph, iteration=1, ahead="propose").config)
        again = graph.invoke(None, past(graph, iteration=0, ahead="propose").config)["solution"]
        assert without_seconds(again) == without_seconds(first)


def learn(policy: LocalPolicy, version: int) -> Any:
    group = policy.sample("s", version=version, messages=[{"role": "user", "content": "Go."}], n=3, max_tokens=8)
    rewards = {sample.sample_id: float(place) for place, sample in enumerate(group)}
    return policy.internalize("s", version=version, rewards=rewards, grpo=GRPO)


def test_a_session_that_went_back_learns_as_it_did(policy: LocalPolicy) -> None:
    policy.open("s", lora=LORA, seed=1)
    receipts = [learn(policy, 0)]
    policy.snapshot("s")
    receipts += [learn(policy, version) for version in (1, 2, 3)]
    assert policy.restore("s", version=1).version == 1
    again = [learn(policy, version) for version in (1, 2, 3)]
    assert [receipt.loss_last for receipt in again] == [receipt.loss_last for receipt in receipts[1:]]
    assert [receipt.adapter_norm for receipt in again] == [receipt.adapter_norm for receipt in receipts[1:]]
    assert [receipt.total_steps for receipt in again] == [receipt.total_steps for receipt in receipts[1:]]


def test_going_back_to_a_version_that_never_was_changes_nothing(policy: LocalPolicy) -> None:
    policy.open("s", lora=LORA, seed=1)
    learn(policy, 0)
    for version in (2, 9):
        with pytest.raises(VersionError):
            policy.restore("s", version=version)
    assert policy.restore("s").version == 1
    assert policy.restore("s", version=1).version == 1


def test_going_back_survives_the_process(tiny: Path, tmp_path: Path) -> None:
    for version in (None, 0):
        with LocalPolicy(str(tiny), threads=1, state_dir=tmp_path / "kept") as policy:
            policy.open("s", lora=LORA, seed=1)
            if version is None:
                learn(policy, 0)
                policy.restore("s", version=0)
            assert policy.restore("s").version == 0
