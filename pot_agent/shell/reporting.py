"""`pot report`: the table of methods in the terminal, and where the report was written."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pot_agent.bench.report import report
from pot_agent.bench.report.formatting import printable
from pot_agent.bench.report.tables import methods_table
from pot_agent.bench.report.words import sentences

COLUMNS = ("method", "problems", "pass@1", "gap", "errors", "missing")
"""What of the table of methods fits into a terminal; the rest is in the report."""


def write_report(runs: Sequence[Path], out: Path | None, baseline: str | None, console: Console) -> None:
    """Write the report of these runs (into the first one's folder `report`, unless said) and show its first table."""
    made = report(runs, out or runs[0] / "report", baseline=baseline)
    found = made.findings
    shown = methods_table(found)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    kept = [shown.head.index(name) for name in COLUMNS]
    for name in COLUMNS:
        table.add_column(escape(name), overflow="fold")
    for row in shown.rows:
        table.add_row(*(escape(printable(row[index])) for index in kept))
    console.print(table)
    for text in sentences(found):
        console.print(escape(printable(text)), style="bold", highlight=False, soft_wrap=True)
    for note in found["notes"]:
        console.print(f"note: {escape(printable(note))}", style="yellow", highlight=False, soft_wrap=True)
    for path in (made.page, made.markdown, made.data):
        console.print(f"wrote {escape(str(path))}", highlight=False, soft_wrap=True)
