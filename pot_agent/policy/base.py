"""The policy contract: the only door to weights, in process or over HTTP, with the same meaning and errors.

A *session* is one problem's transient adapter. Its *versions* are immutable and numbered from 0 (the base model
exactly); sampling names one. Whatever is trained on comes from the session's journal, so nothing outside the policy can
alter the token ids, the log-probabilities or the temperature that a gradient is computed from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Event
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

from typing_extensions import TypedDict

from pot_agent.config import GrpoConfig, LoraConfig

FinishReason = Literal["stop", "length", "cancelled"]
Measure = Literal["logprob", "self_certainty"]
"""What `score` gives, a mean over a sample's tokens. `logprob`: the token's own log-probability. `self_certainty`:
KL(uniform || p) of the whole distribution p over the vocabulary that the token was chosen from (arXiv 2502.18581)."""


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a policy can do, so that a graph can refuse at build time what would fail at run time."""

    model: str
    """Name of the base model, as a person would recognise it."""
    learns: bool
    """Whether `internalize` can move weights."""
    logprobs: bool
    """Whether completions carry log-probabilities; without them the search prior is uniform."""
    context_tokens: int
    """Longest prompt plus completion, in tokens."""
    device: str = "unknown"
    """Where the weights live: cpu, cuda, remote."""
    parameters: int | None = None
    """Parameters of the base model, where known; `corrected` chooses its learning rate by it."""
    shape: dict[str, int] | None = None
    """Fields of `policy.flops.ModelShape`, where known: what an estimate of FLOPs rests on."""
    sampler: str = "unknown"
    """What draws completions: transformers, vllm, or unknown."""
    seeded: bool = True
    """Whether equal seeds give equal samples, rounding apart."""
    streams: bool = False
    """Whether `sample` takes `on_text`, and tells a completion's text while it is written."""


@dataclass(frozen=True, kw_only=True)
class SessionInfo:
    """An open session: its name and the newest version of its adapter."""

    session: str
    version: int


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled completion; its exact ids stay in the journal under `sample_id`."""

    sample_id: str
    text: str
    tokens: int
    """Sampled tokens, the end-of-sequence token counted where it was sampled."""
    logprob: float | None
    """Mean log-probability per token in nats, at the sampling temperature (at 1.0 for greedy); None where unknown."""
    finish_reason: FinishReason
    prompt_tokens: int = 0
    """Length of the prompt, in tokens."""
    seeded: bool = True
    """Whether the seed decided the draws; some samplers take none."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one call of `internalize` did. The same call again gives the same receipt and trains nothing."""

    digest: str
    """Digest of session, version, samples, rewards and configuration: the key of idempotence."""
    version: int
    """The version to sample from now on; equal to `parent_version` when the update was skipped."""
    parent_version: int
    skipped: str | None
    """None, or why no weight moved (equal rewards, fewer than two samples, a loss that is not finite)."""
    steps: int = 0
    """Optimizer steps taken in this call."""
    total_steps: int = 0
    """Optimizer steps of this session so far."""
    loss: float | None = None
    """Loss of the first epoch, before any step (the value that is minimised: -objective)."""
    loss_last: float | None = None
    """Loss of the last epoch. It is the sum of the three parts below."""
    policy_loss: float | None = None
    """The clipped surrogate's part of `loss_last`."""
    kl_loss: float | None = None
    """The KL term's part of `loss_last`, beta included."""
    distil_loss: float | None = None
    """Self-distillation's part of `loss_last`, its weight included."""
    kl: float | None = None
    """Mean per-token KL(new policy || reference) of the last epoch's forward, in nats (k3, weighted by new / old)."""
    clip_fraction: float | None = None
    """Share of completion tokens whose ratio left [1 - eps, 1 + eps], mean over epochs."""
    grad_norm: float | None = None
    """Gradient norm before clipping, mean over epochs."""
    adapter_norm: float | None = None
    """L2 norm of all adapter parameters after the update."""
    sampler_gap: float | None = None
    """Mean |sampler log-probability - trainer log-probability| at the parent version, in nats per token."""
    sampler_kl: float | None = None
    """Mean per-token KL(sampler || trainer) at the parent version, in nats (k3)."""
    canary: str | None = None
    """`reached`: the sampler was shown to run the new version; `undetermined`: the step is too small to tell."""
    canary_gap: float | None = None
    """Distance of the sampler from the trainer's new version on the canary's tokens, root mean square, in nats."""
    tokens: int = 0
    """Completion tokens trained on, in one epoch."""
    flops: float | None = None
    """Estimate of the update's floating-point operations (formula: `policy/flops.py`)."""
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase: reference, teacher, epochs (forward and backward), optimizer, canary."""
    rewards: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@runtime_checkable
class Policy(Protocol):
    """The contract that every policy keeps; see the module docstring. Thread-safe. A context manager."""

    @property
    def capabilities(self) -> Capabilities:
        """What this policy can do."""
        ...

    def count_tokens(self, content: str | Sequence[Message]) -> int:
        """Tokens of a text, or of messages under the chat template with the generation prompt."""
        ...

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """Open a session at version 0, the base exactly. Idempotent for equal arguments.

        `lora=None` opens one that samples from the base and cannot learn.
        Raises `SessionConflictError` when it is open with other arguments, `PolicyBusyError` at the cap on sessions.
        """
        ...

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
        """Sample `n` completions of one prompt from one version; `temperature=0` is greedy.

        Full softmax at `temperature`: no top-k, no top-p, no penalties. A completion ends at the model's end-of-turn
        token, at one of the `stop` strings (left out of `text`), after `max_tokens`, or, with `end_at_block`, where its
        first block of code closes (the fence is the last of `text`). `cancel` ends the call within
        one decoding step with `CancelledError`; `on_tokens` is told the running total of tokens, in process only.
        `on_text` is told the index of a completion and the next piece of its text, as it is written: the pieces of one
        join to its `text`. It is for policies that say `streams`, and costs nothing where it is None. Both are called
        from whatever thread draws, must be quick, and end the call with what they raise.
        Raises `ContextLengthError`, `VersionError`, `SessionNotFoundError`, `ConfigError`.
        """
        ...

    def score(
        self,
        session: str,
        *,
        version: int,
        sample_ids: Sequence[str],
        temperature: float | None = None,
        measure: Measure = "logprob",
    ) -> list[float]:
        """Mean of `measure` per token of journalled samples under a version, at `temperature` (None: 1.0), in nats."""
        ...

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
        """One GRPO update on a group of samples of one prompt and one version; `rewards` by sample id.

        `teachers` gives, by sample id, the prompt under which this same policy is that sample's teacher (the problem
        with the program and the feedback it earned); they count where `grpo.distil` is above 0.

        Idempotent: the receipt of an equal call is returned before the version is even looked at.
        Raises `VersionError`, `SampleError`, `CannotLearnError`, `SessionNotFoundError`. On any error, and when
        cancelled between epochs, the session stays at `version`, its optimizer state untouched.
        """
        ...

    def snapshot(self, session: str) -> SessionInfo:
        """Keep the newest version until the session is closed, however many follow; sampling it goes on working.

        On the disk too, where the policy has a state folder. Raises `SessionNotFoundError`, `DiskFullError`.
        """
        ...

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """Open a session from the state folder at its newest version, to go on as if nothing had happened.

        The other calls restore a session by themselves; this one says where it is. One that is open stays as it is.
        With `version`, the session goes back to that one: the versions after it are dropped, with their samples and
        receipts. That takes a version that is kept (`snapshot`) and a state folder; version 0 is always there.
        Raises `SessionNotFoundError`, `VersionError` for a version that is not kept, and `RestoreError` for other base
        weights, another format or changed bytes, or where no state folder has what the version is made of.
        """
        ...

    def list_sessions(self) -> list[SessionInfo]:
        """The sessions that are open or kept in the state folder, by name."""
        ...

    def close(self, session: str) -> None:
        """Drop the session: adapter, journal and folder. Closing one that is not there does nothing."""
        ...

    def shutdown(self) -> None:
        """Release everything this policy holds (weights, connections), but not what is on the disk. Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
