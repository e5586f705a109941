"""PoT as a tool of a LangChain agent (`pip install langchain`): the agent's model decides when to call it.

The agent needs a model that calls tools, which the embedded one does not. As a script it therefore plays the agent's
model from a script of two turns: call the tool, then answer with what came back; PoT and the sandbox are real. Give
`agent` any model of yours, such as `"openai:gpt-5-mini"`.
"""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import BaseTool

from examples._scripted_model import CallsOneTool
from tools.run_code import run_code
from tools.solve_problem import solve_problem

PROBLEM = {
    "problem": "Write a function is_even(n) that tells whether the integer n is even.",
    "tests": ["assert is_even(4) == True", "assert is_even(7) == False", "assert is_even(0) == True"],
}


def agent(model: Any, tools: Sequence[BaseTool] = (solve_problem, run_code)) -> Any:
    """A LangChain agent with PoT and the sandbox as its tools."""
    return create_agent(model, list(tools), system_prompt="Call solve_problem for any function you have to write.")


if __name__ == "__main__":
    conversation = {"messages": [{"role": "user", "content": "I need is_even(n)."}]}
    model = CallsOneTool(tool="solve_problem", args=PROBLEM, field="program")
    print(agent(model).invoke(conversation)["messages"][-1].content)
