"""One step's view of a run: its problem, its configuration, its clock, and the calls that a step is made of.

A `Run` is built from the state at each step and thrown away after it; the state is all that lasts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from pot_agent import tracing
from pot_agent import tree as thought_tree
from pot_agent.config import GrpoConfig, PotConfig
from pot_agent.errors import RestoreError, VersionError
from pot_agent.events import emit
from pot_agent.handles import Handles, limits_of, seed_for
from pot_agent.policy.base import Completion, Message, Receipt
from pot_agent.problem import Problem, Test, parse_tests
from pot_agent.prompts import Attempt, BuiltPrompt, build_messages, extract_program
from pot_agent.rewards import Evaluation
from pot_agent.rewards.agreement import marks_of, shares_of
from pot_agent.state import Candidate, PotState, Program
from pot_agent.stopping import StopSignal
from pot_agent.ticking import Phase, TextTicker, TokenTicker
from pot_agent.tree import Thought, Tree

Update = dict[str, Any]
Found = TypeVar("Found")


class Run:
    """What one step needs, and the verbs it is written in."""

    def __init__(self, handles: Handles, state: PotState, stop: Event) -> None:
        self.handles = handles
        self.state = state
        self.problem = Problem.parse(state["task"])
        self.config = handles.config(state["budget"], state["knobs"])
        self.search = self.config.search
        self._began = time.monotonic()
        left = None if self.config.max_seconds is None else self.config.max_seconds - state["seconds"]
        self.stop = StopSignal(parent=stop, seconds=left)
        self.so_far: Update = {}
        """What this step has found and would be lost if it were stopped now."""

    @property
    def seconds(self) -> float:
        """Seconds of the run so far, this step included."""
        return self.state["seconds"] + time.monotonic() - self._began

    def prompt(self, leaf: int) -> BuiltPrompt:
        """The problem and every thought from the root to `leaf` with its feedback, within the budget of tokens."""
        programs = self.state["programs"]
        path = [programs[self.state["tree"][node]["program"]] for node in thought_tree.path(self.state["tree"], leaf)]
        history = [Attempt(program=program["text"], feedback=program["feedback"]) for program in path]
        return build_prompt(self.handles, self.problem, history, self.config)

    def sample(
        self,
        messages: Sequence[Message],
        phase: Phase,
        *,
        iteration: int,
        n: int,
        temperature: float,
        version: int | None = None,
    ) -> list[Completion]:
        """Completions of `messages` from the newest version of this run's adapter, unless another is named."""
        version = self.state["version"] if version is None else version
        policy, max_tokens = self.handles.policy, self.search.max_new_tokens
        seed = seed_for(self.config.seed, iteration, phase)
        streams = self.config.stream_text and policy.capabilities.streams
        texts = TextTicker(iteration, phase) if streams else None
        tells: dict[str, Any] = {} if texts is None else {"on_text": texts}  # a policy that has none is not asked

        def draw() -> list[Completion]:
            return policy.sample(
                self.state["session"],
                version=version,
                messages=messages,
                n=n,
                temperature=temperature,
                max_tokens=max_tokens,
                seed=seed,
                end_at_block=self.search.end_at_block and phase != "tests",
                cancel=self.stop,
                on_tokens=TokenTicker(iteration, phase),
                **tells,
            )

        shown: dict[str, Any] = {"n": n, "temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        shown |= {"phase": phase, "iteration": iteration, "adapter_version": version}
        completions = tracing.sampling(draw, messages, model=policy.capabilities.model, **shown)
        if texts is not None:
            texts.flush()
        return completions

    def collect(
        self, completions: Sequence[Completion], phase: Phase, *, iteration: int
    ) -> tuple[list[Program], list[Candidate]]:
        """The run's programs with those of `completions` added, each text once; and the thoughts that name them."""
        programs = list(self.state["programs"])
        index_of = {program["text"]: index for index, program in enumerate(programs)}
        thoughts: list[Candidate] = []
        for order, completion in enumerate(completions):
            text = extract_program(completion.text, self.problem).program
            index = index_of.setdefault(text, len(programs))
            if index == len(programs):
                programs.append(_unrun(text))
            logprob = None if completion.logprob is None else float(completion.logprob)
            thoughts.append(
                Candidate(
                    sample=completion.sample_id,
                    program=index,
                    logprob=logprob,
                    tokens=completion.tokens,
                    finish_reason=completion.finish_reason,
                )
            )
            emit("thought", iteration=iteration, phase=phase, index=order, **_shown(thoughts[-1]), program=text)
        return programs, thoughts

    def evaluate(self, programs: list[Program], thoughts: Sequence[Candidate]) -> tuple[list[Program], str]:
        """`programs` with those of `thoughts` run, side by side and each once; and the tier that they ran under."""
        evaluated = list(programs)
        new = sorted({thought["program"] for thought in thoughts if not programs[thought["program"]]["verdict"]})
        evaluations = self._side_by_side(self._evaluation, [programs[index]["text"] for index in new])
        for index, evaluation in zip(new, evaluations, strict=True):
            evaluated[index] = _ran(programs[index]["text"], evaluation)
        return evaluated, evaluations[0].tier if evaluations else self.state["tier"]

    def draft(self) -> Update:
        """One thought, decoded greedily from the evolved policy below this iteration's leaf, and run."""
        self.take_adapter_back()
        iteration = self.state["iteration"]
        messages = self.prompt(self.state["leaf"]).messages
        completions = self.sample(messages, "commit", iteration=iteration, n=1, temperature=0.0)
        programs, thoughts = self.collect(completions, "commit", iteration=iteration)
        programs, tier = self.evaluate(programs, thoughts)
        self.announce(programs, thoughts, "commit")
        tokens = self.state["tokens"] + thoughts[0]["tokens"]
        return {"programs": programs, "thoughts": thoughts, "tier": tier, "tokens": tokens}

    def grade(self, programs: Sequence[Program], generated: Sequence[Mapping[str, Any]]) -> list[Program]:
        """`programs` with every one that was run graded on the generated tests too, side by side and each once."""
        if not generated:
            return list(programs)
        tests = parse_tests(generated)
        graded = [program.copy() for program in programs]
        new = [program for program in graded if program["score"] is not None and not program["generated"]]
        marks = self._side_by_side(lambda text: self._marks(text, tests), [program["text"] for program in new])
        for program, row in zip(new, marks, strict=True):
            program["generated"] = row
        return graded

    def announce(self, programs: Sequence[Program], thoughts: Sequence[Candidate], phase: Phase) -> None:
        """The verdict of each thought, as events; the share of generated tests apart from it."""
        shares = shares_of([program["generated"] for program in programs])
        before: list[Program] = self.state["programs"]
        for order, thought in enumerate(thoughts):
            index = thought["program"]
            shown = {name: programs[index][name] for name in ("verdict", "score", "passed", "total", "failure")}
            shown |= {"cached": index < len(before) and bool(before[index]["verdict"]), "generated": shares[index]}
            emit("verdict", iteration=self.state["iteration"], phase=phase, index=order, **shown)

    def _side_by_side(self, judge: Callable[[str], Found], texts: Sequence[str]) -> list[Found]:
        with ThreadPoolExecutor(max_workers=max(1, min(len(texts), self.handles.sandbox.workers))) as pool:
            return list(pool.map(judge, texts))

    def _marks(self, text: str, tests: Sequence[Test]) -> list[bool | None]:
        problem, limits = self.problem, limits_of(self.problem, self.config)
        judgement = self.handles.sandbox.judge(
            text, tests, entry_point=problem.entry_point, setup=problem.setup, limits=limits, cancel=self.stop
        )
        return marks_of(judgement)

    def _evaluation(self, text: str) -> Evaluation:
        return self.handles.reward.evaluate(
            self.problem,
            text,
            sandbox=self.handles.sandbox,
            limits=limits_of(self.problem, self.config),
            cancel=self.stop,
        )

    def learn(self, grpo: GrpoConfig, teachers: Mapping[str, Sequence[Message]] | None) -> Receipt:
        """One update on this iteration's group; one that a run before a crash has made is not made again."""

        def ask() -> Receipt:
            return self.handles.policy.internalize(
                self.state["session"],
                version=self.state["version"],
                rewards=self.state["rewards"],
                grpo=grpo,
                teachers=teachers,
                cancel=self.stop,
            )

        try:
            return ask()
        except VersionError:  # a checkpoint of the past: its update was of other samples
            self.take_adapter_back()
            return ask()

    def take_adapter_back(self) -> None:
        """Let the adapter be at the version that the state names: a run that goes on from its past is behind it.

        Raises `VersionError` or `RestoreError` saying what is missing and how to start again.
        """
        if not self.config.learn:
            return
        policy, session, version = self.handles.policy, self.state["session"], self.state["version"]
        if policy.restore(session).version == version:
            return
        try:
            policy.restore(session, version=version)
        except (VersionError, RestoreError) as error:
            raise type(error)(
                f"this checkpoint goes on from version {version} of its adapter, which is not to be had any more "
                f"({error}). Start again with invoke({{'problem': ...}}), and to go back to any iteration with a state "
                "folder (POT_STATE) and snapshots=True",
                value=version,
            ) from error

    def score(self, samples: Sequence[str]) -> list[float]:
        """Mean log-probabilities of samples under the newest version, at the sampling temperature."""
        return self.handles.policy.score(
            self.state["session"],
            version=self.state["version"],
            sample_ids=samples,
            temperature=self.search.temperature,
        )

    def at_sampling_temperature(self, thought: Candidate) -> Candidate:
        """A greedy thought with its log-probability at its siblings' temperature: one softmax, like with like."""
        if thought["logprob"] is None:
            return thought
        (logprob,) = self.score([thought["sample"]])
        scored = thought.copy()
        scored["logprob"] = logprob
        return scored

    def rescored(self, tree: Tree, parent: int) -> Tree:
        """The tree with the priors below `parent` taken from the newest version."""
        if not self.handles.policy.capabilities.logprobs:
            return tree
        means: dict[int, float] = {}
        for child in thought_tree.children(tree, parent):
            scores = self.score(tree[child]["samples"])
            means[child] = sum(scores) / len(scores)
        return thought_tree.with_priors(tree, parent, means)


def build_prompt(handles: Handles, problem: Problem, history: list[Attempt], config: PotConfig) -> BuiltPrompt:
    """Messages within `max_prompt_tokens`, or within what the model's context leaves beside the new tokens."""
    return build_messages(
        problem,
        history,
        max_tokens=prompt_room(handles, config),
        count=handles.policy.count_tokens,
        feedback_tokens=config.search.feedback_tokens,
    )


def prompt_room(handles: Handles, config: PotConfig) -> int:
    """Tokens that a prompt may have."""
    search = config.search
    room = handles.policy.capabilities.context_tokens - search.max_new_tokens
    return room if search.max_prompt_tokens is None else min(room, search.max_prompt_tokens)


def scored(programs: Sequence[Program], thoughts: Sequence[Candidate]) -> list[Thought]:
    """The thoughts that have a score, ready for the tree; those on which the sandbox failed are left out."""
    return [
        Thought(program=thought["program"], sample=thought["sample"], logprob=thought["logprob"], reward=score)
        for thought in thoughts
        if (score := programs[thought["program"]]["score"]) is not None
    ]


def _unrun(text: str) -> Program:
    return Program(text=text, score=None, verdict="", passed=0, total=0, feedback="", failure="", generated=[])


def _ran(text: str, evaluation: Evaluation) -> Program:
    return Program(
        text=text,
        score=None if evaluation.score is None else float(evaluation.score),
        verdict=evaluation.verdict,
        passed=evaluation.passed,
        total=evaluation.total,
        feedback=evaluation.feedback,
        failure=evaluation.failure,
        generated=[],
    )


def _shown(thought: Candidate) -> dict[str, object]:
    return {name: value for name, value in thought.items() if name not in ("sample", "program")}
