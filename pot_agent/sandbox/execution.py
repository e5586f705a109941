"""One run of one process, as data: what goes in (`Job`) and what comes out (`Outcome`). The same for every sandbox.

A job never holds an expected value. An outcome holds bytes that a program wrote: everything in it is read with care.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any, Literal, Protocol

from pot_agent.problem import Limits
from pot_agent.sandbox import codec
from pot_agent.sandbox.encoding import encode
from pot_agent.sandbox.wire import Answer

Kind = Literal["stdin", "calls", "serve", "assertion"]
MAX_FRAMES = 100_000


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process is given. Each of `inputs` is one standard input; the program runs once for each.

    An `assertion` runs in a pair of processes: `source` in one, with the functions of `program` in the other.
    """

    kind: Kind
    source: str
    limits: Limits
    setup: str = ""
    inputs: tuple[str, ...] = ("",)
    operations: tuple[list[Any], ...] = ()
    """Of `calls`: see `pot_agent.sandbox.operations`."""
    names: tuple[list[str], ...] = ()
    """Of `assertion`: names that it takes from the program, each with what the program calls it."""
    program: str = ""
    """Of `assertion`: the program that it is about."""

    @property
    def tests(self) -> int:
        """How many tests the process runs, one after the other."""
        return max(1, len(self.operations) if self.kind == "calls" else len(self.inputs))

    @property
    def output_bytes(self) -> int:
        """Most bytes of one stream, and of all frames."""
        return int(self.limits.output_kb * 1024)

    def processes(self) -> tuple["Job", ...]:
        """This job as one job for each process; of a pair, the program that serves comes first."""
        if self.kind != "assertion":
            return (self,)
        return Job(kind="serve", source=self.program, setup=self.setup, limits=self.limits), self

    def encode(self) -> bytes:
        """What the process reads; inputs go in files of their own."""
        plain: dict[str, Any] = {"kind": self.kind, "most_bytes": self.output_bytes, "setup": self.setup}
        if self.kind == "assertion":
            plain |= {"code": self.source, "names": list(self.names)}
        else:
            plain |= {"source": self.source, "operations": list(self.operations)}
        return encode(plain)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What a program wrote to one of its outputs, cut at the limit."""

    data: bytes = b""
    over: bool = False
    """Whether it wrote more than the limit."""

    @property
    def text(self) -> str:
        """As text; bytes that are not UTF-8 are replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out of a process; `answer.ending` and the times were measured outside it."""

    answer: Answer
    result: Stream = Stream()
    stdouts: tuple[Stream, ...] = ()
    stderrs: tuple[Stream, ...] = ()
    program: "Outcome | None" = None
    """Of an assertion: what became of the program's process."""
    lost: bool = False
    """The sandbox itself failed: nothing is known about the program."""

    @property
    def exit_code(self) -> int:
        """Exit status, or minus the signal."""
        status = self.answer.status
        return -(status & 0x7F) if status & 0x7F else status >> 8

    @property
    def signal_name(self) -> str:
        """Name of the signal that ended it."""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"

    def frames(self) -> Iterator[list[Any]]:
        """Frames in order; raises `codec.CodecError` at the first bytes that are none."""
        for count, raw in enumerate(codec.iterate(self.result.data)):
            frame = codec.decode(raw)
            if count > MAX_FRAMES or type(frame) is not list or not frame or type(frame[0]) is not str:
                raise codec.CodecError("not a frame")
            yield frame


class Executor(Protocol):
    """Runs jobs in isolation; the judge builds on nothing else."""

    @property
    def tier(self) -> str:
        """Name of the isolation tier."""
        ...

    def execute(self, job: Job, cancel: Event | None = None) -> Outcome:
        """Run one job to its end. Raises `CancelledError`; a failure of its own is an outcome that is `lost`."""
        ...

    def spare(self, wanted: int) -> int:
        """How many more jobs than one, `wanted` at most, would start at once if they came now."""
        ...
