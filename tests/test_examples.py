"""The examples: every problem file is read, and every script runs (the long ones in `make test-long`)."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from examples._scripted_model import CallsOneTool
from examples.embed import assistant
from examples.lcel import ASKED, ROOM, chain, chat_chain
from examples.other_keys import desk
from pot_agent import PotConfig, Problem, create_pot_agent
from pot_agent.integrations import ChatPoT, create_run_code_tool, create_solve_tool
from tests.fakes import ScriptedPolicy, block

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "examples" / "problems").glob("*.json"))


def test_there_are_ten_problems_or_more_and_two_of_them_are_stdin_programs() -> None:
    kinds = [{test["type"] for test in Problem.parse(json.loads(f.read_text())).to_dict()["tests"]} for f in FILES]
    assert len(FILES) >= 10
    assert sum(kind == {"stdin"} for kind in kinds) >= 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_problem_names_its_licence_and_source_and_can_be_read(file: Path) -> None:
    given = json.loads(file.read_text())
    assert given["licence"]
    assert given["source"]
    assert "hidden_tests" not in given
    problem = Problem.parse(given)
    assert problem.tests
    assert problem.evidence == "given"


def test_pot_embeds_as_a_node_of_the_example_parent(sandbox: Any) -> None:
    policy = ScriptedPolicy([block("def largest(numbers):\n    return max(numbers)")])
    solver = create_pot_agent(policy, sandbox, config=PotConfig.quick())
    found = assistant(solver).invoke({"request": "Find the largest number."})
    assert "passes 3 of 3 tests" in found["answer"]


EVEN = block("def is_even(n):\n    return n % 2 == 0")


def solver(sandbox: Any, *script: str, **changes: Any) -> Any:
    return create_pot_agent(ScriptedPolicy(script), sandbox, config=PotConfig.quick(**{"width": 2, **changes}))


def test_pot_embeds_in_a_parent_with_other_keys(sandbox: Any) -> None:
    asked: Any = {"title": "Write is_even.", "acceptance": ["assert is_even(4)", "assert not is_even(7)"]}
    graph = desk(solver(sandbox, EVEN))
    for found in (graph.invoke(asked), asyncio.run(graph.ainvoke(asked))):
        assert found["passed"] == "2 of 2"
        assert "n % 2" in found["patch"]
    streamed = list(graph.stream(asked, stream_mode="custom", subgraphs=True))
    assert streamed[-1][1]["event"] == "finished"


def test_pot_is_a_tool_of_a_langchain_agent(sandbox: Any) -> None:
    pytest.importorskip("langchain")
    from examples.agent_tool import PROBLEM, agent

    tools = [create_solve_tool(solver(sandbox, EVEN)), create_run_code_tool(sandbox)]
    given: Any = {"messages": [{"role": "user", "content": "I need is_even(n)."}]}
    graph = agent(CallsOneTool(tool="solve_problem", args=PROBLEM, field="program"), tools)
    for found in (graph.invoke(given), asyncio.run(graph.ainvoke(given))):
        assert "n % 2 == 0" in found["messages"][-1].text
        assert json.loads(found["messages"][-2].text)["solved"] is True


def test_pot_is_the_chat_model_of_a_langchain_agent(sandbox: Any) -> None:
    pytest.importorskip("langchain")
    from langchain.agents import create_agent

    graph = create_agent(ChatPoT(graph=solver(sandbox, EVEN)), tools=[])
    asked: Any = {"messages": [("user", "Write is_even.\n\nassert is_even(4)\nassert not is_even(7)")]}
    answer = graph.invoke(asked)["messages"][-1]
    assert answer.response_metadata["solution"]["tests_passed"] == 2


def test_pot_is_a_sub_agent_of_a_deep_agent(sandbox: Any) -> None:
    pytest.importorskip("deepagents")
    from examples.deep_agent import ASKED, deep_agent

    graph = deep_agent(CallsOneTool(tool="task", args=ASKED), solver(sandbox, EVEN))
    given: Any = {"messages": [{"role": "user", "content": "I need is_even(n)."}]}
    for found in (graph.invoke(given), asyncio.run(graph.ainvoke(given))):
        assert "n % 2 == 0" in found["messages"][-1].text
        assert "Passes 3 of 3" in found["messages"][-1].text


def test_pot_is_a_link_of_a_chain_and_the_chat_model_of_one(sandbox: Any) -> None:
    both = block("def is_even(n):\n    return n % 2 == 0\n\ndef largest(numbers):\n    return max(numbers)")
    programs = chain(solver(sandbox, both)).batch(ASKED, ROOM)
    assert all("n % 2" in program for program in programs)
    text = chat_chain(ChatPoT(graph=solver(sandbox, EVEN))).invoke({"task": "Write is_even.\n>>> is_even(4)\nTrue"})
    assert "Passes 1 of 1" in text


def test_chains_and_batches_end_at_their_own_limit_with_the_best_so_far_unless_they_are_given_room(
    sandbox: Any,
) -> None:
    wrong = [block(f"def is_even(n):\n    return {number}") for number in range(100, 180)]
    problem = {"problem": "Write is_even.", "tests": ["assert is_even(4) is True", "assert is_even(7) == 7"]}

    def runs() -> Any:
        return solver(sandbox, *wrong, iterations=8)

    for run, iterations, reason in (
        (lambda: runs().batch([problem, problem])[1], 5, "recursion_limit"),
        (lambda: asyncio.run(runs().abatch([problem]))[0], 5, "recursion_limit"),
        (lambda: (RunnableLambda(dict) | runs()).invoke(problem), 5, "recursion_limit"),
        (lambda: runs().batch([problem], ROOM)[0], 8, "iterations"),
        (lambda: (RunnableLambda(dict) | runs()).invoke(problem, ROOM), 8, "iterations"),
        (lambda: runs().invoke(problem), 8, "iterations"),
    ):
        solution = run()["solution"]
        assert (solution["iterations"], solution["stop_reason"]) == (iterations, reason)
        assert solution["program"]


def test_inside_a_tool_of_an_agent_and_a_node_of_a_parent_a_run_has_its_whole_budget(sandbox: Any) -> None:
    wrong = [block(f"def is_even(n):\n    return {number}") for number in range(100, 180)]
    asked: Any = {"title": "Write is_even.", "acceptance": ["assert is_even(4) is True", "assert is_even(7) == 7"]}
    found = desk(solver(sandbox, *wrong, iterations=8)).invoke(asked)
    assert found["passed"] == "0 of 2"
    tool = create_solve_tool(solver(sandbox, *wrong, iterations=8))
    link = RunnableLambda(lambda given: tool.invoke(given))
    answer = json.loads(link.invoke({"problem": asked["title"], "tests": asked["acceptance"]}))
    assert answer["stop_reason"] == "iterations"


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [
        "solve.py",
        "embed.py",
        "demo.py",
        "other_keys.py",
        "agent_tool.py",
        "deep_agent.py",
        "parallel.py",
        "lcel.py",
        "approve.py",
        "coding.py",
    ],
)
def test_each_script_runs(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{script}"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "POT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "def " in done.stdout


def test_every_script_is_run_and_named_in_the_documentation() -> None:
    scripts = {path.name for path in (ROOT / "examples").glob("[a-z]*.py")}
    (run,) = [mark for mark in test_each_script_runs.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert set(run.args[1]) == scripts
    documented = (ROOT / "docs" / "embedding.md").read_text()
    assert [script for script in scripts - {"solve.py", "demo.py"} if f"examples/{script}" not in documented] == []
