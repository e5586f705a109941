"""LangChain's own tests of a chat model, over ChatPoT."""

from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="LangChain's standard tests are a development dependency")

from langchain_tests.unit_tests import ChatModelUnitTests

from pot_agent.integrations import ChatPoT


class TestChatPoT(ChatModelUnitTests):
    """It answers with programs: no tools, no structured output."""

    @property
    def chat_model_class(self) -> type[ChatPoT]:
        """What is tested."""
        return ChatPoT

    @property
    def chat_model_params(self) -> dict[str, Any]:
        """Arguments of each model."""
        return {"model": "embedded", "iterations": 3}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        """What it reads from the environment: the token of a policy server."""
        return {"POT_TOKEN": "secret"}, self.chat_model_params, {"api_key": "secret"}

    @property
    def has_tool_calling(self) -> bool:
        """It calls no tools."""
        return False

    @property
    def has_structured_output(self) -> bool:
        """It answers with programs only."""
        return False
