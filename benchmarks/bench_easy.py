"""Greedy zero-shot, search alone and PoT on 12 easy HumanEval problems with two or more visible tests.

    python benchmarks/bench_easy.py --out easy.jsonl   all 12, the quick budget, seed 0; goes on where it was stopped
    python benchmarks/bench_easy.py --quick            one problem, one iteration
    python benchmarks/bench_easy.py --check            exit 1 where the peak memory is 4 GB or more

Visible tests go to the graph; hidden tests are run on its answer after it has ended. Search alone is PoT with
internalize off: the same commits, prompts and seeds. Times are of one run on this machine.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pot_agent import LocalPolicy, LocalSandbox, PotConfig, Problem, create_pot_agent
from pot_agent.handles import Handles
from pot_agent.problem import Limits, parse_tests
from pot_agent.prompts import extract_program
from pot_agent.run import build_prompt

DATA = Path(__file__).parent / "data" / "easy.jsonl"
METHODS = ("greedy", "search", "pot", "pot-corrected")
"""`pot` is the profile `paper` (learning rate 1e-4), `pot-corrected` the other (1e-3 for a model this small)."""
MEMORY_TARGET_MB = 4096


@dataclass
class Outcome:
    """What one method did on one problem."""

    problem: str
    method: str
    seed: int
    hidden: bool
    visible: bool
    updates: int = 0
    iterations: int = 0
    tokens: int = 0
    programs: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    tried_updates: int = 0
    """Times that internalize was reached, skipped or not."""
    peak_mb: float = 0.0


class Clock:
    """Splits a run's seconds into sampling, executing and internalizing, by the events of its stream."""

    _PHASE_AFTER: ClassVar = {
        "selected": "sampling",
        "thought": "executing",
        "update": "sampling",
        "committed": "other",
    }

    def __init__(self) -> None:
        self.seconds = {"sampling": 0.0, "executing": 0.0, "internalizing": 0.0, "other": 0.0}
        self._phase, self._since = "other", time.monotonic()

    def switch(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def take(self, mode: str, chunk: dict[str, Any]) -> None:
        if mode == "custom":
            phase = self._PHASE_AFTER.get(chunk["event"])
            if phase:
                self.switch(phase)
        elif "execute" in chunk:
            self.switch("internalizing")
        elif "commit" in chunk:
            self.switch("other")


def run_graph(graph: Any, problem: dict[str, Any]) -> tuple[dict[str, Any], Clock, int, int]:
    """Solution, clock, programs executed, and updates that were tried."""
    clock, programs, tried, solution = Clock(), 0, 0, None
    for mode, chunk in graph.stream(problem, stream_mode=["updates", "custom"]):
        clock.take(mode, chunk)
        if mode == "custom":
            programs += chunk["event"] == "verdict" and not chunk["cached"]
            tried += chunk["event"] == "update"
        else:
            solution = next(((update or {}).get("solution") for update in chunk.values()), None) or solution
    clock.switch("other")
    assert solution is not None
    return solution, clock, programs, tried


def greedy(policy: LocalPolicy, sandbox: LocalSandbox, problem: Problem, config: PotConfig) -> tuple[str, int]:
    """One greedy answer to the problem's own prompt."""
    handles = Handles(policy, sandbox, model="", config=config, reward=None)
    policy.open("greedy")
    try:
        messages = build_prompt(handles, problem, [], config).messages
        (completion,) = policy.sample(
            "greedy",
            version=0,
            messages=messages,
            temperature=0.0,
            max_tokens=config.search.max_new_tokens,
            end_at_block=config.search.end_at_block,
        )
    finally:
        policy.close("greedy")
    return extract_program(completion.text, problem).program, completion.tokens


def passes(sandbox: LocalSandbox, program: str, row: dict[str, Any], problem: Problem, which: str) -> bool:
    """Whether the program passes all tests of that kind."""
    tests = parse_tests(row[which])
    limits = Limits(cpu_seconds=4.0)
    judgement = sandbox.judge(program, tests, entry_point=problem.entry_point, setup=problem.setup, limits=limits)
    return judgement.verdict == "passed"


def run(
    row: dict[str, Any], method: str, seed: int, policy: LocalPolicy, sandbox: LocalSandbox, changes: Any
) -> Outcome:
    """One method on one problem."""
    names = ("problem", "tests", "entry_point", "starter_code", "setup")
    given = {name: row[name] for name in names if row.get(name)}
    problem = Problem.parse(given)
    profile = "corrected" if method == "pot-corrected" else "paper"
    config = PotConfig.quick(seed=seed, learn=method.startswith("pot"), profile=profile, **changes)
    began = time.monotonic()
    outcome = Outcome(problem=row["id"], method=method, seed=seed, hidden=False, visible=False)
    if method == "greedy":
        program, outcome.tokens = greedy(policy, sandbox, problem, config)
        outcome.programs = 1
    else:
        graph = create_pot_agent(policy, sandbox, config=config)
        solution, clock, outcome.programs, outcome.tried_updates = run_graph(graph, given)
        program, outcome.phases = solution["program"], clock.seconds
        outcome.updates, outcome.iterations = solution["updates"], solution["iterations"]
        outcome.tokens = solution["tokens"]
    outcome.seconds = time.monotonic() - began
    outcome.visible = passes(sandbox, program, row, problem, "tests")
    outcome.hidden = outcome.visible and passes(sandbox, program, row, problem, "hidden_tests")
    outcome.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: one row a method."""
    lines = [
        "| method | pass visible and hidden | pass visible | updates | iterations | programs run | tokens | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        rows = [outcome for outcome in outcomes if outcome.method == method]
        if rows:
            sums = [sum(getattr(o, n) for o in rows) for n in ("updates", "iterations", "programs", "tokens")]
            solved = [f"{sum(getattr(o, n) for o in rows)}/{len(rows)}" for n in ("hidden", "visible")]
            cells = [method, *solved, *map(str, sums), f"{sum(o.seconds for o in rows):.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def split(outcomes: Sequence[Outcome]) -> str:
    """The share of an iteration that each phase takes, over all iterations of PoT."""
    rows = [outcome for outcome in outcomes if outcome.method == "pot" and outcome.iterations]
    if not rows:
        return "no iterations"
    total = {name: sum(o.phases[name] for o in rows) for name in rows[0].phases}
    iterations = sum(o.iterations for o in rows)
    return ", ".join(
        f"{name} {seconds / iterations:.2f} s ({seconds / sum(total.values()):.0%})" for name, seconds in total.items()
    )


def report(outcomes: Sequence[Outcome]) -> None:
    """Print the table and what stands beside it."""
    print(table(outcomes))
    print(f"\nAn iteration of PoT (an update that is skipped takes no time): {split(outcomes)}.")
    seconds = [o.seconds for o in outcomes if o.method == "pot"]
    print(f"Seconds a problem, PoT: median {statistics.median(seconds or [0]):.1f}, most {max(seconds or [0]):.1f}.")
    print(f"Peak memory of the process: {max(o.peak_mb for o in outcomes):.0f} MB.")


def line_of(o: Outcome) -> str:
    """One outcome, for the person who waits."""
    passed = "hidden pass" if o.hidden else "visible pass, hidden fail" if o.visible else "fail"
    work = f"{o.updates} updates in {o.iterations} iterations, {o.seconds:.0f} s"
    return f"{o.problem} {o.method} seed {o.seed}: {passed}, {work}"


def main() -> None:
    """Run what is not done yet, print, and write each outcome where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--only", nargs="+", help="ids of problems, such as HumanEval/16")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 .. N-1")
    parser.add_argument("--out", type=Path, help="JSON lines of outcomes; what is there is not run again")
    given = parser.parse_args()
    rows = [json.loads(line) for line in DATA.read_text().splitlines()][: 1 if given.quick else None]
    rows = [row for row in rows if not given.only or row["id"] in given.only]
    changes: dict[str, Any] = {"iterations": 1} if given.quick else {}
    outcomes: list[Outcome] = []
    if given.out and given.out.exists():
        outcomes = [Outcome(**json.loads(line)) for line in given.out.read_text().splitlines()]
    done = {(o.problem, o.method, o.seed) for o in outcomes}
    todo = [
        (row, method, seed)
        for seed in range(given.seeds)
        for row in rows
        for method in given.methods
        if (row["id"], method, seed) not in done and not (method == "greedy" and seed)
    ]
    with LocalPolicy(given.model) as policy, LocalSandbox() as sandbox:
        for row, method, seed in todo:
            outcomes.append(run(row, method, seed, policy, sandbox, changes))
            print(line_of(outcomes[-1]), file=sys.stderr, flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(vars(outcomes[-1])) + "\n")
    report(outcomes)
    peak = max(o.peak_mb for o in outcomes)
    if given.check and peak >= MEMORY_TARGET_MB:
        sys.exit(f"peak memory {peak:.0f} MB misses the target, under {MEMORY_TARGET_MB} MB")


if __name__ == "__main__":
    main()
