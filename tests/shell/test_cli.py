"""The `pot` command: what it reads, what it writes where, how it ends. The policy behind it is scripted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pot_agent import ConfigError, PotConfig, cli, create_pot_agent
from pot_agent.errors import DoesNotFitError, MissingExtraError, PotError, SandboxUnavailableError, StateFolderError
from pot_agent.shell.progress import Progress, update_line
from pot_agent.shell.solving import report, solve, writer_for
from pot_agent.shell.views import LiveView, PlainView, picture
from tests.fakes import ScriptedPolicy, block

GOOD = block("def add(a, b):\n    return a + b")
HALF = block("def add(a, b):\n    return 3")
ZERO = block("def add(a, b):\n    return None")
PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}


def pot(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pot_agent.cli import main; main()", *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )


def agent(policy: ScriptedPolicy, sandbox: Any, **changes: Any) -> Any:
    return create_pot_agent(policy, sandbox, config=PotConfig.quick(**{"iterations": 2, "width": 3, **changes}))


def shown(view_class: type, graph: Any) -> str:
    console = Console(file=open(os.devnull, "w"), record=True, width=140, force_terminal=False)  # noqa: SIM115
    view = view_class(console)
    for mode, chunk in graph.stream(PROBLEM, stream_mode=["updates", "custom"]):
        if mode == "custom":
            view.event(chunk)
        else:
            for node, update in chunk.items():
                view.update(node, update)
    console.print(picture(view.progress))
    return console.export_text()


def test_plain_lines_name_each_verdict_its_first_failing_test_and_each_update(sandbox: Any) -> None:
    text = shown(PlainView, agent(ScriptedPolicy([ZERO, HALF, ZERO, HALF]), sandbox))
    assert "thought 1.2: wrong_answer 1/2" in text
    assert "add(2, 2)" in text
    assert "commit  1.c" in text
    assert "adapter version 0 → 1" in text
    assert "2 visible tests (given)" in text


def test_the_live_picture_shows_the_frontier_the_best_score_and_the_updates(sandbox: Any) -> None:
    text = shown(LiveView, agent(ScriptedPolicy([ZERO, HALF] * 4), sandbox))
    assert "frontier" in text
    assert "best 50%" in text
    assert "iteration 2/2" in text
    assert "adapter version 1 → 2" in text


def test_a_skipped_update_says_why() -> None:
    line = update_line({"iteration": 3, "version": 1, "skipped": "all rewards are equal"})
    assert line == "iteration 3: adapter stays at version 1: all rewards are equal"


def test_a_failing_test_that_looks_like_markup_is_shown_as_it_is() -> None:
    progress = Progress()
    progress.event({"event": "warning", "message": "[red]not markup[/red]"})
    console = Console(file=open(os.devnull, "w"), record=True, width=100)  # noqa: SIM115
    console.print(picture(progress))
    assert "[red]not markup[/red]" in console.export_text()


def test_the_exit_code_and_stdout_say_whether_it_was_solved(sandbox: Any, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(stderr=True)
    solved = agent(ScriptedPolicy([GOOD]), sandbox).invoke(PROBLEM)["solution"]
    assert report(solved, console, as_json=False) == 0
    assert capsys.readouterr().out == "def add(a, b):\n    return a + b\n"
    failed = agent(ScriptedPolicy([ZERO]), sandbox).invoke(PROBLEM)["solution"]
    assert report(failed, console, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["solved"] is False


def test_ctrl_c_ends_with_the_best_so_far(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO], wait=True)

    def interrupt() -> None:
        policy.sampling.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    solution = solve(agent(policy, sandbox), PROBLEM, Console(stderr=True)).solution
    assert solution["stop_reason"] == "cancelled"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_out_writes_the_program_or_all_of_it_as_json(sandbox: Any, tmp_path: Path) -> None:
    solution = agent(ScriptedPolicy([GOOD]), sandbox).invoke(PROBLEM)["solution"]
    writer_for(tmp_path / "program.py")(solution)
    writer_for(tmp_path / "all.json")(solution)
    assert (tmp_path / "program.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert json.loads((tmp_path / "all.json").read_text())["solved"] is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "program.py"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("solve", ""), "empty"),
        (("solve", "x", "--tests", "{nope"), "not JSON"),
        (("solve", "x", "--tests", "nope.json"), "no such file"),
        (("solve", "x", "--tests", '[{"type": "oracle"}]'), "oracle"),
        (("solve", "x", "--iterations", "-1"), "iterations must be a whole number, 1 or more, got -1"),
        (("solve", "x", "--max-seconds", "-3"), "got -3.0"),
        (("solve", "x", "--max-seconds", "nan"), "nan"),
        (("solve", "x", "--profile", "mine"), "mine"),
        (("solve", "x", "--out", "/nowhere/file.py"), "cannot be written"),
        (("solve", "x", "--policy", "localhost:1"), "localhost:1"),
        (("solve", "x", "--model", "/nowhere/model"), "/nowhere/model"),
        (("solve", "x", "--policy", ""), "--policy is empty"),
        (("solve", "x", "--model", " "), "--model is empty"),
        (("bench", "humaneval", "--policy", "http://127.0.0.1:9", "--policy", ""), "--policy is empty"),
        (("solve",), "PROBLEM"),
        (("sovle",), "sovle"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(args: tuple[str, ...], said: str) -> None:
    done = pot(*args)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("redirection", "said"), [("<&-", "standard input, which is closed"), ("< latin1.txt", "not UTF-8")]
)
def test_a_standard_input_that_cannot_be_read_is_one_clear_line(tmp_path: Path, redirection: str, said: str) -> None:
    (tmp_path / "latin1.txt").write_bytes("Ajoutez l'été.".encode("latin-1"))
    code = f"exec {sys.executable} -c 'from pot_agent.cli import main; main()' solve - {redirection}"
    done = subprocess.run(["sh", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_byte_order_mark_is_no_part_of_a_problem_or_of_its_tests(tmp_path: Path) -> None:
    tests = tmp_path / "tests.json"
    tests.write_text('[{"type": "oracle"}]', encoding="utf-8-sig")
    done = pot("solve", "-", "--tests", str(tests), stdin="\ufeffWrite f.")
    assert "oracle" in done.stderr  # the tests were read


def test_a_model_folder_without_weights_is_bad_input_that_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    done = pot("solve", "x", "--tests", '["assert f(1) == 1"]', "--model", str(tmp_path))
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_exit_code_3() -> None:
    done = pot("solve", "x", "--tests", '["assert f(1) == 1"]', "--policy", "http://127.0.0.1:9")
    assert done.returncode == 3, done.stderr
    assert "pot serve" in done.stderr


@pytest.mark.parametrize("error", [DoesNotFitError, SandboxUnavailableError, MissingExtraError, StateFolderError])
def test_what_this_machine_cannot_run_is_exit_code_3_and_one_line(
    error: type[PotError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error("needs 40 GB, and there are 24: lower context_tokens")

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err == "error: needs 40 GB, and there are 24: lower context_tokens\n"


def test_the_doctor_names_torch_model_sandbox_vllm_and_e2b() -> None:
    done = pot("doctor")
    for name in ("python", "torch", "model", "sandbox", "vllm", "e2b"):
        assert name in done.stdout
    assert done.returncode == 0, done.stdout


def test_the_version_is_the_packages() -> None:
    from pot_agent import __version__

    assert pot("--version").stdout.strip() == __version__


def test_plain_output_is_used_when_nobody_watches_and_begins_at_once(sandbox: Any) -> None:
    began = time.monotonic()
    assert shown(PlainView, agent(ScriptedPolicy([GOOD]), sandbox)).startswith("[")
    assert time.monotonic() - began < 60


def test_a_statement_too_long_for_a_file_name_is_a_statement(tmp_path: Path) -> None:
    done = pot("solve", "Write a function add(a, b). " * 12, "--model", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "nowhere" in done.stderr.replace("\n", "")


def test_out_follows_a_link_and_never_replaces_what_is_no_file(sandbox: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        writer_for(tmp_path / "pipe")
    (tmp_path / "there.py").write_text("before")
    (tmp_path / "link.py").symlink_to(tmp_path / "there.py")
    writer_for(tmp_path / "link.py")(agent(ScriptedPolicy([GOOD]), sandbox).invoke(PROBLEM)["solution"])
    assert (tmp_path / "link.py").is_symlink()
    assert "return a + b" in (tmp_path / "there.py").read_text()


def test_markup_in_a_model_name_is_text() -> None:
    done = pot("solve", "x", "--model", "[/x]")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
