"""`solve_problem`: the graph of `graphs/pot.py` as a tool."""

from graphs.pot import graph
from pot_agent.integrations import create_solve_tool

solve_problem = create_solve_tool(graph)
