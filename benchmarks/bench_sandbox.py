"""How fast the sandbox is, against a new `python` for each test; all figures of a table are of one run.

    python benchmarks/bench_sandbox.py [--quick] [--check] [--tier T1]

Limits first: times depend on the machine and on what else runs there, so only ratios are targets. The yardstick,
`bare`, is the interpreter of an empty virtual environment (what is installed beside the real one can make its start
several times slower), without any isolation, limit or comparison. `batched` is a wrong program, as most are in a
search: all its tests share one process. One that fails late has that test run again alone, and a full pass is confirmed
with a process per test: both have lines of their own. Targets
(`--check` exits with 1 where one is missed): batched at least 10 times bare, a process per test at least 2 times; the
first verdict of a cold sandbox within 150 ms, best of several (on a busy machine: within ten starts of a bare python);
nothing left over by many programs: the same warm process and open files, no child, less than 4 MiB more memory.
"""

import argparse
import os
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pot_agent.problem import CallTest, StdinTest
from pot_agent.sandbox import LocalSandbox

TESTS = [StdinTest(input=f"{n}\n", output=f"{2 * n}\n") for n in range(10)]
CALLS = [CallTest(args=(n,), expected=2 * n) for n in range(9)] + [CallTest(args=(9,), expected=0)]
RIGHT = "print(2 * int(input()))"
WRONG = "print(2 * int(input()) + 1)"
WRONG_AT_THE_LAST = "n = int(input())\nprint(2 * n if n < 9 else 0)"
FUNCTION = "def f(n): return 2 * n"
BATCHED, EACH, COLD_SECONDS, MEMORY_KB = 10.0, 2.0, 0.150, 4096


def main() -> int:
    """Measure, print, and say which targets were missed."""
    options = parser().parse_args()
    console = Console()
    cold = min(first_verdict(options.tier) for _ in range(3 if options.quick else 7))
    with LocalSandbox(tier=options.tier) as sandbox:
        threads = sandbox.workers
        rates = measure(sandbox, threads, rounds=4 if options.quick else 15)
        tier = sandbox.tier
    left = leaks(options.tier, 1000 if options.quick else 10_000)
    bare = rates.pop("bare")
    table = Table("what", "programs/s", "times bare", title=f"10 tests a program, {threads} at once, {tier}")
    table.add_row("bare: a new python for each test", f"{bare:.1f}", "1")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:.1f}", f"{rate / bare:.1f}")
    console.print(table)
    console.print(f"first verdict of a cold sandbox: {1000 * cold:.0f} ms (best of several)")
    console.print(f"left over after {left.pop('programs')} programs: {left}")
    missed = misses(rates, bare, cold, left, threads)
    for line in missed:
        console.print(f"target missed: {line}", style="bold")
    return 1 if missed and options.check else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help="under a minute: fewer programs")
    made.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    made.add_argument("--tier", choices=["T2", "T1", "T1n"], help="the tier to measure; the strongest unless said")
    return made


def misses(rates: dict[str, float], bare: float, cold: float, left: dict[str, int], threads: int) -> list[str]:
    """The targets that were missed, by name."""
    found = []
    for name, target in (("batched", BATCHED), ("a process per test", EACH)):
        if rates[name] < target * bare:
            found.append(f"{name} at least {target:g} times bare, got {rates[name] / bare:.1f}")
    start = threads / (bare * len(TESTS))
    if cold > max(COLD_SECONDS, 10 * start):
        found.append(f"first verdict within {1000 * COLD_SECONDS:.0f} ms, got {1000 * cold:.0f}")
    if left["files"] or left["processes"] or left["replaced"] or left["KiB"] > MEMORY_KB:
        found.append(f"nothing left over, got {left}")
    return found


def first_verdict(tier: str | None) -> float:
    """Seconds from a sandbox that has started nothing to its first verdict."""
    started = time.perf_counter()
    with LocalSandbox(workers=1, tier=tier) as sandbox:  # type: ignore[arg-type]
        verdict = sandbox.judge(RIGHT, TESTS[:1]).verdict
        seconds = time.perf_counter() - started
    assert verdict == "passed"
    return seconds


def measure(sandbox: LocalSandbox, threads: int, *, rounds: int) -> dict[str, float]:
    """Programs a second, each way of running them; the ways take turns, so that other load meets them alike."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(RIGHT)
        venv.create(Path(folder, "empty"))
        python = Path(folder, "empty", "bin", "python")
        ways: dict[str, tuple[int, Callable[[], object]]] = {
            "bare": (4, lambda: [run_bare(python, file, test) for test in TESTS]),
            "batched": (30, lambda: sandbox.judge(WRONG, TESTS)),
            "batched, wrong at the last test": (30, lambda: sandbox.judge(WRONG_AT_THE_LAST, TESTS)),
            "batched calls of a function": (30, lambda: sandbox.judge(FUNCTION, CALLS, entry_point="f")),
            "a process per test": (10, lambda: sandbox.judge(RIGHT, TESTS, isolation="test")),
            "a full pass, confirmed": (10, lambda: sandbox.judge(RIGHT, TESTS)),
        }
        spent = dict.fromkeys(ways, 0.0)
        for _, judged in list(ways.values())[1:]:
            judged()
        for _ in range(rounds):
            for name, (count, way) in ways.items():
                spent[name] += seconds_for(way, count, threads)
    return {name: rounds * count / spent[name] for name, (count, _) in ways.items()}


def seconds_for(way: Callable[[], object], count: int, threads: int) -> float:
    """Seconds that `count` programs take, `threads` at once."""
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(lambda _: way(), range(count)))
        return time.perf_counter() - started


def run_bare(python: Path, file: Path, test: StdinTest) -> str:
    """One test in a new interpreter."""
    return subprocess.run([python, file], input=test.input, capture_output=True, text=True, check=True).stdout


def leaks(tier: str | None, programs: int) -> dict[str, int]:
    """What so many programs leave in this process and the warm one."""
    ways = (RIGHT, WRONG_AT_THE_LAST, "raise ValueError", "import os; os._exit(3)", "(")
    with LocalSandbox(workers=1, tier=tier) as sandbox:  # type: ignore[arg-type]
        for n in range(200):
            sandbox.run(ways[n % len(ways)], stdin="1")
        before, warm = held(sandbox), family(sandbox)
        for n in range(programs):
            sandbox.run(ways[n % len(ways)], stdin="1")
        after, still = held(sandbox), family(sandbox)
    return {
        "programs": programs,
        "files": after[0] - before[0],
        "KiB": max(0, after[1] - before[1]),
        "processes": len(still) - len(warm),
        "replaced": len(set(warm) - set(still)),
    }


def family(sandbox: LocalSandbox) -> list[int]:
    """The processes of the sandbox: a worker's own, and all below."""
    found = [worker._process.pid for worker in sandbox._pool._all]
    for parent in found:
        tasks = Path(f"/proc/{parent}/task/{parent}/children")
        found += [int(child) for child in tasks.read_text().split()]
    return found


def held(sandbox: LocalSandbox) -> tuple[int, int]:
    """Open files, and resident KiB, of this process and the sandbox's."""
    files = resident = 0
    for pid in (os.getpid(), *family(sandbox)):
        files += len(os.listdir(f"/proc/{pid}/fd"))
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        resident += next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return files, resident


if __name__ == "__main__":
    raise SystemExit(main())
