"""Runs methods over problems, side by side, and keeps a record of each: resumable, never twice, never half.

A run is its manifest (written first) and its results (appended one by one). Work is done by threads: a policy draws for
all sessions that ask at once. Hidden tests stay here: methods are given problems (`trial.attempt`), and their answers
are graded when their graph has ended, in a sandbox that is the grader's alone.

Limits: one process writes a run's file (others take a `--shard`); the problems in flight when a process is killed are
begun again; an arm whose adapter goes on from problem to problem starts at the first problem again when it was killed
in the middle, since the adapter went with its process.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol

from pot_agent.bench import manifest as manifests
from pot_agent.bench.arms import Arm
from pot_agent.bench.estimate import Estimate, Eta
from pot_agent.bench.record import Attempt, Manifest, Record
from pot_agent.bench.results import Results, key_of, named
from pot_agent.bench.servers import Servers
from pot_agent.bench.sharding import Choice, Shard, Unit, units
from pot_agent.bench.trial import Key, Trial, attempt, graded
from pot_agent.errors import CancelledError, ConfigError, RunFolderError
from pot_agent.policy.base import Policy
from pot_agent.sandbox.base import Sandbox
from pot_agent.stopping import StopSignal

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""How often the waiting thread looks up, so that a signal reaches it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run, and where it is kept."""

    out: Path
    choice: Choice
    arms: Sequence[Arm]
    seeds: Sequence[int]
    manifest: Manifest
    """Of the whole run, its estimate still empty."""
    shard: Shard = field(default_factory=Shard)
    workers: int = 4
    """Problems at once."""
    resume: bool = False
    retry: bool = False
    """Whether records with an error are run again."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"workers must be 1 or more, got {self.workers}", value=self.workers)
        for at, arm in enumerate(self.arms):
            for before in self.arms[:at]:
                if (before.method.name, before.config) == (arm.method.name, arm.config) or before.name == arm.name:
                    also = "" if before.name == arm.name else f", as {before.name} too"
                    raise ConfigError(
                        f"{arm.name} is asked for twice{also}; an arm runs once", value=[before.name, arm.name]
                    )
        if not self.shard.of(self.choice.tasks):
            raise ConfigError(
                f"part {self.shard.index} of {self.shard.count} has no problem: there are "
                f"{len(self.choice.tasks)}; ask for at most so many parts",
                value=self.shard.count,
            )
        if chains := [arm.name for arm in self.arms if arm.method.persistent and not self.shard.is_all]:
            raise ConfigError(
                f"{chains[0]} carries one adapter from problem to problem, so it cannot be run in parts; leave --shard "
                "out for it",
                value=chains,
            )

    @property
    def units(self) -> list[Unit]:
        """Every trial of this shard."""
        return units(self.shard.of(self.choice.tasks), self.arms, self.seeds)


class Worker(Protocol):
    """Where methods run: in this process, or on other machines. Thread-safe."""

    def attempt(self, trial: Trial, cancel: Event) -> Attempt:
        """One problem."""
        ...

    def forget(self, trial: Trial) -> None:
        """Drop the adapter that a persistent arm carries on, where there is one."""
        ...


class Here:
    """Methods run in this process, over one policy or several replicas, and one sandbox."""

    def __init__(self, policies: Sequence[Policy], sandbox: Sandbox) -> None:
        self._policies, self._sandbox = list(policies), sandbox
        self._servers: Servers[Policy] = Servers(policies)

    def attempt(self, trial: Trial, cancel: Event) -> Attempt:
        """One problem, on the least busy policy; on the first, where that holds the arm's adapter."""

        def on(policy: Policy) -> Attempt:
            return attempt(trial.task.problem, trial.arm.method.build, trial.config, policy, self._sandbox, cancel)

        return on(self._policies[0]) if trial.arm.method.persistent else self._servers.run(on)

    def forget(self, trial: Trial) -> None:
        """On the first policy."""
        if trial.arm.method.end is not None:
            trial.arm.method.end(self._policies[0], trial.config)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    record: Record
    """The one that was just appended."""
    done: int
    total: int
    seconds_left: float | None


Show = Callable[[Progress], None]


def run_benchmark(
    plan: Plan,
    worker: Worker,
    grader: Sandbox,
    *,
    foresee: Callable[[Counter[str]], Estimate | None] = lambda trials: None,
    show: Show = lambda progress: None,
    cancel: Event | None = None,
) -> list[Record]:
    """Run what the folder does not have yet; all records of this shard.

    `foresee` is asked for the estimate of the trials that are to be run, before the first; `show` is told of each
    record, one at a time. `cancel` (or Ctrl-C) ends the run: problems in flight are not recorded, `CancelledError` (or
    `KeyboardInterrupt`) is raised, and `resume` goes on. An error of the machine ends it in the same way and is raised.
    Raises `RunFolderError` before anything has run where the folder is another run's, or another process holds it.
    """
    with _opened(plan) as results:
        todo = _left(plan, results)
        trials = Counter(trial.arm.name for unit in todo for trial in unit)
        asked = cancel or Event()
        try:
            foreseen = foresee(trials) if todo else None
        except CancelledError:
            if not asked.is_set():
                raise
        if asked.is_set():
            raise _stopped(plan, results)
        _write_manifest(plan, foreseen)
        at_once = min(plan.workers, len(todo))
        eta = Eta(left=trials, expected={} if foreseen is None else foreseen.seconds_by_arm, at_once=at_once)
        _Run(plan, worker, grader, results, eta, show, asked).all(todo)
        return results.records


class _Run:
    """The threads of a run."""

    def __init__(
        self, plan: Plan, worker: Worker, grader: Sandbox, results: Results, eta: Eta, show: Show, cancel: Event
    ) -> None:
        self._plan, self._worker, self._grader = plan, worker, grader
        self._results, self._eta, self._show = results, eta, show
        self._asked, self._stop = cancel, StopSignal(parent=cancel)
        self._telling = Lock()
        self._total = sum(map(len, plan.units))

    def all(self, todo: Sequence[Unit]) -> None:
        """Run every unit; the first error stops the others and is raised when they have ended."""
        try:
            self._side_by_side(todo)
        except CancelledError:
            if not self._asked.is_set():
                raise
        if self._asked.is_set():
            raise _stopped(self._plan, self._results)

    def _side_by_side(self, todo: Sequence[Unit]) -> None:
        with ThreadPoolExecutor(max_workers=max(1, min(self._plan.workers, len(todo)))) as pool:
            pending = {pool.submit(self._unit, unit) for unit in todo}
            try:
                while pending:
                    done, pending = wait(pending, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            except BaseException:
                self._stop.set()  # the pool's end waits for the problems in flight, which end now
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _unit(self, unit: Unit) -> None:
        if not unit[0].arm.method.persistent:
            self._trial(unit[0])
            return
        self._worker.forget(unit[0])  # one that a killed process left behind would give this one a start
        try:
            for trial in unit:
                self._trial(trial)
        finally:
            self._worker.forget(unit[0])

    def _trial(self, trial: Trial) -> None:
        if self._stop.is_set():
            raise CancelledError("the run was stopped", value=str(self._plan.out))
        began = time.monotonic()
        record = graded(trial, self._worker.attempt(trial, self._stop), self._grader, self._stop)
        with self._telling:  # one at a time: what is shown counts up by one
            self._results.append(record)
            self._eta.record(trial.arm.name, time.monotonic() - began)
            done = len(self._results.records)
            self._show(Progress(record=record, done=done, total=self._total, seconds_left=self._eta.seconds))


def _stopped(plan: Plan, results: Results) -> CancelledError:
    total = sum(map(len, plan.units))
    return CancelledError(
        f"stopped with {len(results.records)} of {total} done; go on with --resume", value=str(plan.out)
    )


def _opened(plan: Plan) -> Results:
    """This shard's results, held; the folder is this run's. Raises `RunFolderError`."""
    found = manifests.read(plan.out)
    path = plan.out / plan.shard.file_name
    if found is not None:
        manifests.check_same(plan.out, found, plan.manifest)
        if not plan.resume and (plan.shard.is_all or path.exists()):
            raise RunFolderError(
                f"{plan.out} holds this run already; go on with --resume, or choose another folder (--out)",
                value=str(plan.out),
            )
    others = sorted(other.name for other in plan.out.glob("results*.jsonl") if not _goes_with(other.name, plan.shard))
    if others:
        raise RunFolderError(
            f"{plan.out} has {others[0]}, which is not one of {plan.shard.count} parts; together they would count "
            "problems twice. Choose another folder (--out)",
            value=others,
        )
    results = Results(path)
    if found is None and results.records:
        results.close()
        raise RunFolderError(
            f"{path} has records and there is no {manifests.FILE} beside it that says of what; choose another folder",
            value=str(path),
        )
    return results


def _goes_with(name: str, shard: Shard) -> bool:
    return name == "results.jsonl" if shard.is_all else name.endswith(f"-of-{shard.count}.jsonl")


def _left(plan: Plan, results: Results) -> list[Unit]:
    """The units that are not done. Records that are to be replaced are set aside."""
    planned = {trial.key: trial for unit in plan.units for trial in unit}
    if strange := [key_of(record) for record in results.records if key_of(record) not in planned]:
        raise RunFolderError(
            f"{results.path} has a record of {named(strange[0])}, which is no part of this run; choose another folder",
            value=strange,
        )
    failed = {key_of(record) for record in results.records if record["error"] is not None} if plan.retry else set()
    results.set_aside(failed | _broken_chains(plan.units, results, failed))
    return [unit for unit in plan.units if any(trial.key not in results for trial in unit)]


def _broken_chains(all_units: Sequence[Unit], results: Results, failed: set[Key]) -> set[Key]:
    """Records of chains that were not done to their end: the adapter that made them is gone."""
    found: set[Key] = set()
    for unit in all_units:
        there = {trial.key for trial in unit if trial.key in results}
        if unit[0].arm.method.persistent and there and (len(there) < len(unit) or there & failed):
            arm, seed = unit[0].arm.name, unit[0].seed
            lost = "%s with seed %d lost its adapter after %d of %d problems: it starts again, those records set aside"
            log.warning(lost, arm, seed, len(there), len(unit))
            found |= there
    return found


def _write_manifest(plan: Plan, foreseen: Estimate | None) -> None:
    """Written unless it is there; another part's, which may have come since this one looked, is of the same run."""
    estimate: dict[str, Any] = {} if foreseen is None else foreseen.to_dict()
    found = manifests.read(plan.out)
    if found is None and not manifests.write(plan.out, {**plan.manifest, "estimate": estimate}):
        found = manifests.read(plan.out)
    if found is not None:
        manifests.check_same(plan.out, found, plan.manifest)
