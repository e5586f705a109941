"""The reward of execution: 1 if all visible tests pass, the share that passes otherwise (paper section 3.1)."""

from threading import Event

from pot_agent.problem import Limits, Problem
from pot_agent.rewards.base import Evaluation
from pot_agent.sandbox.base import Judgement, Sandbox, TestResult
from pot_agent.sandbox.feedback import feedback

FEEDBACK_CHARACTERS = 1200
"""Most characters of feedback kept for a thought; prompts cut it further, to tokens."""


class ExecutionReward:
    """Runs the program on the visible tests in the sandbox."""

    def evaluate(
        self, problem: Problem, program: str, *, sandbox: Sandbox, limits: Limits, cancel: Event | None = None
    ) -> Evaluation:
        """`passed / total`; no score where the sandbox itself failed."""
        judgement = sandbox.judge(
            program,
            problem.tests,
            entry_point=problem.entry_point,
            setup=problem.setup,
            limits=limits,
            cancel=cancel,
        )
        return Evaluation(
            score=None if judgement.verdict == "internal" else score(judgement),
            verdict=judgement.verdict,
            passed=judgement.passed,
            total=judgement.total,
            feedback=feedback(judgement, max_characters=FEEDBACK_CHARACTERS),
            failure="" if judgement.first_failure is None else one_line(judgement.first_failure),
            tier=judgement.tier,
            seconds=judgement.wall_seconds,
        )


def score(judgement: Judgement) -> float:
    """The share of tests that passed. Equal pass counts of one problem give bit-equal scores."""
    return judgement.passed / judgement.total


def one_line(result: TestResult, *, most: int = 160) -> str:
    """A failed test in one line: what was given, what was wanted, what came."""
    given = " ".join(result.input.split())
    if result.error:
        what = f"{given}: {result.error.strip().splitlines()[0]}"
    elif result.expected or result.got:
        what = f"{given}: expected {' '.join(result.expected.split())}, got {' '.join(result.got.split()) or 'nothing'}"
    else:
        what = given
    return what if len(what) <= most else what[: most - 1] + "…"
