"""How fast completions are sampled, against transformers' `generate`; all figures of a table are of one run.

    python benchmarks/bench_sampling.py [--quick] [--check] [--curve] [--threads N] [--model M] [--device D]

Limits first: times depend on the machine and on what else runs there (two threads on a busy core are slower than one),
so only the ratio is a target. One process, the ways in turn, medians of the rounds. Each way samples at temperature 0.7
with the same LoRA active (peft's own layers for `generate`), end-of-sequence off, so that all draw equally many tokens;
the prompt is random ids. Before the figures all ways decode greedily, and the number of equal tokens is printed, for
float32 rounding may part them late. `prefill` lasts until the first token, `decode` from there on; `share` is of what
reading every weight once a step would allow, at the speed at which this run reads a large tensor.

The way `through` is our sampler without its lean decoder, through transformers' layers. Target (`--check` exits with 1
where it is missed): at width 3, the whole call at least 1.5 times faster than `generate` with `num_return_sequences`.
"""

import argparse
import os
from collections.abc import Sequence
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from sampling import Bench, Times, Work

TIMES, WIDTH = 1.5, 3
WIDTHS, CURVE_WIDTHS, CURVE_LENGTHS = (1, 3, 8), (1, 2, 3, 4, 6, 8, 12, 16), (128, 512, 1024, 2048)
SIZES, QUICK_SIZES, CURVE_TOKENS = (1024, 256, 3), (256, 32, 3), 64
GREEDY_TOKENS = 16

Found = dict[str, list[list[Times]]]
"""By way, for each work: the times of the rounds."""


def main() -> int:
    """Measure, print, and say which targets were missed."""
    options = read_options()
    torch.set_num_threads(options.threads)
    console, bench = Console(), Bench(options.model, device=options.device, dtype=options.dtype)
    ways = options.ways.split(",")
    works = [bench.work(options.prompt, width, options.tokens) for width in options.widths]
    console.print(greedy_agreement(bench, ways, options.prompt))
    found = measured(bench, ways, works, options.rounds)
    steps = bench.bandwidth() / bench.step_bytes()
    console.print(comparison(found, works, steps, f"{options.model}, {bench.engine.device}, {options.threads} threads"))
    if options.curve:
        console.print(curve(bench, options, steps))
    missed = misses(found, works)
    for line in missed:
        console.print(f"target missed: {line}", style="bold")
    return 1 if missed and options.check else 0


def read_options() -> argparse.Namespace:
    """The options, sizes filled in."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help="under a minute: 256-token prompt, 32 tokens, width 3")
    made.add_argument("--check", action="store_true", help="exit with 1 where the target is missed")
    made.add_argument("--curve", action="store_true", help="our speed over widths and over lengths of the prompt, too")
    made.add_argument("--ways", default="ours,generate", help="of ours,through,generate")
    made.add_argument("--model", default="embedded")
    made.add_argument("--device", help="cpu or cuda; what is there")
    made.add_argument("--dtype", help="of the weights; float32 on a CPU, bfloat16 on a GPU")
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="processors to use")
    made.add_argument("--prompt", type=int, help="tokens of the prompt; 1,024")
    made.add_argument("--tokens", type=int, help="new tokens of each row; 256")
    made.add_argument("--rounds", type=int, help="measurements of each way and width; 3")
    options = made.parse_args()
    sizes = QUICK_SIZES if options.quick else SIZES
    given = (options.prompt, options.tokens, options.rounds)
    options.prompt, options.tokens, options.rounds = (one or other for one, other in zip(given, sizes, strict=True))
    options.widths = (WIDTH,) if options.quick else WIDTHS
    unknown = set(options.ways.split(",")) - {"ours", "through", "generate"}
    if unknown or options.tokens < 2:
        made.error("ways are of ours, through and generate, and tokens at least 2")
    return options


def greedy_agreement(bench: Bench, ways: Sequence[str], prompt: int) -> str:
    """How many greedy tokens of the ways are equal, from the first on; it warms every way up, too."""
    work = bench.work(prompt, 1, GREEDY_TOKENS, temperature=0.0)
    columns = zip(*(bench.ways[way](work).ids[0] for way in ways), strict=True)
    equal = next((at for at, ids in enumerate(columns) if len(set(ids)) > 1), GREEDY_TOKENS)
    return f"greedy tokens that are equal ({', '.join(ways)}): the first {equal} of {GREEDY_TOKENS}"


def measured(bench: Bench, ways: Sequence[str], works: Sequence[Work], rounds: int) -> Found:
    """All ways in turn, round by round."""
    found: Found = {way: [[] for _ in works] for way in ways}
    for _ in range(rounds):
        for at, work in enumerate(works):
            for way in ways:
                found[way][at].append(bench.ways[way](work))
    return found


def comparison(found: Found, works: Sequence[Work], steps: float, where: str) -> Table:
    """Ways side by side; `steps` a second are what reading the weights would allow."""
    first = works[0]
    made = Table(
        *("width", "way", "prefill s", "decode s", "whole s", "tokens/s, decode", "share", "times generate"),
        title=f"prompt {first.prompt_tokens:,}, {first.tokens} new tokens, {where}",
        caption=f"reading the weights allows {steps:.1f} steps a second",
    )
    for at, work in enumerate(works):
        generate = whole(found["generate"][at]) if "generate" in found else None
        for way, times in found.items():
            rate = speed(times[at], work)
            made.add_row(
                str(work.width),
                way,
                f"{median(one.prefill for one in times[at]):.2f}",
                f"{median(one.decode for one in times[at]):.2f}",
                f"{whole(times[at]):.2f}",
                f"{rate:.1f}",
                f"{rate / (steps * work.width):.0%}",
                f"{generate / whole(times[at]):.2f}" if generate else "",
            )
    return made


def curve(bench: Bench, options: argparse.Namespace, steps: float) -> Table:
    """Our speed over widths at one length, and over lengths at one width."""
    shapes = [(options.prompt, width) for width in CURVE_WIDTHS]
    shapes += [(length, WIDTH) for length in CURVE_LENGTHS if length != options.prompt]
    works = [bench.work(prompt, width, CURVE_TOKENS) for prompt, width in shapes]
    found = measured(bench, ["ours"], works, options.rounds)["ours"]
    made = Table(
        *("prompt", "width", "prefill s", "ms/step", "tokens/s, decode", "share", "s for 256 tokens each", "a sample"),
        title=f"our sampler over width and length; {CURVE_TOKENS} new tokens measured",
    )
    for work, times in zip(works, found, strict=True):
        rate, prefill = speed(times, work), median(one.prefill for one in times)
        call = prefill + 255 * work.width / rate
        made.add_row(
            f"{work.prompt_tokens:,}",
            str(work.width),
            f"{prefill:.2f}",
            f"{1000 * work.width / rate:.1f}",
            f"{rate:.1f}",
            f"{rate / (steps * work.width):.0%}",
            f"{call:.2f}",
            f"{call / work.width:.2f}",
        )
    return made


def whole(times: Sequence[Times]) -> float:
    """Median seconds of a call."""
    return median(one.prefill + one.decode for one in times)


def speed(times: Sequence[Times], work: Work) -> float:
    """Tokens a second after the first of each row."""
    return work.width * (work.tokens - 1) / median(one.decode for one in times)


def misses(found: Found, works: Sequence[Work]) -> list[str]:
    """The target, where it was missed."""
    at = [work.width for work in works].index(WIDTH)
    if "ours" not in found or "generate" not in found:
        return [f"nothing to compare at width {WIDTH}: give --ways ours,generate"]
    times = whole(found["generate"][at]) / whole(found["ours"][at])
    return [] if times >= TIMES else [f"{times:.2f} times as fast as generate at width {WIDTH}; {TIMES} wanted"]


if __name__ == "__main__":
    raise SystemExit(main())
