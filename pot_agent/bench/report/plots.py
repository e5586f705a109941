"""Figures as inline SVG, drawn by matplotlib and coloured by the page.

Limits: colours are CSS variables of the page (`--ink`, `--line`, `--s0`...), so that one drawing serves light and dark;
outside the page the drawings have no colours. Text is kept as text. Ten series differ in colour; more differ in dashes.
"""

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import TypedDict

from pot_agent.bench.report.anytime import Series, best_so_far, by_iteration, group_reward, solved_by
from pot_agent.bench.report.formatting import printable
from pot_agent.bench.report.methods import MethodRow
from pot_agent.bench.report.reading import Results
from pot_agent.errors import MissingExtraError

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, PercentFormatter
except ImportError as error:
    raise MissingExtraError('reports need matplotlib: pip install "policy-of-thoughts[bench]"') from error

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # text stays text: no font is needed

COLOURS = 10
_INK, _LINE = "#0a0b01", "#0a0b02"
_SERIES = [f"#0a0c{index:02x}" for index in range(COLOURS)]
_VARIABLES = {_INK: "--ink", _LINE: "--line"} | {colour: f"--s{index}" for index, colour in enumerate(_SERIES)}
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_SIZE = (4.1, 2.8)
"""Inches: 295 points, so that text is readable on a phone and not huge on a laptop."""
_RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pot",
    "text.parse_math": False,  # names of arms are text
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "lines.linewidth": 1.6,
}


class Plot(TypedDict):
    """A figure of the page."""

    name: str
    title: str
    caption: str
    svg: str
    series: dict[str, Series]
    """What is drawn, by arm."""


def plots(results: Results, rows: Sequence[MethodRow]) -> list[Plot]:
    """All figures; those that no run has data for are left out."""
    records = {arm: list(cells.values()) for arm, cells in results.arms.items()}
    solved = "Share of problems whose answer is right (passes all tests, hidden ones too). "
    late = "An answer that a greedy commit found is counted at its run's end."
    drawn = [
        _lines(
            "tokens",
            "Solved by completion tokens",
            f"{solved}Each line ends at the most that one run spent. {late}",
            {arm: solved_by(own, "tokens", lambda record: record["correct"]) for arm, own in records.items()},
            _share_by("completion tokens of one problem"),
        ),
        _lines(
            "seconds",
            "Solved by seconds",
            f"{solved}Wall seconds, with whatever else ran at the same time. {late}",
            {arm: solved_by(own, "seconds", lambda record: record["correct"]) for arm, own in records.items()},
            _share_by("seconds of one problem"),
        ),
        gap_plot(rows),
        _lines(
            "best",
            "Best reward so far",
            "Mean over runs of the best share of visible tests passed up to an iteration; solved runs stay at 1.",
            {arm: best_so_far(own) for arm, own in records.items()},
            _by_iteration("visible tests passed", share=True),
        ),
        _lines(
            "reward",
            "Reward of each group",
            "Mean reward of the thoughts sampled in an iteration, over the runs still searching: solved ones have "
            "left, so late points are of hard problems.",
            {arm: by_iteration(own, group_reward) for arm, own in records.items()},
            _by_iteration("mean reward", share=True),
        ),
        _lines(
            "kl",
            "KL to the reference",
            "Mean over the updates that moved weights.",
            {
                arm: by_iteration(own, lambda step: step["kl"] if step["skipped"] is None else None)
                for arm, own in records.items()
            },
            _by_iteration("KL, nats a token"),
        ),
        _lines(
            "norm",
            "Norm of the adapter",
            "Mean over runs of methods that learn. LoRA's A is random from the start and counts, so the first value is "
            "far from nought, and it is the change that was learned.",
            {
                arm: by_iteration(own if results.learns(arm) else [], lambda step: step["adapter_norm"])
                for arm, own in records.items()  # all arms, since colours go by place
            },
            _by_iteration("norm", from_zero=False),
        ),
    ]
    return [plot for plot in drawn if plot is not None]


def style_of(index: int) -> tuple[int, int]:
    """Colour and dashes of the nth arm, as indices."""
    return index % COLOURS, (index // COLOURS) % len(_DASHES)


def gap_plot(rows: Sequence[MethodRow]) -> Plot:
    """Each method's visible-solved rate beside its pass@1: the distance is over-fitting."""
    with _figure((_SIZE[0], 1.0 + 0.36 * len(rows))) as (figure, axes):
        for index, row in enumerate(rows):
            y, (hue, _) = -index, style_of(index)
            right, seen, colour = row["pass_at_1"], row["visible_solved"], _SERIES[hue]
            axes.plot([right["low"], right["high"]], [y, y], color=colour, linewidth=7, alpha=0.22)
            axes.plot([right["value"], seen["value"]], [y, y], color=colour)
            axes.plot([right["value"]], [y], "o", color=colour, markersize=7)
            axes.plot(
                [seen["value"]], [y], "o", color=colour, markersize=7, markerfacecolor="none", markeredgewidth=1.6
            )
        axes.set_yticks([-index for index in range(len(rows))], [_shortened(row["arm"]) for row in rows])
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.set_xlim(-0.02, 1.03)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("share of problems")
        svg = _svg(figure, "gap")
    caption = (
        "Filled: pass@1 on hidden tests, with its 95 % interval as a band. Open: the answer passes every visible test. "
        "What lies between passes the tests that were shown and fails the others."
    )
    series = {
        row["arm"]: Series(x=[row["pass_at_1"]["value"], row["visible_solved"]["value"]], y=[], n=[row["problems"]])
        for row in rows
    }
    return Plot(name="gap", title="Visible against hidden tests", caption=caption, svg=svg, series=series)


def _lines(
    name: str, title: str, caption: str, series: dict[str, Series], finish: Callable[[Any, dict[str, Series]], None]
) -> Plot | None:
    steps = name in ("tokens", "seconds")
    lines = [_positive(line) if steps else line for line in series.values()]
    if not any(line["x"] for line in lines):
        return None
    with _figure(_SIZE) as (figure, axes):
        for index, line in enumerate(lines):
            hue, dashes = style_of(index)
            width = 1.6 + min(1.8, 0.3 * (len(lines) - 1 - index))  # so that a line shows under one that is equal
            style: dict[str, Any] = {"color": _SERIES[hue], "linestyle": _DASHES[dashes], "linewidth": width}
            if not line["x"]:
                continue
            if steps:
                axes.step(line["x"], line["y"], where="post", **style)
                axes.plot(line["x"][-1:], line["y"][-1:], "o", color=style["color"], markersize=5)
            else:
                axes.plot(line["x"], line["y"], marker="o", markersize=4, **style)
        finish(axes, series)
        svg = _svg(figure, name)
    return Plot(name=name, title=title, caption=caption, svg=svg, series=series)


def _positive(line: Series) -> Series:
    """What a logarithmic axis can show: a run that failed at once spent nothing."""
    kept = [index for index, x in enumerate(line["x"]) if x > 0]
    return Series(x=[line["x"][i] for i in kept], y=[line["y"][i] for i in kept], n=[line["n"][i] for i in kept])


def _share_by(label: str) -> Callable[[Any, dict[str, Series]], None]:
    def finish(axes: Any, series: dict[str, Series]) -> None:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda x, _: ""))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel(label)
        axes.set_ylabel("problems solved")

    return finish


def _by_iteration(
    label: str, *, share: bool = False, from_zero: bool = True
) -> Callable[[Any, dict[str, Series]], None]:
    def finish(axes: Any, series: dict[str, Series]) -> None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if share:
            axes.set_ylim(-0.02, 1.02)
        elif from_zero:
            axes.set_ylim(bottom=0.0)
        axes.set_xlabel("iteration")
        axes.set_ylabel(label)

    return finish


@contextmanager
def _figure(size: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    settings: Any = _RC  # the stubs know each name by itself
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots()


def _svg(figure: Any, name: str) -> str:
    """The drawing as an element of a page: colours by variables, ids of its own, no prologue."""
    with io.StringIO() as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # text stays text: the browser has the font
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for side in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {side}="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text


def _shortened(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= 18 else shown[:17] + "…"
