"""How fast and how large one GRPO update is, against a naive one and against TRL's GRPOTrainer; all in one run.

    python benchmarks/bench_internalize.py [--quick] [--check] [--threads N]
    python benchmarks/bench_internalize.py --device cuda --config qwen3-4b --shapes 1024:2048 --check

Limits first: times depend on the machine and on what else runs there, so on a CPU only ratios are targets. Each way of
updating runs in a process of its own, once with a few tokens and then for the figures; memory growth is the peak
during that update less what was held before it (resident on a CPU, allocated on a GPU). Groups of 3, 3 epochs, equal
token ids, adapter and optimizer; the losses are printed, and checked to be equal. The adapter has been trained before,
so the reference (the base) costs every way a pass: an episode's first update is cheaper for us, not for the others.

Targets (`--check` exits with 1 where one is missed) at 1,024:256, on a CPU: at least 2.5 times faster than naive (full
logits, the prompt again with each sample, separate passes for old and reference log-probabilities) and 2 times faster
than TRL, with at most half of naive's memory growth. With the config qwen3-4b (random weights) on a GPU, for 3 x 2,048
tokens: an epoch within 0.5 s, an update within 2 s, an adapter servable within 100 ms.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from updates import Done, Shape, Work, epoch_flops, prepare, publish, random_ids, update_ours

from pot_agent.policy.memory import give_back_free_memory

WAYS = ("ours", "naive", "trl")
MAIN = Shape(1024, 256)
SHAPES, QUICK = "1024:256,512:512,256:512", "96:32"
WARM_UP = Shape(16, 8)
NAIVE_TIMES, TRL_TIMES, MEMORY_SHARE = 2.5, 2.0, 0.5
EPOCH_SECONDS, UPDATE_SECONDS, PUBLISH_SECONDS = 0.5, 2.0, 0.1
LOSS_TOLERANCE = {"cpu": 1e-4, "cuda": 2e-2}
SHARED_MEMORY = Path("/dev/shm")

Figures = dict[str, Any]


def main() -> int:
    """Measure, print, and say which targets were missed."""
    options = parser().parse_args()
    options.ways = options.ways or ("ours,naive" if options.shapes == QUICK else ",".join(WAYS))
    if options.child:
        torch.save(child(options), options.result)
        return 0
    console, missed = Console(), []
    for shape in [shape_of(text) for text in options.shapes.split(",")]:
        found = {way: measured(way, shape, options) for way in options.ways.split(",")}
        console.print(table(found, shape, options))
        missed += misses(found, shape, options)
    for line in missed:
        console.print(f"target missed: {line}", style="bold")
    return 1 if missed and options.check else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--quick", action="store_const", dest="shapes", const=QUICK, help=f"under a minute: {QUICK}")
    made.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    made.add_argument("--shapes", default=SHAPES, help=f"prompt:completion tokens, ... ({SHAPES})")
    made.add_argument("--ways", help=f"of {','.join(WAYS)}; all, but with --quick no trl")
    made.add_argument("--config", default="embedded", help="a model, or `qwen3-4b` for random weights of that shape")
    made.add_argument("--layers", type=int, help="fewer layers, with qwen3-4b")
    made.add_argument("--device", help="cpu or cuda; what is there")
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="processors to use")
    made.add_argument("--rounds", type=int, default=1, help="updates to time in each process; the fastest counts")
    made.add_argument("--peak-tflops", type=float, default=989.0, help="of the GPU, dense bf16 (an H100's 989)")
    made.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    made.add_argument("--result", help=argparse.SUPPRESS)
    return made


def shape_of(text: str) -> Shape:
    """`1024:256` as a shape."""
    prompt, _, completion = text.partition(":")
    return Shape(int(prompt), int(completion))


def measured(way: str, shape: Shape, options: argparse.Namespace) -> Figures:
    """The figures of one way, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "figures.pt")
        command = [sys.executable, __file__, "--child", way, "--result", str(result), "--shapes", str(shape)]
        command += ["--config", options.config, "--threads", str(options.threads), "--rounds", str(options.rounds)]
        command += ["--device", options.device] if options.device else []
        command += ["--layers", str(options.layers)] if options.layers else []
        subprocess.run(command, check=True, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
        figures: Figures = torch.load(result, weights_only=True)
        return figures


def child(options: argparse.Namespace) -> Figures:
    """One way in this process: a small update first, then those that count."""
    torch.set_num_threads(options.threads)
    shape = shape_of(options.shapes)
    work = prepare(options.config, WARM_UP, device=options.device, layers=options.layers)
    run = way_of(options.child)(work)
    run()
    work.prompt_ids, work.rows = random_ids(shape)
    figures: Figures = {}
    for _ in range(options.rounds):
        processed = time.process_time()
        done, growth = with_growth(run, work.device)
        if done.seconds < figures.get("seconds", float("inf")):
            figures = vars(done) | {"growth": growth, "cpu_seconds": time.process_time() - processed}
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        published = min(publish(work.layout, figures["vector"], Path(folder)) for _ in range(3))
    return figures | {
        "vector": figures["vector"].cpu(),
        "parent": work.parent.cpu(),
        "epoch_flops": epoch_flops(work),
        "publish": published,
        "device": work.device.type,
    }


def way_of(name: str) -> Callable[[Work], Callable[[], Done]]:
    """The function that prepares a way of updating."""
    if name == "ours":
        return update_ours
    if name == "naive":
        from naive import update_naive

        return update_naive
    from with_trl import update_trl

    return update_trl


def with_growth(run: Callable[[], Done], device: torch.device) -> tuple[Done, int]:
    """What it did, and its peak memory beyond what was held before, in bytes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        return run(), torch.cuda.max_memory_allocated(device) - held
    give_back_free_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    held = status("VmRSS")
    return run(), status("VmHWM") - held


def status(name: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def table(found: dict[str, Figures], shape: Shape, options: argparse.Namespace) -> Table:
    """All ways at one shape; ratios are to ours."""
    made = Table(
        *("way", "s", "ratio", "CPU s", "s/epoch", "TFLOP/s", "GiB more", "ratio", "loss 1, 2, 3", "step off"),
        title=f"{options.config}, prompt:completion {shape}, {found_device(found)}, {options.threads} threads",
    )
    ours = found.get("ours") or next(iter(found.values()))
    for way, figures in found.items():
        rate = figures["epoch_flops"] / best_epoch(figures) / 1e12
        used = f" ({rate / options.peak_tflops:.0%})" if figures["device"] == "cuda" else ""
        made.add_row(
            way,
            f"{figures['seconds']:.2f}",
            f"{figures['seconds'] / ours['seconds']:.2f}",
            f"{figures['cpu_seconds']:.1f}",
            f"{best_epoch(figures):.2f}",
            f"{rate:.3g}{used}",
            f"{figures['growth'] / 2**30:.2f}",
            f"{figures['growth'] / max(1, ours['growth']):.2f}",
            "\n".join(f"{loss:+.7f}" for loss in figures["losses"]),
            f"{step_difference(figures, ours):.0e}",
        )
    made.caption = f"adapter servable in {1000 * ours['publish']:.0f} ms"
    return made


def found_device(found: dict[str, Figures]) -> str:
    """The kind of device that all ran on."""
    return str(next(iter(found.values()))["device"])


def best_epoch(figures: Figures) -> float:
    """Seconds of the fastest epoch that holds nothing else (TRL's first holds the passes before it)."""
    return float(min(figures["epoch_seconds"]))


def step_difference(figures: Figures, ours: Figures) -> float:
    """How far two updates end from each other, relative to how far ours went."""
    went = (ours["vector"] - ours["parent"]).norm()
    return float((figures["vector"] - ours["vector"]).norm() / went)


def misses(found: dict[str, Figures], shape: Shape, options: argparse.Namespace) -> list[str]:
    """The targets that were missed, by name."""
    ours, missed = found.get("ours"), []
    if ours is None:
        return []
    for way, figures in found.items():
        scale = max(abs(loss) for loss in ours["losses"])
        gap = max(abs(a - b) for a, b in zip(figures["losses"], ours["losses"], strict=True))
        if gap > LOSS_TOLERANCE[ours["device"]] * scale:
            missed.append(f"{shape}: {way}'s losses equal ours, got {figures['losses']} and {ours['losses']}")
    if ours["device"] == "cuda":
        return missed + (gpu_misses(ours) if options.config == "qwen3-4b" and shape.completion == 2048 else [])
    if shape != MAIN:
        return missed
    for way, times in (("naive", NAIVE_TIMES), ("trl", TRL_TIMES)):
        if way in found and found[way]["seconds"] < times * ours["seconds"]:
            missed.append(f"{times:g} times faster than {way}, got {found[way]['seconds'] / ours['seconds']:.2f}")
    if "naive" in found and ours["growth"] > MEMORY_SHARE * found["naive"]["growth"]:
        missed.append(f"at most {MEMORY_SHARE:g} of naive's memory growth, got {ours['growth'] / 2**30:.2f} GiB")
    return missed


def gpu_misses(ours: Figures) -> list[str]:
    """The targets of a GPU, which are times."""
    limits = {
        "an epoch": (best_epoch(ours), EPOCH_SECONDS),
        "an update": (ours["seconds"], UPDATE_SECONDS),
        "an adapter servable": (ours["publish"], PUBLISH_SECONDS),
    }
    return [f"{name} within {most:g} s, got {got:.2f}" for name, (got, most) in limits.items() if got > most]


if __name__ == "__main__":
    raise SystemExit(main())
