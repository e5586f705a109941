"""A person approves each commit: the graph stops, shows the program, and goes on with the answer.

As a script it asks at the terminal; where there is none, it approves everything.
"""

import sys
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from pot_agent import create_pot_agent

PROBLEM = {
    "problem": "Write a function centred(text, width) that centres text in width, the extra space on the right.",
    "tests": [
        "assert centred('ab', 4) == ' ab '",
        "assert centred('a', 4) == ' a  '",
        "assert centred('abc', 2) == 'abc'",
    ],
}


def solve(graph: Any, problem: dict[str, Any], ask: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Run to the end, asking at each commit."""
    config = {"configurable": {"thread_id": "1"}}
    found = graph.invoke(problem, config)
    while found.get("__interrupt__"):
        answer = ask(found["__interrupt__"][0].value)
        found = graph.invoke(Command(resume=answer), config)
    return dict(found["solution"])


def at_the_terminal(question: dict[str, Any]) -> str:
    """Show what is to be committed, and read the answer."""
    program = question["program"]
    print(
        f"\n{program['text']}\n# passes {program['passed']} of {program['total']}", question.get("error", ""), sep="\n"
    )
    return input(f"{question['question']} {'/'.join(question['answers'])} ") if sys.stdin.isatty() else "approve"


if __name__ == "__main__":
    agent = create_pot_agent(approve_commits=True, checkpointer=InMemorySaver())
    solution = solve(agent, PROBLEM, at_the_terminal)
    print(f"# {solution['stop_reason']}\n{solution['program']}")
