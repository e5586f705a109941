"""Each problem's runs for the page: thoughts, programs, verdicts, updates, the committed path.

One problem is one gzip of JSON in base64, which the page unpacks when the problem is opened: base64 cannot end a script
element, whatever a model wrote. Limits: a program or feedback of more than 20,000 characters is cut with a mark, and
when the trees of all problems together would take more than 24 MiB, those of the last problems are left out, and the
page says so.
"""

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from pot_agent.bench.record import Record
from pot_agent.bench.report.methods import total_seconds
from pot_agent.bench.report.reading import Results

MAX_TEXT_CHARACTERS = 20_000
MAX_LINE_CHARACTERS = 300
"""Of a title or a verdict."""
MAX_TREES_BYTES = 24 * 2**20
_SHOWN = (
    "method", "seed", "visible_passed", "visible_total", "visible_solved", "hidden_passed", "hidden_total", "correct",
    "official", "iterations", "tree", "curve", "committed_path",
)  # fmt: skip


class Packed(TypedDict):
    """A problem of the page's list."""

    problem: str
    title: str
    visible_total: int
    hidden_total: int
    marks: dict[str, str]
    """By arm: `correct`, `visible`, `wrong`, `error`, `mixed`, or `none` where it was not tried."""
    packed: str | None
    """None where it was left out."""


def packed_problems(results: Results) -> list[Packed]:
    """Every problem, in order."""
    found, room = [], MAX_TREES_BYTES
    for problem in results.problems:
        records = {arm: [r for (name, _), r in cells.items() if name == problem] for arm, cells in results.arms.items()}
        text: str | None = pack([run_of(record) for own in records.values() for record in own])
        if text is not None and len(text) > room:
            text, room = None, 0
        room -= len(text or "")
        first = next(record for own in records.values() for record in own)
        found.append(
            Packed(
                problem=problem,
                title=cut(first["title"], MAX_LINE_CHARACTERS),
                visible_total=first["visible_total"],
                hidden_total=first["hidden_total"],
                marks={arm: mark(own) for arm, own in records.items()},
                packed=text,
            )
        )
    return found


def mark(records: list[Record]) -> str:
    """How a method did on a problem over all seeds, in a word."""
    each = {
        "error" if r["error"] else "correct" if r["correct"] else "visible" if r["visible_solved"] else "wrong"
        for r in records
    }
    return "none" if not each else each.pop() if len(each) == 1 else "mixed"


def pack(data: Any) -> str:
    """JSON types as base64 of gzip."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def unpack(text: str) -> Any:
    """What `pack` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def run_of(record: Record) -> dict[str, Any]:
    """What the page shows of one run; plain JSON types."""
    found: dict[str, Any] = {name: record[name] for name in _SHOWN}  # type: ignore[literal-required]
    ledger = record["ledger"]
    return found | {
        "error": None if record["error"] is None else cut(record["error"]),
        "verdict": cut(record["verdict"], MAX_LINE_CHARACTERS),
        "stop_reason": cut(record["stop_reason"], MAX_LINE_CHARACTERS),
        "warnings": [cut(warning) for warning in record["warnings"]],
        "program": cut(record["program"]),
        "programs": [shown(program) for program in record["programs"]],
        "updates": ledger["updates"],
        "tokens": ledger["completion_tokens"],
        "executed": ledger["programs"],
        "seconds": total_seconds(record),
    }


def shown(program: Mapping[str, Any]) -> dict[str, Any]:
    """A program and what its tests said."""
    passed, total = program.get("passed"), program.get("total")
    return {
        "text": cut(str(program.get("text") or "")),
        "verdict": cut(str(program.get("verdict") or ""), MAX_LINE_CHARACTERS),
        "passed": passed if isinstance(passed, int) else None,
        "total": total if isinstance(total, int) else None,
        "feedback": cut(str(program.get("feedback") or "")),
    }


def cut(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """A text that a page can hold."""
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"
