"""What a run found, out of its state: the best executed thought, the earliest of equals."""

from collections.abc import Mapping
from typing import Any

from pot_agent import tree as thought_tree
from pot_agent.state import Program, Solution
from pot_agent.stopping import StopReason

_NO_EVIDENCE = ("none", "generated")
"""Kinds of evidence that never make a solution `solved`."""


def solution_of(
    state: Mapping[str, Any],
    reason: StopReason,
    program: Program,
    *,
    model: str,
    seconds: float,
    warnings: list[str],
) -> Solution:
    """The solution in `state`, for a run that ends for `reason` with `program` (`best_program`, mostly)."""
    evidence = state["task"]["evidence"]
    tested = bool(state["task"]["tests"])
    score = program["score"] if tested else None
    return Solution(
        program=program["text"],
        score=score,
        solved=None if evidence in _NO_EVIDENCE else score == 1.0,
        evidence=evidence,
        tests_passed=program["passed"],
        tests_total=len(state["task"]["tests"]),
        stop_reason=reason,
        iterations=state["iteration"],
        updates=state["updates"],
        adapter_version=state["version"],
        seconds=round(seconds, 3),
        tokens=state["tokens"],
        verdict=program["verdict"],
        feedback=program["feedback"],
        tier=state["tier"],
        model=model,
        warnings=warnings,
    )


def best_program(state: Mapping[str, Any]) -> Program:
    """The best executed program; else the first that was written; else an empty one, scored 0."""
    programs: list[Program] = state["programs"]
    index = thought_tree.best(state["tree"])
    if index is not None:
        return programs[int(state["tree"][index]["program"])]
    if programs:
        return programs[0]
    return Program(text="", score=0.0, verdict="", passed=0, total=0, feedback="", failure="", generated=[])
