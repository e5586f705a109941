"""`pot solve`: one problem, watched, stopped by Ctrl-C with the best so far."""

import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax

from pot_agent.errors import ConfigError, PotError
from pot_agent.shell.progress import Progress
from pot_agent.shell.views import View, view_for

SOLVED, NOT_SOLVED, BAD_INPUT, CANNOT_RUN = 0, 1, 2, 3
"""Exit codes: a program passed all visible tests; none did (or there were no tests); the input was wrong; this machine
cannot run it (no sandbox, no policy server, a missing extra, too little memory for the model)."""


def solve(graph: Any, problem: dict[str, Any], console: Console, *, context: dict[str, Any] | None = None) -> Progress:
    """Run the graph on a problem and show it; all that was seen of the run, its solution among it."""
    view = view_for(console)
    with interruptible(console) as cancel, view:
        follow(graph, problem, view, cancel, context=context)
    return view.progress


def follow(
    graph: Any,
    problem: dict[str, Any],
    view: View,
    cancel: threading.Event,
    *,
    context: dict[str, Any] | None = None,
) -> None:
    """Feed a run's stream to a view until it ends."""
    config = {"configurable": {"cancel": cancel}}
    for mode, chunk in graph.stream(problem, config, context=context, stream_mode=["updates", "custom"]):
        if mode == "custom":
            view.event(chunk)
        else:
            for node, update in chunk.items():
                view.update(node, update)
    if not view.progress.solution:
        raise PotError("the graph ended without a solution; this is a bug, please report it", value=problem)


@contextmanager
def interruptible(console: Console) -> Iterator[threading.Event]:
    """The first Ctrl-C asks the run to end with the best so far; the second ends it at once."""
    cancel = threading.Event()

    def ask(signum: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()
        console.print("stopping with the best so far; Ctrl-C again to stop at once", style="yellow")

    before: Any = signal.signal(signal.SIGINT, ask)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


def report(solution: dict[str, Any], console: Console, *, as_json: bool) -> int:
    """Print the solution on stdout (the program alone, or all of it as JSON), the verdict on stderr; the exit code."""
    console.print(summary(solution), style="green bold" if solution["solved"] else "yellow bold", soft_wrap=True)
    out = Console()
    if as_json:
        out.file.write(json.dumps(solution, indent=2, ensure_ascii=False) + "\n")
    elif out.is_terminal:
        out.print(Panel(Syntax(solution["program"] or "# nothing was written", "python"), title="program"))
    else:
        out.file.write(solution["program"].rstrip("\n") + "\n")
    out.file.flush()
    return SOLVED if solution["solved"] else NOT_SOLVED


def summary(solution: dict[str, Any]) -> str:
    """How a run ended, in one line."""
    if solution["stop_reason"] == "no_tests":
        return "one greedy answer, not checked: there are no tests; give some with --tests"
    state = "solved" if solution["solved"] else f"not solved ({solution['stop_reason']})"
    return (
        f"{state}: {solution['tests_passed']}/{solution['tests_total']} visible tests · "
        f"{solution['iterations']} iterations · {solution['updates']} adapter updates · {solution['tokens']} tokens · "
        f"{solution['seconds']:.1f} s"
    )


def writer_for(path: Path | None) -> Callable[[dict[str, Any]], None]:
    """What writes the solution to `path` in one step: the program, or all of it as JSON for a name in `.json`.

    The place is tried now, so that a name that cannot be written is an error before any work is done.
    """
    if path is None:
        return lambda solution: None
    try:
        path = path.resolve()  # a link keeps its place; what it points to is written
        if path.exists() and not path.is_file():
            raise ConfigError(f"--out {path} is not a regular file; name one", value=str(path))
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".pot.")
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written: {error.strerror}", value=str(path)) from error

    def write(solution: dict[str, Any]) -> None:
        text = json.dumps(solution, indent=2, ensure_ascii=False) if path.suffix == ".json" else solution["program"]
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".pot.")
        try:
            with open(handle, "wb") as file:
                file.write((text.rstrip("\n") + "\n").encode())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except OSError as error:
            os.unlink(name)
            raise ConfigError(f"--out {path} could not be written: {error.strerror}", value=str(path)) from error

    return write


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
