"""`pot report`: what it prints, where it writes, and how it ends."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pot_agent.cli import app
from pot_agent.errors import ReportError
from pot_agent.shell.reporting import write_report
from tests.bench.runs import manifest, plausible, record, write_run


def pot(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pot_agent.cli import main; main()", "report", *args],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **env},
    )


def test_a_report_shows_the_methods_and_says_where_it_is(tmp_path: Path) -> None:
    plausible(tmp_path / "run")
    done = pot("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "run" / "report").iterdir()) == [
        "report.html", "report.json", "report.md",
    ]  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["method", "problems", "pass@1", "gap", "errors", "missing"]
    assert [line.split()[0] for line in lines[1:5]] == ["zero_shot", "best_of_n", "mcts", "pot"]  # a line each
    assert any(line.startswith("pot against mcts on 12 problems") for line in lines)
    assert "wrote run/report/report.html" in done.stdout
    assert not done.stderr


def test_several_runs_a_folder_and_a_baseline_may_be_named(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    second = write_run(tmp_path / "b", manifest(methods=["zero_shot"]), [record("p/0", "zero_shot", False)])
    command = ["report", str(first), str(second), "--out", str(tmp_path / "here"), "--baseline", "pot"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "here" / "report.json").read_text())
    assert (data["baseline"], [row["arm"] for row in data["methods"]]) == ("pot", ["pot", "zero_shot"])
    assert not (first / "report").exists()


def test_what_cannot_be_reported_on_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    write_run(tmp_path / "run", manifest(methods=["pot"]), [record("p/0")])
    done = pot("run", "--baseline", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: the baseline 'x' has no results here; choose one of pot\n"
    assert not (tmp_path / "run" / "report").exists()


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "pot:\x1b]0;owned\x07[bold]x[/]"
    runs = [write_run(tmp_path / place, manifest(methods=[name]), [record("p\x1b[2J", name)]) for place in ("a", "b")]
    said = io.StringIO()
    write_report(runs[:1], None, None, Console(file=said, width=80))
    assert "\x1b" not in said.getvalue()
    assert "[bold]" in said.getvalue()
    with pytest.raises(ReportError, match="is there twice") as raised:
        write_report(runs, None, None, Console(file=said))
    assert "\x1b" not in str(raised.value)


def test_a_machine_without_the_extra_is_told_its_name_and_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    done = pot("run", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert 'reports need matplotlib: pip install "policy-of-thoughts[bench]"' in done.stderr


def test_a_report_loads_no_model_library(tmp_path: Path) -> None:
    plausible(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from pot_agent.bench.report import report; "
        "report([Path('run')], Path('out')); print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not set(done.stdout.split()) & {"torch", "transformers", "peft", "langgraph", "ray", "datasets"}
