"""The report's tables, as text; Markdown and the page show the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from pot_agent.bench.report.comparing import Comparison
from pot_agent.bench.report.findings import Findings
from pot_agent.bench.report.formatting import NOTHING, estimated, number, p_value, percent, points, ratio, scaled
from pot_agent.bench.report.methods import HEADLINE_TESTS, MethodRow, Spending
from pot_agent.bench.report.words import matched_words

PASS_AT_1 = (
    "pass@1: the share of problems whose one answer passes every hidden test and every visible one; a run that ended "
    "in an error counts as not solved."
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Text in rows; the first column names the row."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def tables_of(found: Findings) -> list[Table]:
    """Every table that has a row."""
    made = [
        methods_table(found),
        ordering_table(found),
        learning_table(found),
        pairs_table(found),
        updates_table(found),
        spending_table(found),
    ]
    return [table for table in made if table.rows]


def methods_table(found: Findings) -> Table:
    """pass@1 and the visible-hidden gap."""
    return Table(
        name="methods",
        title="Methods",
        head=(
            "method",
            "problems",
            "pass@1",
            "official grader",
            "visible solved",
            "gap",
            f"pass@1, {HEADLINE_TESTS}+ visible tests",
            "updates",
            "errors",
            "missing",
        ),
        rows=tuple(
            (
                row["arm"],
                _tried(row),
                estimated(row["pass_at_1"]),
                estimated(row["official"]),
                percent(row["visible_solved"]["value"]),
                estimated(row["gap"]),
                _headline(row),
                _updates(row),
                number(row["errors"]),
                number(row["missing_records"]),
            )
            for row in found["methods"]
        ),
        note=(
            f"{PASS_AT_1} Gap: the answer passes every visible test and fails a hidden one. Missing: records (a "
            f"problem and a seed) that were planned, or that another method has. {_rules(found['methods'])}"
        ),
    )


def _updates(row: MethodRow) -> str:
    if not row["learns"] and not row["updates_made"]:
        return NOTHING
    problems = f"{row['updated_problems']:,} problem" + ("" if row["updated_problems"] == 1 else "s")
    return f"{row['updates_made']:,} on {problems}"


def _tried(row: MethodRow) -> str:
    seeds = len(row["seeds"])
    return f"{row['problems']:,}" + (f" × {seeds} seeds" if seeds > 1 else "")


def _headline(row: MethodRow) -> str:
    head = row["headline"]
    return estimated(head) + (f" of\N{NO-BREAK SPACE}{head['problems']}" if head else "")


def _rules(rows: Sequence[MethodRow]) -> str:
    used = {
        found["interval"]
        for row in rows
        for found in (row["pass_at_1"], row["official"], row["gap"], row["headline"])
        if found is not None
    }
    if used == {"wilson"}:
        return "In brackets: 95 % intervals by Wilson's rule."
    return (
        "In brackets: 95 % intervals, by the bootstrap over problems (seeds averaged within a problem) where a method "
        "was run with several seeds, by Wilson's rule where with one or where all problems agree."
    )


_COMPARED = ("pair", "problems", "pass@1", "difference, points", "wins : losses", "p", "verdict")
_HOW = (
    "Seeds are averaged within a problem; the difference has a 95 % bootstrap interval over problems; p is the exact "
    "sign test on problems that differ (McNemar's where each was tried once). Fewer than 6 such problems: undetermined."
)


def ordering_table(found: Findings) -> Table:
    """The steps of the paper's order."""
    return Table(
        name="ordering",
        title="The paper's ordering",
        head=("step", "on", *_COMPARED[1:5], "p", "p, Holm", "verdict"),
        rows=tuple(
            (_pair(step)[0], step["on"], *_pair(step)[1:6], p_value(step["p_holm"]), step["verdict"])
            for claim in found["ordering"]
            for step in claim["steps"]
        ),
        note=(
            "The hypothesis zero-shot < PoT with k = 1 < MCTS < PoT, on the problems that all four arms have: it held "
            "where each step's later arm is higher, not where one is lower, and is undetermined else. The verdict "
            f"follows p adjusted by Holm's rule for the three steps. {_HOW}"
        ),
    )


def learning_table(found: Findings) -> Table:
    """PoT against MCTS where learning could show."""
    return Table(
        name="learning",
        title="PoT against search without learning",
        head=("pair", "on", *_COMPARED[1:]),
        rows=tuple((*_pair(c)[:1], c["on"], *_pair(c)[1:]) for c in found["learning"]),
        note=(
            "MCTS is PoT with learning off: same prompts, seeds and commits, so the two are one run up to PoT's first "
            "update, and choosing the problems with an update looks at nothing that learning did. These are the "
            f"comparisons the method stands on; p is not adjusted here. {_HOW}"
        ),
    )


def pairs_table(found: Findings) -> Table:
    """Every pair, as one family."""
    return Table(
        name="pairs",
        title=f"Every pair, the baseline {found['baseline']} first",
        head=(*_COMPARED[:5], "p", "p, Holm", "verdict"),
        rows=tuple((*_pair(c)[:6], p_value(c["p_holm"]), c["verdict"]) for c in found["pairs"]),
        note=f"{_HOW} The verdict follows p adjusted by Holm's rule for {len(found['pairs'])} pairs.",
    )


def _pair(c: Comparison) -> tuple[str, ...]:
    return (
        f"{c['first']} − {c['second']}",
        number(c["problems"]),
        f"{percent(c['first_rate'])} : {percent(c['second_rate'])}",
        points(c["difference"], c["low"], c["high"]),
        f"{c['wins']} : {c['losses']}",
        p_value(c["p"]),
        c["verdict"],
    )


def updates_table(found: Findings) -> Table:
    """How often weights moved, and why they did not."""
    learners = [row for row in found["methods"] if row["learns"] or row["updates_made"]]
    return Table(
        name="updates",
        title="Updates",
        head=("method", "problems with an update", "updates", "updates a problem", "groups that moved nothing"),
        rows=tuple(
            (
                row["arm"],
                f"{row['updated_problems']} of {row['problems']}",
                number(row["updates_made"]),
                number(row["updates"]),
                _reasons(row),
            )
            for row in learners
        ),
        note="A group whose rewards are all equal teaches nothing; with one visible test no group can.",
    )


def _reasons(row: MethodRow) -> str:
    order = sorted(row["skipped"].items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count} × {reason}" for reason, count in order) or "none"


def spending_table(found: Findings) -> Table:
    """Means over problems, and multiples of the baseline's over common problems."""
    base = found["baseline"]
    return Table(
        name="budget",
        title="Budget and what was really spent",
        head=(
            "method", "programs", "tokens", "completion tokens", "seconds", "FLOPs", "peak MiB", f"matched with {base}",
        ),
        rows=tuple(
            _spent(row, spent, _allowed(found, row["arm"]))
            for row, spent in zip(found["methods"], found["spending"], strict=True)
        ),
        note=(
            f"{matched_words(found)} Shown are means over a method's problems (programs: of how many allowed); in "
            f"brackets the total as a multiple of {base}'s on what both have, and last what lies within 10 % of it. "
            "Tokens are prompt and completion; programs and tokens include commits; FLOPs are estimates; peak memory "
            "is that of the process, which methods of one run share."
        ),
    )  # fmt: skip


def _spent(row: MethodRow, spent: Spending, allowed: int | None) -> tuple[str, ...]:
    own, times = row["spent"], spent["ratios"]
    limit = "" if allowed is None else f" of {allowed:,}"
    return (
        row["arm"],
        f"{number(own['programs'])}{limit} ({ratio(times['programs'])})",
        f"{number(own['tokens'])} ({ratio(times['tokens'])})",
        number(own["completion_tokens"]),
        f"{number(own['seconds'])} ({ratio(times['seconds'])})",
        f"{scaled(own['flops'])} ({ratio(times['flops'])})",
        number(row["peak_mb"]),
        ", ".join(spent["matched"]) or NOTHING,
    )


def _allowed(found: Findings, arm: str) -> int | None:
    limits = {(budget.get("allowed") or {}).get(arm) for budget in found["budgets"]} - {None}
    limit = limits.pop() if len(limits) == 1 else None
    return limit if isinstance(limit, int) else None
