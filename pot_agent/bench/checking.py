"""Whether a line is a record and a file a manifest: asked by who goes on with a run, and by who reports on one.

Every damage has a name: each function raises `ValueError` that says what is wrong and what to do, and its caller says
where.

Limits: what one record says of itself is checked (its sums, its tree), not whether it is true. Numbers that are not
finite (NaN, Infinity, 1e999) are read as missing.
"""

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from pot_agent.bench.record import RECORD_VERSION, Manifest, Record

MOST = 1e30
"""No number of a record is larger: FLOPs of a run are some 1e21."""
MOST_ITERATIONS = 1_000_000
_SHOWN = 100
_MEND = "no crash of `pot bench` leaves such a thing: mend or remove it"


def parse_record(line: bytes) -> Record:
    """A record from its line. Raises `ValueError`."""
    found = _parsed(line)
    _check_version(found)
    try:
        record = cast(Record, _checked(Record, found))
        _check_numbers(record, "")
        _check_passed(record)
        _check_tree(record)
    except ValueError as error:
        raise ValueError(f"{error}; {_MEND}") from error
    return record


def parse_manifest(data: bytes) -> Manifest:
    """A manifest from its file. Raises `ValueError`."""
    found = _parsed(data)
    _check_version(found)
    manifest = cast(Manifest, _checked(Manifest, found))
    ids = manifest["data"].get("ids")
    if ids is not None and not (isinstance(ids, list) and all(isinstance(problem, str) for problem in ids)):
        raise ValueError(f"data.ids must be a list of names, got {_shown(ids)}")
    allowed = manifest["budget"].get("allowed")
    _check_mapping(allowed, "budget.allowed")
    for arm, given in manifest["methods"].items():
        config = given.get("config")
        _check_mapping(config, f"methods.{arm}.config")
        _check_mapping((config or {}).get("search"), f"methods.{arm}.config.search")
    return manifest


def _check_mapping(value: Any, name: str) -> None:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {_shown(value)}")


def _parsed(data: bytes) -> Any:
    """JSON whose numbers are finite or missing."""
    try:
        return json.loads(data, parse_constant=lambda name: None, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(f"not JSON: nested too deeply; {_MEND}") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}; {_MEND}") from error


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _check_version(found: Any) -> None:
    version = found.get("record_version") if isinstance(found, dict) else None
    if type(version) is not int or version != RECORD_VERSION:
        raise ValueError(
            f"record version {_shown(version)}, and this version of pot_agent reads {RECORD_VERSION} only; use the "
            "version that made it"
        )


def _checked(kind: Any, found: Any) -> Any:
    try:
        return _adapter(kind).validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(f"{name}: {first['msg']}, got {_shown(first['input'])}") from error


def _check_numbers(value: Any, name: str) -> None:
    if isinstance(value, (int, float)):
        if not -MOST <= value <= MOST:
            raise ValueError(f"{name} must lie within {MOST:g} of 0, got {_shown(value)}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_numbers(item, f"{name}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_numbers(item, name)


def _check_passed(record: Record) -> None:
    """An answer passes no more tests than there are, and is correct when it passes all, and not otherwise."""
    for kind in ("visible", "hidden"):
        passed, total = record[f"{kind}_passed"], record[f"{kind}_total"]  # type: ignore[literal-required]
        if not 0 <= passed <= total:
            raise ValueError(f"{kind}_passed must lie between 0 and {kind}_total, {total}, got {passed}")
    all_visible = record["visible_passed"] == record["visible_total"]
    if record["visible_solved"] and not all_visible:
        raise ValueError(f"visible_solved, with {record['visible_passed']} of {record['visible_total']} tests passed")
    if record["correct"] and not (all_visible and 0 < record["hidden_total"] == record["hidden_passed"]):
        raise ValueError(
            f"correct, with {record['visible_passed']} of {record['visible_total']} visible tests and "
            f"{record['hidden_passed']} of {record['hidden_total']} hidden ones passed"
        )
    for step in record["curve"]:
        if not 0 <= step["iteration"] <= MOST_ITERATIONS:
            raise ValueError(f"curve: iteration must lie between 0 and {MOST_ITERATIONS}, got {step['iteration']}")


def _check_tree(record: Record) -> None:
    """Parents come before children, and each thought names a program that is there: who draws it relies on that."""
    for index, node in enumerate(record["tree"]):
        parent, program = node["parent"], node["program"]
        rooted = parent is None if index == 0 else parent is not None and 0 <= parent < index
        if not rooted or not (program is None or 0 <= program < len(record["programs"])):
            raise ValueError(f"node {index} of the tree has parent {parent} and program {program}")
    if any(not 0 <= node < len(record["tree"]) for node in record["committed_path"]):
        raise ValueError(f"the committed path leaves the tree: {_shown(record['committed_path'])}")


def _shown(value: Any) -> str:
    """A value of whatever size, for a message."""
    if isinstance(value, int) and abs(value) > MOST:
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)[:_SHOWN]
