"""Which problems a run is of, and which part of them one process does."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pot_agent.bench.arms import Arm
from pot_agent.bench.task import Task
from pot_agent.bench.trial import Trial
from pot_agent.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The problems chosen, in order, and how, in words for the manifest."""

    tasks: tuple[Task, ...]
    how: str


def choose(
    tasks: Sequence[Task], *, only: Sequence[str] = (), min_visible_tests: int = 0, limit: int | None = None
) -> Choice:
    """The tasks that are named (all, unless said), have so many visible tests, and come first. Raises `ConfigError`."""
    chosen, how = list(tasks), [f"all {len(tasks)} in the order of the data"]
    if only:
        chosen, how = _named(tasks, only), [f"{len(set(only))} named ones, in the order of the data"]
    if min_visible_tests:
        chosen = [task for task in chosen if len(task.problem.tests) >= min_visible_tests]
        how.append(f"those {len(chosen)} with {min_visible_tests} or more visible tests")
    if limit is not None:
        chosen = chosen[:limit]
        how.append(f"the first {len(chosen)}")
    if not chosen:
        raise ConfigError(f"no problem is left: {'; of these '.join(how)}. Ask for less", value=how)
    return Choice(tasks=tuple(chosen), how="; of these ".join(how))


def _named(tasks: Sequence[Task], only: Sequence[str]) -> list[Task]:
    ids = [task.id for task in tasks]
    for wanted in only:
        if wanted not in ids:
            close = difflib.get_close_matches(wanted, ids, n=3)
            there = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(ids[:5])}, ..."
            raise ConfigError(f"no problem is called {wanted!r}; {there}", value=wanted)
    return [task for task in tasks if task.id in set(only)]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Part `index` (from 1) of `count`: every count-th problem, so that each part has its share of the hard ones."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2/4`. Raises `ConfigError`."""
        first, slash, second = text.partition("/")
        fits = bool(slash) and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)
        if not fits:
            raise ConfigError(f"--shard must be such as 1/4, ..., 4/4, got {text!r}", value=text)
        return cls(index=int(first), count=int(second))

    @property
    def is_all(self) -> bool:
        """Whether there is one part only."""
        return self.count == 1

    @property
    def file_name(self) -> str:
        """Of this part's results."""
        return "results.jsonl" if self.is_all else f"results-{self.index}-of-{self.count}.jsonl"

    def of(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The problems of this part."""
        return tuple(tasks[self.index - 1 :: self.count])


Unit = tuple[Trial, ...]
"""Trials that run one after the other, on one graph where the arm carries its adapter on; mostly one."""


def units(tasks: Sequence[Task], arms: Sequence[Arm], seeds: Sequence[int]) -> list[Unit]:
    """All trials: problem by problem, so that a run that is stopped early has every arm on the same problems.

    An arm whose adapter goes on from problem to problem is one unit for each seed, in the order of the problems; those
    come first, since they take longest.
    """
    chains = [
        tuple(Trial(task=task, arm=arm, seed=seed) for task in tasks)
        for seed in seeds
        for arm in arms
        if arm.method.persistent
    ]
    single = [
        (Trial(task=task, arm=arm, seed=seed),)
        for seed in seeds
        for task in tasks
        for arm in arms
        if not arm.method.persistent
    ]
    return [*chains, *single]
