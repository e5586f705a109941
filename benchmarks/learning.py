"""One learning trial: fresh groups train an adapter, and samples that were never trained on say what it learned."""

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pot_agent import LocalPolicy, LocalSandbox, PotConfig, Problem
from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.handles import Handles
from pot_agent.policy.base import Completion, Message
from pot_agent.policy.journal import Sample
from pot_agent.problem import Limits, Test, parse_tests
from pot_agent.prompts import Attempt, extract_program
from pot_agent.rewards.execution import FEEDBACK_CHARACTERS, score
from pot_agent.run import build_prompt
from pot_agent.sandbox.base import Judgement
from pot_agent.sandbox.feedback import feedback

DATA = Path(__file__).parent / "data" / "learning.jsonl"
TEMPERATURE = 0.7
BATCH = 8
DRAWS_OF_AN_UPDATE = 3
"""Groups drawn for one update before it is given up: one whose rewards are all equal teaches nothing."""

Arm = Literal["learned", "shuffled", "negated", "feedback"]
ARMS: tuple[Arm, ...] = ("learned", "shuffled", "negated", "feedback")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a trial does."""

    arm: Arm = "learned"
    rate: float | None = None
    """Learning rate; None: the profile's own for this model."""
    updates: int = 10
    measure_at: tuple[int, ...] = (1, 3, 10)
    group: int = 8
    held_out: int = 32
    max_tokens: int = 192
    seed: int = 0
    variant: str = ""
    setting: str = ""
    fresh: bool = True
    """Whether the pass rate of fresh samples is taken after the last update."""


@dataclass
class Row:
    """A trial's figures after so many updates; margins in nats per token."""

    problem: str
    arm: str
    rate: float
    seed: int
    updates: int
    margin_before: float
    margin_after: float
    pass_before: float
    pass_after: float | None = None
    kl: float | None = None
    rewards: list[float] = field(default_factory=list)
    """Mean reward of each update's group, before any transformation."""
    skipped: int = 0
    seconds: float = 0.0
    variant: str = ""
    """What was changed beside arm and rate, as it was asked for."""
    setting: str = ""
    """Model, profile, sizes: rows of another setting are not compared."""

    @property
    def change(self) -> float:
        """What learning did to the margin between passing and failing held-out samples."""
        return self.margin_after - self.margin_before


@dataclass
class HeldOut:
    """Samples of the base that no update sees, and which of them pass."""

    samples: list[Sample]
    passed: list[bool]

    @property
    def pass_rate(self) -> float:
        """Share that passes."""
        return sum(self.passed) / len(self.passed)

    def margin(self, logprobs: Sequence[float]) -> float:
        """Mean log-probability per token of those that pass, less that of those that fail."""
        passing = [value for value, ok in zip(logprobs, self.passed, strict=True) if ok]
        failing = [value for value, ok in zip(logprobs, self.passed, strict=True) if not ok]
        return statistics.fmean(passing) - statistics.fmean(failing)


@dataclass
class Bench:
    """One problem with its prompt, its tests and the model that writes for it."""

    row: dict[str, Any]
    policy: LocalPolicy
    sandbox: LocalSandbox
    max_tokens: int
    problem: Problem = field(init=False)
    tests: tuple[Test, ...] = field(init=False)
    handles: Handles = field(init=False)
    messages: list[Message] = field(init=False)

    def __post_init__(self) -> None:
        names = ("problem", "tests", "entry_point", "starter_code", "setup")
        self.problem = Problem.parse({name: self.row[name] for name in names if self.row.get(name)})
        self.tests = tuple(parse_tests([*self.row["tests"], *self.row["hidden_tests"]]))
        self.handles = Handles(self.policy, self.sandbox, model="", config=PotConfig.quick(), reward=None)
        self.messages = build_prompt(self.handles, self.problem, [], PotConfig.quick()).messages

    def sample(self, session: str, version: int, n: int, seed: int) -> list[Completion]:
        """Completions of the problem's own prompt."""
        found: list[Completion] = []
        for start in range(0, n, BATCH):
            found += self.policy.sample(
                session,
                version=version,
                messages=self.messages,
                n=min(BATCH, n - start),
                temperature=TEMPERATURE,
                end_at_block=True,
                max_tokens=self.max_tokens,
                seed=seed + start,
            )
        return found

    def judge(self, program: str) -> Judgement:
        """The program on all tests."""
        return self.sandbox.judge(
            program,
            self.tests,
            entry_point=self.problem.entry_point,
            setup=self.problem.setup,
            limits=Limits(cpu_seconds=4.0),
        )

    def reward(self, completion: Completion) -> float:
        """The share of tests passed."""
        return score(self.judge(extract_program(completion.text, self.problem).program))

    def teachers(self, completions: Sequence[Completion], rewards: dict[str, float]) -> dict[str, list[Message]]:
        """For each failed sample the prompt with its program and what the tests showed."""
        return {c.sample_id: self._teacher(c) for c in completions if rewards[c.sample_id] < 1.0}

    def _teacher(self, completion: Completion) -> list[Message]:
        program = extract_program(completion.text, self.problem).program
        attempt = Attempt(program=program, feedback=feedback(self.judge(program), max_characters=FEEDBACK_CHARACTERS))
        return build_prompt(self.handles, self.problem, [attempt], PotConfig.quick()).messages

    def hold_out(self, n: int) -> HeldOut:
        """Samples of the base, judged."""
        self.policy.open("held out", lora=None)
        completions = self.sample("held out", 0, n, seed=1_000_000)
        with self.policy._using("held out") as session:
            samples = session.journal.get([completion.sample_id for completion in completions])
        self.policy.close("held out")
        return HeldOut(samples, [self.reward(completion) == 1.0 for completion in completions])

    def logprobs(self, session: str, version: int, samples: Sequence[Sample]) -> list[float]:
        """Mean log-probabilities under a version. Past the policy's door, which scores a session's own samples only."""
        with self.policy._using(session) as opened, self.policy._turns.taken(lambda: None):
            return self.policy._engine.score(opened.layout, opened.vector_of(version), samples, TEMPERATURE)


def transformed(rewards: dict[str, float], arm: Arm, seed: str) -> dict[str, float]:
    """The rewards an arm trains on: as they are, dealt out at random, turned round (advantages negated exactly), or all
    alike."""
    if arm == "learned":
        return rewards
    if arm == "feedback":
        return dict.fromkeys(rewards, 0.0)
    if arm == "negated":
        return {sample: 1.0 - reward for sample, reward in rewards.items()}
    values = list(rewards.values())
    random.Random(seed).shuffle(values)
    return dict(zip(rewards, values, strict=True))


def run_trial(bench: Bench, plan: Plan, held: HeldOut, grpo: GrpoConfig, say: Callable[[str], None]) -> list[Row]:
    """The rows of one trial: one for each point of `measure_at`."""
    name, version, skipped, kl, began = "trial", 0, 0, None, time.monotonic()
    rows: list[Row] = []
    curve: list[float] = []
    policy, problem = bench.policy, bench.row["id"]
    policy.open(name, lora=LoraConfig(), seed=plan.seed)
    try:
        before = held.margin(bench.logprobs(name, 0, held.samples))
        for update in range(1, plan.updates + 1):
            for draw in range(DRAWS_OF_AN_UPDATE):
                seed = (plan.seed * 1000 + update) * 100 + draw * 10
                completions = bench.sample(name, version, plan.group, seed)
                found = {completion.sample_id: bench.reward(completion) for completion in completions}
                rewards = transformed(found, plan.arm, f"{problem}:{seed}")
                taught = bench.teachers(completions, found) if grpo.distil else None
                receipt = policy.internalize(name, version=version, rewards=rewards, grpo=grpo, teachers=taught)
                version, kl = receipt.version, receipt.kl if receipt.kl is not None else kl
                if receipt.skipped is None:
                    break
                skipped += 1
            curve.append(statistics.fmean(found.values()))
            say(f"{problem} {plan.arm} {grpo.learning_rate:g}: update {update}, rewards {sorted(found.values())}")
            if update in plan.measure_at:
                after = held.margin(bench.logprobs(name, version, held.samples))
                rows.append(
                    Row(
                        problem=problem, arm=plan.arm, rate=grpo.learning_rate, seed=plan.seed, updates=update,
                        margin_before=before, margin_after=after, pass_before=held.pass_rate, kl=kl, skipped=skipped,
                        rewards=list(curve), variant=plan.variant, setting=plan.setting,
                        seconds=time.monotonic() - began,
                    )
                )  # fmt: skip
        if plan.fresh:
            fresh = bench.sample(name, version, plan.held_out, seed=2_000_000)
            rows[-1].pass_after = statistics.fmean(bench.reward(completion) == 1.0 for completion in fresh)
        return rows
    finally:
        policy.close(name)


def load_rows(path: Path = DATA) -> list[dict[str, Any]]:
    """The problems."""
    return [json.loads(line) for line in path.read_text().splitlines()]
