"""A real `pot serve` in a process of its own, to be killed, measured and started again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]

Process = subprocess.Popen[bytes]


@contextmanager
def real_server(model: Path, port: int, *, state: Path | None = None, **environment: str) -> Iterator[Process]:
    """`pot serve`, ready; killed at the end of the block, if not before. `environment` is added to its own."""
    options = ["serve", "--model", str(model), "--port", str(port)]
    options += [] if state is None else ["--state", str(state)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from pot_agent.cli import main; main()", *options],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,  # a line for each request
        env={**os.environ, "POT_THREADS": "1", "OMP_NUM_THREADS": "1", **environment},
    )
    try:
        deadline = time.monotonic() + 120
        while not _is_ready(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server was not ready"
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


def metrics_of(url: str) -> dict[tuple[str, ...], float]:
    """Value of each sample, by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text)
        for sample in family.samples
    }


def resident_bytes(process: Process) -> int:
    """Memory that the process holds."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def threads_of(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))
