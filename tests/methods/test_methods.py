"""Every method over a scripted policy and the real sandbox: what is asked of the policy, and what comes back."""

import json
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import pot_agent.methods as methods
from pot_agent import PotConfig
from pot_agent.errors import ConfigError, PolicyError
from pot_agent.methods import METHODS, find
from pot_agent.methods.base import programs_of
from pot_agent.policy.base import Capabilities, Completion
from pot_agent.state import Solution
from tests.fakes import ScriptedPolicy, block

GOOD = block("def add(a, b):\n    return a + b")
HALF = block("def add(a, b):\n    return 3")
ZERO = block("def add(a, b):\n    return None")
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
PROBLEM = {"problem": "Write add(a, b).", "tests": TESTS}
PROGRAM = {"problem": "Print the sum of the numbers.", "tests": [{"input": "1 2\n", "output": "3\n"}]}
CONFIG = PotConfig.quick(iterations=2, width=3, max_new_tokens=64, max_prompt_tokens=4000)
EVERY = sorted(METHODS)


def ran(name: str, policy: Any, sandbox: Any, problem: Any = None, **changes: Any) -> Any:
    graph = find(name).build(policy, sandbox, CONFIG.change(**changes))
    return graph.invoke(problem or PROBLEM)["solution"]


def streamed(name: str, policy: Any, sandbox: Any, **changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Progress events, and the last state."""
    graph = find(name).build(policy, sandbox, CONFIG.change(**changes))
    chunks = list(graph.stream(PROBLEM, stream_mode=["custom", "values"]))
    return [chunk for mode, chunk in chunks if mode == "custom"], [c for mode, c in chunks if mode == "values"][-1]


def text_of(messages: list[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in messages)


def test_the_methods_of_the_paper_are_there() -> None:
    assert set(EVERY) >= {"zero_shot", "few_shot_cot", "best_of_n", "self_certainty", "mcts", "pot", "persistent"}
    assert find("Best-of-N") is METHODS["best_of_n"]


def test_a_method_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'mctz'; did you mean mcts\? There are best_of_n, .*zero_shot"):
        find("mctz")
    with pytest.raises(ConfigError, match="no method 'base'"):
        find("base")


NEW = """
from pot_agent.methods.base import Method
from pot_agent.methods.parts.drawing import Drawing, drawing_graph, greedily


def build(policy, sandbox, config):
    return drawing_graph(policy, sandbox, greedily(config), Drawing(greedy=True), name="terse")


METHOD = Method(name="terse", summary="one greedy answer, said shortly", build=build)
"""


def test_a_new_method_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Any) -> None:
    (tmp_path / "terse.py").write_text(NEW)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    try:
        assert "terse" in METHODS
        assert ran("terse", ScriptedPolicy([GOOD]), sandbox)["solved"] is True
    finally:
        sys.modules.pop("pot_agent.methods.terse", None)


def test_a_file_that_defines_no_method_is_an_error_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blank.py").write_text("METHOD = None\n")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    try:
        with pytest.raises(ConfigError, match=r"blank\.py must define METHOD"):
            find("blank")
    finally:
        sys.modules.pop("pot_agent.methods.blank", None)


@pytest.mark.parametrize("name", EVERY)
def test_every_method_answers_with_a_whole_solution_and_leaves_no_session_open(name: str, sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, HALF])
    solution = ran(name, policy, sandbox)
    assert set(solution) == set(get_type_hints(Solution))
    assert json.loads(json.dumps(solution, allow_nan=False)) == solution
    assert solution["evidence"] == "given"
    method = find(name)
    if method.end is not None:
        method.end(policy, CONFIG)
    assert policy.list_sessions() == []


@pytest.mark.parametrize("name", EVERY)
def test_every_method_has_the_schemas_of_pot_and_draws_itself(name: str, sandbox: Any) -> None:
    graph = find(name).build(ScriptedPolicy([GOOD]), sandbox, CONFIG)
    pot = find("pot").build(ScriptedPolicy([GOOD]), sandbox, CONFIG)
    assert graph.get_input_jsonschema()["properties"] == pot.get_input_jsonschema()["properties"]
    assert graph.get_output_jsonschema()["properties"] == pot.get_output_jsonschema()["properties"]
    drawn = graph.get_graph().draw_mermaid()
    assert "propose" in drawn
    assert ("commit" in drawn) is (name in ("mcts", "pot", "persistent"))
    assert graph.name == name


@pytest.mark.parametrize("problem", [PROBLEM, PROGRAM], ids=["function", "stdin"])
def test_every_methods_prompt_contains_the_same_statement_and_visible_tests(problem: Any, sandbox: Any) -> None:
    first: dict[str, str] = {}
    for name in EVERY:
        policy = ScriptedPolicy([ZERO])
        ran(name, policy, sandbox, problem)
        first[name] = policy.of("sample")[0]["messages"][-1]["content"]
    common = first["zero_shot"]
    for test in problem["tests"]:
        shown = [test] if isinstance(test, str) else [test["input"].strip(), test["output"].strip()]
        assert all(part in common for part in shown)
    assert all(text.startswith(common) for text in first.values())
    assert {name for name, text in first.items() if text != common} == {"few_shot_cot"}


def test_every_method_shows_its_work_by_the_same_events(sandbox: Any) -> None:
    for name in EVERY:
        events, state = streamed(name, ScriptedPolicy([ZERO, HALF]), sandbox)
        kinds = [event["event"] for event in events]
        assert kinds[0] == "started"
        assert kinds[-1] == "finished"
        assert {"selected", "thought", "verdict"} <= set(kinds)
        assert len(state["tree"]) > 1
        assert state["programs"][state["tree"][1]["program"]]["verdict"] == "wrong_answer"


def test_zero_shot_and_few_shot_ask_for_one_greedy_answer(sandbox: Any) -> None:
    for name in ("zero_shot", "few_shot_cot"):
        policy = ScriptedPolicy([HALF])
        solution = ran(name, policy, sandbox)
        (call,) = policy.of("sample")
        assert (call["n"], call["temperature"], call["version"]) == (1, 0.0, 0)
        assert (solution["score"], solution["stop_reason"], solution["iterations"]) == (0.5, "iterations", 1)
        assert policy.of("open")[0]["lora"] is None


def test_few_shot_examples_reason_before_they_write_and_each_passes_its_own_tests(sandbox: Any) -> None:
    for problem, shown in ((PROBLEM, 3), (PROGRAM, 2)):
        policy = ScriptedPolicy([ZERO])
        ran("few_shot_cot", policy, sandbox, problem)
        messages = policy.of("sample")[0]["messages"]
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * shown, "user"]
        assert all("step by step" in m["content"] for m in messages if m["role"] == "user")
        assert all(not m["content"].startswith("```") for m in messages if m["role"] == "assistant")
    from pot_agent.methods.parts.shots import FUNCTIONS, PROGRAMS
    from pot_agent.problem import Problem

    for shot in (*FUNCTIONS, *PROGRAMS):
        parsed = Problem.parse(shot.problem)
        assert sandbox.judge(shot.program, parsed.tests, entry_point=parsed.entry_point).verdict == "passed", shot


def test_few_shot_examples_that_do_not_fit_are_left_out_and_counted(sandbox: Any) -> None:
    dropped = []
    for room in (4000, 400, 60):
        events, _ = streamed("few_shot_cot", ScriptedPolicy([ZERO]), sandbox, max_prompt_tokens=room)
        (selected,) = [event for event in events if event["event"] == "selected"]
        assert selected["prompt_tokens"] <= room
        dropped.append(selected["dropped"])
    assert dropped[0] == 0 < dropped[1] < dropped[2] == 3


def test_best_of_n_draws_as_many_programs_as_a_search_with_its_commits(sandbox: Any) -> None:
    drawn = {}
    for name in ("best_of_n", "self_certainty", "mcts", "pot"):
        policy = ScriptedPolicy([block(f"def add(a, b):\n    return {value}") for value in range(50, 80)])
        ran(name, policy, sandbox)
        drawn[name] = sum(call["n"] for call in policy.of("sample"))
    assert set(drawn.values()) == {programs_of(CONFIG)} == {8}


def test_best_of_n_stops_at_the_draw_in_which_one_passes(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO, GOOD, HALF, ZERO])
    solution = ran("best_of_n", policy, sandbox, iterations=5)
    assert [call["n"] for call in policy.of("sample")] == [4]
    assert (solution["solved"], solution["stop_reason"], solution["iterations"]) == (True, "solved", 1)
    assert "a + b" in solution["program"]


def test_best_of_n_gives_each_draw_a_seed_and_always_the_problems_own_prompt(sandbox: Any) -> None:
    policy = ScriptedPolicy([HALF])
    solution = ran("best_of_n", policy, sandbox, iterations=3)
    calls = policy.of("sample")
    assert len({call["seed"] for call in calls}) == 3
    assert all(call["messages"] == calls[0]["messages"] for call in calls)
    assert (solution["stop_reason"], solution["tokens"]) == ("iterations", 120)


def test_mcts_and_pot_and_best_of_n_begin_with_the_same_prompt_and_seed(sandbox: Any) -> None:
    begun = {}
    for name in ("mcts", "pot", "persistent", "best_of_n", "self_certainty"):
        policy = ScriptedPolicy([ZERO, HALF])
        ran(name, policy, sandbox)
        call = policy.of("sample")[0]
        begun[name] = (call["seed"], call["temperature"], text_of(call["messages"]))
    assert len(set(begun.values())) == 1


def test_mcts_makes_the_calls_of_pot_and_no_update(sandbox: Any) -> None:
    searching, learning = ScriptedPolicy([ZERO, HALF]), ScriptedPolicy([ZERO, HALF])
    ran("mcts", searching, sandbox)
    ran("pot", learning, sandbox)
    plain = [
        [{k: v for k, v in call.items() if k != "version"} for call in p.of("sample")] for p in (searching, learning)
    ]
    assert plain[0] == plain[1]
    assert searching.of("internalize") == []
    assert learning.of("internalize")


class Certain(ScriptedPolicy):
    """A scripted policy that is more certain of each later sample."""

    asked: str = ""

    def score(self, session: str, *, sample_ids: Any, measure: Any = "logprob", **asked: Any) -> list[float]:
        if measure == "logprob":
            return super().score(session, sample_ids=sample_ids, **asked)
        self.asked = measure
        assert asked["temperature"] == 1.0
        return [float(sample.rsplit(":", 1)[1]) for sample in sample_ids]


def test_self_certainty_chooses_among_equals_where_best_of_n_takes_the_first(sandbox: Any) -> None:
    script = [HALF, ZERO, block("def add(a, b):\n    return 4"), ZERO]
    policy = Certain(script)
    assert "return 4" in ran("self_certainty", policy, sandbox, iterations=1)["program"]
    assert policy.asked == "self_certainty"
    assert "return 3" in ran("best_of_n", Certain(script), sandbox, iterations=1)["program"]


def test_self_certainty_leaves_the_one_best_program_as_it_is(sandbox: Any) -> None:
    policy = Certain([GOOD, HALF, HALF, ZERO])
    assert "a + b" in ran("self_certainty", policy, sandbox, iterations=1)["program"]
    assert policy.asked == ""


def test_self_certainty_says_what_it_chose_by(sandbox: Any) -> None:
    events, _ = streamed(
        "self_certainty", Certain([HALF, block("def add(a, b):\n    return 4")]), sandbox, iterations=1
    )
    (chosen,) = [event for event in events if event["event"] == "chosen"]
    assert (chosen["by"], chosen["among"], chosen["certainty"]) == ("self_certainty", 2, 4.0)


def test_self_certainty_of_a_policy_without_probabilities_is_an_error_when_built(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    policy.capabilities = Capabilities(model="talker", learns=False, logprobs=False, context_tokens=1000)
    with pytest.raises(ConfigError, match="talker gives none; use best_of_n"):
        find("self_certainty").build(policy, sandbox, CONFIG)


class Failing(ScriptedPolicy):
    """A policy whose second call of the sampler fails."""

    def sample(self, session: str, **asked: Any) -> list[Completion]:
        if self.of("sample"):
            raise PolicyError("the machine is on fire")
        return super().sample(session, **asked)


@pytest.mark.parametrize("name", ["best_of_n", "self_certainty", "mcts", "pot"])
def test_a_method_that_raises_leaves_no_session_open(name: str, sandbox: Any) -> None:
    policy = Failing([ZERO, HALF])
    with pytest.raises(PolicyError, match="on fire"):
        ran(name, policy, sandbox)
    assert policy.of("open")
    assert policy.list_sessions() == []


def test_a_problem_without_tests_gets_one_greedy_answer_from_each_method(sandbox: Any) -> None:
    for name in EVERY:
        policy = ScriptedPolicy([GOOD])
        solution = ran(name, policy, sandbox, {"problem": "Write a poem about addition."})
        assert (solution["stop_reason"], solution["solved"], solution["updates"]) == ("no_tests", None, 0)
        assert [(call["n"], call["temperature"]) for call in policy.of("sample")] == [(1, 0.0)]


def test_few_steps_end_a_draw_with_the_best_so_far(sandbox: Any) -> None:
    graph = find("best_of_n").build(ScriptedPolicy([HALF]), sandbox, CONFIG.change(iterations=9))
    solution = graph.invoke(PROBLEM, {"recursion_limit": 7})["solution"]
    assert (solution["stop_reason"], solution["score"]) == ("recursion_limit", 0.5)
    assert "an iteration takes 2 steps" in solution["warnings"][-1]
