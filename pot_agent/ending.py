"""When a run ends: solved, out of iterations, nothing left to expand, or out of LangGraph's steps."""

from pot_agent import tree as thought_tree
from pot_agent.group import draws_again
from pot_agent.run import Run
from pot_agent.stopping import StopReason
from pot_agent.tree import Tree

STEPS_OF_AN_ITERATION = 4
"""Super-steps of the graph from one propose to the end of its commit."""
STEPS_OF_THE_END = 1
"""Super-steps after the last of these. LangGraph wants one more to spare."""


def is_solved(tree: Tree) -> bool:
    """Whether a thought in it passes every test."""
    index = thought_tree.best(tree)
    return index is not None and tree[index]["reward"] == 1.0


def reason_to_end(run: Run, tree: Tree, root: int) -> StopReason | None:
    """Why a run ends with this iteration, with that tree; None where it goes on."""
    if is_solved(tree):
        return "solved"
    if run.state["iteration"] >= run.search.iterations:
        return "iterations"
    is_over = thought_tree.select(tree, root=root, max_depth=run.search.max_depth) is None
    if is_over and not draws_again(run.state, run.search):
        return "exhausted"
    if run.state["remaining_steps"] <= STEPS_OF_AN_ITERATION + STEPS_OF_THE_END:
        return "recursion_limit"
    return None
