"""How fast and how large: the checks of `check_gpu.py` that give figures.

Limits: times are of one run; what is compared with the plan is what torch allocates in this process.
"""

import time
from pathlib import Path

import torch
from gpu_subject import LORA, CheckFailedError, Subject

from pot_agent.policy.memory_plan import GIB, MALLOC, PROCESS_BYTES

TFLOPS = {
    "H200": 989,
    "H100": 989,
    "A100": 312,
    "L40S": 362,
    "4090": 165,
    "A10G": 70,
    "L4": 121,
    "T4": 65,
    "B200": 2250,
}
"""Dense, in 16 bits with sums in float32, as the makers say."""


def speed(subject: Subject) -> str:
    """Tokens a second at several widths, the prompt's time included."""
    session, parts = subject.open(), []
    ask, tokens = subject.ask(subject.load.prompt), subject.load.new_tokens
    for width in (subject.load.widths[0], *subject.load.widths):  # the first time is for warming up
        started = time.perf_counter()
        group = subject.draw(session, messages=ask, n=width, max_tokens=tokens)
        seconds = time.perf_counter() - started
        parts.append(f"{width}: {sum(sample.tokens for sample in group) / seconds:,.0f}")
    subject.policy.close(session)
    return f"tokens/s by width, {subject.load.prompt}+{tokens} tokens: {', '.join(parts[1:])}"


def update(subject: Subject) -> str:
    """One update of the size that is planned for: phases, FLOPs a second, and how much of the device's that is."""
    session, load = subject.open(), subject.load
    receipt = None
    for _ in range(2):  # the first time is for warming up
        receipt = subject.learn(
            session,
            0 if receipt is None else receipt.version,
            messages=subject.ask(load.prompt),
            n=load.group,
            max_tokens=load.completion,
        )
    if receipt is None or receipt.flops is None:
        raise CheckFailedError("the receipt has no FLOPs")
    subject.policy.close(session)
    seconds = sum(receipt.phases.get(name, 0.0) for name in ("reference", "epochs"))
    rate = receipt.flops / seconds / 1e12
    peak = subject.peak_tflops or _peak(subject)
    used = f", {rate / peak:.0%} of {peak:g}" if peak else ""
    phases = ", ".join(f"{name} {value:.2f}" for name, value in receipt.phases.items() if value >= 0.005)
    return f"{receipt.tokens:,} tokens in {receipt.seconds:.2f} s ({phases}); {rate:.3g} TFLOP/s{used}"


def memory(subject: Subject) -> str:
    """The most that this process held against what the formulas of the plan say of just these checks."""
    device, reckoned = subject.policy._engine.device, reckoned_for(subject)
    if device.type == "cpu":
        held, reckoned, more = peak_of_this_process() - subject.held_before, reckoned + PROCESS_BYTES, ""
    else:
        held = torch.cuda.max_memory_allocated(device)
        more = f" (the allocator held {torch.cuda.max_memory_reserved(device) / GIB:.2f})"
    text = f"{held / GIB:.2f} GiB at most{more}, {reckoned / GIB:.2f} reckoned"
    if held > reckoned:
        raise CheckFailedError(text)
    return text


def reckoned_for(subject: Subject) -> int:
    """Bytes for the sizes of these checks, and for passes and segments as the trainer was built."""
    engine, load, foot = subject.policy._engine, subject.load, subject.plan.wish.footprint
    number, on_cpu = subject.plan.wish.number, engine.device.type == "cpu"
    forward = engine._trainer._forward
    update = foot.update(
        prompt=load.prompt,
        own=max(load.completion, min(forward._pass_tokens, load.group * load.completion)),
        rows=load.group,
        segment=forward.prompts._segment,
        rank=LORA.rank,
        number=number,
        cpu=on_cpu,
    )
    total = foot.weights(number) + foot.sessions(LORA.rank, max(load.sessions, load.versions))
    if engine.capabilities.sampler == "transformers":
        context, rows = load.prompt + max(load.new_tokens, load.completion), max(load.widths)
        update = max(update, foot.sampling(context=context, rows=rows, number=number))
        total += foot.keys_and_values(rows * context, number) + (foot.packed(number) if on_cpu else 0)
    return total + (int(MALLOC * update) if on_cpu else update)


def peak_of_this_process() -> int:
    """The most that this process has held of main memory since `count_from_here`, in bytes."""
    return _status("VmHWM")


def count_from_here() -> int:
    """Let the peak be counted from here; what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _peak(subject: Subject) -> float | None:
    device = subject.policy._engine.device
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((float(peak) for key, peak in TFLOPS.items() if key in name), None)
