"""The report as one HTML page: everything inline, nothing fetched, light and dark, from 320 pixels on.

What models wrote is never part of the markup: jinja2 escapes all text, trees travel as base64 and are put on the page
as text nodes, and the page's own policy (CSP) lets no script run but the one whose digest it names, and nothing load.
Limits: trees need a browser with DecompressionStream (2023 or newer); without scripts the tables and figures remain.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

from pot_agent.bench.report.findings import Findings
from pot_agent.bench.report.plots import Plot, style_of
from pot_agent.bench.report.tables import tables_of
from pot_agent.bench.report.trees import Packed
from pot_agent.bench.report.words import facts_of, sentences
from pot_agent.errors import MissingExtraError

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape
except ImportError as error:
    raise MissingExtraError('reports need jinja2: pip install "policy-of-thoughts[bench]"') from error

_PARTS = files("pot_agent.bench.report") / "page_parts"
MARKS = {
    "correct": ("✓", "right: passes every test"),
    "visible": ("◐", "passes the visible tests, fails a hidden one"),
    "wrong": ("✕", "fails a visible test"),
    "mixed": ("≈", "differs by seed"),
    "error": ("!", "ended in an error"),
    "none": ("·", "not tried"),
}
"""Signs of how a method did on a problem, and what they mean."""


def page(found: Findings, plots: Sequence[Plot], problems: Sequence[Packed]) -> str:
    """The whole page."""
    script = _part("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kept"] = kept
    return environment.from_string(_part("page.html")).render(
        found=found,
        tables=tables_of(found),
        sentences=sentences(found),
        facts=facts_of(found),
        plots=[{**plot, "svg": Markup(plot["svg"])} for plot in plots],
        arms=[(row["arm"], *style_of(index)) for index, row in enumerate(found["methods"])],
        problems=problems,
        marks=MARKS,
        style=Markup(_part("page.css")),
        script=Markup(script),
        script_digest=digest,
    )


def kept(text: str) -> Markup:
    """Text with what is in brackets kept on one line."""
    parts = re.split(r"(\([^()]{1,30}\))", text)
    marked = (Markup('<span class="kept">{}</span>').format(p) if i % 2 else escape(p) for i, p in enumerate(parts))
    return Markup("").join(marked)


def _part(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")
