"""An exception of a program as plain data: type, message, the last lines of the program itself. Bounded.

Standard library only; runs in the program's process, so what it says is the program's word and never decides a verdict
beyond "this test failed".
"""

import builtins
from typing import Any

FILE_NAME = "main.py"
"""What a program's tracebacks call it."""
MAX_MESSAGE = 2000
MAX_LINE = 200
MAX_FRAMES = 4


def describe(error: BaseException, source: str = "") -> dict[str, Any]:
    """Type, message, builtin base, and the innermost frames that are lines of the program."""
    kind = type(error)
    if issubclass(kind, MemoryError):
        return {"type": "MemoryError", "base": "MemoryError", "message": "", "frames": []}
    frames = _frames(error)
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int) and error.filename == FILE_NAME:
        frames = [[error.lineno, ""]]
    lines = source.splitlines()
    return {
        "type": str(type.__dict__["__name__"].__get__(kind))[:MAX_LINE],
        "base": _builtin_base(kind),
        "message": _message(error),
        "frames": [[number, name, _line(lines, number)] for number, name in frames],
    }


def _message(error: BaseException) -> str:
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return str(str.__str__(text))[:MAX_MESSAGE]
    except BaseException:
        return "(its message could not be read)"


def _builtin_base(kind: type[BaseException]) -> str:
    for parent in kind.__mro__:
        if getattr(builtins, parent.__name__, None) is parent:
            return str(parent.__name__)
    return "Exception"


def _frames(error: BaseException) -> list[list[Any]]:
    found: list[list[Any]] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            found.append([trace.tb_lineno, trace.tb_frame.f_code.co_name[:MAX_LINE]])
            del found[:-MAX_FRAMES]
        trace = trace.tb_next
    return found


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].strip()[:MAX_LINE] if 0 < number <= len(lines) else ""


def forget(error: BaseException, namespace: dict[str, Any]) -> None:
    """Let go of what a failed program held, so that there is memory to report with."""
    error.__traceback__ = None
    error.__context__ = None
    namespace.clear()
