"""The frames that a confined child writes about its job, and the number of the test it is at. Standard library only."""

import os
from types import CodeType
from typing import Any

from pot_agent.sandbox import codec
from pot_agent.sandbox.encoding import encode
from pot_agent.sandbox.failure import FILE_NAME, describe


class Reports:
    """Writes frames to the result file, and the number of the running test where the zygote reads it."""

    def __init__(self, result: int, progress: int, most_bytes: int) -> None:
        self.result, self.progress, self.left = result, progress, most_bytes
        self.write, self.pwrite, self.getpid = os.write, os.pwrite, os.getpid
        self.process = os.getpid()

    def frame(self, *parts: Any) -> None:
        """Append one frame; a copy of the process that the program made says nothing."""
        if self.getpid() != self.process:
            return
        data = codec.record([encode(list(parts))])
        self.left -= len(data)
        while data:
            data = data[self.write(self.result, data) :]

    def begin(self, test: int) -> None:
        """Say that a test starts."""
        if self.progress >= 0:
            self.pwrite(self.progress, test.to_bytes(4, "little"), 0)


def compile_program(source: str, reports: Reports) -> CodeType | None:
    """Compile, or report why not."""
    try:
        return compile(source, FILE_NAME, "exec", dont_inherit=True)
    except BaseException as error:
        reports.frame("compile", describe(error, source))
        return None


def read_frame(channel: int, most_bytes: int) -> list[Any] | None:
    """The next frame of a channel; None at its end. Raises `codec.CodecError` for anything that is none."""
    head = _read_exactly(channel, 4)
    if not head:
        return None
    size = int.from_bytes(head, "little")
    if size > most_bytes + 4096:
        raise codec.CodecError(f"a frame of {size} bytes")
    frame = codec.decode(_read_exactly(channel, size))
    if type(frame) is not list:
        raise codec.CodecError("not a frame")
    return frame


def _read_exactly(channel: int, size: int) -> bytes:
    """So many bytes, fewer only at the end of the channel."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = os.read(channel, size - len(pieces))
        if not piece:
            break
        pieces += piece
    return bytes(pieces)
