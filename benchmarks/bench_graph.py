"""What the graph itself takes of an iteration: all that is not sampling, scoring, training or running programs.

    python -m benchmarks.bench_graph [--quick] [--check] [--model MODEL]

Runs PoT with a SQLite checkpointer, a callback handler and a stream of updates and events, and prints for each step how
long it took and how much of that was inside the policy or the sandbox (side by side counts once). The rest is ours:
prompts, the tree, state, checkpoints, events, callbacks. `--check` exits 1 where the rest is above 2 % of an iteration.

Limits: counting tokens for a prompt counts as the graph's, though the policy does it. Waiting for a checkpoint counts.
The embedded model's thoughts often score alike here, and such an update is skipped: an iteration that trains takes
longer in the policy, and the graph's share of it is smaller.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.checkpoint.sqlite import SqliteSaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.policy.local import LocalPolicy
from pot_agent.sandbox.local import LocalSandbox

TARGET = 0.02
"""Most of an iteration that may be the graph's own."""
WORK = {"policy": ("open", "sample", "score", "internalize", "close"), "sandbox": ("judge",)}
PROBLEM = {
    "problem": "Write median_of_three_medians(groups): the median of the medians of three lists of numbers.",
    "tests": [
        "assert median_of_three_medians([[1, 2, 3], [4, 5, 6], [7, 8, 9]]) == 5",
        "assert median_of_three_medians([[3, 1], [9], [4, 4, 8]]) == 4",
    ],
}


class Clock:
    """Seconds in which at least one watched call ran, side by side counted once."""

    def __init__(self) -> None:
        self._lock, self._running, self._since = threading.Lock(), 0, 0.0
        self.worked = 0.0

    def watch(self, thing: Any, names: tuple[str, ...]) -> None:
        """Count the time inside these methods."""
        for name in names:
            setattr(thing, name, self._watched(getattr(thing, name)))

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self._since = time.perf_counter() if self._running == 0 else self._since
                self._running += 1
            try:
                return call(*arguments, **options)
            finally:
                with self._lock:
                    self._running -= 1
                    self.worked += time.perf_counter() - self._since if self._running == 0 else 0.0

        return watched


def measure(policy: LocalPolicy, sandbox: LocalSandbox, **budget: int) -> dict[str, list[tuple[float, float]]]:
    """For each step of the graph, its times: in all, and in the policy or the sandbox."""
    clock = Clock()
    clock.watch(policy, WORK["policy"])
    clock.watch(sandbox, WORK["sandbox"])
    took: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, SqliteSaver.from_conn_string(str(Path(folder) / "c")) as checkpointer:
        config = PotConfig.quick(**budget)
        graph = create_pot_agent(policy, sandbox, config=config, checkpointer=checkpointer)
        options: Any = {"configurable": {"thread_id": "1"}, "callbacks": [BaseCallbackHandler()]}
        before, worked = time.perf_counter(), 0.0
        for mode, part in graph.stream(PROBLEM, options, stream_mode=["updates", "custom"]):
            if mode == "updates":
                now = time.perf_counter()
                took[next(iter(part))].append((now - before, clock.worked - worked))
                before, worked = now, clock.worked
    return took


def main() -> None:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short iterations (3 thoughts of 64 tokens)")
    parser.add_argument("--check", action="store_true", help="exit 1 where the graph takes more than its share")
    parser.add_argument("--model", default="embedded")
    given = parser.parse_args()
    with LocalPolicy(given.model) as policy, LocalSandbox() as sandbox:
        # The first run of a process loads and warms what later ones have.
        measure(policy, sandbox, iterations=1, width=2, max_new_tokens=16)
        quick = {"iterations": 2, "width": 3, "max_new_tokens": 64}
        took = measure(policy, sandbox, **(quick if given.quick else {"iterations": 4}))
    print(f"| step | runs | seconds | of which policy and sandbox | the graph's own, ms |\n|{'---|' * 5}")
    for step, times in took.items():
        whole, inside = (sum(part) / len(times) for part in zip(*times, strict=True))
        print(f"| {step} | {len(times)} | {whole:.3f} | {inside:.3f} | {1000 * (whole - inside):.1f} |")
    iteration = [one for step in ("propose", "execute", "internalize", "commit") for one in took[step]]
    whole, inside = (sum(part) for part in zip(*iteration, strict=True))
    share = (whole - inside) / whole
    print(f"\nthe graph's own share of an iteration: {share:.2%} (target: at most {TARGET:.0%})")
    if given.check and share > TARGET:
        sys.exit(f"the graph takes {share:.2%} of an iteration, above {TARGET:.0%}")


if __name__ == "__main__":
    main()
