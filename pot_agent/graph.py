"""The wiring: `create_pot_agent` gives a compiled LangGraph graph, and nothing heavy happens before its first run."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from pot_agent.approval import ApprovingNodes
from pot_agent.config import PotConfig
from pot_agent.handles import Handles
from pot_agent.node import as_node, as_router
from pot_agent.nodes import PotNodes
from pot_agent.policy.base import Policy
from pot_agent.rewards import Reward
from pot_agent.sandbox.base import Sandbox
from pot_agent.state import PotContext, PotInput, PotOutput, PotState
from pot_agent.tracing import TRIMMED

RECURSION_LIMIT = 10_000
"""Super-steps allowed when the caller sets no limit; an iteration takes four."""

PotGraph = CompiledStateGraph[PotState, PotContext, PotInput, PotOutput]


def create_pot_agent(
    policy: Policy | BaseChatModel | str | None = None,
    sandbox: Sandbox | None = None,
    *,
    model: str = "embedded",
    config: PotConfig | None = None,
    reward: Reward | None = None,
    checkpointer: Checkpointer = None,
    approve_commits: bool = False,
    name: str = "pot",
) -> PotGraph:
    """A graph that solves `{"problem": ..., "tests": [...]}` and learns while it does.

    Args:
        policy: a policy, the URL of `pot serve`, or a LangChain chat model (search only); None: `model` in process,
            loaded at the first run and shared by all graphs of the process.
        sandbox: where programs run; None: the local sandbox, which refuses where the kernel cannot isolate.
        model: hub id, folder, GGUF file or `embedded`; ignored when a policy is given.
        config: budget and loss; None: `PotConfig.quick()` on a CPU, `PotConfig.paper()` elsewhere.
        reward: what a thought is worth; None: the share of visible tests that it passes.
        checkpointer: LangGraph's, for runs that can be resumed; as a sub-graph, leave it None.
        approve_commits: ask a person before each commit, by an `interrupt` (`pot_agent/approval.py` says what is asked
            and answered); needs a checkpointer, the graph's own or its parent's.
        name: the graph's name.

    Raises `CannotLearnError` when `config.learn` is on and the policy has no weights to train, `ConfigError` for a
    policy that is not one.
    """
    handles = Handles(policy, sandbox, model=model, config=config, reward=reward)
    nodes: PotNodes = ApprovingNodes(handles) if approve_commits else PotNodes(handles)
    builder: StateGraph[PotState, PotContext, PotInput, PotOutput] = StateGraph(
        PotState, context_schema=PotContext, input_schema=PotInput, output_schema=PotOutput
    )
    for step in nodes.steps:
        body: Any = as_node(step, getattr(nodes, step), abandon=nodes.abandon)
        builder.add_node(step, body, input_schema=PotState, trace_policy=TRIMMED)
    builder.add_edge(START, "start")
    builder.add_edge("start", "propose")
    builder.add_conditional_edges("propose", as_router(nodes.after_propose), ["execute", "finish"])
    builder.add_conditional_edges("execute", as_router(nodes.after_execute), ["internalize", "finish"])
    if isinstance(nodes, ApprovingNodes):
        builder.add_edge("internalize", "draft")
        builder.add_conditional_edges("draft", as_router(nodes.after_draft), ["approve", "finish"])
        builder.add_conditional_edges("approve", as_router(nodes.after_approve), ["commit", "propose", "finish"])
    else:
        builder.add_edge("internalize", "commit")
    builder.add_conditional_edges("commit", as_router(nodes.after_commit), ["propose", "finish"])
    builder.add_edge("finish", END)
    compiled = builder.compile(checkpointer=checkpointer, name=name)
    return compiled.with_config(recursion_limit=RECURSION_LIMIT)
