"""PoT as an agent that speaks messages. The policy is scripted, the sandbox is real."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from pot_agent import PotConfig, create_pot_agent
from pot_agent.errors import SandboxError
from pot_agent.integrations import create_messages_agent
from tests.fakes import ScriptedPolicy, block

GOOD = block("def add(a, b):\n    return a + b")
ASKED = "Write add(a, b).\n\nassert add(1, 2) == 3\nassert add(2, 2) == 4\n"


def agent(sandbox: Any, policy: Any = None, **options: Any) -> Any:
    graph = create_pot_agent(policy or ScriptedPolicy([GOOD]), sandbox, config=PotConfig.quick(width=2, iterations=1))
    return create_messages_agent(graph, **options)


def test_the_last_human_message_is_the_problem_and_the_answer_is_the_program(sandbox: Any) -> None:
    for found in (
        agent(sandbox).invoke({"messages": [HumanMessage(ASKED)]}),
        asyncio.run(agent(sandbox).ainvoke({"messages": [HumanMessage(ASKED)]})),
    ):
        answer = found["messages"][-1]
        assert isinstance(answer, AIMessage)
        assert answer.name == "pot"
        assert "return a + b" in answer.text
        assert answer.response_metadata["solution"]["tests_passed"] == 2
        assert set(found) == {"messages"}


def test_tests_can_be_bound(sandbox: Any) -> None:
    found = agent(sandbox, tests=["assert add(0, 0) == 0"]).invoke({"messages": [("user", "Write add.")]})
    assert found["messages"][-1].response_metadata["solution"]["evidence"] == "given"


def test_other_keys_of_a_parent_are_left_alone(sandbox: Any) -> None:
    found = agent(sandbox).invoke({"messages": [("user", ASKED)], "todos": [], "files": {}})
    assert found["messages"][-1].response_metadata["solution"]["solved"] is True


def test_a_problem_that_cannot_be_read_is_answered_in_words(sandbox: Any) -> None:
    for given in ([("user", " ")], [("system", "Be brief.")]):
        found = agent(sandbox).invoke({"messages": given})
        assert "cannot be read" in found["messages"][-1].text
        assert found["messages"][-1].response_metadata == {"error": "problem"}


def test_any_other_error_is_raised(sandbox: Any) -> None:
    class Fails(ScriptedPolicy):
        def sample(self, *given: Any, **named: Any) -> Any:
            raise SandboxError("it broke")

    with pytest.raises(SandboxError, match="it broke"):
        agent(sandbox, Fails([GOOD])).invoke({"messages": [("user", ASKED)]})


def test_the_graph_inside_shows_in_a_drawing(sandbox: Any) -> None:
    assert "internalize" in agent(sandbox).get_graph(xray=True).draw_mermaid()
