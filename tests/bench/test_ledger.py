"""The ledger against what the policy itself keeps: journal, receipts; over real graphs and a real (tiny) model."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pot_agent import LocalPolicy, PotConfig
from pot_agent.bench.clock import PhaseClock
from pot_agent.bench.ledger import Meter
from pot_agent.bench.matching import matched_by
from pot_agent.config import GrpoConfig
from pot_agent.errors import CancelledError, SandboxError
from pot_agent.methods import METHODS
from pot_agent.policy.base import Completion, Policy, Receipt
from pot_agent.policy.flops import ModelShape, sampling_flops
from pot_agent.policy.journal import Sample
from pot_agent.problem import AssertTest
from pot_agent.sandbox.base import Judgement, Sandbox
from tests.fakes import ScriptedPolicy, block
from tests.tiny import make_tiny_model

PROBLEM = {"problem": "Write add.", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
CONFIG = PotConfig.quick(
    iterations=2, width=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2)
)
GOOD, HALF, ZERO = (block(f"def add(a, b):\n    return {value}") for value in ("a + b", "3", "None"))


class Kept(LocalPolicy):
    """The real policy, which shows its journal before it closes a session, and its receipts."""

    samples: list[Sample]
    receipts: list[Receipt]

    def internalize(self, session: str, **asked: Any) -> Receipt:
        receipt = super().internalize(session, **asked)
        self.receipts.append(receipt)
        return receipt

    def close(self, session: str) -> None:
        opened = self._sessions._open.get(session)
        if opened is not None:
            self.samples.extend(opened.journal._samples.values())
        super().close(session)


class Halves:
    """Marks programs by their text's length: groups differ, nothing passes."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.judged = inner, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def judge(self, program: str, tests: Any, **asked: Any) -> Judgement:
        self.judged.append(program)
        found = self.inner.judge(program, tests, **asked)
        return replace(found, passed=len(program) % 2, verdict="wrong_answer")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama", context=1024)
    with Kept(str(folder), threads=1, batch=False) as policy:
        yield policy


def run_metered(name: str, policy: Any, sandbox: Any, **changes: Any) -> tuple[Meter, dict[str, Any]]:
    """The meter of one method on the problem, and its solution."""
    meter = Meter(policy, sandbox)
    graph = METHODS[name].build(meter.policy, meter.sandbox, CONFIG.change(**changes))
    return meter, graph.invoke(PROBLEM)["solution"]


def test_the_doors_keep_the_contracts(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    meter = Meter(policy, sandbox)
    assert isinstance(meter.policy, Policy)
    assert isinstance(meter.sandbox, Sandbox)
    assert (meter.sandbox.tier, meter.sandbox.workers) == (sandbox.tier, sandbox.workers)
    assert meter.sandbox.run("print(1)").stdout == "1\n"
    assert meter.policy.capabilities is policy.capabilities
    assert meter.policy.open("one").version == 0
    assert [info.session for info in meter.policy.list_sessions()] == ["one"]
    meter.policy.close("one")
    assert policy.list_sessions() == []


@pytest.mark.parametrize("name", ["pot", "mcts", "best_of_n", "zero_shot"])
def test_totals_are_those_of_the_policys_own_journal_and_receipts(name: str, policy: Kept, sandbox: Any) -> None:
    policy.samples, policy.receipts = [], []
    judge = Halves(sandbox)
    meter, solution = run_metered(name, policy, judge)
    ledger, samples, receipts = meter.ledger(), policy.samples, policy.receipts
    calls = {(sample.prompt_digest, sample.version, sample.temperature): sample for sample in samples}
    drawn = [sample for sample in samples if sample.temperature]
    assert ledger["completions"] == len(samples)
    assert ledger["completion_tokens"] == sum(len(sample.ids) for sample in samples) == solution["tokens"]
    greedy = sum(len(sample.ids) for sample in samples if not sample.temperature)
    assert ledger["commit_tokens"] == (greedy if name in ("pot", "mcts") else 0)
    times = 2 if name == "best_of_n" else 1  # it asks the same prompt at each draw
    assert ledger["prompt_tokens"] == times * sum(len(sample.prompt_ids) for sample in calls.values())
    assert ledger["programs"] == len(judge.judged)
    assert ledger["tests"] == 2 * len(judge.judged)
    assert ledger["updates"] == solution["updates"] == sum(receipt.skipped is None for receipt in receipts)
    assert ledger["update_calls"] == len(receipts) == (2 if name == "pot" else 0)
    assert ledger["update_steps"] == sum(receipt.steps for receipt in receipts)
    assert ledger["trained_tokens"] == sum(3 * receipt.tokens for receipt in receipts)
    assert ledger["flops"]["training"] == sum(receipt.flops or 0.0 for receipt in receipts)
    if name == "pot":
        assert ledger["updates"] == 2
        assert ledger["trained_tokens"] == 3 * sum(len(sample.ids) for sample in drawn)


def test_every_commit_is_counted_with_its_prompt_and_its_program(sandbox: Any) -> None:
    texts = [block(f"def add(a, b):\n    return {value}") for value in range(20, 40)]
    meter, _ = run_metered("mcts", ScriptedPolicy(texts), sandbox)
    ledger = meter.ledger()
    assert (ledger["calls"], ledger["completions"]) == (4, 8)
    assert (ledger["completion_tokens"], ledger["commit_tokens"], ledger["prompt_tokens"]) == (80, 20, 20)
    assert (ledger["programs"], ledger["tests"]) == (8, 16)


def test_a_program_that_was_run_before_is_not_counted_again(sandbox: Any) -> None:
    meter, _ = run_metered("mcts", ScriptedPolicy([HALF, ZERO, HALF]), sandbox)
    ledger = meter.ledger()
    assert (ledger["completions"], ledger["programs"], ledger["tests"]) == (8, 2, 4)


def test_the_greedy_answer_of_zero_shot_is_no_commit(sandbox: Any) -> None:
    meter, _ = run_metered("zero_shot", ScriptedPolicy([HALF]), sandbox)
    assert (meter.ledger()["completion_tokens"], meter.ledger()["commit_tokens"]) == (10, 0)


def test_an_update_that_is_asked_for_again_trained_nothing_more() -> None:
    policy = ScriptedPolicy([ZERO])
    meter = Meter(policy, Halves(None))  # type: ignore[arg-type]
    meter.policy.open("one")
    asked: dict[str, Any] = {"version": 0, "rewards": {"a": 0.0, "b": 1.0}, "grpo": GrpoConfig()}
    for _ in range(2):
        meter.policy.internalize("one", **asked)
    ledger = meter.ledger()
    assert (ledger["update_calls"], ledger["updates"], ledger["update_steps"]) == (2, 1, 3)


def test_a_skipped_update_is_a_call_and_no_update(sandbox: Any) -> None:
    meter, solution = run_metered("pot", ScriptedPolicy([ZERO]), sandbox)
    ledger = meter.ledger()
    assert (ledger["update_calls"], ledger["updates"], solution["updates"]) == (2, 0, 0)


def test_flops_of_sampling_are_the_formulas_for_each_call(policy: Kept, sandbox: Any) -> None:
    policy.samples, policy.receipts = [], []
    meter, _ = run_metered("zero_shot", policy, sandbox)
    (sample,) = policy.samples
    shape = ModelShape(**policy.capabilities.shape or {})
    wanted = sampling_flops(prompt=len(sample.prompt_ids), completions=[len(sample.ids)], shape=shape)
    flops = meter.ledger()["flops"]
    assert flops == {"sampling": wanted, "scoring": 0.0, "training": 0.0, "total": wanted}


def test_flops_by_hand() -> None:
    # p = 5 - 1, c = 2 + 3: 9 tokens, pairs = 8 + (8 + 2) + (12 + 4.5) = 34.5
    shape = ModelShape(linear=1000, head=100, layers=2, attention_width=10)
    assert sampling_flops(prompt=5, completions=[2, 3], shape=shape) == 2 * 1000 * 9 + 2 * 100 * 5 + 4 * 20 * 34.5
    assert sampling_flops(prompt=5, completions=[2, 3], parameters=1200) == 2 * 1200 * 9
    assert sampling_flops(prompt=5, completions=[2, 3]) is None
    assert ModelShape.read({"linear": 1, "head": 2}) is None


def test_scoring_a_commit_is_counted_as_a_forward_pass(policy: Kept, sandbox: Any) -> None:
    policy.samples, policy.receipts = [], []
    meter, _ = run_metered("mcts", policy, sandbox, iterations=1)
    (commit,) = [sample for sample in policy.samples if not sample.temperature]
    shape = ModelShape(**policy.capabilities.shape or {})
    wanted = sampling_flops(prompt=len(commit.prompt_ids), completions=[len(commit.ids)], shape=shape)
    assert meter.ledger()["flops"]["scoring"] == wanted


def test_a_model_of_unknown_size_has_no_flops(sandbox: Any) -> None:
    policy = ScriptedPolicy([HALF])
    policy.capabilities = replace(policy.capabilities, parameters=None)
    meter, _ = run_metered("mcts", policy, sandbox)
    assert meter.ledger()["flops"] == {}


class Cut(ScriptedPolicy):
    """A policy that is cancelled after seven tokens."""

    def sample(self, session: str, *, on_tokens: Any = None, **asked: Any) -> list[Completion]:
        on_tokens(3)
        on_tokens(7)
        raise CancelledError("sampling was cancelled")


def test_tokens_of_a_call_that_was_cancelled_are_spent_and_told() -> None:
    policy, told = Cut([]), list[int]()
    meter = Meter(policy, Halves(None))  # type: ignore[arg-type]
    with pytest.raises(CancelledError):
        meter.policy.sample("one", version=0, messages=[{"role": "user", "content": "abcd"}], on_tokens=told.append)
    ledger = meter.ledger()
    assert (ledger["calls"], ledger["completions"], ledger["completion_tokens"]) == (1, 0, 7)
    assert ledger["prompt_tokens"] == 2
    assert told == [3, 7]


class Broken:
    """A sandbox that refuses every program, or is cancelled in it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def judge(self, program: str, tests: Any, **asked: Any) -> Judgement:
        raise self.error


@pytest.mark.parametrize(("error", "programs"), [(SandboxError("no machine"), 0), (CancelledError("stop"), 1)])
def test_a_program_that_was_begun_counts_and_one_that_was_refused_does_not(error: Exception, programs: int) -> None:
    meter = Meter(ScriptedPolicy([]), Broken(error))  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        meter.sandbox.judge("x = 1", [AssertTest(code="assert x")])
    assert meter.ledger()["programs"] == programs


def test_calls_of_many_threads_are_all_counted(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO])
    meter = Meter(policy, sandbox)
    meter.policy.open("one")
    asked: dict[str, Any] = {"version": 0, "messages": [{"role": "user", "content": "x"}], "temperature": 0.7}

    def many() -> None:
        for _ in range(50):
            meter.policy.sample("one", n=2, **asked)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = meter.ledger()
    assert (ledger["calls"], ledger["completions"], ledger["completion_tokens"]) == (200, 400, 4000)


def test_what_goes_on_at_the_same_time_is_counted_once() -> None:
    now = [0.0]
    clock = PhaseClock(lambda: now[0])

    def at(seconds: float) -> None:
        now[0] = seconds

    at(1)
    with clock.phase("executing"):
        at(3)
        with clock.phase("executing"):
            at(4)
            with clock.phase("sampling"):
                at(6)
        at(7)
    at(10)
    found = clock.seconds(("executing", "sampling", "scoring"))
    assert found == {"executing": 6.0, "sampling": 2.0, "scoring": 0.0, "other": 4.0, "total": 10.0}
    with clock.phase("scoring"):
        at(12)
        assert clock.seconds(("scoring",))["scoring"] == 2.0


def test_seconds_are_those_of_each_phase_and_fill_the_total(policy: Kept, sandbox: Any) -> None:
    policy.samples, policy.receipts = [], []
    meter, _ = run_metered("pot", policy, Halves(sandbox))
    seconds = meter.ledger()["seconds"]
    assert set(seconds) == {"sampling", "scoring", "executing", "internalizing", "other", "total"}
    assert all(seconds[name] > 0 for name in seconds)
    assert sum(value for name, value in seconds.items() if name != "total") == pytest.approx(seconds["total"], abs=1e-4)
    assert meter.ledger()["peak_mb"] > 1


def record(method: str, problem: str, programs: int, **changes: Any) -> Any:
    meter = Meter(ScriptedPolicy([]), Halves(None))  # type: ignore[arg-type]
    spent = {"programs": programs, "prompt_tokens": 10, "completion_tokens": 90, "seconds": {"total": 2.0}}
    ledger = {**meter.ledger(), **spent, "flops": {"total": 5.0}, **changes}
    return {"method": method, "problem": problem, "seed": 0, "ledger": ledger}


def test_totals_are_over_the_problems_that_every_method_has() -> None:
    records = [record("pot", "a", 8), record("pot", "b", 8), record("mcts", "a", 4), record("pot", "a", 6)]
    found = matched_by(records)
    assert found["problems"] == 1
    assert found["totals"]["pot"]["programs"] == 6  # the later record of a problem that was run again
    assert found["totals"]["mcts"]["programs"] == 4
    assert found["totals"]["mcts"]["tokens"] == 100
    assert found["ratios"]["programs"] == 1.5
    assert found["matched"] == ["tokens", "flops", "seconds"]


def test_methods_of_which_one_has_unknown_flops_are_not_matched_by_them() -> None:
    found = matched_by([record("pot", "a", 8), record("mcts", "a", 8, flops={})])
    assert found["totals"]["mcts"]["flops"] is None
    assert found["ratios"]["flops"] is None
    assert found["matched"] == ["programs", "tokens", "seconds"]


def test_one_method_alone_is_matched_by_nothing() -> None:
    assert matched_by([record("pot", "a", 8)])["matched"] == []
    assert matched_by([])["totals"] == {}
