"""A policy that reads its completions from a script: it stands for a model whose every word is known.

It keeps the contract of `pot_agent.policy.base` (versions, receipts, sessions) and records each call, so that tests can
say exactly what the graph asked of it. Nothing is trained.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import Any

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, SessionNotFoundError, VersionError
from pot_agent.policy.base import Capabilities, Completion, Measure, Message, Receipt, SessionInfo


def block(code: str) -> str:
    """A completion with one fenced program."""
    return f"Here it is.\n```python\n{code}\n```\n"


class ScriptedPolicy:
    """Samples the next texts of its script; the last one repeats for ever. `wait` makes `sample` wait for `cancel`."""

    def __init__(
        self, script: Iterable[str], *, learns: bool = True, context_tokens: int = 100_000, wait: bool = False
    ) -> None:
        self.script = list(script)
        self.capabilities = Capabilities(
            model="scripted", learns=learns, logprobs=True, context_tokens=context_tokens, device="cpu", parameters=10
        )
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.versions: dict[str, int] = {}
        self.receipts: dict[str, Receipt] = {}
        self.wait = wait
        self.sampling = Event()
        self.ended = Event()
        self._count = 0

    def of(self, name: str) -> list[dict[str, Any]]:
        """The arguments of each call of that name."""
        return [arguments for called, arguments in self.calls if called == name]

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        texts = [content] if isinstance(content, str) else [message["content"] for message in content]
        return sum(len(text) // 4 + 1 for text in texts)

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        self.calls.append(("open", {"session": session, "lora": lora, "seed": seed}))
        self.versions.setdefault(session, 0)
        return SessionInfo(session=session, version=self.versions[session])

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
        arguments = {"version": version, "messages": list(messages), "n": n, "temperature": temperature, "seed": seed}
        self.calls.append(("sample", arguments))
        self._check(session, version)
        if self.wait:
            self.sampling.set()
            assert cancel is not None
            cancelled = cancel.wait(20)
            self.ended.set()
            assert cancelled, "nobody cancelled"
            raise CancelledError("sampling was cancelled")
        return [self._next(session) for _ in range(n)]

    def _next(self, session: str) -> Completion:
        text = self.script[min(self._count, len(self.script) - 1)]
        self._count += 1
        sample_id = f"{session}:{self._count}"
        return Completion(
            sample_id=sample_id, text=text, tokens=10, logprob=-1.0, finish_reason="stop", prompt_tokens=5
        )

    def _check(self, session: str, version: int) -> None:
        if session not in self.versions:
            raise SessionNotFoundError(f"session {session} is not open", value=session)
        if version != self.versions[session]:
            raise VersionError(f"version {version} is not the newest, {self.versions[session]}", value=version)

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        self.calls.append(("score", {"version": version, "sample_ids": list(sample_ids), "temperature": temperature}))
        return [-0.5 for _ in sample_ids]

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
        asked = {"version": version, "rewards": dict(rewards), "grpo": grpo, "teachers": teachers}
        self.calls.append(("internalize", asked))
        digest = repr((session, version, sorted(rewards.items())))
        if digest not in self.receipts:
            self._check(session, version)
            skipped = "all rewards are equal" if len(set(rewards.values())) < 2 else None
            self.versions[session] += skipped is None
            self.receipts[digest] = Receipt(
                digest=digest, version=self.versions[session], parent_version=version, skipped=skipped, steps=3
            )
        return self.receipts[digest]

    def snapshot(self, session: str) -> SessionInfo:
        self.calls.append(("snapshot", {"session": session}))
        return SessionInfo(session=session, version=self.versions[session])

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        self.calls.append(("restore", {"session": session, "version": version}))
        if session not in self.versions:
            raise SessionNotFoundError(f"session {session} is not open", value=session)
        if version is not None:
            self.versions[session] = version
        return SessionInfo(session=session, version=self.versions[session])

    def list_sessions(self) -> list[SessionInfo]:
        return [SessionInfo(session=name, version=version) for name, version in sorted(self.versions.items())]

    def close(self, session: str) -> None:
        self.calls.append(("close", {"session": session}))
        self.versions.pop(session, None)

    def shutdown(self) -> None:
        self.calls.append(("shutdown", {}))

    def __enter__(self) -> "ScriptedPolicy":
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
