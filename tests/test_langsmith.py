"""What LangSmith's client sends of a run, byte by byte: nodes trimmed, sampling whole, and nothing that is hidden.

Each run is a process of its own, since LangSmith reads its environment once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.langsmith import langsmith

ROOT = Path(__file__).parents[1]
MARK = "SECRETWORD"
"""In the problem, in its tests and in every program."""
ITERATIONS = 4
PROGRAM = 4_000
RUN = f"""
import sys
from langchain_core.tracers.langchain import LangChainTracer, wait_for_all_tracers
from langsmith import Client
from pot_agent import PotConfig, create_pot_agent
from pot_agent.sandbox.local import LocalSandbox
from tests.fakes import ScriptedPolicy, block

script = [block(f"{MARK} = {{number}}\\n#" + "x" * {PROGRAM}) for number in range(40)]
problem = {{"problem": "Write {MARK}.", "tests": ["assert {MARK} == 100", "assert {MARK} >= 0"]}}


def small(values):
    return {{name: values[name] for name in ("iteration", "version", "updates", "tokens") if name in values}}


with LocalSandbox() as sandbox:
    config = PotConfig.quick(iterations={ITERATIONS}, width=3, learn=False)
    graph = create_pot_agent(ScriptedPolicy(script), sandbox, config=config)
    tracers = [LangChainTracer(client=Client(hide_inputs=small, hide_outputs=small))] if "small" in sys.argv else []
    graph.invoke(problem, {{"callbacks": tracers}})
wait_for_all_tracers()
for tracer in tracers:
    tracer.client.flush()
"""


def sent(*arguments: str, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """The runs that a whole run of the graph sends, and all of the bodies as text."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH_", "LANGCHAIN_"))}
    with langsmith() as server:
        env = {**own, "LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": "none", **environment}
        env["LANGSMITH_DISABLE_RUN_COMPRESSION"] = "true"
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments], cwd=ROOT, env=env, timeout=120, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return list(server.runs().values()), b"".join(server.bodies).decode()


def test_nodes_are_sent_trimmed_and_sampling_whole() -> None:
    runs, bodies = sent(LANGSMITH_TRACING="true")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_name.setdefault(run["name"], []).append(run)
    nodes = [
        run for name in ("start", "propose", "execute", "internalize", "commit", "finish") for run in by_name[name]
    ]
    assert len(nodes) == len(runs) - len(by_name["pot"]) - 2 * ITERATIONS  # neither a node twice nor its router
    for node in nodes:
        assert len(json.dumps(node["inputs"])) < 600, node["name"]
        assert len(json.dumps(node.get("outputs"))) < 6_000, node["name"]
    (last,) = by_name["finish"]
    assert last["inputs"]["iteration"] == ITERATIONS
    assert last["inputs"]["programs"] == 4 * ITERATIONS  # how many, not which
    proposed = [run for run in by_name["sample propose"] if run["run_type"] == "llm"]
    assert len(proposed) == ITERATIONS
    assert all("x" * PROGRAM in json.dumps(run["outputs"]) for run in proposed)
    # Whole states would be every program so far, in every one of some twenty steps.
    sampled = sum(len(json.dumps(run)) for run in runs if run["run_type"] == "llm")
    assert len(bodies) - sampled < 0.5 * sampled


def test_nothing_of_a_problem_or_a_program_is_sent_where_inputs_and_outputs_are_hidden() -> None:
    hidden = {"LANGSMITH_HIDE_INPUTS": "true", "LANGSMITH_HIDE_OUTPUTS": "true"}
    runs, bodies = sent(LANGSMITH_TRACING="true", **hidden)
    assert {"pot", "propose", "sample propose"} <= {run["name"] for run in runs}
    assert MARK not in bodies


def test_a_function_that_hides_leaves_the_numbers_it_names() -> None:
    runs, bodies = sent("small")
    assert MARK not in bodies
    committed = [run for run in runs if run["name"] == "commit"]
    assert [run["inputs"]["iteration"] for run in committed] == [1, 2, 3, 4]


def test_nothing_is_sent_unless_it_is_turned_on() -> None:
    runs, bodies = sent()
    assert (runs, bodies) == ([], "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" * 200, "a" * 200),
        ("a" * 201, "a" * 200 + "... (201 characters)"),
        ([{"text": "b" * 1000}], [{"text": "b" * 200 + "... (1,000 characters)"}]),
        (list(range(40)), [*range(32), "... (8 more)"]),
        ({"x": None, "y": True, "z": 1.5}, {"x": None, "y": True, "z": 1.5}),
    ],
)
def test_what_is_shown_of_a_value(value: Any, shown: Any) -> None:
    from pot_agent.tracing import shortened

    assert shortened(value) == shown
