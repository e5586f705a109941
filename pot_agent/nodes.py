"""The steps of PoT: start, propose, execute, internalize, commit (paper section 3, algorithm 1), and finish.

`PotNodes` captures the handles and holds nothing of a run: all that a run knows is in its state, so a node can be run
again after a crash. A step that is stopped (by its caller, by the clock) ends the run with the best thought so far.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Literal

from langgraph.errors import GraphDrained
from langgraph.runtime import get_runtime

from pot_agent import tree as thought_tree
from pot_agent.advice import missing_in, warnings_about
from pot_agent.changes import changes
from pot_agent.config import PotConfig
from pot_agent.durable import wait_until_saved
from pot_agent.ending import STEPS_OF_AN_ITERATION, STEPS_OF_THE_END, is_solved, reason_to_end
from pot_agent.errors import CancelledError, SandboxError, SessionNotFoundError
from pot_agent.events import emit
from pot_agent.group import draws_again, grade, teachers, training_rewards
from pot_agent.handles import Handles, check_can_learn
from pot_agent.node import Update
from pot_agent.problem import Problem
from pot_agent.prompts import BuiltPrompt
from pot_agent.run import Run, build_prompt, scored
from pot_agent.solution import best_program, solution_of
from pot_agent.state import (
    GROWING_KEYS,
    INPUT_KEYS,
    STATE_VERSION,
    Candidate,
    PotState,
    Program,
    check_version,
    read_knobs,
)
from pot_agent.stopping import StopReason, StopSignal
from pot_agent.tree import ROOT, Tree


class PotNodes:
    """The steps as methods; each takes the state and a stop signal and returns what changes."""

    steps: tuple[str, ...] = ("start", "propose", "execute", "internalize", "commit", "finish")
    steps_of_an_iteration = STEPS_OF_AN_ITERATION

    def __init__(self, handles: Handles) -> None:
        self.handles = handles

    def start(self, state: PotState, stop: Event) -> Update:
        """Read and check the problem, open a session at version 0, and reset every field of a reused thread."""
        began = time.monotonic()
        problem = Problem.parse({name: state.get(name) for name in INPUT_KEYS})
        knobs, policy, budget = read_knobs(get_runtime().context), self.handles.policy, self.handles.budget()
        config = self.handles.config(budget, knobs)
        check_can_learn(policy, config)
        build_prompt(self.handles, problem, [], config)  # a statement that does not fit is an error at the door
        learns = config.learn and bool(problem.tests)
        session = f"pot-{uuid.uuid4().hex}"
        opened = policy.open(session, lora=config.lora if learns else None, seed=config.seed)
        warnings = warnings_about(problem, config) + missing_in(policy.capabilities, config)
        self._announce(problem, config, session, warnings)
        return {
            "state_version": STATE_VERSION,
            "task": problem.to_dict(),
            "knobs": knobs,
            "budget": budget,
            "session": session,
            "version": opened.version,
            "iteration": 0,
            "tree": thought_tree.new_tree(),
            "programs": [],
            "root": ROOT,
            "leaf": ROOT,
            "draws": 0,
            "thoughts": [],
            "rewards": {},
            "generated": None,
            "receipt": None,
            "updates": 0,
            "tokens": 0,
            "seconds": time.monotonic() - began,
            "tier": "",
            "stop_reason": None,
            "warnings": warnings,
            "solution": None,
        }

    def propose(self, state: PotState, stop: Event) -> Update:
        """Select a leaf by PUCT and sample k thoughts there from the newest adapter; or draw at the last one again."""
        return self._step(state, stop, self._propose)

    def execute(self, state: PotState, stop: Event) -> Update:
        """Run each thought on the visible tests, back its reward up, and stop at a full pass."""
        return self._step(state, stop, self._execute)

    def internalize(self, state: PotState, stop: Event) -> Update:
        """One GRPO update of the adapter on the k thoughts of this expansion."""
        return self._step(state, stop, self._internalize)

    def commit(self, state: PotState, stop: Event) -> Update:
        """Decode one thought greedily from the evolved policy, run it, and let it join the tree."""
        return self._step(state, stop, self._commit)

    def finish(self, state: PotState, stop: Event) -> Update:
        """Close the adapter, in a step of its own: the checkpoint with the solution is written before that."""
        wait_until_saved(stop)
        config = self.handles.config(state["budget"], state["knobs"])
        if not config.snapshots:
            self.handles.policy.close(state["session"])
        return {}

    @staticmethod
    def after_propose(state: PotState) -> Literal["execute", "finish"]:
        """To the sandbox, unless the run has ended (no steps left, nothing to expand, stopped)."""
        return "finish" if state.get("stop_reason") else "execute"

    @staticmethod
    def after_execute(state: PotState) -> Literal["internalize", "finish"]:
        """To the update, unless the run has ended."""
        return "finish" if state.get("stop_reason") else "internalize"

    @staticmethod
    def after_commit(state: PotState) -> Literal["propose", "finish"]:
        """To the next iteration, unless the run has ended."""
        return "finish" if state.get("stop_reason") else "propose"

    def abandon(self, state: PotState) -> None:
        """Close the session of a run that failed and that nothing can resume."""
        session = state.get("session")
        if session:
            self.handles.policy.close(session)

    # -- what the steps do ----------------------------------------------------------------------------------------

    def _propose(self, run: Run) -> Update:
        state, search = run.state, run.search
        if not run.problem.tests:
            return self._write(run, ROOT, n=1, temperature=0.0)
        if state["remaining_steps"] < STEPS_OF_AN_ITERATION + STEPS_OF_THE_END:
            return self._finish(run, "recursion_limit")
        run.take_adapter_back()
        if draws_again(state, search):
            again = self._write(
                run, state["leaf"], n=search.width, temperature=search.temperature, draw=state["draws"] + 1
            )
            return {**again, "rewards": state["rewards"]}
        leaf = thought_tree.select(
            state["tree"], root=state["root"], c_puct=search.c_puct, max_depth=search.max_depth, backup=search.backup
        )
        if leaf is None:
            return self._finish(run, "exhausted")
        return self._write(run, leaf, n=search.width, temperature=search.temperature)

    def _write(self, run: Run, leaf: int, *, n: int, temperature: float, draw: int = 1) -> Update:
        state, iteration, prompt = run.state, run.state["iteration"] + 1, self._prompt(run, leaf)
        where = {"leaf": leaf, "depth": state["tree"][leaf]["depth"], "draw": draw}
        emit("selected", iteration=iteration, **where, prompt_tokens=prompt.tokens, dropped=prompt.dropped)
        completions = run.sample(prompt.messages, "propose", iteration=iteration, n=n, temperature=temperature)
        programs, thoughts = run.collect(completions, "propose", iteration=iteration)
        return {
            "iteration": iteration,
            "leaf": leaf,
            "draws": draw,
            "programs": programs,
            "thoughts": thoughts,
            "rewards": {},
            "receipt": None,
            "tokens": state["tokens"] + sum(thought["tokens"] for thought in thoughts),
        }

    def _execute(self, run: Run) -> Update:
        state, thoughts = run.state, run.state["thoughts"]
        if not run.problem.tests:
            return self._finish(run, "no_tests")
        programs, tier = run.evaluate(state["programs"], thoughts)
        known = scored(programs, thoughts)
        tree = thought_tree.expand(
            state["tree"], state["leaf"], known, iteration=state["iteration"], version=state["version"]
        )
        run.so_far = {"programs": programs, "tree": tree, "tier": tier}
        try:
            if known and not is_solved(tree):
                grade(run)
        finally:
            run.announce(run.so_far["programs"], thoughts, "propose")
        if not known:
            raise _sandbox_failed(programs, thoughts)
        if is_solved(tree):
            return self._finish(run, "solved", run.so_far)
        samples = [*state["rewards"], *(thought["sample"] for thought in known)]
        return {**run.so_far, "rewards": training_rewards(run, samples)}

    def _internalize(self, run: Run) -> Update:
        state, policy = run.state, self.handles.policy
        if not run.config.learn:
            emit("update", iteration=state["iteration"], version=state["version"], skipped="learning is off")
            return {"receipt": None}
        grpo = run.config.grpo_for(policy.capabilities.parameters)
        wait_until_saved(run.stop)
        receipt = run.learn(grpo, teachers(run) if grpo.distil else None).to_dict()
        if run.config.snapshots and receipt["skipped"] is None:
            policy.snapshot(state["session"])
        plain = {name: value for name, value in receipt.items() if not isinstance(value, dict)}
        emit("update", iteration=state["iteration"], **plain)
        updates = state["updates"] + (receipt["skipped"] is None)
        return {"receipt": receipt, "version": receipt["version"], "updates": updates}

    def _commit(self, run: Run) -> Update:
        state, search, iteration, leaf = run.state, run.search, run.state["iteration"], run.state["leaf"]
        drafted = self._drafted(run)
        programs, thoughts = drafted["programs"], drafted["thoughts"]
        known = scored(programs, [run.at_sampling_temperature(thoughts[0])])
        tree = thought_tree.expand(
            state["tree"], leaf, known, iteration=iteration, version=state["version"], committed=True
        )
        update = run.so_far = {name: drafted[name] for name in ("programs", "tier", "tokens")} | {"tree": tree}
        if search.prior == "rescore":
            update["tree"] = tree = run.rescored(tree, leaf)
        root = state["root"]
        if known:
            node = _child_with(tree, leaf, known[0]["sample"])
            emit("committed", iteration=iteration, node=node, score=known[0]["reward"], new=node >= len(state["tree"]))
            root = update["root"] = node if search.commit == "reroot" else root
        reason = reason_to_end(run, tree, root)
        return self._finish(run, reason, update) if reason else update

    def _drafted(self, run: Run) -> Update:
        return run.draft()

    # -- how a step begins and a run ends -------------------------------------------------------------------------

    def _step(self, state: PotState, stop: Event, body: Callable[[Run], Update]) -> Update:
        """Run a body under the run's clock; a stop ends the run with the best so far."""
        check_version(state)
        if state.get("stop_reason"):
            return {}
        run = Run(self.handles, state, stop)
        try:
            update = body(run)
        except CancelledError:
            if isinstance(stop, StopSignal) and stop.caller_is_gone:
                raise  # nobody waits for a solution
            if run.stop.reason == "drained":
                raise GraphDrained("sampling was stopped for it; the step is done again when the run goes on") from None
            update = self._finish(run, run.stop.reason or "cancelled", run.so_far)
        except SessionNotFoundError as error:
            raise SessionNotFoundError(
                f"this run's adapter is gone from its policy ({error}): the process that held it has ended, or its "
                "lease has. The run cannot go on; start again with invoke({'problem': ...})",
                value=state["session"],
            ) from error
        before: Mapping[str, Any] = state
        grown = {name: changes(before[name], update[name]) for name in GROWING_KEYS if name in update}
        return {**update, **grown, "seconds": run.seconds}

    def _finish(self, run: Run, reason: StopReason, update: Update | None = None) -> Update:
        """End the run: the best so far is the solution. The adapter goes in the next step."""
        state = {**run.state, **(update or {})}
        warnings = list(state["warnings"])
        if reason == "recursion_limit":
            warnings.append(
                "stopped by LangGraph's recursion limit with the best so far; raise it by config={'recursion_limit': "
                f"...}}: an iteration takes {self.steps_of_an_iteration} steps"
            )
            emit("warning", message=warnings[-1])
        program = self._answer(run, state)
        solution = solution_of(
            state,
            reason,
            program,
            model=self.handles.policy.capabilities.model,
            seconds=run.seconds,
            warnings=warnings,
        )
        emit("finished", **{name: value for name, value in solution.items() if name not in ("feedback", "warnings")})
        return {**(update or {}), "stop_reason": reason, "warnings": warnings, "solution": solution}

    def _prompt(self, run: Run, leaf: int) -> BuiltPrompt:
        return run.prompt(leaf)

    def _answer(self, run: Run, state: Mapping[str, Any]) -> Program:
        return best_program(state)

    def _announce(self, problem: Problem, config: PotConfig, session: str, warnings: list[str]) -> None:
        capabilities = self.handles.policy.capabilities
        emit(
            "started",
            session=session,
            model=capabilities.model,
            device=capabilities.device,
            tests=len(problem.tests),
            evidence=problem.evidence,
            iterations=config.search.iterations,
            width=config.search.width,
            learn=config.learn,
            max_seconds=config.max_seconds,
        )
        for warning in warnings:
            emit("warning", message=warning)


def _child_with(tree: Tree, parent: int, sample: str) -> int:
    return next(child for child in thought_tree.children(tree, parent) if sample in tree[child]["samples"])


def _sandbox_failed(programs: list[Program], thoughts: list[Candidate]) -> SandboxError:
    failures = [programs[thought["program"]]["failure"] for thought in thoughts]
    return SandboxError(
        f"the sandbox failed on all {len(thoughts)} programs of this iteration ({failures[0]}); nothing was scored. "
        "`pot doctor` checks the sandbox",
        value=failures,
    )
