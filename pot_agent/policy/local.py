"""The policy in this process: one base model, its sampler and its trainer, behind one lock.

Limits: one call trains or scores at a time (peft's active adapter is global), and with the transformers sampler one
call samples, scores or trains; the others wait in order, and can be cancelled while they do. Without a state folder,
sessions, journals and receipts end with the process. Nothing heavy is imported before a `LocalPolicy` is built.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.errors import CancelledError, PolicyUnavailableError, SessionNotFoundError
from pot_agent.policy import checks
from pot_agent.policy.base import Capabilities, Completion, Measure, Message, Receipt, SessionInfo
from pot_agent.policy.heavy import import_engine, store_of
from pot_agent.policy.journal import Sample, samples_of, update_digest
from pot_agent.policy.learning import learn
from pot_agent.policy.session import Session
from pot_agent.policy.sessions import Sessions
from pot_agent.policy.sizes import SamplerName, SamplerSizes
from pot_agent.policy.state_folder import StateFolder
from pot_agent.policy.turns import Turns
from pot_agent.settings import Settings

if TYPE_CHECKING:
    from pot_agent.policy.engine import Engine
    from pot_agent.policy.sampler import Request


class LocalPolicy:
    """Samples from and trains a model in this process; see `policy/base.py` for what each call promises."""

    def __init__(
        self,
        model: str = "embedded",
        *,
        device: str | None = None,
        dtype: str | None = None,
        sampler: SamplerName = "auto",
        context_tokens: int | None = None,
        max_rank: int = Settings.max_rank,
        lora_slots: int = Settings.lora_slots,
        batch: bool = Settings.batch,
        threads: int | None = None,
        home: Path | None = None,
        max_sessions: int = 64,
        max_samples: int = Settings.max_samples,
        lease_seconds: float = 3600.0,
        state_dir: Path | None = None,
        state_seconds: float = Settings.state_seconds,
    ) -> None:
        """Load the weights; keep sessions in `state_dir`, where one is given, so that they survive the process.

        `sampler`, `context_tokens`, `max_rank`, `lora_slots` and `batch` are as in `Settings`.
        Raises `ModelNotFoundError`, `MissingExtraError`, `ConfigError`, `DiskFullError`, and `StateFolderError` where
        the state folder cannot be used, or another process holds it.
        """
        settings = Settings(
            model=model,
            dtype=dtype,
            sampler=sampler,
            context_tokens=context_tokens,
            max_rank=max_rank,
            lora_slots=lora_slots,
            threads=threads,
            max_sessions=max_sessions,
            max_samples=max_samples,
            lease_seconds=lease_seconds,
            state=state_dir,
            state_seconds=state_seconds,
        )
        engine = import_engine()
        if threads is not None:
            engine.set_threads(threads)
        folder = None if state_dir is None else StateFolder(state_dir, seconds=state_seconds)
        try:
            self._engine: Engine = engine.Engine(
                settings.model,
                device=device,
                dtype=dtype,
                home=home or settings.home,
                sampler=sampler,
                context_tokens=context_tokens,
                sizes=SamplerSizes(max_rank=max_rank, lora_slots=lora_slots, sessions=max_sessions),
            )
        except BaseException:
            if folder is not None:
                folder.release()
            raise
        store = None if folder is None else store_of(folder, self._engine)
        self._sessions = Sessions(
            most=min(max_sessions, self._engine.most_sessions or max_sessions), lease_seconds=lease_seconds, store=store
        )
        self._turns, self._max_samples = Turns(), max_samples
        self._drawer = self._engine.drawer(self._turns, batch=batch)
        self._shut = threading.Event()

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """A policy as the environment asks for it."""
        same = ["device", "dtype", "sampler", "context_tokens", "max_rank", "lora_slots", "batch", "threads", "home"]
        same += ["max_sessions", "max_samples", "lease_seconds", "state_seconds"]
        return cls(settings.model, state_dir=settings.state, **{name: getattr(settings, name) for name in same})

    @property
    def capabilities(self) -> Capabilities:
        """What this policy can do."""
        return self._engine.capabilities

    @property
    def base_digest(self) -> str:
        """Digest of every weight of the base; it reads them all, once."""
        return self._engine.base_digest

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """Tokens of a text, or of messages under the chat template with the generation prompt."""
        if not isinstance(content, str):
            checks.check_messages(content)
        self._check_running()
        return self._engine.chat.count(content)

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """Open a session at version 0, the base exactly. Idempotent for equal arguments."""
        checks.check_session_name(session)
        checks.check_seed(seed)
        self._check_running()
        layout = None if lora is None else self._engine.layout(lora)
        opened = self._sessions.open(session, lora, seed, layout)
        return SessionInfo(session=session, version=opened.version)

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
        """Sample `n` completions of one prompt from one version; see `Policy.sample`."""
        checks.check_version(version)
        checks.check_messages(messages)
        checks.check_sampling(n, temperature, max_tokens, stop)
        checks.check_seed(seed)
        with self._using(session) as opened:
            opened.check_room(n, self._max_samples)
            opened.vector_of(version)  # an unknown version is an error before the prompt is even formed
            prompt_ids = self._engine.chat.encode(messages)
            self._engine.check_context(len(prompt_ids), max_tokens)
            request = self._engine.request(
                prompt_ids=prompt_ids,
                n=n,
                temperature=float(temperature),
                max_tokens=max_tokens,
                seed=f"{opened.seed}:{seed}",
                stop=stop,
                end_at_block=bool(end_at_block),
                check=self._stopper(opened, cancel),
                note_at=None if temperature else opened.journal.temperature,
                keeper=opened.journal,
                on_tokens=on_tokens,
                on_text=on_text,
            )
            return self._draw(opened, version, request)

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        """Mean of `measure` per token of journalled samples under a version, at `temperature` (None: 1.0).

        By the trainer; of greedy samples under their own version at their siblings' temperature, as the sampler noted.
        """
        checks.check_version(version)
        checks.check_measure(measure)
        wanted = 1.0 if temperature is None else temperature
        checks.check_temperature(wanted, allow_zero=False)
        checks.check_sample_ids(sample_ids)
        with self._using(session) as opened:
            samples, vector = opened.journal.get(list(sample_ids)), opened.vector_of(version)
            noted = [sample.noted_at(version, wanted) if measure == "logprob" else None for sample in samples]
            asked = [sample for sample, value in zip(samples, noted, strict=True) if value is None]
            found: Iterator[float] = iter(())
            if asked:
                with self._turns.taken(self._stopper(opened, None)):
                    found = iter(self._engine.score(opened.layout, vector, asked, float(wanted), measure))
            return [next(found) if value is None else value for value in noted]

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
        """One GRPO update; see `Policy.internalize`. An equal call gets the same receipt and trains nothing."""
        checks.check_version(version)
        checks.check_rewards(rewards)
        checks.check_teachers(teachers, rewards)
        taught = {sample_id: self._engine.chat.encode(prompt) for sample_id, prompt in (teachers or {}).items()}
        digest = update_digest(session, version, rewards, grpo, taught)
        with self._using(session) as opened:
            check = self._stopper(opened, cancel)
            with self._turns.taken(check):
                receipt = opened.receipts.get(digest)
                if receipt is None:
                    draft = opened.draft()
                    receipt = learn(self._engine, draft, version, rewards, grpo, digest, check, taught)
                    check()
                    opened.adopt(draft, receipt)
                return receipt

    def snapshot(self, session: str) -> SessionInfo:
        """Keep the newest version until the session is closed; see `Policy.snapshot`."""
        with self._using(session) as opened:
            return SessionInfo(session=session, version=opened.pin())

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """Open a session from the state folder, or take it back to a version; see `Policy.restore`."""
        if version is not None:
            checks.check_version(version)
            self._check_running()
            self._sessions.go_back(session, version)
        with self._using(session) as opened:
            return SessionInfo(session=session, version=opened.version)

    def list_sessions(self) -> list[SessionInfo]:
        """The sessions that are open or kept in the state folder, by name."""
        self._check_running()
        return [SessionInfo(session=name, version=at) for name, at in sorted(self._sessions.names().items())]

    def close(self, session: str) -> None:
        """Drop the session, its adapter, its journal and its folder. Closing one that is not there does nothing."""
        self._sessions.close(session)

    def check_ready(self) -> None:
        """Raises `PolicyUnavailableError` where nothing can be sampled just now: shut down, or its engine has died."""
        self._check_running()
        self._engine.check_alive()

    @property
    def is_shut_down(self) -> bool:
        """Whether `shutdown` was called."""
        return self._shut.is_set()

    def shutdown(self) -> None:
        """Release the weights; state stays. Calls in progress end with `PolicyUnavailableError`. Idempotent."""
        if not self._shut.is_set():
            self._shut.set()
            self._sessions.close_all()
            self._engine.end_drawing()
            with self._turns.taken():
                self._engine.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _draw(self, session: Session, version: int, request: "Request") -> list[Completion]:
        drawn = self._drawer(request, session.layout, session.vector_of(version))
        samples = samples_of(session.journal, version, request, drawn)
        request.check()
        session.record(samples)
        return [self._completion(request, sample) for sample in samples]

    def _completion(self, request: "Request", sample: Sample) -> Completion:
        return Completion(
            sample_id=sample.sample_id,
            text=request.stop.text_of(sample.ids),
            tokens=len(sample.ids),
            logprob=sample.mean_logprob,
            finish_reason=sample.finish,
            prompt_tokens=len(sample.prompt_ids),
            seeded=self._engine.capabilities.seeded,
        )

    @contextlib.contextmanager
    def _using(self, name: str) -> Iterator[Session]:
        self._check_running()
        with self._sessions.using(name) as session:
            yield session

    def _stopper(self, session: Session, cancel: Event | None) -> Callable[[], None]:
        def check() -> None:
            self._check_running()
            if cancel is not None and cancel.is_set():
                raise CancelledError(f"cancelled; session {session.name!r} is as it was", value=session.name)
            if session.closed:
                raise SessionNotFoundError(f"session {session.name!r} was closed during the call", value=session.name)

        return check

    def _check_running(self) -> None:
        if self._shut.is_set():
            raise PolicyUnavailableError("this policy was shut down; build another one", value=None)
