"""Does learning learn? The margin between passing and failing samples that no update has seen, with two controls.

    python benchmarks/check_learning.py --out rows.jsonl    all problems and arms; goes on where it was stopped
    python benchmarks/check_learning.py --rates 1e-4 3e-4 1e-3 --arms learned
    python benchmarks/check_learning.py --quick             one problem, one update, in about a minute
    python benchmarks/check_learning.py --check             exit 1 where a target is missed
    python benchmarks/check_learning.py --model PATH        any other model

A trial opens a fresh adapter, draws a group of 8 at temperature 0.7 from the newest version, rewards each with the
share of tests it passes, and internalizes; a full pass stops nothing. Before and after, the base's own held-out samples
are scored: the *margin* is the mean log-probability per token of those that pass, less that of those that fail. What is
reported is the paired change of the margin, its mean over problems with a bootstrap interval over problems, and the
pass rate of fresh samples after the last update.

Controls: `shuffled` deals the group's rewards out at random, `negated` turns them round. Everything else is the same,
seeds included. A fourth arm, `feedback`, sets all rewards alike, so that GRPO learns nothing, and learns from the
feedback of failed samples by self-distillation alone. Targets of --check: at the profile's own rate, the interval of
`learned` lies above zero and above the mean of `shuffled`, and that of `negated` below zero.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from learning import ARMS, Arm, Bench, Plan, Row, load_rows, run_trial

from pot_agent import LocalPolicy, LocalSandbox
from pot_agent.config import GrpoConfig

RESAMPLES = 10_000
CONTROLS: tuple[Arm, ...] = ("shuffled", "negated")
DISTIL = 1.0
"""Weight of self-distillation in the arm `feedback`."""


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and a 95% interval by resampling the problems."""
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.fmean(values), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def cells(rows: Sequence[Row]) -> list[str]:
    """One line of the table: problems, change of the margin with its interval, KL, flat groups drawn, pass rates."""
    mean, low, high = interval([row.change for row in rows])
    ended = [row for row in rows if row.pass_after is not None]
    passes = "" if not ended else (
        f"{statistics.fmean(row.pass_before for row in ended):.2f} → "
        f"{statistics.fmean(row.pass_after or 0.0 for row in ended):.2f}"
    )  # fmt: skip
    kl = statistics.fmean(row.kl for row in rows if row.kl is not None) if any(row.kl for row in rows) else 0.0
    flat = statistics.fmean(row.skipped for row in rows)
    return [str(len(rows)), f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]", f"{kl:.3f}", f"{flat:.1f}", passes]


def table(rows: Sequence[Row]) -> str:
    """Markdown: one line for each arm, rate and number of updates."""
    names = ["arm", "rate", "changed", "rounds", "problems", "change of the margin, nats a token", "KL", "flat groups"]
    lines = [f"| {' | '.join(names)} | pass rate |", "|---|---|---|---|---|---|---|---|---|"]
    groups: dict[tuple[int, float, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((ARMS.index(row.arm), row.rate, row.variant, row.updates), []).append(row)  # type: ignore[arg-type]
    for (arm, rate, variant, updates), part in sorted(groups.items()):
        lines.append(f"| {' | '.join([ARMS[arm], f'{rate:g}', variant, str(updates), *cells(part)])} |")
    return "\n".join(lines)


def by_problem(rows: Sequence[Row]) -> str:
    """Markdown: the pass rate of each problem before and after, where it was taken."""
    names = ["problem", "arm", "rate", "changed", "rounds", "pass rate before", "after", "flat groups"]
    lines = [f"| {' | '.join(names)} |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if row.pass_after is not None:
            rates = [f"{row.pass_before:.2f}", f"{row.pass_after:.2f}", str(row.skipped)]
            lines.append(
                f"| {' | '.join([row.problem, row.arm, f'{row.rate:g}', row.variant, str(row.updates), *rates])} |"
            )
    return "\n".join(lines)


def missed(rows: Sequence[Row], rate: float) -> list[str]:
    """The targets that these rows miss."""
    found = {}
    arms: tuple[Arm, ...] = ("learned", *CONTROLS)
    for arm in arms:
        of_arm = [row for row in rows if row.arm == arm and row.rate == rate]
        last = max((row.updates for row in of_arm), default=0)
        shared = min(max((r.updates for r in rows if r.arm == a and r.rate == rate), default=0) for a in arms)
        part = [row for row in of_arm if row.updates == (shared or last)]
        if not part:
            return [f"no rows of {arm} at {rate:g}"]
        found[arm] = interval([row.change for row in part])
    problems = []
    if found["learned"][1] <= max(0.0, found["shuffled"][0]):
        problems.append(f"learned {found['learned']} does not lie above zero and the shuffled mean")
    if found["negated"][2] >= 0:
        problems.append(f"negated {found['negated']} does not lie below zero")
    return problems


def read(path: Path | None, setting: str) -> list[Row]:
    """The rows that are there. Exits where they were measured in another setting, which no table may mix."""
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()] if path and path.exists() else []
    if other := next((row.setting for row in rows if row.setting != setting), None):
        sys.exit(f"{path} holds rows of the setting {other}, asked for is {setting}; name another file by --out")
    return rows


def is_done(rows: Sequence[Row], problem: str, plan: Plan) -> bool:
    """Whether the last row that this plan would give is there, with its pass rate where one is asked for."""
    key = (problem, plan.arm, plan.rate, plan.seed, plan.variant, plan.updates)
    return any(
        (row.problem, row.arm, row.rate, row.seed, row.variant, row.updates) == key
        and (row.pass_after is not None or not plan.fresh)
        for row in rows
    )


def merged(rows: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """The rows with those found; the newer of two that measure the same, unless only the older has a pass rate."""
    kept: dict[tuple[object, ...], Row] = {}
    for row in [*rows, *found]:
        key = (row.problem, row.arm, row.rate, row.seed, row.variant, row.updates)
        if key not in kept or row.pass_after is not None or kept[key].pass_after is None:
            kept[key] = row
    return list(kept.values())


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="+", help="ids of problems")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["learned", *CONTROLS])
    parser.add_argument("--rates", nargs="+", type=float, help="learning rates; default: the profile's own")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=192, help="most tokens of a completion")
    parser.add_argument("--profile", choices=("paper", "corrected"), default="corrected")
    parser.add_argument("--change", default="", help="fields of GrpoConfig to change, as JSON: '{\"beta\": 0}'")
    parser.add_argument("--no-fresh", action="store_true", help="leave out the pass rate after the last update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON lines; trials that are there are not run again")
    return parser.parse_args()


def main() -> None:
    """Run what is not done yet, and print."""
    given = arguments()
    known = [row["id"] for row in load_rows()]
    unknown = [problem for problem in given.only or () if problem not in known]
    if unknown:
        sys.exit(f"no such problem: {', '.join(unknown)}; there are {', '.join(known)}")
    problems = [row for row in load_rows() if not given.only or row["id"] in given.only][: 1 if given.quick else None]
    plan = Plan(
        updates=1 if given.quick else given.updates,
        group=given.group,
        held_out=16 if given.quick else given.held_out,
        max_tokens=64 if given.quick else given.tokens,
        seed=given.seed,
        variant=given.change,
        fresh=not (given.quick or given.no_fresh),
    )
    sizes = {"group": plan.group, "held_out": plan.held_out, "tokens": plan.max_tokens}
    plan = replace(plan, setting=json.dumps({"model": given.model, "profile": given.profile, **sizes}))
    rows = merged([], read(given.out, plan.setting))
    plan = replace(plan, measure_at=tuple(sorted({1, 3, plan.updates} & set(range(1, plan.updates + 1)))))
    with LocalPolicy(given.model, threads=given.threads) as policy, LocalSandbox() as sandbox:
        parameters = policy.capabilities.parameters
        own = GrpoConfig.corrected(parameters=parameters) if given.profile == "corrected" else GrpoConfig()
        own = replace(own, **json.loads(given.change or "{}"))
        rates = given.rates or [own.learning_rate]
        for row in problems:
            asked = [replace(plan, arm=arm, rate=rate) for rate in rates for arm in given.arms]
            todo = [one for one in asked if not is_done(rows, row["id"], one)]
            if not todo:
                continue
            bench = Bench(row, policy, sandbox, plan.max_tokens)
            held = bench.hold_out(plan.held_out)
            if held.pass_rate in (0.0, 1.0):
                say(f"{row['id']}: pass rate {held.pass_rate:g} of {plan.held_out}; there is no margin, left out")
                continue
            for one in todo:
                distil = own.distil or DISTIL if one.arm == "feedback" else own.distil
                grpo = replace(own, learning_rate=one.rate or own.learning_rate, distil=distil)
                found = run_trial(bench, one, held, grpo, say)
                rows = merged(rows, found)
                changes = [round(r.change, 3) for r in found]
                say(f"{row['id']} {one.arm} {one.rate:g}: {changes}, {found[-1].seconds:.0f} s")
                if given.out:
                    with given.out.open("a") as file:
                        file.writelines(json.dumps(asdict(r)) + "\n" for r in found)
    print(table(rows), by_problem(rows), sep="\n\n")
    if given.check and (faults := missed(rows, rates[0])):
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
