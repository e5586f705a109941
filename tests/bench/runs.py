"""Run folders made up for tests of the report: plausible, seeded, and nobody's results."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pot_agent.bench.record import RECORD_VERSION, Curve, Ledger, Manifest, Record, Thought

METHODS = {"zero_shot": 0.30, "best_of_n": 0.45, "mcts": 0.50, "pot": 0.62}
"""How often each is right, on the whole."""
ATTACK = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""What a model might write."""


def manifest(*, methods: Sequence[str] = tuple(METHODS), ids: Sequence[str] = (), **changes: Any) -> Manifest:
    """What a run of these arms was."""
    made = Manifest(
        record_version=RECORD_VERSION,
        name="made-up",
        created="2026-01-02T03:04:05+00:00",
        command=["pot", "bench", "HumanEval", *(f"--method={name}" for name in methods)],
        benchmark="humaneval",
        data={"source": "made up", "licence": "MIT", "sha256": "d" * 64, "count": len(ids), "ids": list(ids)},
        methods={name: settings(name) for name in methods},
        seeds=[0],
        model={"model": "tiny", "parameters": 1_000_000, "base_digest": "b" * 64},
        budget={"name": "quick", "matched_by": "programs", "allowed": dict.fromkeys(methods, 24)},
        versions={"pot": "0.0"},
        machine={"host": "somewhere", "cores": 2},
        estimate={"hours": 0.1},
    )
    return Manifest(**{**made, **changes})  # type: ignore[typeddict-item]


def settings(arm: str) -> dict[str, Any]:
    """What a manifest says of an arm."""
    method, width = arm.partition(":")[0], 1 if "k=1" in arm else 3
    return {"method": method, "learns": method == "pot", "config": {"search": {"width": width}, "learn": True}}


def ledger(**changes: Any) -> Ledger:
    """What was spent on a problem."""
    made = Ledger(
        calls=1,
        completions=1,
        prompt_tokens=100,
        completion_tokens=120,
        commit_tokens=0,
        programs=1,
        tests=3,
        update_calls=0,
        updates=0,
        update_steps=0,
        trained_tokens=0,
        seconds={"sampling": 1.5, "executing": 0.5, "total": 2.0},
        flops={"sampling": 3e12, "training": 0.0, "total": 3e12},
        peak_mb=900.0,
    )
    return Ledger(**{**made, **changes})  # type: ignore[typeddict-item]


def record(problem: str = "HumanEval/1", method: str = "pot", correct: bool = True, **changes: Any) -> Record:
    """One method on one problem: right or wrong, and no more."""
    tests, hidden = changes.get("visible_total", 3), changes.get("hidden_total", 7)
    made = Record(
        record_version=RECORD_VERSION,
        problem=problem,
        benchmark="humaneval",
        title=f"Write the function of {problem}.",
        method=method,
        seed=0,
        digest=f"row of {problem}",
        visible_total=tests,
        visible_passed=tests if changes.get("visible_solved", correct) else max(0, tests - 2),
        visible_solved=correct,
        hidden_passed=hidden if correct else hidden - 5,
        hidden_total=hidden,
        correct=correct,
        official=correct,
        verdict="passed" if correct else "wrong_answer",
        program="def f(x):\n    return x",
        evidence="examples",
        stop_reason="solved" if correct else "iterations",
        iterations=1,
        error=None,
        warnings=[],
        ledger=ledger(),
        curve=[],
        tree=[],
        programs=[],
        committed_path=[],
        started="2026-01-02T03:04:05+00:00",
        worker="somewhere:1",
    )
    return Record(**{**made, **changes})  # type: ignore[typeddict-item]


def write_run(folder: Path, made: Manifest, records: Sequence[Record], *, name: str = "results.jsonl") -> Path:
    """A run's folder as the runner leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(made))
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


def curve_row(iteration: int, **changes: Any) -> Curve:
    """One iteration in which nothing was learned."""
    made = Curve(
        iteration=iteration, rewards=[0.0, 0.0], skipped=None, version=0, loss=None, kl=None, grad_norm=None,
        adapter_norm=None, seconds=float(iteration), tokens=100 * iteration,
    )  # fmt: skip
    return Curve(**{**made, **changes})  # type: ignore[typeddict-item]


def visible_tests(problem: str) -> int:
    """How many a problem has."""
    return (1, 3, 2, 4, 3, 5)[sum(map(ord, problem)) % 6]


def searched(problem: str, method: str, seed: int, dice: random.Random) -> Record:
    """A search of up to six iterations, its tree and its curve as the runner records them."""
    rate, learns, tests = METHODS[method.partition(":")[0]], method.startswith("pot"), visible_tests(problem)
    tree = [
        Thought(parent=None, iteration=0, committed=False, program=None, reward=None, visits=0, value=0.0, prior=1.0)
    ]
    programs: list[dict[str, Any]] = []
    curve: list[Curve] = []
    leaf, version, tokens, seconds, commits = 0, 0, 0, 0.0, [0]
    for iteration in range(1, 7):
        rewards = [_thought(tree, programs, leaf, iteration, tests, rate * 0.35, False, dice) for _ in range(3)]
        tokens, seconds = tokens + dice.randint(250, 700), seconds + dice.uniform(2, 6)
        step = curve_row(iteration, rewards=rewards, version=version, seconds=seconds, tokens=tokens)
        curve.append(step)
        if max(rewards) >= 1.0:
            break
        if learns and len(set(rewards)) > 1:
            version += 1
            kl, norm = 0.02 * iteration * dice.uniform(0.5, 1.5), 0.4 * version**0.5
            step.update(version=version, loss=-0.01, kl=kl, grad_norm=dice.uniform(0.3, 1.5), adapter_norm=norm)
        elif learns:
            step["skipped"] = "all rewards are equal"
        best = _thought(tree, programs, leaf, iteration, tests, rate * 0.4, True, dice)
        commits.append(len(tree) - 1)
        if best >= 1.0:
            break
        leaf = dice.randrange(1, len(tree))
    return _ended(record(problem, method, seed=seed), tree, programs, curve, commits[-1], version, tests, dice)


def _thought(
    tree: list[Thought], programs: list[dict[str, Any]], parent: int, iteration: int, tests: int, rate: float,
    committed: bool, dice: random.Random,
) -> float:  # fmt: skip
    passed = tests if dice.random() < rate else dice.randrange(tests)
    verdict = (
        "passed" if passed == tests else dice.choice(("wrong_answer", "wrong_answer", "runtime_error", "time_limit"))
    )
    body = "\n".join(f"    total += x ** {n}  # step {n}" for n in range(dice.randint(2, 14)))
    text = f"def f(x: int) -> int:\n    total = {len(programs)}\n{body}\n    return total\n# {ATTACK}"
    feedback = "" if passed == tests else f"f({dice.randint(1, 9)}) gave 3, expected 4 {ATTACK}"
    programs.append({"text": text, "verdict": verdict, "passed": passed, "total": tests, "feedback": feedback})
    reward = passed / tests
    node = Thought(
        parent=parent, iteration=iteration, committed=committed, program=len(programs) - 1, reward=reward, visits=0,
        value=0.0, prior=1 / 3,
    )  # fmt: skip
    tree.append(node)
    above: int | None = len(tree) - 1
    while above is not None:
        seen = tree[above]
        seen["value"] = (seen["value"] * seen["visits"] + reward) / (seen["visits"] + 1)
        seen["visits"] += 1
        above = seen["parent"]
    return reward


def _ended(
    made: Record, tree: list[Thought], programs: list[dict[str, Any]], curve: list[Curve], last: int, version: int,
    tests: int, dice: random.Random,
) -> Record:  # fmt: skip
    best = max(programs, key=lambda program: program["passed"])
    solved = best["passed"] == tests
    correct = solved and dice.random() < 0.8
    path = []
    while last:
        path, last = [last, *path], tree[last]["parent"] or 0
    spent = ledger(
        calls=2 * len(curve), completions=len(programs), completion_tokens=curve[-1]["tokens"] + 90,
        programs=len(programs), updates=version, update_steps=3 * version,
        seconds={"sampling": curve[-1]["seconds"], "total": curve[-1]["seconds"] + 0.5},
        flops={"total": 2e10 * curve[-1]["tokens"] * (1 + version)},
    )  # fmt: skip
    return Record(**{  # type: ignore[typeddict-item]
        **made, "visible_total": tests, "visible_passed": best["passed"], "visible_solved": solved,
        "correct": correct, "official": correct, "hidden_passed": 7 if correct else 3, "program": best["text"],
        "verdict": "passed" if correct else "wrong_answer", "stop_reason": "solved" if solved else "iterations",
        "iterations": len(curve), "ledger": spent, "curve": curve, "tree": tree, "programs": programs,
        "committed_path": [0, *path] if path else [],
    })  # fmt: skip


def answered(problem: str, method: str, seed: int, dice: random.Random) -> Record:
    """A method that keeps no tree."""
    seen = dice.random() < METHODS[method] * 1.2
    correct = seen and dice.random() < 0.85
    tokens = dice.randint(80, 400) * (1 if method == "zero_shot" else dice.randint(1, 18))
    spent = ledger(completion_tokens=tokens, seconds={"total": tokens / 60})
    return record(problem, method, correct, seed=seed, visible_total=visible_tests(problem), visible_solved=seen,
                  ledger=spent, program=f"# {ATTACK}")  # fmt: skip


def plausible(folder: Path, *, problems: int = 12, seeds: Sequence[int] = (0,)) -> Path:
    """A whole run of four methods."""
    dice, ids = random.Random(7), [f"HumanEval/{number}" for number in range(problems)]
    records = []
    for problem in ids:
        for method in METHODS:
            make = searched if method in ("pot", "mcts") else answered
            records += [make(problem, method, seed, dice) for seed in seeds]
    records[3] = Record(
        **{
            **records[3],
            "error": f"SessionNotFoundError: gone {ATTACK}",
            "correct": False,
            "visible_solved": False,
            "official": False,
            "stop_reason": "error",
        }
    )  # type: ignore[typeddict-item]
    return write_run(folder, manifest(ids=ids, seeds=list(seeds)), records)
