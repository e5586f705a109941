"""PoT as a sub-agent of a deep agent (`pip install deepagents`), which hands on messages and drops every other key.

As a script the deep agent's own model is played from a script of two turns (delegate, then answer), since the embedded
model calls no tools; PoT and the sandbox are real. Give `deep_agent` any model of yours.
"""

from collections.abc import Sequence
from typing import Any

from deepagents import CompiledSubAgent, create_deep_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from graphs.pot import graph as pot
from pot_agent.integrations import create_messages_agent

TASK = """Write a function is_even(n) that tells whether the integer n is even.

assert is_even(4) == True
assert is_even(7) == False
assert is_even(0) == True
"""


class Delegates(BaseChatModel):
    """Stands for a model that calls tools: it gives `task` to the sub-agent, then says what came back."""

    task: str

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
            reply = AIMessage(str(last.content))
        else:
            args = {"description": self.task, "subagent_type": "programmer"}
            reply = AIMessage("", tool_calls=[{"name": "task", "args": args, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])


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
    print(deep_agent(Delegates(task=TASK)).invoke(conversation)["messages"][-1].content)
