"""A policy and a sandbox that pass every call on: what stands in front of one overrides the calls that it changes."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from pot_agent.config import LoraConfig
from pot_agent.policy.base import Capabilities, Completion, Message, Policy, Receipt, SessionInfo
from pot_agent.sandbox.base import Judgement, RunResult, Sandbox


class PassingPolicy:
    """The policy behind it, by the same contract. `inner` is that policy."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy behind it."""
        return self.inner.capabilities

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """Passed on."""
        return self.inner.count_tokens(content)

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """Passed on."""
        return self.inner.open(session, lora=lora, seed=seed)

    def sample(self, session: str, **asked: Any) -> list[Completion]:
        """Passed on."""
        return self.inner.sample(session, **asked)

    def score(self, session: str, **asked: Any) -> list[float]:
        """Passed on."""
        return self.inner.score(session, **asked)

    def internalize(self, session: str, **asked: Any) -> Receipt:
        """Passed on."""
        return self.inner.internalize(session, **asked)

    def snapshot(self, session: str) -> SessionInfo:
        """Passed on."""
        return self.inner.snapshot(session)

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """Passed on."""
        return self.inner.restore(session, version=version)

    def list_sessions(self) -> list[SessionInfo]:
        """Passed on."""
        return self.inner.list_sessions()

    def close(self, session: str) -> None:
        """Passed on."""
        self.inner.close(session)

    def shutdown(self) -> None:
        """Passed on."""
        self.inner.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class PassingSandbox:
    """The sandbox behind it, by the same contract. `inner` is that sandbox."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner

    @property
    def tier(self) -> str:
        """That of the sandbox behind it."""
        return self.inner.tier

    @property
    def workers(self) -> int:
        """Those of the sandbox behind it."""
        return self.inner.workers

    def judge(self, program: str, tests: Any, **asked: Any) -> Judgement:
        """Passed on."""
        return self.inner.judge(program, tests, **asked)

    def run(self, program: str, **asked: Any) -> RunResult:
        """Passed on."""
        return self.inner.run(program, **asked)

    def close(self) -> None:
        """Passed on."""
        self.inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
