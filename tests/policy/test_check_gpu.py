"""The script that checks a GPU, on a CPU: all of it once, and that what is wrong is seen."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

from pot_agent.errors import PolicyError
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.machine_memory import MachineMemory
from pot_agent.policy.planning import plan_for
from scripts.draw_sizes import MODELS

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
CHECKS = ["load", "contract", "gap", "canary", "two_sessions", "versions", "speed", "update", "base", "memory"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("check_gpu")


@pytest.fixture
def checking(script: ModuleType) -> Iterator[Any]:
    made = script.Checking(60.0, Console(quiet=True))
    yield made
    made.end()


@pytest.fixture
def subject(script: ModuleType, checking: Any, tiny: Path) -> Iterator[Any]:
    """What is checked: the tiny model, its sampler in reach."""
    with LocalPolicy(str(tiny), threads=1, batch=False, context_tokens=512) as policy:
        plan = script.plan_of(policy, "transformers", script.QUICK, 256)
        yield script.Subject(policy, script.QUICK, plan, checking.cancel, 0)


def test_all_of_it_passes_here_and_what_is_not_installed_is_skipped(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, str(BENCHMARKS / "check_gpu.py"), "--device", "cpu", "--quick", "--threads", "1"]
    here = importlib.util.find_spec("vllm") is not None  # make test-vllm has other tests of it
    command += ["--samplers", "transformers"] if here else []
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())
    assert [row["check"] for row in rows if row["sampler"] == "transformers"] == CHECKS
    assert {row["result"] for row in rows if row["sampler"] == "transformers"} == {"PASS"}
    if not here:
        assert [(r["check"], r["text"]) for r in rows if r["sampler"] == "vllm"] == [("load", "vllm is not installed")]


def test_when_the_time_is_over_the_rest_is_skipped(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.json"
    options = ["--device", "cpu", "--quick", "--seconds", "0", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", *options])
    assert script.main() == 0
    assert {row["result"] for row in json.loads(out.read_text())} == {"SKIPPED"}


def test_a_check_that_is_running_when_the_time_is_over_is_skipped_and_leaves_the_policy_whole(
    script: ModuleType, checking: Any, subject: Any
) -> None:
    checking.cancel.set()
    assert not checking.run("transformers", "speed", lambda: script.CHECKS[6](subject))
    assert checking.rows[-1].result == "SKIPPED"
    checking.cancel.clear()
    assert checking.run("transformers", "speed", lambda: script.CHECKS[6](subject))


def test_a_sampler_that_runs_the_base_fails(script: ModuleType, checking: Any, subject: Any) -> None:
    sampler = subject.policy._engine._sampler
    draw = sampler.draw
    sampler.draw = lambda request, layout, vector: draw(request, None, None)
    assert not checking.run("transformers", "contract", lambda: script.CHECKS[0](subject))
    assert checking.rows[-1].result == "FAIL"
    assert "AdapterNotSampledError" in checking.rows[-1].text


def test_a_sampler_that_is_one_version_behind_fails(script: ModuleType, subject: Any) -> None:
    gpu_checks = importlib.import_module("gpu_checks")
    sampler, seen = subject.policy._engine._sampler, [None, None]
    draw, engine = sampler.draw, subject.policy._engine

    def stale(request: Any, layout: Any, vector: Any) -> Any:
        if vector is not None and vector is not seen[-1]:
            seen.append(vector)
        return draw(request, layout, seen[-2])

    engine.canary = lambda *_: engine_canary
    engine_canary = type("Canary", (), {"verdict": "reached", "gap": 0.0, "separation": 1.0})()
    sampler.draw = stale
    with pytest.raises(gpu_checks.CheckFailedError, match="is sampled as version"):
        gpu_checks.versions(subject)


def test_a_base_that_changed_by_one_bit_fails(script: ModuleType, subject: Any) -> None:
    gpu_checks = importlib.import_module("gpu_checks")
    subject.digest = subject.weights()
    assert gpu_checks.base(subject)
    weight = next(iter(subject.policy._engine._base.values()))
    weight.data.view(torch.int32).view(-1)[0] ^= 1
    with pytest.raises(gpu_checks.CheckFailedError, match="before"):
        gpu_checks.base(subject)


def test_more_memory_than_was_reckoned_fails(script: ModuleType, subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_figures = importlib.import_module("gpu_figures")
    monkeypatch.setattr(gpu_figures, "peak_of_this_process", lambda: 10 * 2**30)
    with pytest.raises(gpu_figures.CheckFailedError, match=r"10\.00 GiB at most"):
        gpu_figures.memory(subject)


def test_a_model_that_the_plan_refuses_is_skipped_with_what_would_fit(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(*_: object, **__: object) -> None:
        there = MachineMemory(8 * 2**30, 8 * 2**30)
        plan_for(
            MODELS["Qwen3-4B"], torch.device("cuda"), torch.bfloat16, "vllm", script.SIZES, 4096, 4, memory=there
        ).check()

    out = tmp_path / "rows.json"
    monkeypatch.setattr(script, "LocalPolicy", small)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--device", "cpu", "--quick", "--out", str(out)])
    assert script.main() == 0
    rows = [row for row in json.loads(out.read_text()) if row["sampler"] == "transformers"]
    assert {row["result"] for row in rows} == {"SKIPPED"}
    assert "It would fit with" in rows[0]["text"]


def test_an_error_that_nobody_planned_for_is_a_failure_and_the_rest_goes_on(checking: Any) -> None:
    def broken() -> str:
        raise PolicyError("no such thing", value=None)

    assert not checking.run("transformers", "broken", broken)
    assert checking.run("transformers", "whole", lambda: "fine")
    assert [row.result for row in checking.rows] == ["FAIL", "PASS"]
