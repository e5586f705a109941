"""Where the first program in a text ends: a thought is one program, and what follows it costs time and teaches nothing.

Limits: fenced Markdown blocks of Python, or of no named language; what a reasoning model writes before `</think>` does
not count, where it writes that tag.
"""

import re

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_PYTHON = re.compile(r"(?:python|py)[\d.]*$|$", re.IGNORECASE)
THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
"""Around what a reasoning model writes before its answer."""


def end_of_first_block(text: str) -> int | None:
    """The offset after the fence that closes the first block of Python with something in it; None where none has."""
    start = text.find(THOUGHT_ENDS)
    if start < 0 and text.lstrip().startswith(THOUGHT_BEGINS):
        return None
    at, mark, counts, filled = max(start, 0), "", False, False
    for line in text[at:].split("\n"):
        fence = _FENCE.match(line)
        if fence is None:
            filled = filled or bool(line.strip())
        elif not mark:
            mark, counts, filled = fence[1], _PYTHON.match(fence[2].strip()) is not None, False
        elif fence[1].startswith(mark):
            if counts and filled:
                return at + len(fence[0])
            mark = ""
        at += len(line) + 1
    return None
