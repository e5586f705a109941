"""The graphs of langgraph.json. Policies are scripted where a model would be slow; the sandbox is real."""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph

from graphs.coding_agent import coding_agent
from graphs.parallel import parallel
from pot_agent import PotConfig, ProblemError, create_pot_agent
from pot_agent.integrations import create_run_tests_tool
from tests.fakes import ScriptedPolicy, block

ROOT = Path(__file__).parent.parent
GRAPHS = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
GOOD = block("def add(a, b):\n    return a + b")
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]


@pytest.mark.parametrize("name", GRAPHS)
def test_each_graph_is_short_described_and_holds_no_checkpointer(name: str) -> None:
    path, _, variable = GRAPHS[name]["path"].partition(":")
    graph = getattr(importlib.import_module(path.removeprefix("./").removesuffix(".py").replace("/", ".")), variable)
    assert isinstance(graph, CompiledStateGraph)
    assert graph.checkpointer is None
    assert graph.name == name
    assert len(GRAPHS[name]["description"]) > 40
    assert len((ROOT / path).read_text().splitlines()) <= 160
    assert graph.get_graph(xray=True).draw_mermaid()


def test_every_graph_of_the_folder_is_registered() -> None:
    assert {path.stem for path in (ROOT / "graphs").glob("[a-z]*.py")} == set(GRAPHS)


@pytest.mark.parametrize("chosen", [{}, {"POT_CHAT_MODEL": "nobody:knows-this"}])
def test_importing_the_graphs_and_the_tools_loads_no_model(chosen: dict[str, str]) -> None:
    names = [f"graphs.{name}" for name in GRAPHS] + [
        f"tools.{path.stem}" for path in (ROOT / "tools").glob("[a-z]*.py")
    ]
    code = f"import sys, {', '.join(names)}\nprint(*sys.modules)"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **chosen}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert not {"torch", "transformers", "langchain", "deepagents"} & set(done.stdout.split())


# -- parallel -----------------------------------------------------------------------------------------------------


def many(sandbox: Any) -> Any:
    policy = ScriptedPolicy([GOOD])
    return parallel(create_pot_agent(policy, sandbox, config=PotConfig.quick(width=2, iterations=1)))


def problems(*statements: str) -> dict[str, Any]:
    return {
        "problems": [
            {"problem": f"Write add. {said}", "tests": TESTS[: 1 + at % 2]} for at, said in enumerate(statements)
        ]
    }


def test_problems_are_solved_side_by_side_and_answered_in_their_order(sandbox: Any) -> None:
    for found in (many(sandbox).invoke(problems(*"abcde")), asyncio.run(many(sandbox).ainvoke(problems(*"abcde")))):
        assert [solution["tests_total"] for solution in found["solutions"]] == [1, 2, 1, 2, 1]
        assert all(solution["solved"] for solution in found["solutions"])
        assert set(found) == {"solutions"}


def test_a_problem_that_cannot_be_read_leaves_the_others_alone(sandbox: Any) -> None:
    given = problems("a", "b")
    given["problems"].insert(1, {"problem": "Write add.", "tests": ["assert add("]})
    solutions = many(sandbox).invoke(given)["solutions"]
    assert "not Python" in solutions[1]["error"]
    assert solutions[0]["solved"] is solutions[2]["solved"] is True


def test_no_problems_have_no_solutions_and_a_reused_thread_starts_clean(sandbox: Any) -> None:
    assert many(sandbox).invoke({"problems": []}) == {"solutions": []}
    graph: Any = many(sandbox)
    graph.checkpointer = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "1"}}
    assert len(graph.invoke(problems("a", "b", "c"), thread)["solutions"]) == 3
    graph.invoke(problems("a"), thread)
    assert list(graph.get_state(thread).values["answers"]) == [0]


def test_knobs_reach_the_solvers(sandbox: Any) -> None:
    policy = ScriptedPolicy([block("def add(a, b):\n    return 3")])
    graph = parallel(create_pot_agent(policy, sandbox, config=PotConfig.quick(width=2, iterations=4)))
    found = graph.invoke(problems("a", "b"), context={"iterations": 1, "learn": False})
    assert [solution["iterations"] for solution in found["solutions"]] == [1, 1]
    assert policy.of("internalize") == []


# -- the coding assistant -----------------------------------------------------------------------------------------

FILE = '''import math

SCALE = 2


def scaled(x):
    return SCALE * x


def area(side):
    """The area of a square whose side is scaled first."""
    raise NotImplementedError


def test_scaled():
    assert scaled(2) == 4


def test_area():
    assert area(1) == 4
    assert area(2) == 16
'''
WRONG = block("def area(side):\n    return side ** 2 * 2")
HALF = block("def area(side):\n    return 4")
RIGHT = block("def area(side):\n    return scaled(side) ** 2")


def assistant(sandbox: Any, *script: str) -> tuple[Any, ScriptedPolicy]:
    policy = ScriptedPolicy(script)
    solver = create_pot_agent(policy, sandbox, config=PotConfig.quick(width=2, iterations=1))
    return coding_agent(solver, create_run_tests_tool(sandbox)), policy


def test_it_writes_the_function_that_was_left_out_and_the_file_passes_its_own_tests(sandbox: Any) -> None:
    for run in (lambda graph: graph.invoke({"file": FILE}), lambda graph: asyncio.run(graph.ainvoke({"file": FILE}))):
        graph, policy = assistant(sandbox, WRONG, RIGHT)
        done = run(graph)
        assert (done["report"]["verdict"], done["report"]["passed"]) == ("passed", 2)
        assert "return scaled(side) ** 2" in done["file"]
        assert set(done) == {"file", "report"}
        assert policy.versions == {}


def test_it_repairs_in_a_further_round_and_is_told_what_failed(sandbox: Any) -> None:
    graph, policy = assistant(sandbox, HALF, HALF, HALF, RIGHT)
    done = graph.invoke({"file": FILE})
    assert done["report"]["verdict"] == "passed"
    prompts = [call["messages"][1]["content"] for call in policy.of("sample")]
    assert "This version fails its tests:" not in prompts[0]
    assert "This version fails its tests:" in prompts[-1]
    assert "return 4" in prompts[-1]


def test_it_gives_up_after_its_rounds_with_the_best_file_and_says_so(sandbox: Any) -> None:
    graph, policy = assistant(sandbox, HALF)
    done = graph.invoke({"file": FILE, "rounds": 2})
    assert (done["report"]["passed"], done["report"]["total"]) == (1, 2)
    assert "test_area" in done["report"]["failures"]
    assert len(policy.of("open")) == 2


def test_a_function_that_breaks_more_than_it_mends_is_not_kept(sandbox: Any) -> None:
    breaks = block("import sys\nsys.exit(3)\ndef area(side):\n    return 0\nSCALE = None")
    graph, _ = assistant(sandbox, breaks)
    done = graph.invoke({"file": FILE.replace("raise NotImplementedError", "return 4"), "rounds": 1})
    assert done["report"]["passed"] == 1
    assert "return 4" in done["file"]


def test_a_file_that_passes_already_is_left_as_it_is_and_costs_nothing(sandbox: Any) -> None:
    graph, policy = assistant(sandbox, WRONG)
    text = FILE.replace("raise NotImplementedError", "return scaled(side) ** 2")
    assert graph.invoke({"file": text})["file"] == text
    assert policy.calls == []


def test_a_function_that_is_missing_is_written_with_the_files_helpers_at_hand(sandbox: Any) -> None:
    head, _, rest = FILE.partition("def area")
    text = head + rest[rest.index("def test_scaled") :]
    assert "def area" not in text
    graph, policy = assistant(sandbox, RIGHT)
    done = graph.invoke({"file": text, "wish": "Scale the side first."})
    assert done["report"]["verdict"] == "passed"
    prompt = policy.of("sample")[0]["messages"][1]["content"]
    assert "def scaled" in prompt
    assert "Scale the side first." in prompt


@pytest.mark.parametrize("task", [{"file": "x = ("}, {"file": FILE, "rounds": -1}, {}])
def test_a_task_that_cannot_be_read_is_an_error(sandbox: Any, task: Any) -> None:
    with pytest.raises(ProblemError):
        assistant(sandbox, RIGHT)[0].invoke(task)


def test_a_reused_thread_starts_clean(sandbox: Any) -> None:
    graph, _ = assistant(sandbox, RIGHT)
    graph.checkpointer = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "1"}}
    assert graph.invoke({"file": FILE, "function": "area"}, thread)["report"]["verdict"] == "passed"
    other = "def test_a():\n    assert twice(2) == 4\n"
    done = graph.invoke({"file": other, "rounds": 1}, thread)
    assert (done["report"]["passed"], done["report"]["total"]) == (0, 1)
    assert done["file"] == other


def test_its_steps_and_those_of_pot_can_be_streamed(sandbox: Any) -> None:
    graph, _ = assistant(sandbox, WRONG, RIGHT)
    parts = list(graph.stream({"file": FILE}, stream_mode=["updates", "custom"], subgraphs=True))
    assert {"read", "test", "specify", "pot", "place"} <= {
        name for _, mode, part in parts if mode == "updates" for name in part
    }
    assert "verdict" in {part["event"] for _, mode, part in parts if mode == "custom"}
