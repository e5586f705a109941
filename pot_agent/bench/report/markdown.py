"""The report as Markdown, as GitHub reads it; figures and trees are on the page."""

import re

from pot_agent.bench.report.findings import Findings
from pot_agent.bench.report.formatting import printable
from pot_agent.bench.report.tables import Table, tables_of
from pot_agent.bench.report.words import facts_of, sentences

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$!&])")


def markdown(found: Findings) -> str:
    """The whole report."""
    parts = [f"# {escaped(found['benchmark'])}: {found['problems']} problems, {escaped(found['model'])}"]
    parts += ["\n".join(f"- {escaped(text)}" for text in sentences(found))]
    if found["notes"]:
        parts += ["**Before you believe this**", "\n".join(f"- {escaped(note)}" for note in found["notes"])]
    parts += [_table(table) for table in tables_of(found)]
    parts += ["## Provenance", "\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in facts_of(found))]
    parts += ["Figures, learning curves and every thought tree: `report.html`; all figures as data: `report.json`."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(table: Table) -> str:
    lines = [_row(table.head), _row(["---"] * len(table.head), raw=True), *map(_row, table.rows)]
    return "\n".join([f"## {escaped(table.title)}", "", *lines, "", escaped(table.note)])


def _row(cells: tuple[str, ...] | list[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cell if raw else escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Text that Markdown takes as text, on one line; what cannot be printed is left out."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
