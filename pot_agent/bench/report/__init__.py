"""What runs found: `report.md`, `report.json` and one self-contained `report.html`, from run folders alone.

Limits: it reads `manifest.json` and `results*.jsonl` and believes them: nothing is graded again. Only the three files
are written, each whole or not at all.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pot_agent.bench.report.findings import Findings, findings_of
from pot_agent.bench.report.markdown import markdown
from pot_agent.bench.report.page import page
from pot_agent.bench.report.plots import plots
from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.report.trees import packed_problems
from pot_agent.errors import ReportError

__all__ = ["Findings", "Report", "report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The three files, and what they say."""

    markdown: Path
    data: Path
    page: Path
    findings: Findings


def report(runs: Sequence[Path], out: Path, *, baseline: str | None = None) -> Report:
    """Read the runs and write the report into the folder `out`, over an older one.

    Raises `ReportError` for runs that cannot be read or do not belong together, or a folder that cannot be written.
    """
    results = read_runs(runs)
    found = findings_of(results, baseline)
    figures = plots(results, found["methods"])
    data = {**found, "plots": {plot["name"]: plot["series"] for plot in figures}}
    contents = {
        "report.md": markdown(found),
        "report.json": json.dumps(data, indent=2, allow_nan=False) + "\n",
        "report.html": page(found, figures, packed_problems(results)),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            _write(out / name, text.encode("utf-8", errors="replace"))  # a lone surrogate is no character
    except OSError as error:
        raise ReportError(
            f"the report cannot be written to {out}: {error.strerror or error}", value=str(out)
        ) from error
    return Report(markdown=out / "report.md", data=out / "report.json", page=out / "report.html", findings=found)


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
