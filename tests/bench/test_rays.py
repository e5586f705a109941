"""Problems as tasks of a real Ray cluster on this machine: two workers, servers behind them, and workers that die."""

import os
import pickle
import signal
import time
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from rich.console import Console

from pot_agent.bench.rays import OnRay, answer
from pot_agent.bench.runner import run_benchmark
from pot_agent.bench.task import Task
from pot_agent.bench.trial import Trial
from pot_agent.errors import CancelledError, ClusterError, ConfigError, PolicyUnavailableError, error_by_code
from pot_agent.settings import Settings
from pot_agent.shell.benching import Order, bench
from tests.bench.running import (
    CONFIG,
    SteadyPolicy,
    arm,
    as_file,
    at_call,
    comparable,
    dying_server,
    plan,
    read,
    run,
    tasks,
)
from tests.bench.test_firewall import CANARY, SEEN, holds, planted  # noqa: F401  (a fixture)
from tests.policy.serving import free_port, serving

ARMS = [arm("zero_shot"), arm("pot")]
TWO = {"num_cpus": 2}


@pytest.fixture
def pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the package as this process does, wherever it is run."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def whole(folder: Path, sandbox: Any, given: Any = None) -> list[dict[str, Any]]:
    return comparable(run(plan(folder, ARMS, given), SteadyPolicy(), sandbox))


def workers_at_work() -> list[int]:
    """Processes of Ray that have one of our problems: it names them after their task."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::add/"):
                found.append(int(path.parent.name))
        except OSError:  # ended meanwhile
            continue
    return found


class Killer:
    """Kills one of the workers that have a problem, and remembers which."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def __call__(self) -> None:
        self.killed.append(workers_at_work()[0])
        os.kill(self.killed[-1], signal.SIGKILL)


@pytest.mark.long
def test_a_worker_that_is_killed_leaves_a_whole_run_with_each_problem_once(
    sandbox: Any, tmp_path: Path, pythonpath: None
) -> None:
    kill_one = Killer()
    policy = SteadyPolicy(at_call(9, kill_one))
    expected = whole(tmp_path / "whole", sandbox)
    with serving(policy) as url, OnRay("local", urls=[url], settings=Settings(), **TWO) as cluster:
        assert cluster.about()[0].model == "scripted"
        records = run_benchmark(plan(tmp_path / "r", ARMS, workers=2), cluster, sandbox)
    assert comparable(records) == expected
    assert comparable(read(tmp_path / "r")) == expected
    assert policy.samples > sum(record["ledger"]["calls"] for record in records)  # what was lost was asked again
    assert len(kill_one.killed) == 1
    workers = {int(record["worker"].rpartition(":")[2]) for record in records}
    assert workers - set(kill_one.killed)  # what it had was run by another
    assert os.getpid() not in workers


@pytest.mark.long
def test_the_command_on_ray_goes_on_with_one_server_where_the_other_dies(
    sandbox: Any, tmp_path: Path, pythonpath: None
) -> None:
    expected, out = whole(tmp_path / "whole", sandbox), tmp_path / "r"
    console = Console(file=open(os.devnull, "w"), record=True, width=200)  # noqa: SIM115
    changes = {"iterations": 2, "width": 2, "max_new_tokens": 8}
    with dying_server(4) as (dying, url), serving(SteadyPolicy()) as well:
        given = Order(
            benchmark=str(as_file(tmp_path, tasks())),
            settings=Settings(),
            methods=("zero_shot", "pot"),
            policies=[url, well],
            ray="local",
            budget="quick",
            changes=changes,
            workers=2,
            out=out,
        )
        records = bench(given, console)
    assert 4 <= dying.samples <= 5
    unlike = ("digest", "benchmark")
    plain = [{name: value for name, value in one.items() if name not in unlike} for one in comparable(records)]
    assert plain == [{name: value for name, value in one.items() if name not in unlike} for one in expected]
    assert "2 such policies side by side" in console.export_text()


class Recorder:
    """Keeps what travels to a cluster, as the bytes that travel."""

    def __init__(self, task: Any, kept: list[bytes]) -> None:
        self._task, self._kept = task, kept

    def options(self, **options: Any) -> "Recorder":
        self._kept.append(pickle.dumps(options))
        return Recorder(self._task.options(**options), self._kept)

    def remote(self, *given: Any) -> Any:
        import ray.cloudpickle

        self._kept.append(ray.cloudpickle.dumps(given))
        return self._task.remote(*given)


@pytest.mark.long
def test_what_travels_to_a_worker_holds_no_hidden_test_and_a_cancelled_problem_ends_there(
    sandbox: Any,
    tmp_path: Path,
    planted: Task,  # noqa: F811
    pythonpath: None,
) -> None:
    kept: list[bytes] = []
    waiting, lock, cancel = Event(), Lock(), Event()

    def before(call: int) -> None:
        if waiting.is_set():
            with lock:
                cancel.set()
            time.sleep(2)

    policy = SteadyPolicy(before)
    with serving(policy) as url, OnRay("local", urls=[url], settings=Settings(), **TWO) as cluster:
        cluster._task = Recorder(cluster._task, kept)
        cluster.about()
        cluster.probe(planted.problem, CONFIG, learn=True)
        (record,) = run_benchmark(plan(tmp_path / "r", [arm("pot")], [planted]), cluster, sandbox)
        assert record["error"] is None
        assert record["hidden_total"] == 2
        waiting.set()
        with pytest.raises(CancelledError):
            cluster.attempt(Trial(task=planted, arm=arm("pot"), seed=0), cancel)
        with pytest.raises(ConfigError, match="run it without --ray"):
            run_benchmark(plan(tmp_path / "s", [arm("persistent")], [planted]), cluster, sandbox)
    assert len(kept) >= 4
    assert holds(SEEN, b"".join(kept))
    assert not holds(CANARY, b"".join(kept))


@pytest.mark.long
def test_no_cluster_at_an_address_is_an_error_that_says_how_to_begin_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ClusterError, match="begin one with `ray start --head`"):
        OnRay("auto", settings=Settings())


@pytest.mark.parametrize("address", ["bad:99999", "nobody.invalid:6379", "{free}", "ray://{free}"])
def test_an_address_where_nobody_listens_is_an_error_at_once(address: str) -> None:
    address, began = address.replace("{free}", f"127.0.0.1:{free_port()}"), time.monotonic()
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at '{address}'"):
        OnRay(address, settings=Settings())
    assert time.monotonic() - began < 60


def test_errors_travel_as_data_and_arrive_as_what_they_were() -> None:
    def gone() -> None:
        raise PolicyUnavailableError("the server is gone")

    def full() -> None:
        raise MemoryError("no room")

    found = answer(gone)
    assert error_by_code(found["code"]) is PolicyUnavailableError
    assert found["message"] == "the server is gone"
    assert answer(full) == {"code": "does_not_fit", "message": "MemoryError: no room"}
    assert answer(len, "four") == {"given": 4}


@pytest.fixture(autouse=True)
def _no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
