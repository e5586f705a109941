"""PoT inside other people's agents: as tools, as an agent that speaks messages, and as a chat model."""

from pot_agent.integrations.chat import ChatPoT
from pot_agent.integrations.messages import create_messages_agent
from pot_agent.integrations.tools import create_run_code_tool, create_run_tests_tool, create_solve_tool

__all__ = ["ChatPoT", "create_messages_agent", "create_run_code_tool", "create_run_tests_tool", "create_solve_tool"]
