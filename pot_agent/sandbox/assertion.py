"""An assertion, run in a process of its own in which no line of the program runs. Runs in a confined child.

The names that the assertion takes from the program are `Remote` objects. A call of one travels as plain data over a
channel to the program's process and its value comes back the same way. So the expected values never meet the program,
and the program's objects never meet the assertion: what decides is test code alone.

Limits: plain data alone crosses over; other results stay where they are and can be passed back, called, or asked for
attributes, never compared. Arguments that are lists, dicts, sets or deques are brought up to date after a call that
changed them, top level in place, so identity of inner objects is lost. Iterators arrive whole, up to a bound. Random
numbers start from the same seed each time. Standard library only.
"""

import builtins
import os
import random
from collections import deque
from types import ModuleType
from typing import Any, NoReturn

from pot_agent.sandbox import codec
from pot_agent.sandbox.encoding import encode
from pot_agent.sandbox.failure import describe
from pot_agent.sandbox.reports import Reports, read_frame

TEST_FILE = "test"


def run(job: dict[str, Any], reports: Reports, channel: int) -> None:
    """Run setup and assertion once the program has loaded; ends in one frame that says how it went."""
    program = _Program(reports, Reports(channel, -1, job["most_bytes"]), job["most_bytes"])
    program.wait_until_loaded()
    namespace = ModuleType("test").__dict__
    try:
        exec(compile(job["setup"], "setup", "exec", dont_inherit=True), namespace)
    except BaseException as error:
        reports.frame("setup", describe(error))
        return
    namespace.update({alias: Remote(program, -1, name) for alias, name in job["names"]})
    random.seed(0)
    try:
        exec(compile(job["code"], TEST_FILE, "exec", dont_inherit=True), namespace)
    except BaseException as error:
        reports.frame("failed", describe(error), program.last_call, program.raised.get(id(error)))
        return
    reports.frame("held", program.made)


class _Program:
    """The program's process, at the other end of the channel. What it says is checked before it is believed."""

    def __init__(self, reports: Reports, channel: Reports, most_bytes: int) -> None:
        self.reports, self.channel, self.most_bytes = reports, channel, most_bytes
        self.made = 0
        self.last_call: list[Any] = []
        self.raised: dict[int, dict[str, Any]] = {}
        self.kept: list[BaseException] = []

    def wait_until_loaded(self) -> None:
        """End here where the program does not load."""
        if self._frame() != ["loaded"]:
            self.end("forged")

    def perform(self, verb: str, target: int, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The result of an operation, with its effect on the arguments."""
        arguments = encode([list(given), named], reference=_reference)
        index, self.made = self.made, self.made + 1
        self._send([verb, target, name, arguments, True])
        frame = self._frame()
        match frame:
            case ["value", int(number), bytes(payload), bytes(after), float()] if number == index:
                self.last_call = [verb, name, arguments, payload]
                return self._received(index, given, payload, after)
            case ["raised", int(number), dict(error), float()] if number == index:
                raise self._rebuilt(error)
            case ["missing" | "large" as what, int(number), *_] if number == index:
                self.end(what, name)
        self.end("forged")

    def _send(self, operation: list[Any]) -> None:
        try:
            self.channel.frame(*operation)
        except OSError:
            self.end("gone")

    def _frame(self) -> list[Any]:
        try:
            frame = read_frame(self.channel.result, self.most_bytes)
        except codec.CodecError:
            self.end("forged")
        except OSError:
            self.end("gone")
        if frame is None:
            self.end("gone")
        return frame

    def _received(self, index: int, given: tuple[Any, ...], payload: bytes, after: bytes) -> Any:
        try:
            arguments = codec.decode(after, resolve=self.remote, most_keys=codec.NO_LIMIT)
            value = codec.decode(payload, resolve=self.remote, most_keys=codec.NO_LIMIT)
        except codec.CodecError:
            self.end("forged")
        if type(arguments) is list:
            _bring_up_to_date(given, arguments)
        return self.remote(index, value.type_name) if isinstance(value, codec.Opaque) else value

    def remote(self, index: int, name: str = "result") -> "Remote":
        """A result that stays where it is."""
        return Remote(self, index, name)

    def _rebuilt(self, error: dict[str, Any]) -> BaseException:
        """An exception of the same built-in class; never one that would pass for a failed or ended assertion."""
        kind = getattr(builtins, str(error.get("base")), None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = Exception
        try:
            rebuilt: Exception = kind(error.get("message", ""))
        except TypeError:
            rebuilt = Exception(error.get("message", ""))
        self.raised[id(rebuilt)] = error
        self.kept.append(rebuilt)
        return rebuilt

    def end(self, what: str, detail: str = "") -> NoReturn:
        """Nothing more can be said about the assertion."""
        self.reports.frame(what, detail)
        os._exit(0)


def _reference(value: Any) -> int | None:
    if type(value) is not Remote:
        return None
    index: int = object.__getattribute__(value, "_index")
    if index < 0:  # a function of the program, passed as an argument
        index = object.__getattribute__(value, "_fetch")()
    return index


def _bring_up_to_date(given: tuple[Any, ...], after: list[Any]) -> None:
    for old, new in zip(given, after, strict=False):
        if type(old) is not type(new):
            continue
        if isinstance(old, (list, bytearray)):
            old[:] = new
        elif isinstance(old, (dict, set)):
            old.clear()
            old.update(new)
        elif isinstance(old, deque):
            old.clear()
            old.extend(new)


class Remote:
    """A name of the program (index -1), or a result that stayed in its process."""

    def __init__(self, program: _Program, index: int, name: str) -> None:
        self._program, self._index, self._name = program, index, name

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._index < 0:
            return self._program.perform("call", -1, self._name, given, named)
        return self._program.perform("call_result", self._index, "", given, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            if name == "__name__":
                return self._name
            raise AttributeError(name)
        target = self._index if self._index >= 0 else self._fetch()
        return self._program.perform("attribute", target, name, (), {})

    def _fetch(self) -> int:
        """Ask for the global of this name; its number as a result."""
        index = self._program.made
        self._program.perform("name", -1, self._name, (), {})
        return index

    def _plain(self) -> Any:
        if self._index < 0:
            value = self._program.perform("name", -1, self._name, (), {})
            if type(value) is not Remote:
                return value
        self._program.end("opaque", self._name)

    def __eq__(self, other: object) -> bool:
        return bool(self._plain() == other)

    def __ne__(self, other: object) -> bool:
        return bool(self._plain() != other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __bool__(self) -> bool:
        return bool(self._plain())

    def __len__(self) -> int:
        return len(self._plain())

    def __iter__(self) -> Any:
        return iter(self._plain())

    def __getitem__(self, key: Any) -> Any:
        return self._plain()[key]

    def __contains__(self, item: Any) -> bool:
        return item in self._plain()

    def __repr__(self) -> str:
        return f"<{self._name}>"
