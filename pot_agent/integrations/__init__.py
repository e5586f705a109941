"""PoT inside other people's agents."""

from pot_agent.integrations.tools import create_run_code_tool, create_solve_tool

__all__ = ["create_run_code_tool", "create_solve_tool"]
