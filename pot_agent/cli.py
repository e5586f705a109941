"""The `pot` command: setup, doctor, solve, serve, bench, report.

Each command imports what it needs when it runs, so that `pot --help` loads neither torch nor langgraph.
Exit codes: 0 solved (or done), 1 not solved, 2 bad input, 3 this machine cannot run it, 130 stopped by a signal.
"""

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from pot_agent.config import PotConfig
from pot_agent.errors import (
    ClusterError,
    ConfigError,
    DiskFullError,
    DoesNotFitError,
    MissingExtraError,
    PolicyUnavailableError,
    PotError,
    ProblemError,
    SandboxUnavailableError,
    StateFolderError,
)
from pot_agent.settings import Settings

app = typer.Typer(
    name="pot",
    help="Policy of Thoughts: a solver that learns while it solves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_stderr = Console(stderr=True)
_CANNOT_RUN = (
    SandboxUnavailableError, PolicyUnavailableError, MissingExtraError, StateFolderError, DoesNotFitError,
    DiskFullError, ClusterError,
)  # fmt: skip
"""Errors that another machine, or another set-up of this one, would not have."""


def _named(option: typer.CallbackParam, value: str | list[str] | None) -> str | list[str] | None:
    """An option's value; an empty one is a shell variable that was not set, never the default."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(part.strip() for part in values):
        raise ConfigError(f"--{option.name} is empty: give a value, or leave it out", value=value)
    return value


ModelOption = Annotated[
    str | None,
    typer.Option(help="Hub id, folder, GGUF file or `embedded` (default: POT_MODEL, else embedded).", callback=_named),
]


def _show_version(asked: bool) -> None:
    if asked:
        from pot_agent.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", is_eager=True, callback=_show_version)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what the parts do, on stderr.")] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s %(message)s")


@app.command()
def solve(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="A file (.json, or the statement as text), `-` for stdin, or text.")
    ],
    tests: Annotated[str | None, typer.Option(help="JSON of the visible tests, or a file of it.")] = None,
    entry_point: Annotated[str | None, typer.Option(help="Name of the function to write.")] = None,
    model: ModelOption = None,
    policy: Annotated[str | None, typer.Option(help="URL of a policy server (pot serve).", callback=_named)] = None,
    budget: Annotated[
        Literal["quick", "paper"] | None, typer.Option(help="quick on a CPU, paper elsewhere, unless said.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Iterations of search.")] = None,
    width: Annotated[int | None, typer.Option(help="Thoughts an iteration.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Tokens of one thought.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds with the best so far.")] = None,
    pool: Annotated[int | None, typer.Option(help="Draws at one node, pooled while all rewards are equal.")] = None,
    generated_tests: Annotated[
        int | None, typer.Option(help="Tests that the model writes to learn from; they never decide `solved`.")
    ] = None,
    profile: Annotated[Literal["paper", "corrected"] | None, typer.Option(help="How the loss is formed.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling and of the adapter.")] = None,
    learn: Annotated[bool, typer.Option("--learn/--no-learn", help="Train the adapter, or search only.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole solution as JSON on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the program here (all of it as JSON for .json).")] = None,
) -> None:
    """Solve one problem, and show the search, the verdicts and each update."""
    from pot_agent.shell.solving import report, writer_for
    from pot_agent.shell.solving import solve as run

    write = writer_for(out)
    task = _read_problem(problem, tests, entry_point)
    settings = Settings.from_env()
    changes: dict[str, Any] = {
        "iterations": iterations,
        "width": width,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "pool": pool,
        "generated_tests": generated_tests,
        "profile": profile,
        "seed": seed,
        "learn": learn,
    } | ({"max_seconds": max_seconds} if max_seconds is not None else {})
    graph = _graph(policy or settings.policy, model or settings.model, budget, changes)
    solution = run(graph, task, _stderr).solution
    code = report(solution, _stderr, as_json=as_json)
    write(solution)
    raise typer.Exit(code)


def _read_problem(source: str, tests: str | None, entry_point: str | None) -> dict[str, Any]:
    from pot_agent.problem import Problem, load_problem

    given = load_problem(_stdin() + "\n" if source == "-" else source)  # text of several lines names no file
    found = None if tests is None else _tests(tests)
    return Problem.parse(given, tests=found, entry_point=entry_point).to_dict()


def _stdin() -> str:
    if sys.stdin is None:
        raise ProblemError("`-` reads the problem from standard input, which is closed; pipe it in, or name a file")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(f"standard input is not UTF-8: {error}; convert it, such as with iconv") from error


def _tests(given: str) -> str:
    path = Path(given)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if not isinstance(error, OSError):
            raise ProblemError(f"--tests {given[:100]!r} cannot be read: {error}", value=given) from error
    if not given.lstrip().startswith(("[", "{", '"')):
        raise ProblemError(f"--tests: no such file, and not JSON: {given[:100]!r}", value=given)
    return given


def _graph(policy: str | None, model: str, budget: Literal["quick", "paper"] | None, changes: dict[str, Any]) -> Any:
    config = PotConfig.of(budget or "quick", **changes)  # checks the changes before anything is loaded
    from pot_agent.graph import create_pot_agent
    from pot_agent.handles import as_policy, check_can_learn, local_policy

    with _stderr.status(f"loading {_escaped(policy or model)}"):
        held = (as_policy(policy) if policy else None) or local_policy(model, Settings.from_env())
    if budget is None and not held.capabilities.device.startswith("cpu"):
        config = PotConfig.paper(**changes)
    check_can_learn(held, config)
    return create_pot_agent(policy=held, config=config)


@app.command()
def setup() -> None:
    """Fetch the embedded model (SmolLM2-135M-Instruct) and convert it once."""
    from pot_agent.policy.embedded import setup_embedded

    settings = Settings.from_env()
    with _stderr.status("fetching and converting the embedded model"):
        folder = setup_embedded(settings.home)
    _stderr.print(f"the embedded model is at {folder}", highlight=False)


@app.command()
def doctor() -> None:
    """Say what this machine has, and the command that adds what is missing."""
    from rich.table import Table

    from pot_agent.shell.doctor import examine

    checks = examine(Settings.from_env())
    table = Table(box=None, show_header=False, padding=(0, 1))
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]missing[/]" if check.required else "[dim]optional[/]"
        advice = f"\n[yellow]→ {_escaped(check.advice)}[/]" if check.advice else ""
        table.add_row(mark, f"[bold]{check.name}[/]", _escaped(check.found) + advice)
    Console().print(table)
    raise typer.Exit(0 if all(check.ok for check in checks if check.required) else 1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@app.command()
def serve(
    model: ModelOption = None,
    host: Annotated[str | None, typer.Option(help="Where to listen (default: POT_HOST, else 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port (default: POT_PORT, else 8719).")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder where sessions are kept (default: POT_STATE, else in memory only).")
    ] = None,
    sampler: Annotated[
        Literal["auto", "transformers", "vllm"] | None,
        typer.Option(help="What draws completions (default: POT_SAMPLER, else auto: vllm on a GPU where it fits)."),
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option(help="Longest prompt plus completion (default: POT_CONTEXT_TOKENS, else the model's).")
    ] = None,
) -> None:
    """Put the policy behind HTTP, so that many graphs share one model."""
    from dataclasses import replace

    from pot_agent.policy.server import serve as run

    env = Settings.from_env()
    changes: dict[str, Any] = {"model": model, "host": host, "port": port, "state": state}
    changes |= {"sampler": sampler, "context_tokens": context_tokens}
    run(replace(env, **{name: value for name, value in changes.items() if value is not None}))


@app.command()
def bench(
    benchmark: Annotated[str, typer.Argument(metavar="BENCHMARK", help="humaneval, mbpp, lcb_v6, ..., or a .jsonl.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method, perhaps with knobs (pot:k=8,lr=5e-5); repeat it. Default: the four main ones."),
    ] = None,
    model: ModelOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="URL of a policy server (pot serve); several are replicas.", callback=_named),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Run problems as tasks of a Ray cluster: its address, `auto` or `local`.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder or file with the benchmark's rows.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Ids of problems, separated by commas.", callback=_named)
    ] = None,
    min_visible_tests: Annotated[int, typer.Option(min=0, help="Only problems with so many visible tests.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many problems.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each method on each problem.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="The first seed.")] = None,
    budget: Annotated[
        Literal["quick", "paper"] | None, typer.Option(help="quick on a CPU, paper elsewhere, unless said.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Iterations of search.")] = None,
    width: Annotated[int | None, typer.Option(help="Thoughts an iteration.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Tokens of one thought.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Seconds of one method on one problem, at most.")] = None,
    profile: Annotated[Literal["paper", "corrected"] | None, typer.Option(help="How the loss is formed.")] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The run's folder (default: runs/BENCHMARK-TIME).", callback=_named),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="As --resume, and run again what ended in an error.")] = False,
    shard: Annotated[str, typer.Option(help="Part i of n of the problems, such as 1/4.")] = "1/1",
    workers: Annotated[int | None, typer.Option(min=1, help="Problems at once (default: 4 on a CPU, else 8).")] = None,
) -> None:
    """Run methods over a benchmark and keep a record of each problem; it can be stopped and resumed."""
    from dataclasses import replace

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the run has a handler of its own
    from pot_agent.errors import CancelledError
    from pot_agent.shell.benching import INTERRUPTED, Order
    from pot_agent.shell.benching import bench as run

    settings = Settings.from_env()
    own = [] if settings.policy is None or model is not None else [settings.policy]
    changes: dict[str, Any] = {"iterations": iterations, "width": width, "max_new_tokens": max_new_tokens}
    changes |= {"temperature": temperature, "profile": profile, "seed": seed}
    order = Order(
        benchmark=benchmark,
        settings=replace(settings, model=model or settings.model),
        methods=method or (),
        policies=policy or own,
        ray=ray,
        data=data,
        only=_ids(only),
        min_visible_tests=min_visible_tests,
        limit=limit,
        seeds=seeds,
        budget=budget,
        changes=changes | ({"max_seconds": max_seconds} if max_seconds is not None else {}),
        out=None if out is None else Path(out),
        resume=resume,
        retry=retry,
        shard=shard,
        workers=workers,
        command=sys.argv,
    )
    try:
        run(order, _stderr)
    except CancelledError as error:
        _stderr.print(_escaped(str(error)), style="yellow", highlight=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        _stderr.print("stopped before the first problem; nothing was run", style="yellow", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders that `pot bench` wrote; shards and seeds together.")
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The report's folder (default: `report` in the first RUN).", callback=_named),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="ARM", help="What to compare with (default: mcts, else zero_shot).")
    ] = None,
) -> None:
    """Say what runs found, with intervals: Markdown, JSON and one HTML page."""
    from pot_agent.shell.reporting import write_report

    write_report(runs, None if out is None else Path(out), baseline, Console())


def _ids(only: list[str] | None) -> list[str]:
    named = [name.strip() for part in only or () for name in part.split(",") if name.strip()]
    if only and not named:
        raise ConfigError(f"--only names no problem, got {only[0]!r}: give ids, or leave it out", value=only)
    return named


def main() -> None:
    """The console script: runs the command and turns errors into one line and an exit code."""
    try:
        app()
    except _CANNOT_RUN as error:
        _fail(error, 3)
    except (ConfigError, PotError) as error:
        _fail(error, 2)


def _fail(error: PotError, code: int) -> None:
    _stderr.print(f"[red bold]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
    sys.exit(code)
