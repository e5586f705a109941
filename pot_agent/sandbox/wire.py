"""Messages between the judge's side and a zygote: fixed structs with descriptors attached, nothing to parse.

One request, an answer for each process, over a SOCK_SEQPACKET pair. A request carries numbers only; programs, inputs
and results are in memory files whose descriptors ride along, so the zygote never holds a byte of them.
"""

import struct
from typing import Literal, NamedTuple, Self

Ending = Literal["exited", "cpu", "wall", "threads", "memory", "setup"]
"""How a run ended: by itself (exit status or signal), ended by the zygote for one of its limits, or never started."""

ENDINGS: tuple[Ending, ...] = ("exited", "cpu", "wall", "threads", "memory", "setup")
HELLO_OK = b"+"
MAX_THREADS = 64
"""Threads of one program; the zygote ends one that has more."""
EXIT_RUNNER, EXIT_MEMORY = 70, 71
"""Exit status when the runner itself failed, and when it was for want of memory."""
MAX_MESSAGE = 4096
MAX_DESCRIPTORS = 200
"""Below the kernel's 253 descriptors a message."""

STARVED = 10.0
"""Time that a program waited for a busy CPU stretches its wall limit, up to this factor."""

_REQUEST = struct.Struct("<cddQQII")
_ANSWER = struct.Struct("<cBiddQ?")


class Request(NamedTuple):
    """Run one process, or a pair; times in seconds, sizes in bytes. `tests` run in it one after the other."""

    cpu: float
    """CPU time of one test."""
    wall: float
    """Wall time of one test."""
    memory: int
    output: int
    tests: int
    processes: int = 1
    """2: a program that serves calls, and an assertion that makes them over a channel between the two."""

    def pack(self) -> bytes:
        """As bytes."""
        return _REQUEST.pack(b"R", self.cpu, self.wall, self.memory, self.output, self.tests, self.processes)

    @property
    def cpu_total(self) -> float:
        """CPU time of all tests together."""
        return self.cpu * self.tests

    @classmethod
    def unpack(cls, message: bytes) -> Self:
        """The inverse of `pack`."""
        _, cpu, wall, memory, output, tests, processes = _REQUEST.unpack(message)
        return cls(cpu=cpu, wall=wall, memory=memory, output=output, tests=tests, processes=processes)


class Answer(NamedTuple):
    """What became of a run: how it ended, the wait status, CPU and wall seconds and memory as measured outside."""

    ending: Ending
    status: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    peak: int = 0
    """Largest resident size, in bytes."""
    reason: str = ""
    spent: bool = False
    """Whether the zygote ends now: what the program left behind goes with it."""

    def pack(self) -> bytes:
        """As bytes."""
        numbers = ENDINGS.index(self.ending), self.status, self.cpu, self.wall, self.peak
        head = _ANSWER.pack(b"A", *numbers, self.spent)
        return head + self.reason.encode("utf-8", "replace")[:1000]

    @classmethod
    def unpack(cls, message: bytes) -> Self:
        """The inverse of `pack`."""
        _, ending, status, cpu, wall, peak, spent = _ANSWER.unpack_from(message)
        reason = message[_ANSWER.size :].decode("utf-8", "replace")
        return cls(ending=ENDINGS[ending], status=status, cpu=cpu, wall=wall, peak=peak, reason=reason, spent=spent)
