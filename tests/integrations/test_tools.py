"""PoT and the sandbox as LangChain tools."""

import asyncio
import json
from typing import Any

from pot_agent import Limits, PotConfig, create_pot_agent
from pot_agent.integrations import create_run_code_tool, create_solve_tool
from tests.fakes import ScriptedPolicy, block

GOOD = block("def add(a, b):\n    return a + b")
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]


def test_run_code_answers_with_output_and_status(sandbox: Any) -> None:
    tool = create_run_code_tool(sandbox)
    found = json.loads(tool.invoke({"code": "print(int(input()) * 2)", "stdin": "21\n"}))
    assert (found["status"], found["stdout"], found["exit_code"]) == ("ok", "42\n", 0)


def test_run_code_never_raises_for_what_a_program_does(sandbox: Any) -> None:
    tool = create_run_code_tool(sandbox, limits=Limits(cpu_seconds=0.5))
    assert json.loads(tool.invoke({"code": "while True: pass"}))["status"] == "time_limit"
    assert "ZeroDivisionError" in json.loads(tool.invoke({"code": "1 / 0"}))["stderr"]
    assert json.loads(tool.invoke({"code": "def ("}))["status"] == "compile_error"


def test_run_code_tells_the_agent_of_input_that_is_no_text(sandbox: Any) -> None:
    assert "surrogate" in create_run_code_tool(sandbox).invoke({"code": "print(1)", "stdin": "\ud800"})


def test_solve_problem_answers_with_the_program(sandbox: Any) -> None:
    graph = create_pot_agent(ScriptedPolicy([GOOD]), sandbox, config=PotConfig.quick())
    tool = create_solve_tool(graph)
    found = json.loads(tool.invoke({"problem": "Write add.", "tests": TESTS}))
    assert found["solved"] is True
    assert "a + b" in found["program"]
    awaited = json.loads(asyncio.run(tool.ainvoke({"problem": "Write add.", "tests": TESTS})))
    assert awaited["solved"] is True


def test_solve_problem_tells_the_agent_what_was_wrong_with_its_input(sandbox: Any) -> None:
    tool = create_solve_tool(create_pot_agent(ScriptedPolicy([GOOD]), sandbox, config=PotConfig.quick()))
    assert "not Python" in tool.invoke({"problem": "Write add.", "tests": ["assert add("]})
    assert "empty" in asyncio.run(tool.ainvoke({"problem": " "}))
