"""A judgement as text for the model: what failed first, why, where in the program. Bounded and quoted.

Limits: everything below a `|` came from the program or the test and is data; a program may print instructions, and this
text only makes sure that they cannot look like the judge's own words.
"""

from pot_agent.sandbox.base import Judgement, TestResult

_NAMES = {
    "wrong_answer": "wrong answer",
    "time_limit": "time limit exceeded",
    "memory_limit": "memory limit exceeded",
    "output_limit": "output limit exceeded",
    "runtime_error": "runtime error",
    "compile_error": "does not compile",
    "internal": "the sandbox failed; this says nothing about the program",
}
_SHORTEST = 40
"""Least characters of one quoted field, where there is room for it at all."""


def feedback(judgement: Judgement, *, max_characters: int = 800) -> str:
    """At most `max_characters` of text about a judgement, for the prompt of the next attempt."""
    failure = judgement.first_failure
    if failure is None:
        return f"All {judgement.total} tests passed."[:max_characters]
    head = f"{judgement.passed} of {judgement.total} tests passed."
    if failure.verdict == "compile_error":
        head = "The program does not compile."
    else:
        head += f" Test {failure.index + 1} failed: {_NAMES[failure.verdict]}."
    fields = _fields(failure)
    room = max_characters - len(head) - sum(len(name) + 6 for name, _ in fields)
    text = head
    for position, (name, value) in enumerate(fields):
        share = max(_SHORTEST, room // (len(fields) - position))
        quoted = _quoted(value, share)
        room -= len(quoted)
        text += f"\n{name}:\n{quoted}"
    if len(text) <= max_characters:
        return text
    return (text[: max(0, max_characters - 3)].rstrip() + "...")[: max(0, max_characters)]


def _fields(failure: TestResult) -> list[tuple[str, str]]:
    """What is worth saying, the error first: it is the shortest, and says most."""
    fields = [("Error", failure.error)]
    if failure.verdict != "compile_error":
        fields.append(("Input", failure.input))
    if failure.verdict == "wrong_answer":
        fields += [("Expected", failure.expected), ("Got", failure.got or "(nothing)")]
    return [(name, value) for name, value in fields if value.strip()]


def _quoted(value: str, most: int) -> str:
    """Each line behind a bar, cut in the middle of nowhere if need be, and saying so."""
    lines = [f"| {line}" for line in value.rstrip("\n").split("\n")]
    text = "\n".join(lines)
    return text if len(text) <= most else text[: most - 6].rstrip() + " [cut]"
