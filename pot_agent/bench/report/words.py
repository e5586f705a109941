"""What was found in sentences, and where the figures come from; all as plain text."""

from collections.abc import Iterator
from typing import Any

from pot_agent.bench.matching import WITHIN
from pot_agent.bench.report.comparing import Comparison
from pot_agent.bench.report.findings import Findings
from pot_agent.bench.report.formatting import estimated, p_value, percent, points, ratio
from pot_agent.bench.report.ordering import Ordering


def sentences(found: Findings) -> list[str]:
    """What was found, in words: the paper's ordering where it can be asked, then the pairs that decide."""
    said = [_ordered(claim) for claim in found["ordering"]]
    first = found["learning"][:1]
    decisive = [
        c for c in found["learning"] if all(c["first"] == f["first"] and c["second"] == f["second"] for f in first)
    ]
    return [*said, *map(_compared, (decisive or found["pairs"])[:3])]


def _ordered(claim: Ordering) -> str:
    rates = ", ".join(f"{arm} {estimated(rate)}" for arm, rate in zip(claim["arms"], claim["rates"], strict=True))
    order = "in that order" if claim["in_order"] else "not in that order"
    return (
        f"The paper's ordering {' < '.join(claim['arms'])} on {_problems(claim['problems'])} ({claim['on']}): "
        f"{claim['verdict']}. The rates are {order}: {rates}."
    )


def _compared(c: Comparison) -> str:
    text = f"{c['first']} against {c['second']} on {_problems(c['problems'])} ({c['on']}): "
    if not c["problems"]:
        return f"{text}{c['verdict']}."
    return (
        f"{text}{percent(c['first_rate'])} against {percent(c['second_rate'])}, "
        f"{points(c['difference'], c['low'], c['high'])} points, {c['wins']} better and {c['losses']} worse, "
        f"{_p(c['p'])}: {c['verdict']}."
    )


def _p(p: float) -> str:
    return f"p {p_value(p)}" if p < 1e-4 else f"p = {p_value(p)}"


def _problems(count: int) -> str:
    return f"{count:,} problem" + ("" if count == 1 else "s")


def matched_words(found: Findings) -> str:
    """By what budgets are matched: what was allowed, and what was spent."""
    allowed = sorted({str(budget.get("matched_by") or "nothing that the run names") for budget in found["budgets"]})
    matching, within = found["matching"], f"within {100 * (WITHIN - 1):.0f} %"
    text = f"By the runs' settings, budgets are matched by: {'; '.join(allowed)}."
    if len(matching["totals"]) < 2 or not matching["problems"]:
        return text
    spread = ", ".join(f"{name} {ratio(value)}" for name, value in matching["ratios"].items())
    matched = ", ".join(matching["matched"]) or "none of the four"
    return (
        f"{text} Spent in all on the {matching['problems']:,} problems and seeds that every method has, the most over "
        f"the least: {spread}; {within} of one another: {matched}."
    )


def _plain(value: Any) -> str:
    """Plain data on one line."""
    if isinstance(value, dict):
        parts = (f"{name} ({_plain(inner)})" if isinstance(inner, dict) else f"{name} {_plain(inner)}"
                 for name, inner in value.items())  # fmt: skip
        return ", ".join(parts)
    if isinstance(value, list):
        return " ".join(_plain(inner) for inner in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def facts_of(found: Findings) -> list[tuple[str, str]]:
    """Where the figures come from, as names and values."""
    facts = [("benchmark", found["benchmark"]), *((f"data: {n}", _plain(v)) for n, v in found["data"].items() if v)]
    facts += [(f"model: {name}", _plain(value)) for name, value in found["model_facts"].items() if value is not None]
    for run in found["runs"]:
        facts += [(f"run {run['name']}", f"{run['folder']}, made {run['created']}, seeds {_plain(run['seeds'])}")]
        facts += [("command", " ".join(run["command"]))]
        facts += [(name, _plain(run[name])) for name in ("versions", "machine") if run[name]]
        if "hours" in run["estimate"]:
            facts += [("estimated before the start", f"{_plain(run['estimate']['hours'])} hours at most")]
    return [*facts, *_settings(found), ("report by", f"pot {found['pot_version']}")]


def _settings(found: Findings) -> list[tuple[str, str]]:
    """What all arms have in common, then what each has of its own."""
    flat = {arm: dict(_flat(given)) for run in found["runs"] for arm, given in run["methods"].items()}
    if len(flat) < 2:
        return [(f"settings of {arm}", _plain(own)) for arm, own in flat.items()]
    first, *others = flat.values()
    common = {name: value for name, value in first.items() if all(name in o and o[name] == value for o in others)}
    facts = [("settings of all", _plain(common))] if common else []
    own = {arm: {name: value for name, value in given.items() if name not in common} for arm, given in flat.items()}
    return facts + [(f"settings of {arm}", _plain(given)) for arm, given in own.items() if given]


def _flat(given: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value
