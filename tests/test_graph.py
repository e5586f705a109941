"""The graph: order, budgets, state, and what becomes of the adapter. The policy is scripted, the sandbox is real."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from pot_agent import CannotLearnError, ConfigError, PotConfig, ProblemError, create_pot_agent
from pot_agent.errors import ContextLengthError, SandboxError, SessionNotFoundError, StateError
from pot_agent.problem import Limits, Problem
from pot_agent.rewards import Evaluation
from tests.fakes import ScriptedPolicy, block

GOOD = block("def add(a, b):\n    return a + b")
HALF = block("def add(a, b):\n    return 3")
ZERO = block("def add(a, b):\n    return None")
BROKEN = block("def add(a, b) return")
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
PROBLEM = {"problem": "Write add(a, b).", "tests": TESTS}


def agent(policy: ScriptedPolicy, sandbox: Any, *, checkpointer: Any = None, reward: Any = None, **changes: Any) -> Any:
    config = PotConfig.quick(**{"iterations": 2, "width": 3, **changes})
    return create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer, reward=reward)


def solve(policy: ScriptedPolicy, sandbox: Any, problem: dict[str, Any] | None = None, **changes: Any) -> Any:
    return agent(policy, sandbox, **changes).invoke(problem or PROBLEM)["solution"]


# -- the order of things ------------------------------------------------------------------------------------------


def test_a_full_pass_ends_the_search_at_once_without_update_or_commit(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, GOOD, HALF])
    solution = solve(policy, sandbox)
    assert solution["solved"] is True
    assert solution["stop_reason"] == "solved"
    assert solution["program"] == "def add(a, b):\n    return a + b\n"
    assert (solution["tests_passed"], solution["tests_total"]) == (2, 2)
    assert policy.of("internalize") == []
    assert len(policy.of("sample")) == 1


def test_the_steps_run_in_the_order_of_the_paper(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, ZERO, HALF])
    steps = [node for chunk in agent(policy, sandbox).stream(PROBLEM, stream_mode="updates") for node in chunk]
    iteration = ["propose", "execute", "internalize", "commit"]
    assert steps == ["start", *iteration, *iteration, "finish"]


def test_the_group_that_is_learned_from_is_the_k_siblings_and_never_the_commit(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, BROKEN, HALF])
    solve(policy, sandbox, iterations=1)
    (update,) = policy.of("internalize")
    assert sorted(update["rewards"].values()) == [0.0, 0.0, 0.5]
    assert update["version"] == 0


def test_after_an_update_everything_is_sampled_from_the_new_version(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, ZERO, HALF, ZERO, HALF, ZERO])
    solution = solve(policy, sandbox)
    assert [(call["version"], call["n"], call["temperature"]) for call in policy.of("sample")] == [
        (0, 3, 0.7),
        (1, 1, 0.0),
        (1, 3, 0.7),
        (2, 1, 0.0),
    ]
    assert solution["updates"] == solution["adapter_version"] == 2


def test_equal_rewards_keep_the_version_and_are_not_counted_as_an_update(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO])
    solution = solve(policy, sandbox)
    assert solution["updates"] == solution["adapter_version"] == 0
    assert {call["version"] for call in policy.of("sample")} == {0}


def test_search_without_learning_makes_the_same_calls_with_the_same_seeds(sandbox: Any) -> None:
    script = [ZERO, HALF, ZERO, HALF]
    learning, searching = ScriptedPolicy(script), ScriptedPolicy(script)
    solve(learning, sandbox)
    solve(searching, sandbox, learn=False)

    def without_version(policy: ScriptedPolicy) -> list[dict[str, Any]]:
        return [{k: v for k, v in call.items() if k != "version"} for call in policy.of("sample")]

    assert without_version(learning) == without_version(searching)
    assert searching.of("internalize") == []
    assert searching.of("open")[0]["lora"] is None
    assert learning.of("open")[0]["lora"] is not None


def test_each_call_has_its_own_seed_and_the_seed_decides_them_all(sandbox: Any) -> None:
    seeds = []
    for seed in (1, 1, 2):
        policy = ScriptedPolicy([ZERO])
        solve(policy, sandbox, seed=seed)
        seeds.append([call["seed"] for call in policy.of("sample")])
    assert seeds[0] == seeds[1] != seeds[2]
    assert len(set(seeds[0])) == len(seeds[0])


def test_the_prompt_of_a_leaf_shows_each_thought_on_its_path_with_its_feedback(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, ZERO, HALF])
    solve(policy, sandbox)
    text = "\n".join(message["content"] for message in policy.of("sample")[2]["messages"])
    assert "return 3" in text
    assert "add(2, 2)" in text
    assert "return None" not in text  # a sibling is not on the path


def test_identical_programs_run_once_and_every_sample_stays_in_the_group(sandbox: Any) -> None:
    policy = ScriptedPolicy([HALF, HALF, ZERO, HALF])
    events = list(agent(policy, sandbox, iterations=1).stream(PROBLEM, stream_mode="custom"))
    assert len(policy.of("internalize")[0]["rewards"]) == 3
    cached = [event["cached"] for event in events if event["event"] == "verdict" and event["phase"] == "commit"]
    assert cached == [True]


def test_the_commit_can_become_the_root(sandbox: Any) -> None:
    graph = agent(
        ScriptedPolicy([HALF, ZERO, ZERO, ZERO]), sandbox, commit="reroot", checkpointer=InMemorySaver(), iterations=3
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config)
    state = graph.get_state(config).values
    assert state["tree"][state["root"]]["committed"]
    assert state["tree"][state["root"]]["depth"] == 3


def test_priors_can_be_rescored_under_the_newest_adapter(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, BROKEN, GOOD])
    solve(policy, sandbox, prior="rescore", iterations=1)
    scored = {sample for call in policy.of("score") for sample in call["sample_ids"]}
    assert len(scored) == 4
    assert {call["version"] for call in policy.of("score")} == {1}


def test_a_commit_that_passes_solves_the_problem(sandbox: Any) -> None:
    solution = solve(ScriptedPolicy([ZERO, HALF, BROKEN, GOOD]), sandbox)
    assert solution["solved"] is True
    assert solution["iterations"] == 1


# -- how a run ends -----------------------------------------------------------------------------------------------


def test_nothing_passes_and_the_answer_is_the_best_thought_the_earliest_of_equals(sandbox: Any) -> None:
    solution = solve(ScriptedPolicy([ZERO, HALF, block("def add(a, b):\n    return 4"), ZERO]), sandbox)
    assert solution["stop_reason"] == "iterations"
    assert solution["solved"] is False
    assert solution["score"] == 0.5
    assert "return 3" in solution["program"]


def test_a_search_with_nothing_left_stops_as_exhausted(sandbox: Any) -> None:
    solution = solve(ScriptedPolicy([ZERO, HALF]), sandbox, max_depth=1, iterations=20)
    assert solution["stop_reason"] == "exhausted"
    assert solution["iterations"] == 1


def test_the_clock_ends_a_run_in_the_middle_of_sampling_with_the_best_so_far(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO], wait=True)
    began = time.monotonic()
    solution = solve(policy, sandbox, max_seconds=0.3)
    assert solution["stop_reason"] == "max_seconds"
    assert time.monotonic() - began < 5
    assert policy.versions == {}


def test_the_recursion_limit_ends_a_run_with_the_best_so_far_and_says_how_to_raise_it(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO, HALF]), sandbox, iterations=20)
    solution = graph.invoke(PROBLEM, {"recursion_limit": 12})["solution"]
    assert solution["stop_reason"] == "recursion_limit"
    assert solution["score"] == 0.5
    assert "recursion_limit" in solution["warnings"][-1]


@pytest.mark.parametrize("limit", range(4, 16))
def test_no_recursion_limit_loses_the_run(sandbox: Any, limit: int) -> None:
    script = [block(f"def add(a, b):\n    return {number}") for number in range(100, 180)]
    solution = agent(ScriptedPolicy(script), sandbox, iterations=20).invoke(PROBLEM, {"recursion_limit": limit})
    assert solution["solution"]["stop_reason"] == "recursion_limit"
    assert solution["solution"]["iterations"] == (limit - 3) // 4


def test_the_default_limit_lets_a_paper_budget_run_through(sandbox: Any) -> None:
    script = [block(f"def add(a, b):\n    return {number}") for number in range(100, 180)]
    solution = solve(ScriptedPolicy(script), sandbox, iterations=20)
    assert (solution["stop_reason"], solution["iterations"]) == ("iterations", 20)


def test_no_tests_gives_one_greedy_answer_and_a_warning_that_names_tests(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    solution = solve(policy, sandbox, {"problem": "Write a function that adds two numbers."})
    assert (solution["solved"], solution["evidence"], solution["stop_reason"]) == (None, "none", "no_tests")
    assert "return a + b" in solution["program"]
    assert "tests=" in solution["warnings"][0]
    assert [(call["n"], call["temperature"]) for call in policy.of("sample")] == [(1, 0.0)]
    assert policy.of("internalize") == []


def test_examples_in_the_statement_are_evidence(sandbox: Any) -> None:
    problem = {"problem": "Write add(a, b).\n\n>>> add(1, 2)\n3\n>>> add(0, 5)\n5\n"}
    solution = solve(ScriptedPolicy([GOOD]), sandbox, problem)
    assert (solution["solved"], solution["evidence"], solution["tests_total"]) == (True, "examples", 2)


def test_one_visible_test_is_warned_of_since_nothing_can_be_learned(sandbox: Any) -> None:
    solution = solve(ScriptedPolicy([ZERO]), sandbox, {**PROBLEM, "tests": TESTS[:1]})
    assert "one visible test" in solution["warnings"][0]


# -- stopping, failing, resuming ------------------------------------------------------------------------------------


def test_a_callers_event_ends_the_run_with_the_best_so_far(sandbox: Any) -> None:
    policy, cancel = ScriptedPolicy([ZERO], wait=True), threading.Event()
    threading.Thread(target=lambda: (policy.sampling.wait(10), cancel.set())).start()
    solution = agent(policy, sandbox).invoke(PROBLEM, {"configurable": {"cancel": cancel}})["solution"]
    assert solution["stop_reason"] == "cancelled"
    assert policy.versions == {}


def test_cancelling_the_task_stops_the_policy_and_frees_the_adapter(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO], wait=True)

    async def run() -> None:
        task = asyncio.create_task(agent(policy, sandbox).ainvoke(PROBLEM))
        await asyncio.to_thread(policy.sampling.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert policy.ended.wait(2)
    for _ in range(100):
        if not policy.versions:
            break
        time.sleep(0.02)
    assert policy.versions == {}


def test_cancelling_while_the_problem_is_read_frees_the_adapter_too(sandbox: Any) -> None:
    class SlowDoor(ScriptedPolicy):
        def open(self, session: str, **arguments: Any) -> Any:
            self.sampling.set()
            time.sleep(0.3)
            return super().open(session, **arguments)

    policy = SlowDoor([ZERO])

    async def run() -> None:
        task = asyncio.create_task(agent(policy, sandbox).ainvoke(PROBLEM))
        await asyncio.to_thread(policy.sampling.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.6)

    asyncio.run(run())
    assert len(policy.of("open")) == 1
    assert policy.versions == {}


def test_a_run_whose_adapter_is_gone_says_so_and_how_to_start_again(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF])
    graph = agent(policy, sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config, interrupt_before=["commit"])
    policy.versions.clear()  # the process that held it has ended
    with pytest.raises(SessionNotFoundError, match="start again"):
        graph.invoke(None, config)


class FailsOnce:
    """A reward whose machine breaks at its first call, then passes or fails as the program says."""

    def __init__(self) -> None:
        self.calls = 0

    def evaluate(self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Any) -> Evaluation:
        self.calls += 1
        if self.calls == 1:
            raise OSError("the disk is on fire")
        passed = "a + b" in program
        return Evaluation(score=float(passed), verdict="passed" if passed else "wrong_answer", passed=0, total=2)


def test_an_exception_without_a_checkpointer_closes_the_adapter(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    with pytest.raises(OSError, match="on fire"):
        solve(policy, sandbox, reward=FailsOnce())
    assert policy.versions == {}


def test_an_exception_with_a_checkpointer_keeps_the_adapter_and_the_run_goes_on(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    graph = agent(policy, sandbox, reward=FailsOnce(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    with pytest.raises(OSError, match="on fire"):
        graph.invoke(PROBLEM, config)
    assert len(policy.versions) == 1
    assert graph.invoke(None, config)["solution"]["solved"] is True
    assert len(policy.of("open")) == 1
    assert len(policy.of("sample")) == 1
    assert policy.versions == {}


def test_an_interrupt_before_internalize_keeps_the_adapter_and_resumes(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, ZERO, GOOD])
    graph = agent(policy, sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config, interrupt_before=["internalize"])
    assert policy.of("internalize") == []
    assert len(policy.versions) == 1
    assert graph.invoke(None, config)["solution"]["solved"] is True
    assert len(policy.of("internalize")) == 1


def test_a_reused_thread_starts_clean(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO, HALF]), sandbox, checkpointer=InMemorySaver(), iterations=1)
    config: Any = {"configurable": {"thread_id": "1"}}
    first = graph.invoke(PROBLEM, config)["solution"]
    second = graph.invoke({"problem": "Say hello."}, config)["solution"]
    assert first["tests_total"] == 2
    assert (second["tests_total"], second["evidence"], second["updates"]) == (0, "none", 0)
    assert second["iterations"] == 1
    assert graph.get_state(config).values["task"]["problem"] == "Say hello."


def test_an_old_checkpoint_is_refused_with_its_version(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO, HALF]), sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config, interrupt_before=["internalize"])
    graph.update_state(config, {"state_version": 0}, as_node="execute")
    with pytest.raises(StateError, match="state version 0"):
        graph.invoke(None, config)


class SandboxDown:
    """A reward that could find nothing out about programs that contain a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def evaluate(self, problem: Problem, program: str, *, sandbox: Any, limits: Limits, cancel: Any) -> Evaluation:
        if self.word in program:
            return Evaluation(score=None, verdict="internal", failure="no process could be made")
        return Evaluation(score=0.5, verdict="wrong_answer", passed=1, total=2)


def test_a_thought_the_sandbox_failed_on_is_neither_scored_nor_trained_on(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF, GOOD, HALF])
    graph = agent(policy, sandbox, reward=SandboxDown("None"), checkpointer=InMemorySaver(), iterations=1)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config)
    assert len(policy.of("internalize")[0]["rewards"]) == 2
    assert len(graph.get_state(config).values["tree"]) == 3


def test_a_sandbox_that_fails_on_every_program_is_an_error_and_no_verdict(sandbox: Any) -> None:
    with pytest.raises(SandboxError, match="no process could be made"):
        solve(ScriptedPolicy([ZERO]), sandbox, reward=SandboxDown("def"))


# -- the state and what goes in and out -------------------------------------------------------------------------------


def test_the_state_is_plain_json_at_every_step(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO, HALF, block("x = '\\ud800'"), HALF]), sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    problem = {
        "problem": "Write add.",
        "entry_point": "add",
        "tests": [{"type": "call", "args": [1, (2, 3)], "expected": {1, 2}}, TESTS[0]],
    }
    graph.invoke(problem, config)
    snapshots = list(graph.get_state_history(config))
    assert len(snapshots) > 5
    for snapshot in snapshots[:-2]:  # before `start` the input is there as it was given
        json.dumps(snapshot.values, allow_nan=False)


def test_a_completion_with_lone_surrogates_is_kept_as_clean_text(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([block("x = '\ud800'")]), sandbox, checkpointer=InMemorySaver(), iterations=1)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, config)
    json.dumps(graph.get_state(config).values).encode()
    graph.get_state(config).values["programs"][0]["text"].encode()


def test_the_output_is_the_solution_alone(sandbox: Any) -> None:
    assert list(agent(ScriptedPolicy([GOOD]), sandbox).invoke(PROBLEM)) == ["solution"]


def test_events_are_flat_dictionaries_of_plain_values(sandbox: Any) -> None:
    events = list(agent(ScriptedPolicy([ZERO, HALF]), sandbox).stream(PROBLEM, stream_mode="custom"))
    kinds = {event["event"] for event in events}
    assert {"started", "selected", "thought", "verdict", "update", "committed", "finished"} <= kinds
    for event in events:
        assert all(value is None or isinstance(value, (str, int, float, bool)) for value in event.values()), event


def test_async_and_sync_runs_find_the_same(sandbox: Any) -> None:
    script = [ZERO, HALF, ZERO, HALF]
    ran = solve(ScriptedPolicy(script), sandbox)
    awaited = asyncio.run(agent(ScriptedPolicy(script), sandbox).ainvoke(PROBLEM))["solution"]
    assert {**ran, "seconds": 0} == {**awaited, "seconds": 0}


def test_async_runs_stream_their_events(sandbox: Any) -> None:
    async def run() -> list[Any]:
        graph = agent(ScriptedPolicy([GOOD]), sandbox)
        return [event async for event in graph.astream(PROBLEM, stream_mode="custom")]

    assert [event["event"] for event in asyncio.run(run())][-1] == "finished"


def test_the_context_turns_knobs_and_whatever_else_is_in_it_is_left_alone(sandbox: Any) -> None:
    class Foreign:
        model_name = "x"
        iterations = object()

    for context, iterations in ((None, 2), ({"iterations": 1, "colour": "red"}, 1), (Foreign(), 2)):
        policy = ScriptedPolicy([ZERO])
        graph = agent(policy, sandbox)
        assert graph.invoke(PROBLEM, context=context)["solution"]["iterations"] == iterations


def test_a_knob_out_of_range_is_an_error_that_names_it(sandbox: Any) -> None:
    with pytest.raises(ConfigError, match=r"iterations must be .* got -1"):
        agent(ScriptedPolicy([ZERO]), sandbox).invoke(PROBLEM, context={"iterations": -1})


def test_a_knob_cannot_ask_a_policy_to_learn_that_cannot(sandbox: Any) -> None:
    graph = agent(ScriptedPolicy([ZERO], learns=False), sandbox, learn=False)
    with pytest.raises(CannotLearnError):
        graph.invoke(PROBLEM, context={"learn": True})


class Parent(TypedDict, total=False):
    problem: str
    tests: list[Any]
    solution: dict[str, Any]
    seen: str


def test_it_embeds_as_a_node_of_a_parent_that_shares_keys(sandbox: Any) -> None:
    builder = StateGraph(Parent)
    builder.add_node("pot", agent(ScriptedPolicy([ZERO, GOOD]), sandbox))
    builder.add_node("read", lambda state: {"seen": state["solution"]["program"]})
    builder.add_edge(START, "pot")
    builder.add_edge("pot", "read")
    builder.add_edge("read", END)
    found = builder.compile(checkpointer=InMemorySaver()).invoke(PROBLEM, {"configurable": {"thread_id": "1"}})
    assert "return a + b" in found["seen"]
    assert set(found) == {"problem", "tests", "solution", "seen"}


def test_both_forms_of_a_node_draw_the_documented_graph(sandbox: Any) -> None:
    drawn = agent(ScriptedPolicy([ZERO]), sandbox).get_graph()
    edges = {(edge.source, edge.target, edge.conditional) for edge in drawn.edges}
    assert edges == {
        ("__start__", "start", False),
        ("start", "propose", False),
        ("propose", "execute", True),
        ("propose", "finish", True),
        ("execute", "internalize", True),
        ("execute", "finish", True),
        ("internalize", "commit", False),
        ("commit", "propose", True),
        ("commit", "finish", True),
        ("finish", "__end__", False),
    }


def test_the_input_schema_describes_the_problem_with_an_example(sandbox: Any) -> None:
    schema = agent(ScriptedPolicy([ZERO]), sandbox).get_input_jsonschema()
    field = schema["properties"]["problem"]
    assert field["description"]
    assert field["examples"]
    assert set(schema["properties"]) == {"problem", "tests", "entry_point", "starter_code", "setup", "limits"}


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ({"problem": ""}, "empty"),
        ({"problem": "   \n"}, "empty"),
        ({}, "problem"),
        ({"problem": "a\x00b"}, "null byte at character 1"),
        ({"problem": "x", "tests": "{not json"}, "not JSON"),
        ({"problem": "x", "tests": [{"type": "oracle"}]}, "no test kind 'oracle'"),
        ({"problem": "x", "tests": ["assert f(1"]}, "not Python"),
        ({"problem": "x" * 2_000_001}, "limit is 1,000,000"),
    ],
)
def test_a_problem_that_cannot_be_read_is_an_error_at_the_door(
    sandbox: Any, problem: dict[str, Any], said: str
) -> None:
    policy = ScriptedPolicy([GOOD])
    with pytest.raises(ProblemError, match=said):
        agent(policy, sandbox).invoke(problem)
    assert policy.calls == []


def test_a_statement_longer_than_the_context_names_the_limit(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD], context_tokens=1000)
    with pytest.raises(ContextLengthError, match="744"):
        solve(policy, sandbox, {**PROBLEM, "problem": "word " * 5000})
    assert policy.of("open") == []


def test_a_program_that_never_parses_is_a_verdict_and_no_error(sandbox: Any) -> None:
    solution = solve(ScriptedPolicy([BROKEN]), sandbox)
    assert solution["verdict"] == "compile_error"
    assert solution["solved"] is False
    assert solution["score"] == 0.0


def test_a_chat_model_asked_to_learn_is_an_error_when_the_graph_is_built() -> None:
    with pytest.raises(CannotLearnError, match="learn=False"):
        create_pot_agent(FakeListChatModel(responses=[GOOD]))


def test_a_chat_model_can_search(sandbox: Any) -> None:
    graph = create_pot_agent(
        FakeListChatModel(responses=[ZERO, HALF, HALF, GOOD]), sandbox, config=PotConfig.quick(learn=False, width=3)
    )
    solution = graph.invoke(PROBLEM)["solution"]
    assert solution["solved"] is True
    assert solution["model"] == "FakeListChatModel"


def test_something_that_is_no_policy_is_an_error_that_names_what_is(sandbox: Any) -> None:
    with pytest.raises(ConfigError, match="got int"):
        create_pot_agent(42)  # type: ignore[arg-type]
