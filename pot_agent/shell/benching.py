"""`pot bench`: what the command does. Methods over a benchmark's problems, shown as they end, stopped by Ctrl-C."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from pot_agent.bench import manifest as manifests
from pot_agent.bench.arms import Arm, parse_arm
from pot_agent.bench.datasets import load
from pot_agent.bench.datasets.base import Dataset
from pot_agent.bench.estimate import Estimate, Probe, estimate, in_words, probe
from pot_agent.bench.record import Record
from pot_agent.bench.rehearsal import rehearse
from pot_agent.bench.report.formatting import printable
from pot_agent.bench.runner import Here, Plan, Progress, Worker, run_benchmark
from pot_agent.bench.servers import check_replicas
from pot_agent.bench.sharding import Choice, Shard, choose
from pot_agent.config import BudgetName, PotConfig
from pot_agent.errors import CannotLearnError, ConfigError
from pot_agent.handles import as_policy, local_policy
from pot_agent.policy.base import Capabilities
from pot_agent.problem import Problem
from pot_agent.sandbox.local import LocalSandbox
from pot_agent.settings import Settings

METHODS = ("zero_shot", "best_of_n", "mcts", "pot")
"""What is compared where no method is named."""
INTERRUPTED = 130
"""Exit code of a run that was stopped by a signal."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command was asked for."""

    benchmark: str
    settings: Settings
    methods: Sequence[str] = ()
    policies: Sequence[str] = ()
    ray: str | None = None
    data: Path | None = None
    only: Sequence[str] = ()
    min_visible_tests: int = 0
    limit: int | None = None
    seeds: int = 1
    budget: BudgetName | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    resume: bool = False
    retry: bool = False
    shard: str = "1/1"
    workers: int | None = None
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where methods run, and what is known of the policy there."""

    worker: Worker
    capabilities: Capabilities
    model: dict[str, Any]
    probe: Callable[[Problem, PotConfig, int, bool, threading.Event], Probe]
    """Of a problem, a configuration, how many problems at once, whether to learn, and what ends it early."""
    lanes: int = 1
    """Models of its kind that work side by side."""


def bench(order: Order, console: Console) -> list[Record]:
    """Run what was asked for; the records of it. Raises `CancelledError` where it was stopped by a signal."""
    shard = Shard.parse(order.shard)
    if order.out is None and (order.resume or order.retry):
        raise ConfigError("--resume and --retry go on with a run: name its folder (--out DIR)")
    dataset = load(order.benchmark, data=order.data)
    _tell_skipped(dataset, console)
    choice = choose(dataset.tasks, only=order.only, min_visible_tests=order.min_visible_tests, limit=order.limit)
    PotConfig.of(order.budget or "quick", **order.changes)  # what cannot be is an error before anything is loaded
    with ExitStack() as stack:
        place = _place(order, stack, console)
        on_cpu = place.capabilities.device.startswith("cpu")
        budget: BudgetName = order.budget or ("quick" if on_cpu else "paper")
        base = PotConfig.of(budget, **order.changes)
        arms = [parse_arm(text, base, parameters=place.capabilities.parameters) for text in order.methods or METHODS]
        _check_can_learn(arms, place.capabilities)
        workers = order.workers or (4 if on_cpu else 8)
        plan = _plan(order, dataset, choice, arms, place, base, budget, shard, workers)
        grader = stack.enter_context(LocalSandbox())
        with interruptible(console) as cancel:
            show = Shown(console)
            foresee = _foresight(plan, place, console, cancel)
            records = run_benchmark(plan, place.worker, grader, foresee=foresee, show=show, cancel=cancel)
    _summarise(records, plan, console)
    return records


def _tell_skipped(dataset: Dataset, console: Console) -> None:
    for name, why in dataset.skipped:
        console.print(Text(f"left out: {printable(name)} ({printable(why)})"), style="yellow", soft_wrap=True)


def _place(order: Order, stack: ExitStack, console: Console) -> Place:
    if order.ray is not None:
        return _on_ray(order, order.ray, stack)
    with console.status(Text(f"loading {', '.join(order.policies) or order.settings.model}")):
        policies = [policy for url in order.policies if (policy := as_policy(url))]
        for policy in policies:
            stack.callback(policy.shutdown)
        policies = policies or [local_policy(order.settings.model, order.settings)]
        check_replicas([policy.capabilities for policy in policies])
        model = manifests.model_of(policies[0])
    sandbox = stack.enter_context(LocalSandbox())
    first = policies[0]

    def measured(problem: Problem, config: PotConfig, sessions: int, learn: bool, cancel: threading.Event) -> Probe:
        return probe(first, problem, config, sessions=-(-sessions // len(policies)), learn=learn, cancel=cancel)

    worker = Here(policies, sandbox)
    return Place(worker=worker, capabilities=first.capabilities, model=model, probe=measured, lanes=len(policies))


def _on_ray(order: Order, address: str, stack: ExitStack) -> Place:
    from pot_agent.bench.rays import OnRay

    cluster = stack.enter_context(OnRay(address, urls=order.policies, settings=order.settings))
    capabilities, model = cluster.about()

    def measured(problem: Problem, config: PotConfig, sessions: int, learn: bool, cancel: threading.Event) -> Probe:
        return cluster.probe(problem, config, learn=learn, cancel=cancel)

    return Place(worker=cluster, capabilities=capabilities, model=model, probe=measured, lanes=cluster.lanes)


def _check_can_learn(arms: Sequence[Arm], capabilities: Capabilities) -> None:
    learning = [arm.name for arm in arms if arm.method.learns and arm.config.learn]
    if learning and not capabilities.learns:
        raise CannotLearnError(
            f"{capabilities.model} cannot learn, and {learning[0]} needs it: leave that method out, or give an "
            "open-weights model (--model) or the URL of `pot serve` (--policy)",
            value=learning,
        )


def _plan(
    order: Order,
    dataset: Dataset,
    choice: Choice,
    arms: Sequence[Arm],
    place: Place,
    base: PotConfig,
    budget: str,
    shard: Shard,
    workers: int,
) -> Plan:
    out = order.out or Path("runs") / f"{dataset.name.replace(':', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    seeds = [base.seed + number for number in range(order.seeds)]
    data = {"name": dataset.name, "source": dataset.source, "licence": dataset.licence, "sha256": dataset.digest}
    allowed = {arm.name: arm.programs for arm in arms}
    manifest = manifests.manifest_of(
        name=out.name,
        command=order.command,
        benchmark=choice.tasks[0].benchmark,
        data={**data, "skipped": dict(dataset.skipped)},
        choice=choice,
        arms=arms,
        seeds=seeds,
        model=place.model,
        budget={"name": budget, "matched_by": "programs", "allowed": allowed, "search": asdict(base.search)},
    )
    return Plan(
        out=out,
        choice=choice,
        arms=arms,
        seeds=seeds,
        manifest=manifest,
        shard=shard,
        workers=workers,
        resume=order.resume or order.retry,
        retry=order.retry,
    )


def _foresight(
    plan: Plan, place: Place, console: Console, cancel: threading.Event
) -> Callable[[Counter[str]], Estimate]:
    """What measures the policy, prints how long the run takes at most, and on what that rests."""

    def foresee(trials: Counter[str]) -> Estimate:
        arms = [arm for arm in plan.arms if trials[arm.name]]
        largest = max(arms, key=lambda arm: arm.config.search.width)
        with console.status("measuring the policy"):
            learn = any(arm.method.learns and arm.config.learn for arm in arms)
            problems = [task.problem for task in plan.choice.tasks]
            shortest = min(problems, key=lambda problem: len(problem.text))
            at_once = min(plan.workers, trials.total())
            measured = place.probe(shortest, largest.config, at_once, learn, cancel)
            most_tested = max(problems, key=lambda problem: len(problem.tests))
            spending = {arm.name: rehearse(arm, most_tested, place.capabilities, cancel=cancel) for arm in arms}
        found = estimate(trials, spending, measured, lanes=min(place.lanes, at_once))
        what = f"{trials.total()} runs ({len(arms)} methods), {plan.workers} at once, into {plan.out}"
        console.print(Text(f"{what}: at most {in_words(found.hours * 3600)}"), style="bold", soft_wrap=True)
        for line in found.assumptions:
            console.print(Text(f"  assumed: {line}"), style="dim", soft_wrap=True)
        return found

    return foresee


class Shown:
    """A line for each record, with the time that is left."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, progress: Progress) -> None:
        """Print it."""
        self._console.print(Text(line_of(progress)), style=_style(progress.record), soft_wrap=True)


def line_of(progress: Progress) -> str:
    """`[12/80] pot HumanEval/16, seed 0: correct · visible 3/3 · hidden 7/7 · 2 updates · 41 s · ETA 1 h 12 min`."""
    record, left = progress.record, progress.seconds_left
    spent = record["ledger"]
    verdict = "error" if record["error"] else "correct" if record["correct"] else "wrong"
    parts = [
        f"[{progress.done}/{progress.total}] {record['method']} {printable(record['problem'])}, seed {record['seed']}: "
        f"{verdict}",
        f"visible {record['visible_passed']}/{record['visible_total']}",
        f"hidden {record['hidden_passed']}/{record['hidden_total']}",
        f"{spent['updates']} updates",
        f"{spent['programs']} programs",
        in_words(spent["seconds"].get("total", 0.0)),
    ]
    if record["error"]:
        parts.append(printable(record["error"][:200]))
    if left is not None and progress.done < progress.total:
        parts.append(f"ETA {in_words(left)}")
    return " · ".join(parts)


def _style(record: Record) -> str:
    return "red" if record["error"] else "green" if record["correct"] else ""


def _summarise(records: Sequence[Record], plan: Plan, console: Console) -> None:
    for arm in plan.arms:
        own = [record for record in records if record["method"] == arm.name]
        correct, failed = sum(record["correct"] for record in own), sum(bool(record["error"]) for record in own)
        errors = f", {failed} with an error (--retry runs those again)" if failed else ""
        console.print(Text(f"{arm.name}: {correct} of {len(own)} correct on hidden tests{errors}"), soft_wrap=True)
    console.print(Text(f"report it: pot report {plan.out}"), soft_wrap=True)


@contextmanager
def interruptible(console: Console) -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) ends the run in order; the second ends the process at once. Nothing is lost."""
    cancel = threading.Event()

    def ask(signum: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            os._exit(INTERRUPTED)  # every record is on the disk; the problems in flight were given up before
        cancel.set()
        console.print("stopping; problems in flight are given up. Again to stop at once", style="yellow")

    before: dict[int, Any] = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
