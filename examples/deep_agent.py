"""PoT as a sub-agent of a deep agent (`pip install deepagents`), which hands on messages and drops every other key.

As a script the deep agent's own model is played from a script of two turns (delegate, then answer), since the embedded
model calls no tools; PoT and the sandbox are real. Give `deep_agent` any model of yours.
"""

from typing import Any

from deepagents import CompiledSubAgent, create_deep_agent

from examples._scripted_model import CallsOneTool
from graphs.pot import graph as pot
from pot_agent.integrations import create_messages_agent

TASK = """Write a function is_even(n) that tells whether the integer n is even.

assert is_even(4) == True
assert is_even(7) == False
assert is_even(0) == True
"""
ASKED = {"description": TASK, "subagent_type": "programmer"}
"""What the deep agent asks of its sub-agent."""


def deep_agent(model: Any, solver: Any = pot) -> Any:
    """A deep agent that delegates programming problems to PoT."""
    programmer = CompiledSubAgent(
        name="programmer",
        description="Writes one Python function and runs it on tests. Give it the whole problem, with assertions.",
        runnable=create_messages_agent(solver, name="programmer"),
    )
    return create_deep_agent(model=model, subagents=[programmer])


if __name__ == "__main__":
    conversation = {"messages": [{"role": "user", "content": "I need is_even(n)."}]}
    print(deep_agent(CallsOneTool(tool="task", args=ASKED)).invoke(conversation)["messages"][-1].content)
