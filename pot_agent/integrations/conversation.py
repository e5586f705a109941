"""What a conversation asks of PoT, and what PoT answers in one: the door between messages and problems.

The problem is the text of the last human message. Turns before it are context, put above the statement and read by the
model alone: no tests are taken from them. Images, audio and files in a message are an error, never left out silently.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata

from pot_agent.errors import ProblemError
from pot_agent.problem import Problem
from pot_agent.values import shorten

_ANSWER_KEYS = ("solved", "score", "evidence", "tests_passed", "tests_total", "stop_reason", "verdict")
_SPEAKERS = {"human": "User", "ai": "Assistant", "system": "Instructions"}


def problem_in(messages: Sequence[BaseMessage], **given: Any) -> dict[str, Any]:
    """The input of a PoT graph: the last human message with `given` (tests, entry_point, ...) and what came before it.

    Raises `ProblemError` where there is no human message, or one that is not text.
    """
    last = max((at for at, message in enumerate(messages) if isinstance(message, HumanMessage)), default=None)
    if last is None:
        raise ProblemError(
            "there is no human message to take the problem from; end the conversation with one",
            value=[message.type for message in messages],
        )
    asked = text_of(messages[last])
    known = {name: value for name, value in given.items() if value is not None}
    context = _context(messages[:last])
    if not context:
        return {"problem": asked, **known}
    # Read before the context is put above it, so that an example in an earlier turn is no test of this problem.
    read = Problem.parse({"problem": asked, **known}).to_dict()
    read = {name: value for name, value in read.items() if name != "evidence" and value}
    return {**read, "problem": f"{context}\n\n{asked}", **known}


def text_of(message: BaseMessage) -> str:
    """A message's text; `ProblemError` where it holds anything else."""
    if isinstance(message.content, list):
        kinds = {part.get("type") for part in message.content if isinstance(part, Mapping)} - {"text"}
        if kinds and isinstance(message, (HumanMessage, SystemMessage)):
            found = ", ".join(sorted(map(str, kinds)))
            raise ProblemError(f"PoT reads text only, and a {message.type} message holds {found}", value=found)
    return str(message.text)


def answer_of(solution: Mapping[str, Any], *, name: str | None = None) -> AIMessage:
    """The program in a fence and how it did, in words; the whole solution in `response_metadata`."""
    return AIMessage(
        f"{fenced(solution['program'])}\n\n{outcome(solution)}",
        name=name,
        response_metadata={
            "model_name": solution["model"],
            "finish_reason": solution["stop_reason"],
            "solution": dict(solution),
        },
        usage_metadata=usage_of(solution),
    )


def usage_of(solution: Mapping[str, Any]) -> UsageMetadata:
    """Completion tokens of the whole run; what its prompts held is not counted by a run, and stands as 0."""
    return UsageMetadata(input_tokens=0, output_tokens=solution["tokens"], total_tokens=solution["tokens"])


def fenced(program: str) -> str:
    """The program in a fence that is longer than any run of backticks in it."""
    mark = "```"
    while mark in program:
        mark += "`"
    return f"{mark}python\n{program.rstrip()}\n{mark}"


def outcome(solution: Mapping[str, Any]) -> str:
    """One honest sentence or two about a solution."""
    if solution["evidence"] == "none":
        return "Not tested: the problem came without tests."
    passed, total = solution["tests_passed"], solution["tests_total"]
    kinds = {"examples": "examples of the statement", "generated": "tests that a model wrote"}
    said = f"Passes {passed} of {total} {kinds.get(solution['evidence'], 'tests')} ({solution['stop_reason']})."
    return said if solution["score"] == 1.0 or not solution["feedback"] else f"{said}\n\n{solution['feedback']}"


def summary_of(solution: Mapping[str, Any]) -> dict[str, Any]:
    """The few values of a solution that an agent needs beside the program."""
    return {key: solution[key] for key in _ANSWER_KEYS}


def _context(messages: Sequence[BaseMessage]) -> str:
    shown = []
    for message in messages:
        text = text_of(message).strip()
        if text:
            shown.append(f"{_SPEAKERS.get(message.type, shorten(message.type))}: {text}")
    return "\n\n".join(shown)
