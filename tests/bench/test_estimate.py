"""How long a run takes: said before it starts, by what its arms can spend; and while it runs, by what they spent."""

from collections import Counter
from typing import Any

import pytest

from pot_agent.bench.estimate import Eta, Probe, estimate, in_words, probe
from pot_agent.bench.rehearsal import Spending, rehearse
from pot_agent.bench.trial import attempt
from pot_agent.methods import METHODS
from tests.bench.running import CONFIG, SteadyPolicy, arm, task
from tests.fakes import ScriptedPolicy, block

PROBLEM = task(0).problem
FAST = Probe(sessions=2, width=2, tokens_per_second=10.0, update_seconds_per_token=0.5)


def never_right() -> ScriptedPolicy:
    """Programs that are all different, siblings of unequal worth, none right."""
    script = [block(f"def add(a, b):\n    return 3 if {number} % 2 else None") for number in range(200)]
    return ScriptedPolicy(script)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_rehearsal_spends_what_the_method_spends_when_nothing_is_solved(sandbox: Any, name: str) -> None:
    policy, tried = never_right(), arm(name)
    spending = rehearse(tried, PROBLEM, policy.capabilities)
    ledger = attempt(PROBLEM, tried.method.build, tried.config, policy, sandbox)["ledger"]
    assert (spending.calls, spending.programs, spending.updates) == (
        ledger["calls"],
        ledger["programs"],
        ledger["updates"],
    )
    assert spending.programs == tried.programs
    assert spending.completion_tokens >= ledger["completions"]


def test_more_iterations_wider_groups_and_longer_thoughts_are_spent_as_such() -> None:
    capabilities = never_right().capabilities
    base = rehearse(arm("pot"), PROBLEM, capabilities)
    long = rehearse(arm("pot", CONFIG.change(max_new_tokens=16)), PROBLEM, capabilities)
    more = rehearse(arm("pot", CONFIG.change(iterations=4)), PROBLEM, capabilities)
    assert base.completion_tokens == 2 * 3 * 8
    assert long.completion_tokens == 2 * base.completion_tokens == more.completion_tokens
    assert (base.updates, more.updates) == (2, 4)
    assert base.trained_tokens > 2 * 2 * 8  # the prompts are in it


def test_an_estimate_is_the_sum_of_what_it_names() -> None:
    spent = Spending(
        calls=4, completion_tokens=100, prompt_tokens=9, programs=10, updates=2, trained_tokens=20
    )  # 10 s of tokens, 1.5 s of programs (two sessions), 10 s of updates
    found = estimate(Counter({"pot": 4}), {"pot": spent}, FAST)
    assert found.seconds_by_arm["pot"] == pytest.approx(21.5)
    assert found.hours * 3600 == pytest.approx(4 * 21.5)
    assert estimate(Counter({"pot": 4}), {"pot": spent}, FAST, lanes=2).hours == pytest.approx(found.hours / 2)
    assert "10.0 tokens/s, 2 problems at once, 2 thoughts each (probed)" in found.assumptions
    assert found.to_dict()["assumptions"] == found.assumptions


@pytest.mark.parametrize("learn", [True, False])
def test_a_probe_leaves_no_session_behind_and_asks_as_the_run_will(learn: bool) -> None:
    policy = SteadyPolicy()
    found = probe(policy, PROBLEM, CONFIG, sessions=3, learn=learn)
    assert policy.list_sessions() == []
    assert len({call["session"] for call in policy.of("open")}) == 3
    assert {call["n"] for call in policy.of("sample")} == {CONFIG.search.width}
    assert (found.update_seconds_per_token is not None) == learn
    assert len(policy.of("internalize")) == learn
    assert found.tokens_per_second > 0


def test_a_probe_that_fails_leaves_no_session_behind() -> None:
    def fails(call: int) -> None:
        if call == 2:
            raise ValueError("no")

    policy = SteadyPolicy(fails)
    with pytest.raises(ValueError, match="no"):
        probe(policy, PROBLEM, CONFIG, sessions=2, learn=True)
    assert policy.list_sessions() == []


def test_what_is_left_is_reckoned_by_what_was_taken() -> None:
    eta = Eta(left=Counter({"pot": 5}), expected={"pot": 99.0}, at_once=2)
    assert eta.seconds is None
    eta.record("pot", 10.0)
    eta.record("pot", 20.0)
    assert eta.seconds == pytest.approx(3 * 15.0 / 2)
    eta.record("pot", 15.0)
    eta.record("pot", 15.0)
    assert eta.seconds == pytest.approx(15.0)  # the last one runs alone
    eta.record("pot", 15.0)
    assert (eta.seconds, eta.done) == (0, 5)


def test_an_arm_that_has_not_run_yet_goes_by_its_estimate_in_the_ratio_of_those_that_have() -> None:
    eta = Eta(left=Counter({"zero_shot": 2, "pot": 1}), expected={"zero_shot": 1.0, "pot": 10.0})
    eta.record("zero_shot", 3.0)
    assert eta.seconds == pytest.approx(3.0 + 30.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (3600 * 3 + 1200, "3 h 20 min"), (3599, "1 h 00 min")],
)
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
