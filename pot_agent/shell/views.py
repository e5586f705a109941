"""Two ways to show a run: a live picture for a terminal, plain lines for everything else. Both write to stderr."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pot_agent.shell.progress import Progress, ThoughtView, score_text, update_line

_COLOURS = {"passed": "green", "wrong_answer": "yellow", "compile_error": "red", "runtime_error": "red"}
_SHOWN_THOUGHTS = 8
_SHOWN_RECEIPTS = 6


class View(Protocol):
    """Shows a run as it goes; a context manager."""

    progress: Progress

    def event(self, event: Mapping[str, Any]) -> None:
        """Take in a custom event."""
        ...

    def update(self, node: str, update: Mapping[str, Any] | None) -> None:
        """Take in what a node changed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view_for(console: Console) -> View:
    """The live view where a person watches, plain lines otherwise."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


class PlainView:
    """One line for each thing that happened."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress()
        self._console = console

    def event(self, event: Mapping[str, Any]) -> None:
        """Print what a person would want to read in a log."""
        self.progress.event(event)
        kind = event.get("event")
        if kind == "started":
            self._line(started_line(self.progress))
        elif kind == "warning":
            self._line(f"warning: {event['message']}")
        elif kind == "selected":
            self._line(f"iteration {event['iteration']}: {self.progress.doing}")
        elif kind == "generated":
            self._line(f"  generated tests: {event['asked']} asked for, {event['kept']} kept, {event['tokens']} tokens")
        elif kind == "verdict":
            thought = next(t for t in reversed(self.progress.thoughts) if _is(t, event))
            self._line(f"  {thought_line(thought)}")
        elif kind == "update":
            self._line(f"  update of {update_line(self.progress.receipts[-1])}")

    def update(self, node: str, update: Mapping[str, Any] | None) -> None:
        """Nothing is printed for it."""
        self.progress.update(node, update)

    def _line(self, text: str) -> None:
        self._console.print(Text(f"[{self.progress.seconds:6.1f} s] {text}"), soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveView:
    """A picture that is drawn anew four times a second: where the search is, what it wrote, what it learned."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress()
        self._live = Live(console=console, refresh_per_second=4, get_renderable=lambda: picture(self.progress))

    def event(self, event: Mapping[str, Any]) -> None:
        """Take in a custom event."""
        self.progress.event(event)

    def update(self, node: str, update: Mapping[str, Any] | None) -> None:
        """Take in what a node changed."""
        self.progress.update(node, update)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def _is(thought: ThoughtView, event: Mapping[str, Any]) -> bool:
    return (thought.iteration, thought.phase, thought.index) == (event["iteration"], event["phase"], event["index"])


def started_line(progress: Progress) -> str:
    """What runs on what, in one line."""
    s = progress.started
    learning = "learning" if s["learn"] else "search only"
    return (
        f"{s['model']} on {s['device']} · {s['tests']} visible tests ({s['evidence']}) · {s['iterations']} iterations "
        f"of {s['width']} · {learning}"
    )


def thought_line(thought: ThoughtView) -> str:
    """A thought and its verdict, in one line."""
    kind = "commit " if thought.phase == "commit" else "thought"
    again = " (run before)" if thought.cached else ""
    cut = " (cut off)" if thought.finish_reason == "length" else ""
    failure = f" · {thought.failure}" if thought.failure else ""
    generated = "" if thought.generated is None else f" · generated {thought.generated:.0%}"
    verdict = f"{thought.verdict} {score_text(thought)}{generated}{again}"
    return f"{kind} {thought.name}: {verdict} · {thought.tokens} tokens{cut}{failure}"


def picture(progress: Progress) -> RenderableType:
    """The whole live view."""
    parts: list[RenderableType] = [_header(progress), _bar(progress)]
    if progress.thoughts:
        parts.append(_thoughts(progress))
    if progress.frontier:
        parts.append(_frontier(progress))
    if progress.receipts:
        lines = [update_line(receipt) for receipt in progress.receipts[-_SHOWN_RECEIPTS:]]
        parts.append(Text("\n".join(["updates", *(f"  {line}" for line in lines)]), style="cyan"))
    parts.extend(Text(f"warning: {warning}", style="yellow") for warning in progress.warnings)
    return Group(*parts)


def _header(progress: Progress) -> Text:
    text = started_line(progress) if progress.started else "loading the model"
    return Text(text + (f" · sandbox {progress.tier}" if progress.tier else ""), style="bold")


def _bar(progress: Progress) -> Table:
    total = max(1, progress.started.get("iterations", 1))
    rate, left = progress.tokens_per_second, progress.seconds_left
    figures = [
        f"iteration {progress.iteration}/{total}",
        f"best {'–' if progress.best is None else format(progress.best, '.0%')}",
        f"{progress.tokens + progress.ticking} tokens" + ("" if rate is None else f" ({rate:.0f}/s)"),
        f"{progress.seconds:.0f} s" + ("" if left is None else f", about {left:.0f} s left"),
    ]
    row = Table.grid(padding=(0, 2))
    row.add_row(ProgressBar(total=total, completed=max(0, progress.iteration - 1), width=20), " · ".join(figures))
    row.add_row("", Text(progress.doing, style="dim"))
    return row


def _thoughts(progress: Progress) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("thought", "tokens", "passed", "verdict", "first failing test"):
        table.add_column(column, no_wrap=column != "first failing test")
    for thought in progress.thoughts[-_SHOWN_THOUGHTS:]:
        colour = _COLOURS.get(thought.verdict, "magenta" if thought.verdict else "dim")
        verdict = Text(thought.verdict or "…", style=colour)
        tokens = f"{thought.tokens}{'+' if thought.finish_reason == 'length' else ''}"
        table.add_row(thought.name, tokens, score_text(thought), verdict, Text(thought.failure, overflow="ellipsis"))
    return table


def _frontier(progress: Progress) -> Text:
    leaves = [
        f"{leaf['index']} (depth {leaf['depth']}, reward {leaf['reward']:.2f}, prior {leaf['prior']:.2f})"
        for leaf in progress.frontier
    ]
    return Text("frontier " + "  ".join(leaves), style="blue", overflow="ellipsis", no_wrap=True)
