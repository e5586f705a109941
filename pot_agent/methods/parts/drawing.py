"""Methods without a tree: how programs are drawn from the problem's own prompt, and the graph that draws them.

Building the graph loads LangGraph; describing it does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pot_agent.config import PotConfig
from pot_agent.policy.base import Policy
from pot_agent.prompts import BuiltPrompt
from pot_agent.sandbox.base import Sandbox

if TYPE_CHECKING:
    from pot_agent.graph import PotGraph
    from pot_agent.run import Run


def plain_prompt(run: "Run") -> BuiltPrompt:
    """The problem alone, as at the root of a search."""
    return run.prompt(0)


def first_of(run: "Run", equals: Mapping[int, list[str]]) -> int:
    """The program that was drawn first."""
    return min(equals)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What differs between methods that draw."""

    greedy: bool = False
    """One answer at temperature 0; else up to `iterations` draws of `width` programs, until one passes."""
    prompt: Callable[["Run"], BuiltPrompt] = plain_prompt
    choose: Callable[["Run", Mapping[int, list[str]]], int] = first_of
    """Which of the programs that pass equally many visible tests is the answer. It is given, by the index of each in
    the state's programs, the samples that wrote it."""


def greedily(config: PotConfig, **changes: Any) -> PotConfig:
    """The configuration of one greedy answer."""
    return config.change(iterations=1, width=1, learn=False, **changes)


def in_batches(config: PotConfig) -> PotConfig:
    """The configuration that draws as many programs as `config` allows a search, commits included.

    A draw has a program more than an iteration of the search has thoughts, the commit's share; its first `width` are
    drawn from the same prompt with the same seed.
    """
    return config.change(width=config.search.width + 1, learn=False)


def drawing_graph(policy: Policy, sandbox: Sandbox, config: PotConfig, drawing: Drawing, *, name: str) -> "PotGraph":
    """`start -> propose -> execute -> (propose | finish)`."""
    from langgraph.graph import END, START, StateGraph

    from pot_agent.graph import RECURSION_LIMIT
    from pot_agent.handles import Handles
    from pot_agent.methods.parts.nodes import DrawingNodes
    from pot_agent.node import as_node
    from pot_agent.state import PotContext, PotInput, PotOutput, PotState

    nodes = DrawingNodes(Handles(policy, sandbox, model="embedded", config=config, reward=None), drawing)
    builder: StateGraph[PotState, PotContext, PotInput, PotOutput] = StateGraph(
        PotState, context_schema=PotContext, input_schema=PotInput, output_schema=PotOutput
    )
    for step in nodes.steps:
        body: Any = as_node(step, getattr(nodes, step), abandon=nodes.abandon)
        builder.add_node(step, body, input_schema=PotState)
    builder.add_edge(START, "start")
    builder.add_edge("start", "propose")
    builder.add_conditional_edges("propose", nodes.after_propose, ["execute", "finish"])
    builder.add_conditional_edges("execute", nodes.after_drawing, ["propose", "finish"])
    builder.add_edge("finish", END)
    return builder.compile(name=name).with_config(recursion_limit=RECURSION_LIMIT)
