"""The steps of a method that draws: start, propose, execute, finish. All programs are children of the problem."""

from collections.abc import Mapping
from typing import Any, Literal

from pot_agent.ending import STEPS_OF_THE_END
from pot_agent.handles import Handles
from pot_agent.methods.parts.drawing import Drawing
from pot_agent.node import Update
from pot_agent.nodes import PotNodes
from pot_agent.prompts import BuiltPrompt
from pot_agent.run import Run
from pot_agent.solution import best_program
from pot_agent.state import PotState, Program
from pot_agent.tree import ROOT


class DrawingNodes(PotNodes):
    """PoT's own steps without a tree to select from, without updates and without commits."""

    steps = ("start", "propose", "execute", "finish")
    steps_of_an_iteration = 2

    def __init__(self, handles: Handles, drawing: Drawing) -> None:
        super().__init__(handles)
        self._drawing = drawing

    @staticmethod
    def after_drawing(state: PotState) -> Literal["propose", "finish"]:
        """To the next draw, unless the run has ended."""
        return "finish" if state.get("stop_reason") else "propose"

    def _propose(self, run: Run) -> Update:
        search = run.search
        if run.state["remaining_steps"] < self.steps_of_an_iteration + STEPS_OF_THE_END:
            return self._finish(run, "recursion_limit")
        is_greedy = self._drawing.greedy or not run.problem.tests
        temperature = 0.0 if is_greedy else search.temperature
        return self._write(run, ROOT, n=1 if is_greedy else search.width, temperature=temperature)

    def _execute(self, run: Run) -> Update:
        update = super()._execute(run)
        if update.get("stop_reason"):
            return update
        if self._drawing.greedy or run.state["iteration"] >= run.search.iterations:
            return self._finish(run, "iterations", update)
        if run.state["remaining_steps"] <= self.steps_of_an_iteration + STEPS_OF_THE_END:
            return self._finish(run, "recursion_limit", update)
        return update

    def _prompt(self, run: Run, leaf: int) -> BuiltPrompt:
        return self._drawing.prompt(run)

    def _answer(self, run: Run, state: Mapping[str, Any]) -> Program:
        """One of the programs with the best score; the first where the run was stopped: there is no time to choose."""
        children = state["tree"][1:]
        most = max((node["reward"] for node in children), default=None)
        equals = {node["program"]: node["samples"] for node in children if node["reward"] == most}
        if len(equals) < 2 or run.stop.is_set():
            return best_program(state)
        chosen: Program = state["programs"][self._drawing.choose(run, equals)]
        return chosen
