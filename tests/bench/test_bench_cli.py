"""`pot bench`: what it shows, how it ends, and what a kill -9 leaves. The model behind it is a server's."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pot_agent import cli
from pot_agent.bench.datasets.base import Dataset
from pot_agent.bench.record import Record
from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.runner import Progress
from pot_agent.errors import CancelledError, CannotLearnError, ConfigError, MissingExtraError, RunFolderError
from pot_agent.settings import Settings
from pot_agent.shell import benching
from pot_agent.shell.benching import INTERRUPTED, Order, bench, interruptible
from tests.bench.running import SteadyPolicy, as_file, at_call, comparable, dying_server, read, tasks
from tests.bench.runs import record
from tests.policy.serving import free_port, serving

METHODS = ("zero_shot", "pot")
CHANGES = {"iterations": 2, "width": 2, "max_new_tokens": 8}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(as_file(tmp_path, tasks(4)))


def order(data: str, url: str, out: Path, **changes: Any) -> Order:
    asked: dict[str, Any] = {"methods": METHODS, "changes": CHANGES, "workers": 2, "budget": "quick"}
    asked |= {"policies": [url], "out": out}
    return Order(benchmark=data, settings=Settings(), **{**asked, **changes})


def shown(given: Order) -> tuple[list[Record], str]:
    console = Console(file=open(os.devnull, "w"), record=True, width=100)  # noqa: SIM115
    return bench(given, console), console.export_text()


def command(data: str, url: str, out: Path, *more: str) -> list[str]:
    options = ["--policy", url, "--out", str(out), "--budget", "quick", "--iterations", "2", "--width", "2"]
    options += ["--max-new-tokens", "8", "--workers", "2", *(f"--method={name}" for name in METHODS), *more]
    return [sys.executable, "-c", "from pot_agent.cli import main; main()", "bench", data, *options]


@contextmanager
def process(data: str, url: str, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A `pot bench` of its own, killed at the end of the block if not before."""
    with subprocess.Popen(command(data, url, out, *more), stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_it_says_how_long_it_may_take_shows_each_record_and_sums_up(data: str, tmp_path: Path) -> None:
    with serving(SteadyPolicy()) as url:
        records, text = shown(order(data, url, tmp_path / "r"))
    assert len(records) == 8
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("[1/8]"))
    assert any("8 runs (2 methods), 2 at once" in line and "at most" in line for line in lines[:first])
    assert sum("assumed:" in line for line in lines[:first]) >= 3
    assert all("ETA" in line for line in lines if line.startswith(tuple(f"[{n}/8]" for n in range(1, 8))))
    assert any(line.startswith("[8/8]") and "ETA" not in line for line in lines)
    correct = sum(record["correct"] for record in records if record["method"] == "pot")
    assert f"pot: {correct} of 4 correct on hidden tests" in text
    assert f"pot report {tmp_path / 'r'}" in text
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["estimate"]["trials"] == 8
    assert manifest["estimate"]["hours"] > 0
    assert manifest["model"]["model"] == "scripted"
    assert manifest["budget"]["allowed"] == {"zero_shot": 1, "pot": 6}
    assert read_runs([tmp_path / "r"]).planned.keys() == {"zero_shot", "pot"}


def test_what_a_data_set_leaves_out_is_said_and_kept(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Dataset(
        name="add", tasks=tuple(tasks(1)), source="here", licence="MIT", digest="0", skipped=(("add/9", "interactive"),)
    )
    monkeypatch.setattr(benching, "load", lambda name, data: given)
    with serving(SteadyPolicy()) as url:
        _, text = shown(order(data, url, tmp_path / "r", methods=["zero_shot"]))
    assert "left out: add/9 (interactive)" in text
    kept = json.loads((tmp_path / "r" / "manifest.json").read_text())["data"]
    assert (kept["skipped"], kept["source"], kept["count"]) == ({"add/9": "interactive"}, "here", 1)


def test_ctrl_c_ends_it_in_order_and_resume_goes_on(data: str, tmp_path: Path) -> None:
    press = at_call(8, lambda: os.kill(os.getpid(), signal.SIGINT))
    with serving(SteadyPolicy()) as url:
        whole, _ = shown(order(data, url, tmp_path / "whole"))
    handler = signal.getsignal(signal.SIGINT)
    with serving(SteadyPolicy(press)) as url:
        with pytest.raises(CancelledError, match=r"stopped with \d of 8 done; go on with --resume"):
            shown(order(data, url, tmp_path / "r"))
        assert signal.getsignal(signal.SIGINT) is handler
        before = read(tmp_path / "r")
        assert len(before) < 8
        records, _ = shown(order(data, url, tmp_path / "r", resume=True))
    assert comparable(records) == comparable(whole)
    assert read(tmp_path / "r")[: len(before)] == before


def test_the_command_ends_with_130_after_ctrl_c_and_2_where_the_folder_is_another_runs(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running: list[subprocess.Popen[str]] = []
    press = at_call(8, lambda: running[0].send_signal(signal.SIGINT))
    with serving(SteadyPolicy(press)) as url:
        with process(data, url, tmp_path / "r") as pressed:
            running.append(pressed)
            _, said = pressed.communicate(timeout=240)
        assert pressed.returncode == INTERRUPTED, said
        assert "go on with --resume" in said
        assert "Traceback" not in said
        asked = command(data, url, tmp_path / "r", "--resume", "--seeds", "2")
        monkeypatch.setattr(sys, "argv", ["pot", *asked[asked.index("bench") :]])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 2
    assert "seeds: [0] there, [0, 1] now" in capsys.readouterr().err


def test_a_signal_while_the_policy_is_measured_ends_the_command_with_nothing_run(data: str, tmp_path: Path) -> None:
    policy = SteadyPolicy(at_call(1, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    with serving(policy) as url, pytest.raises(CancelledError, match="stopped with 0 of 8 done; go on with --resume"):
        shown(order(data, url, tmp_path / "r"))
    assert policy.samples <= 2  # nothing after the call during which it came, but for a retry
    assert policy.list_sessions() == []
    assert read(tmp_path / "r") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_policy_is_looked_for_ends_the_command_in_words(
    data: str, tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with process(data, url, tmp_path / "r") as looking:
            silent.accept()
            looking.send_signal(number)
            _, said = looking.communicate(timeout=60)
    assert looking.returncode == INTERRUPTED, said
    assert said == "stopped before the first problem; nothing was run\n"
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", ","], "--only names no problem"),
        (["--only", ""], "--only is empty"),
        (["--out", ""], "--out is empty"),
    ],
)
def test_an_option_that_says_nothing_is_refused(
    data: str, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pot", "bench", data, "--policy", "http://127.0.0.1:1", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_name_from_a_file_does_nothing_to_the_terminal() -> None:
    made = record("p/\x1b[2J\x1b]0;x\x07\n1", error="E: \x1b[31m", correct=False, visible_solved=False)
    line = benching.line_of(Progress(record=made, done=1, total=2, seconds_left=None))
    assert line.isprintable()


def killed_in_the_middle(data: str, out: Path, kills: list[int], *, torn: Callable[[], int] = lambda: 0) -> list[int]:
    """Run until done, with a kill -9 at one of those calls of the policy in each life; what each life found recorded.

    After each kill, so many bytes as `torn` says are cut from the results, as a half-written line would lack.
    """
    running: list[subprocess.Popen[str]] = []
    found: list[int] = []
    for deadly in [*kills, 0]:
        policy = SteadyPolicy(at_call(deadly, lambda: running[-1].kill()))
        found.append(len(read_whole(out)))
        with serving(policy) as url, process(data, url, out, *(["--resume"] if running else [])) as life:
            running.append(life)
            _, said = life.communicate(timeout=240)
        if life.returncode == 0:
            return found
        assert life.returncode == -signal.SIGKILL, said
        for path in out.glob("results.jsonl"):
            os.truncate(path, max(0, path.stat().st_size - torn()))
    raise AssertionError("the last life was not killed, and did not end")


def test_a_run_that_was_killed_counts_nothing_twice_and_loses_nothing(data: str, tmp_path: Path) -> None:
    with serving(SteadyPolicy()) as url:
        whole, _ = shown(order(data, url, tmp_path / "whole"))
    first, second = killed_in_the_middle(data, tmp_path / "r", [16], torn=lambda: 40)
    assert (first, 0 < second < 8) == (0, True)
    assert comparable(read(tmp_path / "r")) == comparable(whole)
    assert read_runs([tmp_path / "r"]).notes == ()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_was_killed_at_many_points_is_the_run_that_was_not(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = str(as_file(tmp_path, tasks(10)))
    with serving(SteadyPolicy()) as url:
        whole, _ = shown(order(data, url, tmp_path / "whole"))
    kills = [rng.randint(1, 20) for _ in range(6)]
    found = killed_in_the_middle(data, tmp_path / "r", kills, torn=lambda: rng.choice([0, 0, 1, 300]))
    assert len(found) > 2
    assert comparable(read(tmp_path / "r")) == comparable(whole)


@pytest.mark.long
def test_a_run_that_is_killed_by_the_clock_goes_on_from_all_that_it_had_recorded(tmp_path: Path) -> None:
    rng = random.Random(0)
    data, out = str(as_file(tmp_path, tasks(10))), tmp_path / "r"
    with serving(SteadyPolicy(lambda call: time.sleep(0.05))) as url:
        whole, _ = shown(order(data, url, tmp_path / "whole"))
        for _ in range(4):
            before = read(out) if out.exists() else []
            with process(data, url, out, "--resume") as life:
                while life.poll() is None and not (out.exists() and len(read_whole(out)) > len(before)):
                    time.sleep(0.02)
                time.sleep(rng.uniform(0, 0.5))
            assert read_whole(out)[: len(before)] == before
        with process(data, url, out, "--resume") as life:
            _, said = life.communicate(timeout=240)
    assert life.returncode == 0, said
    assert comparable(read(out)) == comparable(whole)


def read_whole(folder: Path) -> list[Record]:
    """Records whose line has ended."""
    data = b"".join(path.read_bytes() for path in folder.glob("results.jsonl"))
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


@pytest.mark.long
def test_a_folder_in_use_by_another_process_is_refused_by_name(data: str, tmp_path: Path) -> None:
    with serving(SteadyPolicy(lambda call: time.sleep(0.5))) as url, process(data, url, tmp_path / "r") as first:
        while not (tmp_path / "r" / "manifest.json").exists():
            assert first.poll() is None
            time.sleep(0.05)
        with pytest.raises(RunFolderError, match=f"in use by process {first.pid}"):
            shown(order(data, url, tmp_path / "r", resume=True))
        first.kill()
        first.wait()
        assert len(shown(order(data, url, tmp_path / "r", resume=True))[0]) == 8


def test_several_servers_share_the_problems_and_one_that_dies_gives_its_own_to_the_other(
    data: str, tmp_path: Path
) -> None:
    with dying_server(3) as (dying, url), serving(SteadyPolicy()) as well:
        records, _ = shown(order(data, url, tmp_path / "r", policies=[url, well]))
        whole, _ = shown(order(data, well, tmp_path / "whole"))
    assert 3 <= dying.samples <= 4  # the other of its two workers may have been under way
    assert comparable(records) == comparable(whole)


def test_what_cannot_be_is_refused_before_anything_is_asked_of_a_policy(data: str, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for changes, said in (
        ({"out": None, "resume": True}, "name its folder"),
        ({"shard": "3/2"}, "--shard must be such as 1/4"),
        ({"only": ["add/77"]}, "no problem is called 'add/77'"),
        ({"changes": {"width": 0}}, "width"),
    ):
        with pytest.raises(ConfigError, match=said):
            shown(order(data, nobody, **{"out": tmp_path / "r", **changes}))
    assert not (tmp_path / "r").exists()


def test_a_policy_that_cannot_learn_is_refused_where_a_method_learns(data: str, tmp_path: Path) -> None:
    policy = SteadyPolicy()
    policy.capabilities = type(policy.capabilities)(**{**vars(policy.capabilities), "learns": False})
    with serving(policy) as url:
        with pytest.raises(CannotLearnError, match="pot needs it"):
            shown(order(data, url, tmp_path / "r"))
        assert len(shown(order(data, url, tmp_path / "r", methods=["zero_shot", "mcts"]))[0]) == 8


def test_policies_that_are_not_the_same_model_do_not_share_a_run(data: str, tmp_path: Path) -> None:
    other = SteadyPolicy()
    other.capabilities = type(other.capabilities)(**{**vars(other.capabilities), "model": "another"})
    with (
        serving(SteadyPolicy()) as url,
        serving(other) as second,
        pytest.raises(ConfigError, match="model is 'scripted' and 'another'"),
    ):
        shown(order(data, url, tmp_path / "r", policies=[url, second]))


def test_ray_without_its_extra_is_an_error_that_names_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "policy-of-thoughts\[ray\]"'):
        shown(order(data, "http://127.0.0.1:1", tmp_path / "r", ray="local"))
    monkeypatch.setattr(sys, "argv", ["pot", "bench", data, "--ray", "local", "--policy", "http://127.0.0.1:1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3


@pytest.mark.long
def test_the_first_signal_asks_and_the_second_ends_the_process() -> None:
    code = (
        "import os, signal, time\nfrom rich.console import Console\n"
        "from pot_agent.shell.benching import interruptible\n"
        "with interruptible(Console(stderr=True)) as cancel:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    assert cancel.wait(10)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == INTERRUPTED
    assert "problems in flight are given up" in done.stderr
    with interruptible(Console(quiet=True)) as cancel:
        assert not cancel.is_set()
