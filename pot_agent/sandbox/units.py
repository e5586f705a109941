"""The smallest thing that is run: one standard input, or one call, with the check that the judge makes afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pot_agent.errors import ProblemError
from pot_agent.problem import CallTest, StdinTest
from pot_agent.sandbox.assertions import Check
from pot_agent.sandbox.codec import NO_LIMIT, Opaque, decode
from pot_agent.sandbox.compare import Equality, same_output
from pot_agent.sandbox.encoding import TooLargeError, encode
from pot_agent.sandbox.text import FIELD_CHARACTERS, printable, show


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One standard input, or one call; `accepts` tells the right outcome and never leaves the judge."""

    test: int
    shown: str
    expected: str
    accepts: Callable[[Any], bool]
    stdin: str = ""
    checked: StdinTest | None = None
    """The test whose own checker decides in place of `accepts`."""
    operation: tuple[Any, ...] = ()


def check_stdin(text: Any, where: str) -> None:
    """Text that can be written as bytes; those of `surrogateescape` stand for bytes that are not UTF-8."""
    if not isinstance(text, str):
        raise ProblemError(f"{where} must be text, got {type(text).__name__}", value=text)
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ProblemError(f"{where} has a lone surrogate at character {error.start}; remove it", value=text) from error


def stdin_unit(index: int, test: StdinTest) -> Unit:
    """The unit of a stdin test."""
    check_stdin(test.input, f"tests[{index}].input")
    return Unit(
        test=index,
        shown=printable(test.input),
        expected=printable(test.output),
        accepts=lambda got: same_output(got, test),
        stdin=test.input,
        checked=test if test.checker else None,
    )


def call_unit(index: int, test: CallTest, entry_point: str | None) -> Unit:
    """The unit of a call test."""
    if entry_point is None:
        raise ProblemError("call tests need entry_point, the name of the function to call", value=None)
    equality = Equality(rel=test.rel, abs=test.abs, json=True)
    arguments = [show(value) for value in test.args]
    arguments += [f"{name}={show(value)}" for name, value in test.kwargs.items()]
    return Unit(
        test=index,
        shown=f"{entry_point}({', '.join(arguments)})"[:FIELD_CHARACTERS],
        expected=show(test.expected),
        accepts=lambda got: equality.same(test.expected, got),
        operation=_operation(entry_point, list(test.args), dict(test.kwargs)),
    )


def check_unit(index: int, check: Check) -> Unit:
    """The unit of one check of an assertion."""
    return Unit(
        test=index,
        shown=printable(check.shown),
        expected=printable(check.expected),
        accepts=check.accepts,
        operation=_operation(check.name, list(check.args), check.kwargs),
    )


def _operation(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """A call as an operation; arguments that a process cannot be given are the problem's fault."""
    try:
        encoded = encode([args, kwargs])
    except TooLargeError as error:
        raise ProblemError(f"the arguments of {name} are too large: {error}", value=name) from error
    if not _plain(decode(encoded, most_keys=NO_LIMIT)):
        raise ProblemError(f"the arguments of {name} are not plain data: {show(args)}", value=args)
    return ("call", -1, name, encoded, False)


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_plain(key) and _plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_plain, value))
    return not isinstance(value, Opaque)
