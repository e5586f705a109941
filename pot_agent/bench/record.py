"""What is kept of one method on one problem: a JSON object a line, appended when the problem is done.

Plain JSON types throughout. `pot_agent.bench.runner` writes records and `pot_agent.bench.report` reads nothing else.
A run is a folder: `manifest.json` (a `Manifest`) and `results.jsonl` (a `Record` a line).
"""

from typing import Any

from typing_extensions import TypedDict

RECORD_VERSION = 1


class Ledger(TypedDict):
    """What one method spent on one problem; everything is counted at the doors (policy, sandbox), so no method can
    forget to."""

    calls: int
    """Calls of `policy.sample`."""
    completions: int
    prompt_tokens: int
    """Prompt tokens, each call's prompt counted once."""
    completion_tokens: int
    """All sampled tokens, those of commits included."""
    commit_tokens: int
    """Those sampled greedily to commit, a part of `completion_tokens`."""
    programs: int
    """Programs run on visible tests (a program that was run before and not run again is not counted)."""
    tests: int
    """Visible tests run, summed over programs."""
    update_calls: int
    """Calls of `policy.internalize`, skipped ones included."""
    updates: int
    """Updates that moved weights."""
    update_steps: int
    """Optimizer steps."""
    trained_tokens: int
    """Completion tokens trained on, summed over epochs."""
    seconds: dict[str, float]
    """Wall seconds: sampling, scoring, executing, internalizing, other, total; grading of hidden tests is not in it."""
    flops: dict[str, float]
    """Estimates: sampling, training, total; the formula is stated in `pot_agent/policy/flops.py`. Empty where the
    model's size is unknown."""
    peak_mb: float
    """Peak resident memory of this process so far, in MiB."""


class Thought(TypedDict):
    """A node of the thought tree (0 is the problem itself)."""

    parent: int | None
    iteration: int
    """The iteration in which it was written; 0: the root."""
    committed: bool
    """Whether it was decoded greedily and committed."""
    program: int | None
    """Index into `Record.programs`."""
    reward: float | None
    visits: int
    value: float
    """Mean reward backed up."""
    prior: float


class Curve(TypedDict):
    """One iteration of a method, for learning curves."""

    iteration: int
    rewards: list[float]
    """Of the group sampled in this iteration."""
    skipped: str | None
    """Why no weight moved; None where one did, or where nothing was tried (`version` says which)."""
    version: int
    """Of the adapter after the iteration."""
    loss: float | None
    kl: float | None
    grad_norm: float | None
    adapter_norm: float | None
    seconds: float
    """Since the run's start."""
    tokens: int
    """Completion tokens so far."""


class Attempt(TypedDict):
    """What a method did with a problem, before anybody looked at hidden tests."""

    program: str
    """The answer."""
    evidence: str
    stop_reason: str
    iterations: int
    error: str | None
    """`Type: message` where the method raised; such a record counts as incorrect, and is run again by `--retry`."""
    warnings: list[str]
    ledger: Ledger
    curve: list[Curve]
    tree: list[Thought]
    programs: list[dict[str, Any]]
    """Each program once: text, verdict, passed, total, feedback."""
    committed_path: list[int]
    """Nodes of `tree` from the root to the newest commit."""
    started: str
    """ISO 8601, UTC."""
    worker: str
    """Host and process that ran it."""


class Record(Attempt):
    """One method on one problem with one seed: the attempt, and what the tests say of its answer."""

    record_version: int
    problem: str
    benchmark: str
    title: str
    """First line of the statement, shortened, for people."""
    method: str
    """Name of the arm: a method's name, or `method:label` where the run gave it knobs, such as `pot:k=8`."""
    seed: int
    digest: str
    """Digest of the task's row."""
    visible_total: int
    visible_passed: int
    visible_solved: bool
    """Whether the answer passes every visible test."""
    hidden_passed: int
    hidden_total: int
    correct: bool
    """Whether the answer passes every hidden test and every visible one: pass@1's numerator."""
    official: bool | None
    """What the benchmark's own grader says of the answer; None where the benchmark has no other."""
    verdict: str
    """Of the first hidden test that failed, else `passed`."""


class Manifest(TypedDict):
    """What a run was: enough to run it again, and to refuse to go on with another."""

    record_version: int
    name: str
    created: str
    command: list[str]
    benchmark: str
    data: dict[str, Any]
    """Source, licence, SHA-256, count, and the ids chosen, in order, with how they were chosen."""
    methods: dict[str, dict[str, Any]]
    """By arm: method, and its complete configuration (`PotConfig.to_dict()` where it has one)."""
    seeds: list[int]
    model: dict[str, Any]
    """Name, parameters, device, sampler, digest of the base weights where known."""
    budget: dict[str, Any]
    """What budgets are matched by (`programs and tokens`, `flops`, `seconds`), and the numbers."""
    versions: dict[str, str]
    machine: dict[str, Any]
    estimate: dict[str, Any]
    """Hours that were estimated and printed before the run began."""
