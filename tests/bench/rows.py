"""Real rows of the benchmarks, in their own formats, and programs that are right for them."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from pot_agent.bench import datasets
from pot_agent.bench.task import Task

DATA = Path(__file__).parent / "data"
HUMANEVAL, MBPP, GCJ, LCB = (DATA / f"{name}_rows.jsonl" for name in ("humaneval", "mbpp", "gcj", "lcb"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def tasks_of(name: str, data: Path | None = None) -> dict[str, Task]:
    return {task.id: task for task in datasets.load(name, data=data).tasks}


def all_tasks() -> dict[str, Task]:
    """Every row carried here."""
    found = tasks_of("humaneval:partial", HUMANEVAL) | tasks_of("mbpp:partial", MBPP)
    return found | tasks_of("lcb_v5:partial", LCB) | tasks_of(str(GCJ))


def solutions() -> dict[str, str]:
    """The published solution of each."""
    found = {row["task_id"]: row["prompt"] + row["canonical_solution"] for row in rows_of(HUMANEVAL)}
    found |= {f"MBPP/{row['task_id']}": row["code"] for row in rows_of(MBPP)}
    found |= {row["id"]: row["canonical_solution"] for row in rows_of(GCJ)}
    return found | json.loads((DATA / "lcb_solutions.json").read_text())


def has_compiler() -> bool:
    return shutil.which("g++", path=os.defpath + ":/usr/local/bin") is not None
