"""Jobs and outcomes as bytes, for a sandbox on another machine. What comes back is checked before it is believed.

Limits first: no expected value is in a job, so none travels. An outcome from elsewhere may be anything at all: bytes
that are not one raise `CodecError`. Standard library only.
"""

from typing import Any

from pot_agent.problem import Limits
from pot_agent.sandbox.codec import CodecError, decode
from pot_agent.sandbox.encoding import encode
from pot_agent.sandbox.execution import Job, Outcome, Stream
from pot_agent.sandbox.wire import Answer

_LIMITS = ("cpu_seconds", "wall_seconds", "memory_mb", "output_kb")


def pack_job(job: Job) -> bytes:
    """A job as bytes."""
    limits = [getattr(job.limits, name) for name in _LIMITS]
    texts = [job.kind, job.source, job.setup, job.program]
    operations, names = [list(operation) for operation in job.operations], [list(pair) for pair in job.names]
    return encode([texts, limits, list(job.inputs), operations, names])


def unpack_job(data: bytes) -> Job:
    """The inverse of `pack_job`; raises `CodecError`."""
    match decode(data):
        case [[kind, source, setup, program], list(limits), list(inputs), list(operations), list(names)]:
            return Job(
                kind=kind,
                source=source,
                setup=setup,
                program=program,
                limits=Limits(**dict(zip(_LIMITS, limits, strict=True))),
                inputs=tuple(inputs),
                operations=tuple(operations),
                names=tuple(names),
            )
    raise CodecError("not a job")


def pack_outcome(outcome: Outcome, tier: str) -> bytes:
    """An outcome, and the tier that it was had under, as bytes."""
    return encode([tier, _plain(outcome)])


def unpack_outcome(data: bytes, job: Job) -> tuple[Outcome, str]:
    """The inverse of `pack_outcome`; raises `CodecError` for anything that is no outcome of this job."""
    match decode(data):
        case [str(tier), list(plain)]:
            return _outcome(plain, job, pair=job.kind == "assertion"), tier[:100]
    raise CodecError("not an outcome")


def _plain(outcome: Outcome) -> list[Any]:
    streams = [[_stream(stream) for stream in each] for each in (outcome.stdouts, outcome.stderrs)]
    program = None if outcome.program is None else _plain(outcome.program)
    return [outcome.answer.pack(), outcome.lost, _stream(outcome.result), *streams, program]


def _stream(stream: Stream) -> list[Any]:
    return [stream.data, stream.over]


def _outcome(plain: Any, job: Job, *, pair: bool) -> Outcome:
    match plain:
        case [bytes(answer), bool(lost), result, list(stdouts), list(stderrs), program]:
            most = job.output_bytes
            found = Outcome(
                answer=_answer(answer),
                lost=lost,
                result=_read(result, most),
                stdouts=tuple(_read(stream, most) for stream in stdouts),
                stderrs=tuple(_read(stream, most) for stream in stderrs),
                program=_outcome(program, job, pair=False) if pair and program is not None else None,
            )
            if lost or (len(found.stdouts) == len(found.stderrs) == len(job.inputs)):
                return found
    raise CodecError("not an outcome")


def _answer(data: bytes) -> Answer:
    try:
        return Answer.unpack(data)
    except Exception as error:
        raise CodecError(f"not an answer: {error}") from error


def _read(plain: Any, most: int) -> Stream:
    match plain:
        case [bytes(data), bool(over)] if len(data) <= most:
            return Stream(data=data, over=over)
    raise CodecError("not a stream")
