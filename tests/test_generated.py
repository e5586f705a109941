"""Generated tests: what is asked, what is read, which of them count, and that they train and decide nothing else."""

import json
import math
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from typer.testing import CliRunner

from pot_agent import ConfigError, PotConfig, create_pot_agent
from pot_agent.generated import read_tests, request
from pot_agent.policy.base import Completion
from pot_agent.problem import CallTest, Problem, StdinTest, parse_tests, test_to_dict
from pot_agent.rewards.agreement import DIGITS, separating, share, shares_of, training_reward
from pot_agent.sandbox.base import Judgement, TestResult
from tests.fakes import ScriptedPolicy, block

ADD = Problem.parse(
    {"problem": "Write it.", "starter_code": "def add(a, b):\n    pass\n", "tests": ["assert add(1, 2) == 3"]}
)
SUM = Problem.parse({"problem": "Sum them.", "tests": [{"input": "1 2\n", "output": "3\n", "compare": "float"}]})


def calls(*texts: str, problem: Problem = ADD, most: int = 9) -> list[Any]:
    tests = read_tests(texts, problem, most=most)
    assert all(isinstance(test, CallTest) for test in tests)
    return [(test.args, test.kwargs, test.expected) for test in tests if isinstance(test, CallTest)]


# -- asking ---------------------------------------------------------------------------------------------------------


def test_the_request_shows_the_statement_and_its_stub_and_no_visible_test() -> None:
    messages = request(ADD, 7)
    asked = messages[-1]["content"]
    assert "Write it." in asked
    assert "def add(a, b):" in asked
    assert "Write 7 tests" in asked
    assert "`assert add(...) == ...`" in asked
    assert "add(1, 2)" not in json.dumps(messages)


def test_the_request_for_a_program_asks_for_inputs_and_outputs() -> None:
    messages = request(SUM, 3)
    assert "an input and the output" in messages[-1]["content"]
    assert "Sum them." in messages[-1]["content"]
    assert "1 2" not in messages[-1]["content"]


def test_the_example_turns_of_the_requests_can_be_read_as_what_they_show() -> None:
    double = Problem.parse({"problem": "x", "entry_point": "double", "tests": ["assert double(4) == 8"]})
    assert len(calls(request(double, 4)[2]["content"], problem=double)) == 4
    assert len(read_tests([request(SUM, 2)[2]["content"]], SUM, most=9)) == 2


# -- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("assert add(2, 2) == 4", ((2, 2), {}, 4)),
        ("Sure!\n```python\nassert add(2, 2) == 4\n```\nDone.", ((2, 2), {}, 4)),
        ("def test_add():\n    assert add(-1, 1) == 0, 'zero'", ((-1, 1), {}, 0)),
        (">>> assert add([1], [2]) == [1, 2]", (([1], [2]), {}, [1, 2])),
        ("assert 4 == add(2, b=2)", ((2,), {"b": 2}, 4)),
        ("assert add('', '') is None", (("", ""), {}, None)),
        ("assert not add(0, 0)", ((0, 0), {}, False)),
        ("assert add(0, 1)  # a comment", ((0, 1), {}, True)),
        ("assert add(\n    [1,\n     2],\n    []) == [1, 2]", (([1, 2], []), {}, [1, 2])),
        ("assert add({1}, set()) == {1}", (({1}, set()), {}, {1})),
        ("assert add('\ud800', '') == '\ud800'", (("?", ""), {}, "?")),
        ("<think>\nassert add(5, 5) == 11\n</think>\nassert add(5, 5) == 10", ((5, 5), {}, 10)),
    ],
)
def test_an_assertion_of_one_call_is_read_as_a_call_and_its_value(text: str, read: Any) -> None:
    assert calls(text) == [read]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "add(2, 2) should be 4",
        "assert add(2, 2) = 4",
        "assert add(2, 2) == ",
        "assert add(2, 2) != 5",
        "assert len(add([], [])) == 0",
        "assert add(10**9, 1) == 5",
        "assert add(x, 2) == 4",
        "assert add(*[2, 2]) == 4",
        "assert add(**{'a': 2}) == 4",
        "assert add(..., 2) == 4",
        "assert add(2, 2) == ...",
        "assert add(2, 2) == sub(5, 1)",
        "assert sub(2, 2) == 0",
        "assert add == 4",
        "assert True",
        "self.assertEqual(add(2, 2), 4)",
        r"assert add(2, 2) == '\ud800'",
    ],
)
def test_what_cannot_be_read_as_one_call_with_literals_is_left_out(text: str) -> None:
    assert calls(text) == []


def test_a_line_that_cannot_be_read_loses_no_other() -> None:
    assert calls("assert add(2, 2) = 4\nassert add(3, 3) == 6\nassert nonsense\nassert add(4, 4) == 8") == [
        ((3, 3), {}, 6),
        ((4, 4), {}, 8),
    ]


@pytest.mark.parametrize("answer", ["3", "4", "'3'"])
@pytest.mark.parametrize("call", ["add(1, 2)", "add( 1,2 )", "add(a=1, b=2)", "add(1, b=2)", "add(b=2, a=1)"])
def test_a_question_that_a_visible_test_asks_is_dropped_whatever_its_answer(call: str, answer: str) -> None:
    assert calls(f"assert {call} == {answer}") == []


@pytest.mark.parametrize(
    "visible",
    ["assert candidate(1, 2) == 3", {"args": [1, 2], "expected": 3}, "assert 3 == add(1, 2)", "assert add(1, b=2)"],
)
def test_a_visible_test_is_recognised_however_it_is_written(visible: Any) -> None:
    problem = Problem.parse(
        {"problem": "x", "entry_point": "add", "starter_code": ADD.starter_code, "tests": [visible]}
    )
    assert calls("assert add(1, 2) == 4\nassert add(2, 2) == 4", problem=problem) == [((2, 2), {}, 4)]


def test_a_question_with_two_answers_is_dropped_and_one_asked_twice_is_kept_once() -> None:
    first = "assert add(2, 2) == 4\nassert add(3, 3) == 6"
    second = "assert add(2, 2) == 5\nassert add(3,3) == 6\nassert add(4, 4) == 8"
    assert calls(first, second) == [((3, 3), {}, 6), ((4, 4), {}, 8)]


def test_at_most_so_many_are_kept_the_first_ones() -> None:
    text = "\n".join(f"assert add({n}, 0) == {n}" for n in range(50))
    assert calls(text, most=2) == [((0, 0), {}, 0), ((1, 0), {}, 1)]


def test_a_method_is_called_on_a_fresh_object_or_by_its_name() -> None:
    problem = Problem.parse(
        {"problem": "x", "entry_point": "Solution.twoSum", "tests": ["assert Solution().twoSum(1)"]}
    )
    text = "assert Solution().twoSum([2], 2) == [0]\nassert twoSum([3], 3) == [0]\nassert Solution().twoSum(1) == 5"
    assert calls(text, problem=problem) == [(([2], 2), {}, [0]), (([3], 3), {}, [0])]


def test_inputs_and_outputs_are_read_and_compared_as_the_visible_test_is() -> None:
    text = "Input:\n```\n2 2\n```\nOutput:\n```\n4\n```\n\nInput:\n```\n 1 2\n```\nOutput:\n```\n9\n```\nBye."
    assert read_tests([text], SUM, most=9) == (StdinTest(input="2 2\n", output="4\n", compare="float"),)


def test_a_checker_judges_generated_inputs_too() -> None:
    checker = "def check(input, expected, output):\n    return True"
    problem = Problem.parse({"problem": "x", "tests": [{"input": "1\n", "output": "", "checker": checker}]})
    (test,) = read_tests(["Input:\n```\n2\n```\nOutput:\n```\n4\n```"], problem, most=9)
    assert isinstance(test, StdinTest)
    assert test.checker == checker


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.from_regex(
                r"assert add\([-0-9a-z'\[\], (){}.*=]{0,12}\) == [-0-9a-z'\[\], (){}.]{0,8}\n?", fullmatch=True
            ),
        ),
        max_size=8,
    )
)
def test_whatever_a_model_writes_is_read_without_an_error_and_what_is_kept_crosses_json(texts: list[str]) -> None:
    for problem in (ADD, SUM):
        tests = read_tests(["\n".join(texts), *texts], problem, most=5)
        assert len(tests) <= 5
        plain = json.loads(json.dumps([test_to_dict(test) for test in tests], allow_nan=False))
        assert repr(parse_tests(plain)) == repr(tests)  # repr: a NaN is not equal to itself


# -- which of them count ---------------------------------------------------------------------------------------------


def test_a_test_counts_only_while_some_program_passes_it_and_some_does_not() -> None:
    marks = [[True, True, False, None], [True, False, False, True], []]
    assert separating(marks) == [1]
    assert separating(marks[:1]) == []
    assert separating([]) == []
    assert shares_of(marks) == [1.0, 0.0, None]


def test_a_sandbox_that_failed_says_nothing_about_a_program() -> None:
    assert share([None, True], [0, 1]) == 1.0
    assert share([None, True], [0]) is None


def test_the_training_reward_is_the_weighted_mean_by_hand() -> None:
    assert training_reward(0.5, 1.0, 0.3) == 0.65
    assert training_reward(0.0, 2 / 3, 0.3) == 0.2
    assert training_reward(0.5, None, 0.3) == 0.5
    assert training_reward(0.5, 1.0, 0.0) == 0.5


@given(
    total=st.integers(1, 12),
    counts=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    weight=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
)
def test_equal_sums_of_pass_counts_are_bit_equal_rewards_in_the_unit_interval(
    total: int, counts: tuple[int, int], weight: float
) -> None:
    visible, generated = (min(count, total) / total for count in counts)
    reward = training_reward(visible, generated, weight)
    assert 0.0 <= reward <= 1.0
    assert reward == round(visible + weight * (generated - visible), DIGITS)


# -- in a run ---------------------------------------------------------------------------------------------------------

ONE = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3"], "entry_point": "add"}
TWO = {**ONE, "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
GOOD = block("def add(a, b):\n    return a + b")
THREE_IN_A_ROW = [block(f"def add(a, b):\n    return {value}") for value in ("a", "0", "None")]
"""Wrong on the visible test, all of them; the first two are right on some of the tests below."""
WRITTEN = "assert add(5, 0) == 5\nassert add(7, 0) == 7\nassert add(0, 0) == 0\nassert add(9, 9) == 99\n"


class WritesTests(ScriptedPolicy):
    """A scripted policy that answers a request for tests from a script of its own."""

    def __init__(self, script: Any, written: str = WRITTEN, **options: Any) -> None:
        super().__init__(script, **options)
        self.written = written
        self.requests: list[dict[str, Any]] = []

    def sample(self, session: str, **arguments: Any) -> list[Completion]:
        if "Do not write the" not in arguments["messages"][-1]["content"]:
            return super().sample(session, **arguments)
        self.requests.append({"newest": self.versions[session], **arguments})
        return [
            Completion(sample_id=f"tests:{n}", text=self.written, tokens=7, logprob=-1.0, finish_reason="stop")
            for n in range(arguments["n"])
        ]


def agent(policy: ScriptedPolicy, sandbox: Any, *, checkpointer: Any = None, **changes: Any) -> Any:
    config = PotConfig.quick(**{"iterations": 1, "width": 3, "generated_tests": 8, **changes})
    return create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer)


def ran(policy: ScriptedPolicy, sandbox: Any, problem: Any = ONE, **changes: Any) -> dict[str, Any]:
    graph = agent(policy, sandbox, checkpointer=InMemorySaver(), **changes)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(problem, config)
    state = graph.get_state(config).values
    json.dumps(state, allow_nan=False)
    return dict(state)


def test_with_one_visible_test_generated_ones_give_rewards_to_learn_from(sandbox: Any) -> None:
    policy = WritesTests([*THREE_IN_A_ROW, THREE_IN_A_ROW[0]])
    state = ran(policy, sandbox)
    (update,) = policy.of("internalize")
    # Of the four tests written, the last is passed by no program; of the other three `a` passes 3, `0` 1, `None` none.
    assert list(update["rewards"].values()) == [0.3, 0.1, 0.0]
    assert state["solution"]["updates"] == 1
    assert not any("one visible test" in warning for warning in state["warnings"])


def test_generated_tests_decide_nothing_that_the_user_is_told(sandbox: Any) -> None:
    with_tests = ran(WritesTests([*THREE_IN_A_ROW, THREE_IN_A_ROW[0]]), sandbox)["solution"]
    without = ran(WritesTests([*THREE_IN_A_ROW, THREE_IN_A_ROW[0]]), sandbox, generated_tests=0)["solution"]
    assert without["updates"] == 0
    told = {"updates", "adapter_version", "seconds", "tokens", "warnings"}
    assert {k: v for k, v in with_tests.items() if k not in told} == {k: v for k, v in without.items() if k not in told}
    assert (with_tests["score"], with_tests["solved"], with_tests["tests_total"]) == (0.0, False, 1)
    assert with_tests["evidence"] == "given"


def test_the_search_goes_where_it_would_have_gone_without_them(sandbox: Any) -> None:
    script = [*THREE_IN_A_ROW, THREE_IN_A_ROW[0], *THREE_IN_A_ROW[::-1], THREE_IN_A_ROW[2], *THREE_IN_A_ROW]
    trees, prompts = [], []
    for number in (0, 8):
        policy = WritesTests(script)
        state = ran(policy, sandbox, iterations=3, generated_tests=number)
        assert len(policy.of("internalize")) == 3
        trees.append([{k: v for k, v in node.items() if k not in ("version", "samples")} for node in state["tree"]])
        prompts.append([(call["messages"], call["seed"], call["n"]) for call in policy.of("sample")])
    assert trees[0] == trees[1]
    assert prompts[0] == prompts[1]


def test_a_program_that_passes_every_generated_test_and_no_visible_one_is_not_the_best(sandbox: Any) -> None:
    half = block("def add(a, b):\n    return 3")
    script = [THREE_IN_A_ROW[0], half, half, half]
    solution = ran(WritesTests(script), sandbox, TWO)["solution"]
    assert solution["program"] == "def add(a, b):\n    return 3\n"
    assert (solution["score"], solution["tests_passed"]) == (0.5, 1)


def test_a_full_pass_of_the_visible_tests_ends_the_search_and_asks_for_no_tests(sandbox: Any) -> None:
    policy = WritesTests([THREE_IN_A_ROW[0], GOOD, THREE_IN_A_ROW[1]], "assert add(5, 0) == 6")
    state = ran(policy, sandbox)
    assert state["solution"]["solved"] is True
    assert policy.requests == []
    assert state["solution"]["tokens"] == 30
    assert state["generated"] is None


def test_tests_are_asked_for_once_of_the_base_with_a_seed_of_their_own_and_their_tokens_count(sandbox: Any) -> None:
    policy = WritesTests([*THREE_IN_A_ROW, *THREE_IN_A_ROW])
    state = ran(policy, sandbox, iterations=2)
    (asked,) = policy.requests
    assert (asked["version"], asked["newest"], asked["n"], asked["temperature"]) == (0, 0, 3, 0.7)
    assert asked["seed"] not in {call["seed"] for call in policy.of("sample")}
    assert state["solution"]["tokens"] == 2 * (3 + 1) * 10 + 3 * 7
    assert len(state["generated"]) == 4


def test_search_without_learning_asks_for_no_tests(sandbox: Any) -> None:
    policy = WritesTests(THREE_IN_A_ROW)
    ran(policy, sandbox, learn=False)
    assert policy.requests == []


def test_a_problem_without_visible_tests_stays_at_one_greedy_answer(sandbox: Any) -> None:
    policy = WritesTests([GOOD])
    solution = ran(policy, sandbox, {"problem": "Write a function that adds."})["solution"]
    assert policy.requests == []
    assert (solution["solved"], solution["stop_reason"], solution["tokens"]) == (None, "no_tests", 10)


@pytest.mark.parametrize("written", ["assert add(9, 9) == 99", "assert add('x', 'y') == 1 / 0", ""])
def test_tests_that_separate_no_programs_leave_the_rewards_as_they_were(sandbox: Any, written: str) -> None:
    policy = WritesTests([*THREE_IN_A_ROW, GOOD], written)
    ran(policy, sandbox)
    assert set(policy.of("internalize")[0]["rewards"].values()) == {0.0}


def test_a_model_that_writes_no_test_is_warned_of(sandbox: Any) -> None:
    state = ran(WritesTests(THREE_IN_A_ROW, "I cannot."), sandbox)
    assert state["generated"] == []
    assert "wrote no test that can be used" in state["solution"]["warnings"][-1]
    assert state["solution"]["tokens"] == 40 + 21


def test_a_problem_of_several_functions_is_asked_no_tests_and_says_so(sandbox: Any) -> None:
    policy = WritesTests(THREE_IN_A_ROW)
    state = ran(
        policy, sandbox, {"problem": "Write both.", "tests": ["assert add(1, 2) == 3", "assert sub(1, 1) == 0"]}
    )
    assert policy.requests == []
    assert "call no one function" in state["solution"]["warnings"][-1]


def test_a_statement_that_leaves_no_room_for_the_request_is_solved_without(sandbox: Any) -> None:
    policy = WritesTests(THREE_IN_A_ROW)
    state = ran(policy, sandbox, max_prompt_tokens=100)
    assert policy.requests == []
    assert "no room for it in 100 tokens" in state["solution"]["warnings"][-1]


def test_a_test_begins_to_count_for_earlier_draws_once_a_later_program_passes_it(sandbox: Any) -> None:
    none = THREE_IN_A_ROW[2]
    policy = WritesTests([none, none, none, none, THREE_IN_A_ROW[0], none, none], "assert add(5, 0) == 5")
    ran(policy, sandbox, iterations=2, pool=2)
    first, second = policy.of("internalize")
    assert list(first["rewards"].values()) == [0.0, 0.0, 0.0]
    assert list(second["rewards"].values()) == [0.0, 0.0, 0.0, 0.3, 0.0, 0.0]


def test_a_program_for_standard_input_learns_from_generated_inputs(sandbox: Any) -> None:
    written = "Input:\n```\n5 0\n```\nOutput:\n```\n5\n```"
    programs = [block("print(input().split()[0])"), block("print(0)")]
    policy = WritesTests([*programs, programs[1], programs[1]], written)
    ran(policy, sandbox, {"problem": "Sum two numbers.", "tests": [{"input": "1 2\n", "output": "3\n"}]})
    assert list(policy.of("internalize")[0]["rewards"].values()) == [0.3, 0.0, 0.0]


def test_the_events_show_what_was_written_and_the_generated_share_apart(sandbox: Any) -> None:
    events = list(agent(WritesTests([*THREE_IN_A_ROW, GOOD]), sandbox).stream(ONE, stream_mode="custom"))
    (written,) = [event for event in events if event["event"] == "generated"]
    assert (written["asked"], written["kept"], written["tokens"]) == (8, 4, 21)
    verdicts = [event for event in events if event["event"] == "verdict" and event["phase"] == "propose"]
    assert [(event["passed"], event["total"], event["score"]) for event in verdicts] == [(0, 1, 0.0)] * 3
    assert [event["generated"] for event in verdicts] == [1.0, 1 / 3, 0.0]
    for event in events:
        assert all(value is None or isinstance(value, (str, int, float, bool)) for value in event.values()), event


class LosesAnAnswer(WritesTests):
    """Its first answer to `internalize` is lost on the way."""

    def internalize(self, session: str, **arguments: Any) -> Any:
        receipt = super().internalize(session, **arguments)
        if len(self.of("internalize")) == 1:
            raise ConnectionError("the answer was lost")
        return receipt


def test_an_update_that_is_run_again_gets_the_same_rewards_and_asks_for_no_tests_again(sandbox: Any) -> None:
    policy = LosesAnAnswer([*THREE_IN_A_ROW, THREE_IN_A_ROW[0]])
    graph = agent(policy, sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    with pytest.raises(ConnectionError):
        graph.invoke(ONE, config)
    assert graph.invoke(None, config)["solution"]["updates"] == 1
    once, again = policy.of("internalize")
    assert once == again
    assert len(policy.receipts) == len(policy.requests) == 1


class StopsWhenAskedForTests(WritesTests):
    """Sets the caller's event and then waits, as a slow model would that is told to stop."""

    stop: Any = None

    def sample(self, session: str, **arguments: Any) -> list[Completion]:
        if "Do not write the" in arguments["messages"][-1]["content"]:
            self.stop.set()
            self.wait = True
            return ScriptedPolicy.sample(self, session, **arguments)
        return super().sample(session, **arguments)


def test_a_run_that_is_stopped_while_tests_are_written_keeps_its_verdicts(sandbox: Any) -> None:
    policy = StopsWhenAskedForTests([THREE_IN_A_ROW[0], block("def add(a, b):\n    return 3"), THREE_IN_A_ROW[2]])
    policy.stop = threading.Event()
    events = list(agent(policy, sandbox).stream(TWO, {"configurable": {"cancel": policy.stop}}, stream_mode="custom"))
    assert events[-1]["stop_reason"] == "cancelled"
    assert (events[-1]["score"], events[-1]["tests_passed"]) == (0.5, 1)
    assert [event["verdict"] for event in events if event["event"] == "verdict"] == ["wrong_answer"] * 3


class FailsOnGenerated:
    """The real sandbox, whose machine fails whenever it is given generated tests (the visible one is an assertion)."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox, self.workers, self.tier = sandbox, sandbox.workers, sandbox.tier

    def judge(self, program: str, tests: Any, **options: Any) -> Judgement:
        if not isinstance(tests[0], CallTest):
            judged: Judgement = self.sandbox.judge(program, tests, **options)
            return judged
        results = tuple(TestResult(index=index, verdict="internal") for index in range(len(tests)))
        return Judgement(verdict="internal", passed=0, total=len(tests), tier=self.tier, results=results)


def test_a_sandbox_that_fails_on_generated_tests_leaves_the_visible_rewards(sandbox: Any) -> None:
    policy = WritesTests([*THREE_IN_A_ROW, GOOD])
    state = ran(policy, FailsOnGenerated(sandbox))
    assert set(policy.of("internalize")[0]["rewards"].values()) == {0.0}
    assert state["solution"]["solved"] is True


# -- settings ---------------------------------------------------------------------------------------------------------


def test_it_is_off_unless_asked_for_and_a_knob_of_one_run_turns_it_on(sandbox: Any) -> None:
    assert PotConfig.paper().generated_tests == PotConfig.quick().generated_tests == 0
    policy = WritesTests(THREE_IN_A_ROW)
    agent(policy, sandbox, generated_tests=0).invoke(ONE, context={"generated_tests": 5})
    assert "Write 5 tests" in policy.requests[0]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generated_tests", -1),
        ("generated_tests", 101),
        ("generated_tests", 1.5),
        ("generated_weight", 1.1),
        ("generated_weight", "x"),
        ("generated_weight", math.nan),
    ],
)
def test_a_setting_that_cannot_be_is_an_error_with_its_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        PotConfig.quick(**{name: value})
    assert repr(value) in str(caught.value)


def test_the_command_line_takes_both_remedies() -> None:
    from pot_agent.cli import app

    for flag, said in (("--generated-tests", "generated_tests"), ("--pool", "pool")):
        done = CliRunner().invoke(app, ["solve", "x", flag, "-1"])
        assert isinstance(done.exception, ConfigError)
        assert said in str(done.exception)
