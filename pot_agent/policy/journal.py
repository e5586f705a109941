"""What was sampled, exactly, and the digests that make an update idempotent.

A session's journal alone holds prompt ids, completion ids and the sampler's log-probabilities: callers know samples by
id, so nothing outside can alter what a gradient is computed from. Limit: all of it is in memory (with a state folder,
on the disk too), and it ends with its session.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pot_agent.config import GrpoConfig
from pot_agent.errors import SampleError
from pot_agent.policy.base import FinishReason

if TYPE_CHECKING:
    from pot_agent.policy.sampler import Drawn, Request

OWNER_MARK = "@"
"""What stands before the owner in a session's name inside; a sample's id does not show who owns it."""

_SESSION_CHARACTERS = 40
_OF_THE_PROMPT = ("prompt_ids", "prompt_digest")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One completion; `logprobs` are those of `ids` at `temperature` (at 1.0 for a greedy one)."""

    sample_id: str
    version: int
    prompt_ids: tuple[int, ...]
    prompt_digest: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    temperature: float
    finish: FinishReason
    noted: tuple[float, float] | None = None
    """Another temperature, and the mean log-probability at that: of a greedy sample, at the one of those before it."""

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability per token."""
        return sum(self.logprobs) / len(self.logprobs)

    def noted_at(self, version: int, temperature: float) -> float | None:
        """What the sampler noted of it under this version at this temperature; None where it did not."""
        if self.noted is None or (version, temperature) != (self.version, self.noted[0]):
            return None
        return self.noted[1]


def to_record(samples: Sequence[Sample]) -> dict[str, Any]:
    """The samples of one prompt as plain JSON types, the prompt once."""
    own = [field.name for field in fields(Sample) if field.name not in _OF_THE_PROMPT]
    rows = [{name: getattr(sample, name) for name in own} for sample in samples]
    return {"prompt_ids": list(samples[0].prompt_ids), "samples": rows}


def from_record(record: Mapping[str, Any]) -> list[Sample]:
    """The inverse of `to_record`."""
    prompt_ids = tuple(record["prompt_ids"])
    digest = prompt_digest(prompt_ids)
    return [Sample(prompt_ids=prompt_ids, prompt_digest=digest, **_with_tuples(row)) for row in record["samples"]]


def _with_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


class Journal:
    """The samples of one session by id."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._samples: dict[str, Sample] = {}
        self.temperature: float | None = None
        """That of the newest sample that is not greedy; None where there is none."""

    def __len__(self) -> int:
        return len(self._samples)

    def new_id(self) -> str:
        """An id that nobody can guess and no other sample has."""
        readable, _, _ = self._session.partition(OWNER_MARK)
        return f"{readable[:_SESSION_CHARACTERS]}-{uuid4().hex}"

    def add(self, sample: Sample) -> None:
        """Record a sample."""
        self._samples[sample.sample_id] = sample
        self.temperature = sample.temperature or self.temperature

    def get(self, sample_ids: Sequence[str]) -> list[Sample]:
        """Samples in the order asked for. Raises `SampleError` naming the unknown ones."""
        unknown = [sample_id for sample_id in sample_ids if sample_id not in self._samples]
        if unknown:
            raise SampleError(
                f"session {self._session!r} has no sample {', '.join(map(repr, unknown))}; ids come from `sample` and "
                "end with their session",
                value=unknown,
            )
        return [self._samples[sample_id] for sample_id in sample_ids]

    def until(self, version: int) -> list[Sample]:
        """The samples of that version and those before it."""
        return [sample for sample in self._samples.values() if sample.version <= version]

    def in_order(self, sample_ids: Iterable[str]) -> list[Sample]:
        """Samples in the order in which they were drawn: ids are random, and sums are to be formed alike each time."""
        place = {sample_id: at for at, sample_id in enumerate(self._samples)}
        return sorted(self.get(list(sample_ids)), key=lambda sample: place[sample.sample_id])


def trainable_group(samples: Sequence[Sample], version: int) -> Sequence[Sample]:
    """The samples, where they are one group of that version. Raises `SampleError` saying what is not."""
    for sample in samples:
        if sample.version != version:
            raise SampleError(
                f"sample {sample.sample_id!r} is of version {sample.version}, the update of version {version}; "
                "train on samples of the newest version",
                value=sample.sample_id,
            )
        if sample.temperature == 0:
            raise SampleError(
                f"sample {sample.sample_id!r} was decoded greedily, and is no sample of the policy; leave it out",
                value=sample.sample_id,
            )
    for what, values in (
        ("prompts", {sample.prompt_digest for sample in samples}),
        ("temperatures", {sample.temperature for sample in samples}),
    ):
        if len(values) > 1:
            raise SampleError(
                f"the samples are of {len(values)} different {what}; a group is of one",
                value=[sample.sample_id for sample in samples],
            )
    return samples


def prompt_digest(prompt_ids: Sequence[int]) -> str:
    """Equal for equal prompts."""
    return hashlib.sha256(json.dumps(list(prompt_ids)).encode()).hexdigest()


def update_digest(
    session: str,
    version: int,
    rewards: Mapping[str, float],
    grpo: GrpoConfig,
    teachers: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """The key of idempotence: session, version, samples with rewards and teachers in any order, configuration."""
    taught = sorted((key, list(prompt_ids)) for key, prompt_ids in (teachers or {}).items())
    content = [session, version, sorted((key, float(value)) for key, value in rewards.items()), asdict(grpo), taught]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def samples_of(journal: Journal, version: int, request: "Request", drawn: "Sequence[Drawn]") -> list[Sample]:
    """What one call drew, as it is journalled; it is not yet."""
    prompt_ids = tuple(request.prompt_ids)
    digest = prompt_digest(prompt_ids)
    return [
        Sample(
            sample_id=journal.new_id(),
            version=version,
            prompt_ids=prompt_ids,
            prompt_digest=digest,
            ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            temperature=request.temperature,
            finish=row.finish,
            noted=_noted(request.note_at, row),
        )
        for row in drawn
    ]


def _noted(temperature: float | None, row: "Drawn") -> tuple[float, float] | None:
    return None if temperature is None or not row.noted else (temperature, sum(row.noted) / len(row.noted))
