"""A chat model that calls one tool and then says what came back: it stands for a model that calls tools.

The embedded model calls none, so that the examples with agents would need a hosted one; with this they run anywhere.
"""

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class CallsOneTool(BaseChatModel):
    """Calls `tool` with `args`; then answers with its result, or with one field of it."""

    tool: str
    args: dict[str, Any]
    field: str | None = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> BaseChatModel:
        """An agent hands its tools to its model; this one knows already which it calls."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            content = str(last.content)
            reply = AIMessage(content if self.field is None else json.loads(content)[self.field])
        else:
            reply = AIMessage("", tool_calls=[{"name": self.tool, "args": self.args, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])
