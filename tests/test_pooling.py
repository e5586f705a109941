"""Pooled groups: a node whose thoughts all score alike is drawn at again, and the update gets the union."""

from dataclasses import replace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import ConfigError, PotConfig, create_pot_agent
from tests.fakes import ScriptedPolicy, block

PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
HALF = block("def add(a, b):\n    return 3")


def zero(number: int) -> str:
    """A program that passes nothing, another for each number."""
    return block(f"def add(a, b):\n    return {100 + number}")


def zeros(many: int, *then: str) -> list[str]:
    return [*(zero(number) for number in range(many)), *then]


def agent(policy: Any, sandbox: Any, *, checkpointer: Any = None, reward: Any = None, **changes: Any) -> Any:
    config = PotConfig.quick(**{"iterations": 4, "width": 3, "pool": 3, **changes})
    return create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer, reward=reward)


def ran(policy: Any, sandbox: Any, **changes: Any) -> dict[str, Any]:
    graph = agent(policy, sandbox, checkpointer=InMemorySaver(), **changes)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config)
    return dict(graph.get_state(config).values)


def draws(policy: ScriptedPolicy) -> list[dict[str, Any]]:
    return [call for call in policy.of("sample") if call["temperature"] > 0]


def groups(policy: ScriptedPolicy) -> list[list[float]]:
    return [list(call["rewards"].values()) for call in policy.of("internalize")]


def test_after_equal_rewards_the_same_prompt_is_drawn_again_with_another_seed(sandbox: Any) -> None:
    policy = ScriptedPolicy(zeros(99))
    ran(policy, sandbox, iterations=3)
    drawn = draws(policy)
    assert drawn[0]["messages"] == drawn[1]["messages"] == drawn[2]["messages"]
    assert {call["version"] for call in drawn} == {0}
    assert len({call["seed"] for call in drawn}) == 3


def test_the_union_is_trained_on_as_soon_as_rewards_differ_and_the_search_goes_on(sandbox: Any) -> None:
    policy = ScriptedPolicy(zeros(5, HALF, *zeros(99)))
    state = ran(policy, sandbox, iterations=3)
    assert groups(policy)[:2] == [[0.0] * 3, [0.0, 0.0, 0.0, 0.0, 0.5, 0.0]]
    assert len(groups(policy)[2]) == 3
    assert state["leaf"] != 0
    assert draws(policy)[2]["version"] == 1
    assert draws(policy)[2]["messages"] != draws(policy)[1]["messages"]


def test_a_node_is_drawn_at_no_more_often_than_pool_says(sandbox: Any) -> None:
    policy = ScriptedPolicy(zeros(99))
    events = list(agent(policy, sandbox, pool=2).stream(PROBLEM, stream_mode="custom"))
    selected = [(event["leaf"], event["draw"]) for event in events if event["event"] == "selected"]
    assert [draw for _, draw in selected] == [1, 2, 1, 2]
    assert selected[0][0] == selected[1][0] == 0
    assert selected[2][0] == selected[3][0] != 0
    assert [len(group) for group in groups(policy)] == [3, 6, 3, 6]


def test_without_the_option_a_group_is_one_draw(sandbox: Any) -> None:
    assert PotConfig.paper().search.pool == PotConfig.quick().search.pool == 1
    policy = ScriptedPolicy(zeros(99))
    ran(policy, sandbox, pool=1)
    assert [len(group) for group in groups(policy)] == [3, 3, 3, 3]
    assert len({str(call["messages"]) for call in draws(policy)}) == 4


def test_every_draw_counts_as_an_iteration_and_so_do_its_tokens(sandbox: Any) -> None:
    solution = ran(ScriptedPolicy(zeros(99)), sandbox, iterations=3)["solution"]
    assert (solution["iterations"], solution["stop_reason"]) == (3, "iterations")
    assert solution["tokens"] == 3 * 4 * 10


def test_programs_that_come_again_in_a_later_draw_are_one_node_with_every_sample(sandbox: Any) -> None:
    again = [zero(1), zero(2), zero(3), zero(1)]
    policy = ScriptedPolicy([*again, *again])
    state = ran(policy, sandbox, iterations=2)
    assert len(groups(policy)[1]) == 6
    assert len(state["programs"]) == 3
    assert [(node["visits"], len(node["samples"])) for node in state["tree"][1:]] == [(4, 4), (2, 2), (2, 2)]
    assert state["tree"][0]["visits"] == 8
    assert sum(node["prior"] for node in state["tree"][1:]) == pytest.approx(1.0)


def test_a_search_without_depth_left_ends_only_when_its_draws_are_used_up(sandbox: Any) -> None:
    solution = ran(ScriptedPolicy(zeros(99)), sandbox, max_depth=1, iterations=20)["solution"]
    assert (solution["stop_reason"], solution["iterations"]) == ("exhausted", 3)


def test_no_node_is_deeper_than_the_limit(sandbox: Any) -> None:
    state = ran(ScriptedPolicy(zeros(999)), sandbox, max_depth=2, iterations=12)
    assert max(node["depth"] for node in state["tree"]) == 2


def test_with_reroot_the_same_node_is_drawn_at_and_its_newest_commit_is_the_root(sandbox: Any) -> None:
    state = ran(ScriptedPolicy(zeros(99)), sandbox, commit="reroot", iterations=2)
    root = state["tree"][state["root"]]
    assert (root["parent"], root["committed"], root["iteration"]) == (0, True, 2)
    assert state["leaf"] == 0
    after = ran(ScriptedPolicy(zeros(99)), sandbox, commit="reroot", iterations=4)
    assert after["tree"][after["leaf"]]["iteration"] == 3  # after three draws: the commit of the last one


@pytest.mark.parametrize("limit", range(4, 16))
def test_no_recursion_limit_loses_the_run(sandbox: Any, limit: int) -> None:
    graph = agent(ScriptedPolicy(zeros(99)), sandbox, iterations=20)
    solution = graph.invoke(PROBLEM, {"recursion_limit": limit})["solution"]
    assert (solution["stop_reason"], solution["iterations"]) == ("recursion_limit", (limit - 3) // 4)


def test_a_run_that_is_interrupted_before_every_step_does_what_it_would_have_done(sandbox: Any) -> None:
    script = zeros(9, HALF, *zeros(99))
    whole, parts = ScriptedPolicy(script), ScriptedPolicy(script)
    expected = ran(whole, sandbox)
    graph = agent(parts, sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    steps = ["propose", "execute", "internalize", "commit"]
    graph.invoke(PROBLEM, config, interrupt_before=steps)
    for _ in range(4 * len(steps)):
        graph.invoke(None, config, interrupt_before=steps)
    found = graph.get_state(config).values
    assert {**found["solution"], "seconds": 0} == {**expected["solution"], "seconds": 0}
    assert groups(parts) == groups(whole)
    assert [len(group) for group in groups(whole)] == [3, 6, 9, 3]
    assert [call["seed"] for call in draws(parts)] == [call["seed"] for call in draws(whole)]


def test_a_reused_thread_does_not_pool_with_the_problem_before(sandbox: Any) -> None:
    policy = ScriptedPolicy(zeros(99))
    graph = agent(policy, sandbox, checkpointer=InMemorySaver(), iterations=1)
    config: Any = {"configurable": {"thread_id": "1"}}
    for _ in range(2):
        graph.invoke(PROBLEM, config)
    assert [len(group) for group in groups(policy)] == [3, 3]


class MovesAnyway(ScriptedPolicy):
    """Learns from a group of equal rewards too, as self-distillation from feedback does."""

    def internalize(self, session: str, **arguments: Any) -> Any:
        receipt = super().internalize(session, **arguments)
        self.versions[session] = receipt.parent_version + 1
        return replace(receipt, skipped=None, version=receipt.parent_version + 1)


def test_a_version_that_moved_on_equal_rewards_ends_the_pooling(sandbox: Any) -> None:
    policy = MovesAnyway(zeros(99))
    ran(policy, sandbox)
    assert [len(group) for group in groups(policy)] == [3, 3, 3, 3]


def test_search_without_learning_draws_the_same_thoughts(sandbox: Any) -> None:
    script = zeros(5, HALF, *zeros(99))
    found = []
    for learn in (True, False):
        policy = ScriptedPolicy(script)
        ran(policy, sandbox, learn=learn)
        found.append([(call["messages"], call["seed"], call["n"]) for call in policy.of("sample")])
    assert found[0] == found[1]


def test_groups_of_one_can_learn_once_they_are_pooled(sandbox: Any) -> None:
    policy = ScriptedPolicy([zero(1), zero(2), HALF, zero(3)])
    solution = ran(policy, sandbox, width=1, iterations=2)["solution"]
    assert groups(policy) == [[0.0], [0.0, 0.5]]
    assert solution["updates"] == 1
    assert solution["warnings"] == []


def test_a_knob_of_one_run_turns_it_on_and_one_out_of_range_is_an_error_that_names_it(sandbox: Any) -> None:
    policy = ScriptedPolicy(zeros(99))
    agent(policy, sandbox, pool=1).invoke(PROBLEM, context={"pool": 2, "iterations": 2})
    assert [len(group) for group in groups(policy)] == [3, 6]
    with pytest.raises(ConfigError, match=r"pool must be a whole number, 1 or more, got 0"):
        PotConfig.quick(pool=0)
