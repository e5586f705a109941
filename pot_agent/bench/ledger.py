"""What a method spends, counted at its two doors: a policy and a sandbox that pass every call on and keep the books.

Limits: a call that was cancelled counts with the tokens it had drawn where the policy tells (in process it does, over
HTTP it does not). Every program that a sandbox judges counts, on generated tests too, and so once more for those; that
a full pass is confirmed test by test does not. Tokens of a greedy call are a commit's where the session was sampled
before it: the one greedy answer of a zero-shot method is no commit. Seconds are wall seconds, waiting for a policy that
others use included. FLOPs are estimates, by `pot_agent/policy/flops.py`; an update that was given up has none.
"""

import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pot_agent.bench.clock import PhaseClock
from pot_agent.bench.record import Ledger
from pot_agent.errors import CancelledError
from pot_agent.methods.parts.passing import PassingPolicy, PassingSandbox
from pot_agent.policy.base import Capabilities, Completion, Policy, Receipt
from pot_agent.policy.flops import ModelShape, sampling_flops
from pot_agent.sandbox.base import Judgement, RunResult, Sandbox

PHASES = ("sampling", "scoring", "executing", "internalizing")


@dataclass
class _Books:
    """Counts of one method on one problem."""

    calls: int = 0
    completions: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    commit_tokens: int = 0
    programs: int = 0
    tests: int = 0
    update_calls: int = 0
    updates: int = 0
    update_steps: int = 0
    trained_tokens: int = 0
    flops: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "scoring": 0.0, "training": 0.0})
    groups: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By sample id: a number of the call that drew it, its prompt's tokens and its own."""
    sampled: set[str] = field(default_factory=set)
    """Sessions that were sampled at a temperature."""
    receipts: set[str] = field(default_factory=set)


class Meter:
    """The doors of one method on one problem. `policy` and `sandbox` are what the method is given."""

    def __init__(self, policy: Policy, sandbox: Sandbox) -> None:
        self._books = _Books()
        self._lock = threading.Lock()
        self._clock = PhaseClock()
        self._capabilities = policy.capabilities
        self.policy = MeteredPolicy(policy, self)
        self.sandbox = MeteredSandbox(sandbox, self)

    def ledger(self) -> Ledger:
        """What was spent so far."""
        books, seconds = self._books, self._clock.seconds(PHASES)
        is_known = _flops(self._capabilities, 1, [1]) is not None
        with self._lock:
            flops = {**books.flops, "total": sum(books.flops.values())} if is_known else {}
            return Ledger(
                calls=books.calls,
                completions=books.completions,
                prompt_tokens=books.prompt_tokens,
                completion_tokens=books.completion_tokens,
                commit_tokens=books.commit_tokens,
                programs=books.programs,
                tests=books.tests,
                update_calls=books.update_calls,
                updates=books.updates,
                update_steps=books.update_steps,
                trained_tokens=books.trained_tokens,
                seconds={name: round(value, 6) for name, value in seconds.items()},
                flops=flops,
                peak_mb=peak_mb(),
            )

    def phase(self, name: str) -> Any:
        """A context in which a call of that phase is under way."""
        return self._clock.phase(name)

    @contextmanager
    def books(self) -> Iterator[_Books]:
        """The books, for one entry."""
        with self._lock:
            yield self._books

    def called(self, session: str, completions: Sequence[Completion], *, greedy: bool) -> None:
        """Enter a call of the sampler."""
        tokens, prompt = [completion.tokens for completion in completions], completions[0].prompt_tokens
        with self.books() as books:
            books.completions += len(completions)
            books.prompt_tokens += prompt
            books.completion_tokens += sum(tokens)
            books.commit_tokens += sum(tokens) if greedy and session in books.sampled else 0
            books.sampled |= set() if greedy else {session}
            books.groups |= {c.sample_id: (books.completions, prompt, c.tokens) for c in completions}
            books.flops["sampling"] += _flops(self._capabilities, prompt, tokens) or 0.0

    def lost(self, tokens: int, prompt: int, rows: int) -> None:
        """Enter a call that gave nothing back after so many tokens."""
        with self.books() as books:
            books.prompt_tokens += prompt
            books.completion_tokens += tokens
            books.flops["sampling"] += _flops(self._capabilities, prompt, [tokens // rows] * rows) or 0.0

    def scored(self, samples: Sequence[str]) -> None:
        """Enter a forward pass over samples, those of one call with their prompt once."""
        with self.books() as books:
            calls: dict[int, list[tuple[int, int]]] = {}
            for call, prompt, tokens in (books.groups[sample] for sample in samples if sample in books.groups):
                calls.setdefault(call, []).append((prompt, tokens))
            for rows in calls.values():
                spent = _flops(self._capabilities, rows[0][0], [tokens for _, tokens in rows])
                books.flops["scoring"] += spent or 0.0

    def learned(self, receipt: Receipt) -> None:
        """Enter an update; the receipt of one that is known already trained nothing."""
        with self.books() as books:
            books.update_calls += 1
            if receipt.digest in books.receipts:
                return
            books.receipts.add(receipt.digest)
            books.updates += receipt.skipped is None
            books.update_steps += receipt.steps
            books.trained_tokens += receipt.tokens * receipt.steps
            books.flops["training"] += receipt.flops or 0.0

    def ran(self, tests: int) -> None:
        """Enter a program."""
        with self.books() as books:
            books.programs += 1
            books.tests += tests


class MeteredPolicy(PassingPolicy):
    """A policy whose calls are counted."""

    def __init__(self, inner: Policy, meter: Meter) -> None:
        super().__init__(inner)
        self._meter = meter

    def sample(self, session: str, **asked: Any) -> list[Completion]:
        """Sample, and count calls, prompts and tokens."""
        meter, drawn = self._meter, _Total(asked.get("on_tokens"))
        with meter.books() as books:
            books.calls += 1
        try:
            with meter.phase("sampling"):
                completions = self.inner.sample(session, **{**asked, "on_tokens": drawn})
        except BaseException:
            if drawn.tokens:
                meter.lost(drawn.tokens, self.inner.count_tokens(asked["messages"]), asked.get("n", 1))
            raise
        meter.called(session, completions, greedy=asked.get("temperature") == 0)
        return completions

    def score(self, session: str, **asked: Any) -> list[float]:
        """Score, and count the forward pass."""
        with self._meter.phase("scoring"):
            scores = self.inner.score(session, **asked)
        self._meter.scored(asked["sample_ids"])
        return scores

    def internalize(self, session: str, **asked: Any) -> Receipt:
        """Train, and count what the receipt says."""
        with self._meter.phase("internalizing"):
            receipt = self.inner.internalize(session, **asked)
        self._meter.learned(receipt)
        return receipt


class MeteredSandbox(PassingSandbox):
    """A sandbox whose programs are counted."""

    def __init__(self, inner: Sandbox, meter: Meter) -> None:
        super().__init__(inner)
        self._meter = meter

    def judge(self, program: str, tests: Any, **asked: Any) -> Judgement:
        """Judge, and count the program with its tests."""
        with self._counted(len(tests)):
            return self.inner.judge(program, tests, **asked)

    def run(self, program: str, **asked: Any) -> RunResult:
        """Run, and count the program."""
        with self._counted(0):
            return self.inner.run(program, **asked)

    @contextmanager
    def _counted(self, tests: int) -> Iterator[None]:
        """A program that was begun counts, also where it was cancelled; one that the sandbox refused does not."""
        with self._meter.phase("executing"):
            try:
                yield
            except CancelledError:
                self._meter.ran(tests)
                raise
        self._meter.ran(tests)


class _Total:
    """The last running total that a policy told, passed on to whoever asked for it."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self.tokens = 0
        self._then = then

    def __call__(self, tokens: int) -> None:
        self.tokens = tokens
        if self._then is not None:
            self._then(tokens)


def _flops(capabilities: Capabilities, prompt: int, completions: Sequence[int]) -> float | None:
    shape, parameters = ModelShape.read(capabilities.shape), capabilities.parameters
    return sampling_flops(prompt=prompt, completions=completions, shape=shape, parameters=parameters)


def peak_mb() -> float:
    """Peak resident memory of this process, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
