"""How much an arm can spend on a problem, found by running it: its graph over a policy and a sandbox that do nothing.

The policy answers with programs that are all different, each as long as it may be; the sandbox gives every one a mark
below a full pass, no two siblings the same. So nothing ends early, every group can be learned from, and what is counted
is the most that the arm spends: completion tokens, programs, updates. It works for any method, new ones too.

Limits: an upper bound, and only for time: real runs stop at a full pass and seldom use every token. Prompts are counted
at a third of a token a character.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event, Lock
from types import TracebackType
from typing import Self

from pot_agent.bench.arms import Arm
from pot_agent.bench.watching import Watched, watch
from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Capabilities, Completion, Measure, Message, Receipt, SessionInfo
from pot_agent.problem import Limits, Problem, Test
from pot_agent.sandbox.base import Isolation, Judgement, RunResult, TestResult

_CHARACTERS_A_TOKEN = 3


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The most that an arm spends on one problem."""

    calls: int
    completion_tokens: int
    prompt_tokens: int
    """Each call's prompt once."""
    programs: int
    updates: int
    trained_tokens: int
    """Of one epoch, summed over updates: a group's completions, and its prompt once."""


def rehearse(arm: Arm, problem: Problem, capabilities: Capabilities, *, cancel: Event | None = None) -> Spending:
    """Run the arm over the dry policy and sandbox. Raises what the arm's graph raises."""
    policy, sandbox = DryPolicy(capabilities), DrySandbox()
    watch(arm.method.build(policy, sandbox, arm.config), problem, Watched(clock=time.monotonic), cancel=cancel)
    return Spending(
        calls=policy.calls,
        completion_tokens=policy.completion_tokens,
        prompt_tokens=policy.prompt_tokens,
        programs=sandbox.programs,
        updates=policy.updates,
        trained_tokens=policy.trained_tokens,
    )


class DryPolicy:
    """Keeps the policy contract, samples nothing, trains nothing, and counts."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = replace(capabilities, context_tokens=max(capabilities.context_tokens, 1_000_000))
        self.calls = self.completion_tokens = self.prompt_tokens = self.updates = self.trained_tokens = 0
        self._versions: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._prompts: dict[str, int] = {}
        self._lock = Lock()

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """A third of a token a character."""
        texts = [content] if isinstance(content, str) else [message["content"] for message in content]
        return sum(len(text) // _CHARACTERS_A_TOKEN + 1 for text in texts)

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """A session at version 0."""
        return SessionInfo(session=session, version=self._versions.setdefault(session, 0))

    def sample(
        self,
        session: str,
        *,
        version: int,
        messages: Sequence[Message],
        n: int = 1,
        temperature: float = 0.7,
        max_tokens: int = 256,
        seed: int = 0,
        stop: Sequence[str] = (),
        end_at_block: bool = False,
        cancel: Event | None = None,
        on_tokens: Callable[[int], None] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Completion]:
        """Programs that were never written before, each `max_tokens` long."""
        with self._lock:
            prompt_tokens = self.count_tokens(messages)
            self.calls += 1
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += n * max_tokens
            first = len(self._tokens)
            ids = [f"{session}:{first + index}" for index in range(n)]
            self._tokens.update(dict.fromkeys(ids, max_tokens))
            self._prompts.update(dict.fromkeys(ids, prompt_tokens))
        return [
            Completion(
                sample_id=sample_id,
                text=f"```python\nanswer = {first + index}\n```",
                tokens=max_tokens,
                logprob=-1.0,
                finish_reason="length",
                prompt_tokens=prompt_tokens,
            )
            for index, sample_id in enumerate(ids)
        ]

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        """All alike."""
        return [-1.0 for _ in sample_ids]

    def internalize(
        self,
        session: str,
        *,
        version: int,
        rewards: Mapping[str, float],
        grpo: GrpoConfig,
        teachers: Mapping[str, Sequence[Message]] | None = None,
        cancel: Event | None = None,
    ) -> Receipt:
        """A receipt of an update that moved weights, unless all rewards are equal."""
        with self._lock:
            skipped = "all rewards are equal" if len(set(rewards.values())) < 2 else None
            if skipped is None:
                self.updates += 1
                self.trained_tokens += sum(self._tokens.get(sample_id, 0) for sample_id in rewards)
                self.trained_tokens += max(self._prompts.get(sample_id, 0) for sample_id in rewards)
            newest = self._versions[session] = self._versions.get(session, 0) + (skipped is None)
            steps = 0 if skipped else grpo.epochs
            return Receipt(digest=str(newest), version=newest, parent_version=version, skipped=skipped, steps=steps)

    def snapshot(self, session: str) -> SessionInfo:
        """The newest version."""
        return SessionInfo(session=session, version=self._versions.get(session, 0))

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """The newest version."""
        return self.snapshot(session)

    def list_sessions(self) -> list[SessionInfo]:
        """Those that are open."""
        return [SessionInfo(session=name, version=version) for name, version in sorted(self._versions.items())]

    def close(self, session: str) -> None:
        """Forget the session."""
        self._versions.pop(session, None)

    def shutdown(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class DrySandbox:
    """Keeps the sandbox contract, runs nothing, and counts the programs."""

    tier = "none (rehearsal)"
    workers = 1

    def __init__(self) -> None:
        self.programs = 0
        self._lock = Lock()

    def judge(
        self,
        program: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        limits: Limits | None = None,
        isolation: Isolation = "program",
        cancel: Event | None = None,
    ) -> Judgement:
        """Some tests passed, never all, and never as many as the program before."""
        with self._lock:
            passed = self.programs % max(1, len(tests))
            self.programs += 1
        results = tuple(
            TestResult(index=at, verdict="passed" if at < passed else "wrong_answer") for at in range(len(tests))
        )
        return Judgement(verdict="wrong_answer", passed=passed, total=len(tests), tier=self.tier, results=results)

    def run(
        self, program: str, *, stdin: str = "", limits: Limits | None = None, cancel: Event | None = None
    ) -> RunResult:
        """Nothing was written."""
        with self._lock:
            self.programs += 1
        none = {"stdout": "", "stderr": "", "exit_code": 0, "cpu_seconds": 0.0, "wall_seconds": 0.0}
        return RunResult(verdict="passed", tier=self.tier, **none)  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
