"""A person approves each commit: the greedy thought is written and run first, shown, and joins the tree only then.

The graph stops by an `interrupt` whose value says what is to be committed; `Command(resume=answer)` goes on with one of

| answer | what happens |
|---|---|
| `approve` (or True) | the thought joins the tree, as it would without a person |
| `next` | it is left out, and the search goes on from the next best leaf |
| `end` (or False) | it is left out, and the run ends as `cancelled`, with the best so far |

Limits: the question comes after the update, so `next` and `end` keep the evolved adapter as it is; a program that is
left out was run in the sandbox all the same. Thoughts that solve the problem while they are proposed end the run
without a commit, so nobody is asked. While a person thinks, the adapter stays open in its policy until its lease ends.
An answer that is none of the three is asked for again.
"""

from threading import Event
from typing import Any, Literal

from langgraph.types import interrupt

from pot_agent.ending import reason_to_end
from pot_agent.node import Update
from pot_agent.nodes import PotNodes
from pot_agent.run import Run
from pot_agent.state import PotState

Answer = Literal["approve", "next", "end"]

ANSWERS: tuple[Answer, ...] = ("approve", "next", "end")
_OF_RECEIPT = ("version", "parent_version", "skipped", "loss", "kl", "grad_norm")


class ApprovingNodes(PotNodes):
    """The steps of PoT with two more between internalize and commit: draft, and approve."""

    steps = ("start", "propose", "execute", "internalize", "draft", "approve", "commit", "finish")

    def draft(self, state: PotState, stop: Event) -> Update:
        """Decode one thought greedily from the evolved policy and run it."""
        return self._step(state, stop, lambda run: run.draft())

    def approve(self, state: PotState, stop: Event) -> Update:
        """Ask a person what becomes of the draft."""
        return self._step(state, stop, self._approve)

    @staticmethod
    def after_draft(state: PotState) -> Literal["approve", "finish"]:
        """To the person, unless the run has ended."""
        return "finish" if state.get("stop_reason") else "approve"

    @staticmethod
    def after_approve(state: PotState) -> Literal["commit", "propose", "finish"]:
        """To the commit of a draft that is still there, else on with the search, unless the run has ended."""
        if state.get("stop_reason"):
            return "finish"
        return "commit" if state["thoughts"] else "propose"

    def _approve(self, run: Run) -> Update:
        answer = _asked(_question(run.state))
        if answer == "approve":
            return {}
        left_out: Update = {"thoughts": []}
        if answer == "end":
            return self._finish(run, "cancelled", left_out)
        reason = reason_to_end(run, run.state["tree"], run.state["root"])
        return self._finish(run, reason, left_out) if reason else left_out

    def _drafted(self, run: Run) -> Update:
        names = ("programs", "thoughts", "tier", "tokens")
        return {name: run.state[name] for name in names}  # type: ignore[literal-required]


def _asked(question: dict[str, Any]) -> Answer:
    """The answer of whoever resumes the run; asked again until it is one."""
    while True:
        given = interrupt(question)
        answer = {True: "approve", False: "end"}.get(given, given) if isinstance(given, bool) else given
        for known in ANSWERS:
            if answer == known:
                return known
        question = {**question, "error": f"the answer must be one of {', '.join(ANSWERS)}, got {str(given)[:100]!r}"}


def _question(state: PotState) -> dict[str, Any]:
    """What is to be committed, in plain values."""
    program = state["programs"][state["thoughts"][0]["program"]]
    receipt = state["receipt"] or {}
    shown = ("text", "score", "verdict", "passed", "total", "feedback")
    return {
        "question": "Commit this program?",
        "answers": list(ANSWERS),
        "iteration": state["iteration"],
        "program": {name: program[name] for name in shown},  # type: ignore[literal-required]
        "update": {name: receipt.get(name) for name in _OF_RECEIPT},
        "best_score": max((node["reward"] for node in state["tree"][1:]), default=None),
    }
