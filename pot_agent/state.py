"""The graph's state: plain JSON types only, small enough to be written at every step.

Token ids and log-probabilities of each token stay in the policy's journal; here a sample is its id. Each program is
kept once, in `programs`, and named by its index. The flat input keys live for one step only, so that the tests of a
problem cannot leak into the next problem of the same thread; `task` holds what was read from them.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from langgraph.channels import EphemeralValue
from langgraph.managed import RemainingSteps
from pydantic import Field
from typing_extensions import TypedDict

from pot_agent.changes import growing
from pot_agent.errors import StateError
from pot_agent.tree import Node

STATE_VERSION = 2
"""Raised whenever a checkpoint of an older layout could not go on."""


class Solution(TypedDict):
    """What a run found; `program` is the best that was executed, the earliest of equals."""

    program: str
    score: float | None
    """Share of the visible tests that it passes; None without tests."""
    solved: bool | None
    """Whether it passes every test that counts; None where there is no evidence (no tests, or generated ones only)."""
    evidence: str
    """Where the tests came from: given, examples, generated, none."""
    tests_passed: int
    tests_total: int
    stop_reason: str
    """solved, iterations, exhausted, max_seconds, recursion_limit, cancelled, no_tests."""
    iterations: int
    updates: int
    """Adapter updates that moved weights."""
    adapter_version: int
    seconds: float
    tokens: int
    """Completion tokens sampled, those of commits and of generated tests included."""
    verdict: str
    feedback: str
    """What the program got wrong, as the model was told it."""
    tier: str
    """Isolation tier that the programs ran under."""
    model: str
    warnings: list[str]


class Program(TypedDict):
    """A program's text and what running it showed; `score` is None before it ran, or where the sandbox failed."""

    text: str
    score: float | None
    verdict: str
    passed: int
    total: int
    feedback: str
    failure: str
    generated: list[bool | None]
    """Whether it passes each of the generated tests; empty before they ran. Nothing but training looks at it."""


class Candidate(TypedDict):
    """A completion on its way to the sandbox."""

    sample: str
    program: int
    logprob: float | None
    tokens: int
    finish_reason: str


def _field(description: str, *examples: Any) -> Any:
    return Field(description=description, examples=list(examples))


class PotInput(TypedDict, total=False):
    """What to solve. Only `problem` is needed."""

    problem: Annotated[
        str,
        EphemeralValue,
        _field("The statement of what is to be solved.", "Write a function add(a, b).\n\n>>> add(1, 2)\n3"),
    ]
    tests: Annotated[
        list[Any] | None,
        EphemeralValue,
        _field("Visible tests: assertions, or stdin and call objects.", ["assert add(1, 2) == 3"]),
    ]
    entry_point: Annotated[str | None, EphemeralValue, _field("Name of the function to write.", "add")]
    starter_code: Annotated[str | None, EphemeralValue, _field("Code that the program starts from.")]
    setup: Annotated[str | None, EphemeralValue, _field("Code that runs before the program.", "import math")]
    limits: Annotated[
        dict[str, Any] | None, EphemeralValue, _field("What one test may use.", {"cpu_seconds": 2, "memory_mb": 512})
    ]


class PotOutput(TypedDict, total=False):
    """What comes back: last values only, so a parent's reducers have nothing to double."""

    solution: Solution


class PotContext(TypedDict, total=False):
    """Knobs of one run, read when it starts; a knob that is absent leaves the configuration as it is."""

    iterations: int
    width: int
    max_new_tokens: int
    temperature: float
    max_seconds: float
    learn: bool
    profile: str
    seed: int
    pool: int
    generated_tests: int
    snapshots: bool
    stream_text: bool


class PotState(PotInput, PotOutput, total=False):
    """Everything between two steps."""

    state_version: int
    task: dict[str, Any]
    """The problem as read: `Problem.to_dict()`."""
    knobs: dict[str, Any]
    """The context's knobs, kept so that a resumed run goes on with them."""
    budget: str
    session: str
    version: int
    iteration: int
    """The iteration in progress, from 1; 0 before the first."""
    tree: Annotated[list[Node], growing()]
    programs: Annotated[list[Program], growing()]
    root: int
    leaf: int
    """The node being expanded."""
    draws: int
    """How many times in a row thoughts were drawn at `leaf`: more than once where groups are pooled."""
    thoughts: list[Candidate]
    rewards: dict[str, float]
    """Training reward by sample id: the group that `internalize` trains on, earlier draws at `leaf` included."""
    generated: list[dict[str, Any]] | None
    """The generated tests that are kept, as `test_to_dict` gives them; None before the model was asked."""
    receipt: dict[str, Any] | None
    updates: int
    tokens: int
    seconds: float
    tier: str
    stop_reason: str | None
    warnings: list[str]
    remaining_steps: RemainingSteps


GROWING_KEYS = ("tree", "programs")
"""Fields that are written as changes."""
INPUT_KEYS = tuple(PotInput.__annotations__)
KNOBS = tuple(PotContext.__annotations__)


def check_version(state: Mapping[str, Any]) -> None:
    """Raise `StateError` for a checkpoint that this version cannot go on from."""
    found = state.get("state_version")
    if found != STATE_VERSION:
        raise StateError(
            f"this checkpoint has state version {found!r}, and this version of pot_agent goes on from "
            f"{STATE_VERSION} only; start again with invoke({{'problem': ...}})",
            value=found,
        )


def read_knobs(context: Any) -> dict[str, Any]:
    """The knobs in a context: a mapping or any object with such attributes; whatever else it holds is not ours."""
    if context is None:
        return {}
    given = context if isinstance(context, Mapping) else {name: getattr(context, name, None) for name in KNOBS}
    return {name: given[name] for name in KNOBS if isinstance(given.get(name), (bool, int, float, str))}
