"""Many problems at once on one policy server, against the same problems in a row.

    python benchmarks/bench_server.py                        starts `pot serve` with vLLM, 16 problems
    python benchmarks/bench_server.py --sampler transformers  the other sampler, whose calls take turns
    python benchmarks/bench_server.py --url http://HOST:8719  a server that runs already
    python benchmarks/bench_server.py --quick                 4 problems, one iteration
    python benchmarks/bench_server.py --check                 exit 1 where a target is missed

Every problem gets a visible test that no program passes, so that no run ends early and both ways do the same amount of
work: iterations, candidates, and an update wherever rewards differ. The runs at once come first: what they leave in the
server's prompt cache can only help the runs in a row, which are compared with them.

Then as many sessions as there are problems learn, each from rewards of its own, and sample at once: the trainer scores
what each was given, under that session's version and under the base. The sampler's log-probabilities must be those of
the session's own version.

Targets of --check: all at once takes at most half the time of all in a row; no problem takes more than 3 times the
median; every session samples its own adapter.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pot_agent import GrpoConfig, LoraConfig, PotConfig, create_pot_agent
from pot_agent.policy.client import HttpPolicy
from pot_agent.sandbox.local import LocalSandbox

DATA = Path(__file__).parent / "data"
IMPOSSIBLE = "assert False, 'no program passes this one'"
START_SECONDS = 600
MOST_RATIO = 0.5
MOST_WAIT = 3.0
APART = 1e-2
"""Nats between sampler and trainer, mean of a sample: bfloat16 stays below."""
GRPO = GrpoConfig(learning_rate=1e-3)


@dataclass
class Run:
    """One problem through its graph."""

    seconds: float
    tokens: int
    updates: int


def problems(count: int) -> list[dict[str, Any]]:
    """The first `count` problems of the data beside this script, each made unsolvable."""
    rows = [json.loads(line) for name in ("learning", "easy") for line in (DATA / f"{name}.jsonl").open()]
    unique = list({row["id"]: row for row in rows}.values())
    if count > len(unique):
        sys.exit(f"there are {len(unique)} problems, {count} were asked for")
    names = ("problem", "entry_point", "starter_code", "setup")
    return [
        {name: row[name] for name in names if row.get(name)} | {"tests": [*row["tests"], IMPOSSIBLE]}
        for row in unique[:count]
    ]


@contextlib.contextmanager
def server(given: argparse.Namespace) -> Iterator[str]:
    """The URL of the server to measure; one of our own is ended afterwards."""
    if given.url:
        yield given.url
        return
    port = str(given.port)
    command = [str(Path(sys.executable).with_name("pot")), "serve", "--sampler", given.sampler, "--port", port]
    command += ["--context-tokens", str(given.context)] + (["--model", given.model] if given.model else [])
    log = tempfile.NamedTemporaryFile(suffix=".log", delete=False)  # noqa: SIM115
    print(f"the server's log: {log.name}", file=sys.stderr, flush=True)
    process = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit("the server ended before it was ready")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url + "/ready").status_code == 200:
                return
        time.sleep(0.5)
    sys.exit(f"the server was not ready after {START_SECONDS} s")


def solve(url: str, sandbox: LocalSandbox, problem: dict[str, Any], config: PotConfig) -> Run:
    """One problem, with a client of its own."""
    began = time.monotonic()
    with HttpPolicy(url) as policy:
        solution = create_pot_agent(policy, sandbox, config=config).invoke(problem)["solution"]
    return Run(time.monotonic() - began, solution["tokens"], solution["updates"])


def apart(url: str, count: int) -> list[str]:
    """Sessions that learn, and then sample at once: what is wrong with any of them."""
    asked = [{"role": "user", "content": "Write a Python function that returns the largest number of a list."}]
    with HttpPolicy(url) as policy:
        sessions = [f"bench-{index}" for index in range(count)]
        for index, session in enumerate(sessions):
            policy.open(session, lora=LoraConfig(), seed=index)
            group = policy.sample(session, version=0, messages=asked, n=3, max_tokens=24, seed=index)
            rewards = {sample.sample_id: float(at == index % 3) for at, sample in enumerate(group)}
            policy.internalize(session, version=0, rewards=rewards, grpo=GRPO)

        def check(session: str) -> str | None:
            drawn = policy.sample(session, version=1, messages=asked, n=2, max_tokens=24, seed=9)
            ids = [sample.sample_id for sample in drawn]
            own, base = (policy.score(session, version=v, sample_ids=ids, temperature=0.7) for v in (1, 0))
            gap = max(abs(sample.logprob - value) for sample, value in zip(drawn, own, strict=True))
            moved = max(abs(a - b) for a, b in zip(own, base, strict=True))
            return f"{session}: {gap:.2g} nats from its own version" if gap > min(APART, moved / 2) else None

        with ThreadPoolExecutor(count) as threads:
            found = [fault for fault in threads.map(check, sessions) if fault]
        for session in sessions:
            policy.close(session)
    return found


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sampler", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--model")
    parser.add_argument("--url")
    parser.add_argument("--port", type=int, default=8730)
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--context", type=int, default=1024)
    return parser.parse_args()


def report(name: str, seconds: float, runs: list[Run]) -> str:
    """One line of the table."""
    tokens, updates = sum(run.tokens for run in runs), sum(run.updates for run in runs)
    took = sorted(run.seconds for run in runs)
    waits = f"{took[0]:.0f} / {statistics.median(took):.0f} / {took[-1]:.0f}"
    return f"| {name} | {seconds:.0f} | {tokens:,} | {tokens / seconds:.0f} | {updates} | {waits} |"


def main() -> None:
    """Measure, print, check."""
    given = arguments()
    count, iterations = (4, 1) if given.quick else (given.problems, given.iterations)
    config = PotConfig.quick(
        iterations=iterations,
        width=given.width,
        max_new_tokens=given.tokens,
        max_prompt_tokens=given.context - given.tokens,
        end_at_block=False,
    )
    rows = problems(count)
    with server(given) as url, LocalSandbox() as sandbox:
        solve(url, sandbox, rows[0], config)  # the first call of all warms everything up
        began = time.monotonic()
        with ThreadPoolExecutor(count) as threads:
            together = list(threads.map(lambda row: solve(url, sandbox, row, config), rows))
        at_once = time.monotonic() - began
        print(f"at once: {at_once:.0f} s", file=sys.stderr, flush=True)
        began = time.monotonic()
        in_turn = [solve(url, sandbox, row, config) for row in rows]
        in_a_row = time.monotonic() - began
        print(f"in a row: {in_a_row:.0f} s", file=sys.stderr, flush=True)
        faults = apart(url, count)
    print("| way | seconds | tokens | tokens/s | updates | seconds a problem: least / median / most |")
    print("|---|---|---|---|---|---|")
    print(report(f"{count} at once", at_once, together))
    print(report(f"{count} in a row", in_a_row, in_turn))
    ratio = at_once / in_a_row
    took = [run.seconds for run in together]
    wait = max(took) / statistics.median(took)
    print(f"\nratio {ratio:.2f}; the slowest problem took {wait:.2f} times the median; ", end="")
    print(f"{count - len(faults)} of {count} sessions sampled their own adapter")
    missed = [*faults]
    missed += [f"ratio {ratio:.2f} is above {MOST_RATIO}"] if ratio > MOST_RATIO else []
    missed += [f"the slowest took {wait:.2f} times the median, {MOST_WAIT} at most"] if wait > MOST_WAIT else []
    if given.check and missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
