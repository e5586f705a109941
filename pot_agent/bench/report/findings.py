"""What runs found, as plain data: the content of `report.json`, from which the other two are written."""

from collections.abc import Iterator
from typing import Any

from typing_extensions import TypedDict

from pot_agent.bench.matching import Matching, matched_by
from pot_agent.bench.record import Manifest
from pot_agent.bench.report.comparing import Comparison, every_pair, learning_pairs
from pot_agent.bench.report.methods import MethodRow, Spending, method_rows, spending
from pot_agent.bench.report.ordering import Ordering, orderings
from pot_agent.bench.report.reading import Results, data_digest, model_name
from pot_agent.errors import ReportError
from pot_agent.version import __version__

REPORT_VERSION = 1
_BASELINES = ("mcts", "zero_shot")


class Findings(TypedDict):
    """All figures of a report."""

    report_version: int
    pot_version: str
    benchmark: str
    data: dict[str, Any]
    model: str
    model_facts: dict[str, Any]
    problems: int
    baseline: str
    methods: list[MethodRow]
    ordering: list[Ordering]
    """The paper's order, where its four arms are there."""
    learning: list[Comparison]
    """PoT against MCTS, on all problems and on the sets where learning could show; each is a family of its own."""
    pairs: list[Comparison]
    """Every pair, as one family."""
    budgets: list[dict[str, Any]]
    """What the manifests say budgets were matched by; one where all say the same."""
    spending: list[Spending]
    matching: Matching
    """Totals over what every method has, and by which of them all methods are matched."""
    runs: list[dict[str, Any]]
    notes: list[str]
    torn_lines: int
    """Lines that were never finished, left out."""


def findings_of(results: Results, baseline: str | None = None) -> Findings:
    """The figures. Raises `ReportError` for a baseline that was not run."""
    base = _baseline(results, baseline)
    rows, first = method_rows(results), results.manifests[0]
    budgets: list[dict[str, Any]] = []
    budgets += [m["budget"] for index, m in enumerate(results.manifests) if m["budget"] not in _before(results, index)]
    return Findings(
        report_version=REPORT_VERSION,
        pot_version=__version__,
        benchmark=results.benchmark,
        data={name: value for name, value in first["data"].items() if name != "ids"},
        model=model_name(first),
        model_facts=first["model"],
        problems=len(results.problems),
        baseline=base,
        methods=rows,
        ordering=orderings(results),
        learning=learning_pairs(results),
        pairs=every_pair(results, base),
        budgets=budgets,
        spending=spending(results, base),
        matching=matched_by([record for cells in results.arms.values() for record in cells.values()]),
        runs=[_run(manifest, str(folder)) for manifest, folder in zip(results.manifests, results.folders, strict=True)],
        notes=[*results.notes, *_doubts(results, rows, budgets)],
        torn_lines=results.torn_lines,
    )


def _before(results: Results, index: int) -> list[dict[str, Any]]:
    return [manifest["budget"] for manifest in results.manifests[:index]]


def _baseline(results: Results, asked: str | None) -> str:
    if asked is not None:
        if asked not in results.arms:
            raise ReportError(
                f"the baseline {asked!r} has no results here; choose one of {', '.join(results.arms)}", value=asked
            )
        return asked
    known = [arm for method in _BASELINES for arm in results.arms if results.method_of(arm) == method]
    return known[0] if known else next(iter(results.arms))


def _doubts(results: Results, rows: list[MethodRow], budgets: list[dict[str, Any]]) -> Iterator[str]:
    """What a reader should know before believing the table."""
    incomplete = [row for row in rows if row["missing_records"]]
    if incomplete:
        lacking = ", ".join(f"{row['arm']} ({row['missing_records']:,})" for row in incomplete)
        yield (
            f"records are missing, of {lacking}: problems that end early are recorded first, so the rates may change; "
            "compare methods by the paired tables alone, which use common problems"
        )
    for row in rows:
        if row["errors"]:
            yield f"{row['arm']} ended in an error {_counted(row['errors'], 'time')}; that counts as not solved"
    if len({tuple(row["seeds"]) for row in rows}) > 1:
        yield "methods were run with different seeds: " + ", ".join(f"{r['arm']} {r['seeds']}" for r in rows)
    if len(budgets) > 1:
        yield f"the runs were made with {len(budgets)} different budgets; see Budget"
    if not data_digest(results.manifests[0]):
        yield "the manifests name no digest of the data; that the runs saw the same rows is known from the rows' own"
    for name in ("versions", "machine", "model"):
        if any(manifest[name] != results.manifests[0][name] for manifest in results.manifests):
            yield f"the runs differ in {name}; see Provenance"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _run(manifest: Manifest, folder: str) -> dict[str, Any]:
    kept = ("name", "created", "command", "seeds", "versions", "machine", "model", "methods", "estimate")
    return {"folder": folder} | {name: manifest[name] for name in kept}  # type: ignore[literal-required]
