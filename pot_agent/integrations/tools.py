"""PoT and its sandbox as LangChain tools, for any agent that calls tools."""

import json
from threading import Lock
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from pot_agent.errors import PotError, ProblemError
from pot_agent.integrations.source_file import SourceFile
from pot_agent.problem import AssertTest, Limits
from pot_agent.sandbox.base import Judgement, RunResult, Sandbox


class RunCodeInput(BaseModel):
    """Input of the run_code tool."""

    code: str = Field(description="A complete Python program. It has no network, no files and no subprocesses.")
    stdin: str = Field(default="", description="What the program reads from standard input.")


def create_run_code_tool(
    sandbox: Sandbox | None = None, *, limits: Limits | None = None, name: str = "run_code"
) -> BaseTool:
    """The sandbox as a tool: runs a program, answers with its output, and never raises for what the program does.

    Args:
        sandbox: where programs run; None: the process's local sandbox, started at the first call.
        limits: of one run; None: 10 s of CPU, 1 GiB.
        name: the tool's name, as the model sees it.
    """
    held = _Lazy(sandbox)

    def run_code(code: str, stdin: str = "") -> str:
        try:
            return _described(held.sandbox.run(code, stdin=stdin, limits=limits))
        except ProblemError as error:  # input that no program could be given: the agent is told
            raise ToolException(str(error)) from error

    return StructuredTool.from_function(
        run_code,
        name=name,
        description="Run a Python program in a sandbox and return its exit status, standard output and errors.",
        args_schema=RunCodeInput,
        handle_tool_error=True,
    )


class RunTestsInput(BaseModel):
    """Input of the run_tests tool."""

    source: str = Field(
        description="The text of a Python file with tests of its own: functions test_* without parameters, or "
        "assertions at the top level."
    )


def create_run_tests_tool(
    sandbox: Sandbox | None = None, *, limits: Limits | None = None, name: str = "run_tests"
) -> BaseTool:
    """A file's own tests as a tool: says which pass, and what the others found. `source_file.py` says which are run.

    The tests run in a process of their own, so that the file cannot vouch for itself.

    Args:
        sandbox: where they run; None: the process's local sandbox, started at the first call.
        limits: of one test; None: 10 s of CPU, 1 GiB.
        name: the tool's name, as the model sees it.
    """
    held = _Lazy(sandbox)

    def run_tests(source: str) -> str:
        try:
            file = SourceFile.parse(source)
            tests = [AssertTest(code=code) for code in file.tests.values()]
            judgement = held.sandbox.judge(file.program, tests, setup=file.setup, limits=limits)
        except ProblemError as error:
            raise ToolException(str(error)) from error
        return _tested(file, judgement)

    return StructuredTool.from_function(
        run_tests,
        name=name,
        description="Run a Python file's own tests in a sandbox, and return how many pass and what the others found.",
        args_schema=RunTestsInput,
        handle_tool_error=True,
    )


class SolveInput(BaseModel):
    """Input of the solve_problem tool."""

    problem: str = Field(description="The statement of the programming problem.")
    tests: list[Any] | None = Field(
        default=None,
        description='Visible tests, two or more where possible: assertions such as "assert add(1, 2) == 3", or objects '
        '{"type": "stdin", "input": "1 2", "output": "3"}. None: examples in the statement are used.',
    )
    entry_point: str | None = Field(default=None, description="Name of the function to write, if it is one.")


def create_solve_tool(graph: Runnable[Any, Any] | None = None, *, name: str = "solve_problem") -> BaseTool:
    """PoT as a tool: solves a problem by search and learning, and answers with the program and what it passed.

    Args:
        graph: a graph of `create_pot_agent`; None: one with its defaults, built at the first call.
        name: the tool's name, as the model sees it.
    """
    built: list[Runnable[Any, Any]] = [] if graph is None else [graph]
    lock = Lock()

    def graph_of() -> Runnable[Any, Any]:
        with lock:
            if not built:
                from pot_agent.graph import create_pot_agent

                built.append(create_pot_agent())
            return built[0]

    def solve_problem(problem: str, tests: list[Any] | None = None, entry_point: str | None = None) -> str:
        try:
            found = graph_of().invoke({"problem": problem, "tests": tests, "entry_point": entry_point})
        except PotError as error:
            raise ToolException(str(error)) from error
        return _answer(found["solution"])

    async def asolve_problem(problem: str, tests: list[Any] | None = None, entry_point: str | None = None) -> str:
        try:
            found = await graph_of().ainvoke({"problem": problem, "tests": tests, "entry_point": entry_point})
        except PotError as error:
            raise ToolException(str(error)) from error
        return _answer(found["solution"])

    return StructuredTool.from_function(
        solve_problem,
        coroutine=asolve_problem,
        name=name,
        description="Solve a programming problem: search for a program that passes the given tests, learning from "
        "each failure, and return the best program found with its score.",
        args_schema=SolveInput,
        handle_tool_error=True,
    )


class _Lazy:
    """The sandbox of a tool, the process's own unless one was given."""

    def __init__(self, given: Sandbox | None) -> None:
        self._given = given

    @property
    def sandbox(self) -> Sandbox:
        if self._given is None:
            from pot_agent.sandbox.shared import default_sandbox

            self._given = default_sandbox()
        return self._given


def _described(result: RunResult) -> str:
    found = {
        "status": "ok" if result.verdict == "passed" else result.verdict,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
    }
    return json.dumps(found, ensure_ascii=False)


def _tested(file: SourceFile, judgement: Judgement) -> str:
    failures = {
        name: {"verdict": result.verdict, "error": result.error, "got": result.got, "expected": result.expected}
        for name, result in zip(file.tests, judgement.results, strict=False)
        if result.verdict != "passed"
    }
    found = {
        "verdict": judgement.verdict,
        "passed": judgement.passed,
        "total": judgement.total,
        "failures": failures,
        "not_run": file.skipped,
    }
    return json.dumps(found, ensure_ascii=False)


def _answer(solution: dict[str, Any]) -> str:
    names = ("solved", "tests_passed", "tests_total", "stop_reason", "program", "feedback", "warnings")
    return json.dumps({name: solution[name] for name in names}, ensure_ascii=False)
