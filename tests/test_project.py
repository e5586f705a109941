"""The project around the package: what langgraph.json names loads the way the server loads it."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph

ROOT = Path(__file__).parent.parent


def load(path: str, variable: str) -> Any:
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"loaded_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, variable)


GRAPHS = json.loads((ROOT / "langgraph.json").read_text())["graphs"]


@pytest.mark.parametrize("name", GRAPHS)
def test_each_graph_of_langgraph_json_loads_and_gives_its_schemas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    given = GRAPHS[name]
    path, variable = (given["path"] if isinstance(given, dict) else given).split(":")
    graph = load(path, variable)
    assert isinstance(graph, CompiledStateGraph)
    assert graph.checkpointer is None
    first, found = {"parallel": ("problems", "solutions"), "coding_agent": ("file", "report")}.get(
        name, ("problem", "solution")
    )
    asked = graph.get_input_jsonschema()["properties"][first]
    assert asked["description"]
    assert asked["examples"]
    assert found in graph.get_output_jsonschema()["properties"]
    assert "iterations" in (graph.get_context_jsonschema() or {})["properties"]
    assert graph.get_graph(xray=True).draw_mermaid()


def test_loading_the_graphs_and_tools_loads_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    code = "import sys, graphs.pot, tools.run_code, tools.solve_problem; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_tools_have_names_descriptions_and_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for name, argument in (("run_code", "code"), ("run_tests", "source"), ("solve_problem", "problem")):
        tool = load(f"tools/{name}.py", name)
        assert isinstance(tool, BaseTool)
        assert tool.name == name
        assert tool.description
        assert argument in tool.args
        assert tool.args[argument]["description"]


def test_the_configured_run_code_tool_runs_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    found = json.loads(load("tools/run_code.py", "run_code").invoke({"code": "print(6 * 7)"}))
    assert found["stdout"] == "42\n"


def test_the_drawing_in_the_readme_is_current() -> None:
    from scripts.draw_graph import README, drawing

    assert drawing() in README.read_text(), "run `python -m scripts.draw_graph`"
