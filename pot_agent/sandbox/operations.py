"""Calls into a program, one after the other in one process. Runs in the confined child.

An operation is a list `[verb, target, name, arguments, wants]`: `call` a function by name, `call_result` or `attribute`
of an earlier result, or `name` for a global. Arguments arrive encoded and are decoded anew for each call, so that no
call can leave changed arguments behind. In a `calls` job all of them are known from the start; in a `serve` job they
arrive one by one from an assertion's process. Standard library only.
"""

import os
import sys
import time
from itertools import count
from types import ModuleType
from typing import Any

from pot_agent.sandbox import codec
from pot_agent.sandbox.encoding import TooLargeError, encode
from pot_agent.sandbox.failure import describe
from pot_agent.sandbox.reports import Reports, compile_program, read_frame

MODULE_NAME = "program"
"""`__name__` of a program whose functions are called: a `__main__` guard stays shut."""
CONSUMED_ITEMS = 100_000


class MissingError(Exception):
    """The program has no function of that name."""


def run(job: dict[str, Any], reports: Reports, channel: int) -> None:
    """Load the program after its setup, then make the calls of the job, or those that arrive."""
    module = ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    namespace = module.__dict__
    if job["setup"]:
        try:
            exec(compile(job["setup"], "setup", "exec", dont_inherit=True), namespace)
        except BaseException as error:
            reports.frame("setup", describe(error))
            return
    code = compile_program(job["source"], reports)
    if code is None:
        return
    try:
        exec(code, namespace)
    except BaseException as error:
        reports.frame("crash", describe(error, job["source"]))
        return
    reports.frame("loaded")
    if channel < 0:
        calls = _Calls(namespace, job["source"], reports)
        for index, operation in enumerate(job["operations"]):
            calls.make(index, *operation)
        return
    _serve(namespace, job, channel)


def _serve(namespace: dict[str, Any], job: dict[str, Any], channel: int) -> None:
    """Make calls as they arrive, until nobody is there any more."""
    replies = Reports(channel, -1, job["most_bytes"])
    replies.frame("loaded")
    calls = _Calls(namespace, job["source"], replies)
    for index in count():
        operation = read_frame(channel, job["most_bytes"])
        if operation is None:
            return
        replies.left = job["most_bytes"]
        calls.make(index, *operation)


class _Calls:
    """Makes the operations of a job and reports each."""

    def __init__(self, namespace: dict[str, Any], source: str, reports: Reports) -> None:
        self.namespace, self.source, self.reports = namespace, source, reports
        self.results: list[Any] = []
        self.clock = time.process_time

    def make(self, index: int, verb: str, target: int, name: str, arguments: bytes, wants: bool) -> None:
        """Make one operation and write its frame."""
        self.reports.begin(index)
        before = self.clock()
        given: list[Any] = []
        try:
            given, named = codec.decode(arguments, resolve=self.results.__getitem__, most_keys=codec.NO_LIMIT)
            result = self._operate(verb, target, name, given, named)
        except MissingError:
            self.results.append(None)
            self.reports.frame("missing", index, name)
            return
        except BaseException as error:
            self.results.append(None)
            self.reports.frame("raised", index, describe(error, self.source), self.clock() - before)
            return
        self.results.append(result)
        self._report(index, result, given if wants else None, before)

    def _operate(self, verb: str, target: int, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if verb == "call":
            return _function(self.namespace, name)(*given, **named)
        if verb == "name":
            return self.namespace[name] if name in self.namespace else _function(self.namespace, name)
        if verb == "attribute":
            return getattr(self.results[target], name)
        return self.results[target](*given, **named)

    def _report(self, index: int, result: Any, given: list[Any] | None, before: float) -> None:
        left = self.reports.left - 200
        consume, most_keys = (0, codec.MAX_KEYS) if given is None else (CONSUMED_ITEMS, codec.NO_LIMIT)
        try:
            value = encode(result, most_bytes=max(left, 0), most_keys=most_keys, consume=consume)
            after = None if given is None else encode(given, most_bytes=max(left - len(value), 0))
        except TooLargeError:
            self.reports.frame("large", index)
            os._exit(0)
        except BaseException as error:
            self.reports.frame("raised", index, describe(error, self.source), self.clock() - before)
            return
        self.reports.frame("value", index, value, after, self.clock() - before)


def _function(namespace: dict[str, Any], name: str) -> Any:
    """A function of the program, or a method of its class Solution, or `Class.method`, on a fresh object."""
    owner, _, method = name.rpartition(".")
    if not owner and callable(namespace.get(name)):
        return namespace[name]
    kind = namespace.get(owner or "Solution")
    if isinstance(kind, type) and callable(getattr(kind, method, None)):
        return getattr(kind(), method)
    raise MissingError(name)
