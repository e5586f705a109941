"""Run folders, read and merged: `manifest.json` and `results*.jsonl`, nothing else.

Limits: only runs of one benchmark, from the same data, with the same model, and with the same configuration of every
method that two of them share can be merged; all else is refused by name. A last line that a runner has not finished
(it was killed, or it is writing) is left out, counted and said. Numbers that are not finite (NaN, Infinity, 1e999) are
read as missing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pot_agent.bench.checking import parse_manifest, parse_record
from pot_agent.bench.record import Manifest, Record
from pot_agent.bench.report.formatting import printable
from pot_agent.errors import ReportError

Cell = tuple[str, int]
"""A problem and a seed: what a method was tried on once."""


@dataclass(frozen=True)
class Results:
    """Runs that belong together. Arms are in the order of the manifests, problems in that of their ids."""

    manifests: tuple[Manifest, ...]
    folders: tuple[Path, ...]
    arms: dict[str, dict[Cell, Record]]
    planned: dict[str, set[Cell]]
    """What the manifests say each arm would be tried on; empty where they do not say."""
    notes: tuple[str, ...] = field(default=())
    torn_lines: int = 0
    """Last lines that were never finished, and are left out."""

    @property
    def benchmark(self) -> str:
        """Name of the data set."""
        return self.manifests[0]["benchmark"]

    @property
    def problems(self) -> list[str]:
        """Every problem that any arm was tried on."""
        return sorted({problem for cells in self.arms.values() for problem, _ in cells}, key=natural)

    def method_of(self, arm: str) -> str:
        """The method behind an arm: `pot` for `pot:k=8`."""
        return str(self.settings_of(arm).get("method") or arm.partition(":")[0])

    def settings_of(self, arm: str) -> dict[str, Any]:
        """What the manifest says of an arm."""
        return next((m["methods"][arm] for m in self.manifests if arm in m["methods"]), {})

    def learns(self, arm: str) -> bool:
        """Whether an arm may move weights."""
        given = self.settings_of(arm)
        may = bool(given.get("learns", self.method_of(arm) in ("pot", "persistent")))
        return may and bool((given.get("config") or {}).get("learn", True))

    def width_of(self, arm: str) -> int | None:
        """Thoughts of an expansion, where the manifest says it."""
        search = (self.settings_of(arm).get("config") or {}).get("search") or {}
        width = search.get("width")
        return width if isinstance(width, int) else None


def natural(text: str) -> tuple[Any, ...]:
    """A key that sorts `HumanEval/9` before `HumanEval/10`."""
    parts = re.split("([0-9]+)", text)  # text and digits by turns
    keys = [(len(part.lstrip("0")), part.lstrip("0")) if index % 2 else part for index, part in enumerate(parts)]
    return tuple(keys), text


def read_runs(folders: Sequence[Path]) -> Results:
    """The runs in these folders as one. Raises `ReportError`, naming the folder, file and line, where they are not."""
    if not folders:
        raise ReportError("nothing to report on; name one or more folders that `pot bench --out` wrote", value=[])
    places = {folder.resolve(): folder for folder in folders}
    if len(places) < len(folders):
        raise ReportError("a run folder was named twice; name each once", value=[str(folder) for folder in folders])
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
        check_together(folders[0], manifests[0], folder, manifest)
    check_arms(folders, manifests)
    notes: list[str] = []
    torn: list[Path] = []
    names = [arm for manifest in manifests for arm in manifest["methods"]]
    arms: dict[str, dict[Cell, Record]] = {name: {} for name in dict.fromkeys(names)}
    for folder, manifest in zip(folders, manifests, strict=True):
        _merge(folder, manifest, arms, notes, torn)
    _check_rows(arms)
    kept = {
        name: dict(sorted(cells.items(), key=lambda c: (natural(c[0][0]), c[0][1]))) for name, cells in arms.items()
    }
    if torn:
        notes.append(
            f"{len(torn)} last line(s) were never finished and are left out ({', '.join(map(str, torn))}): the runner "
            "was killed, or is writing now; `pot bench --resume` runs those problems again"
        )
    notes += [f"{name} has no results yet" for name, cells in kept.items() if not cells]
    kept = {name: cells for name, cells in kept.items() if cells}
    if not kept:
        raise ReportError(
            f"no results yet in {', '.join(map(str, folders))}; report when a problem is done",
            value=[str(folder) for folder in folders],
        )
    return Results(tuple(manifests), tuple(folders), kept, _planned(manifests), tuple(notes), len(torn))


def read_manifest(folder: Path) -> Manifest:
    """What a run was."""
    path = folder / "manifest.json"
    try:
        return parse_manifest(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ReportError(
            f"{folder} is not a run: there is no {path.name}; name a folder that `pot bench --out` wrote",
            value=str(folder),
        ) from error
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read: {error}", value=str(path)) from error


def data_digest(manifest: Manifest) -> str:
    """The digest of the data set that a run was made from; empty where it says none."""
    return str(manifest["data"].get("sha256") or manifest["data"].get("digest") or "")


def model_name(manifest: Manifest) -> str:
    """What the model is called."""
    return str(manifest["model"].get("model") or manifest["model"].get("name") or "a model without a name")


def check_together(first: Path, known: Manifest, folder: Path, manifest: Manifest) -> None:
    """Refuse two runs that measured different things."""
    what = {
        "benchmark": (known["benchmark"], manifest["benchmark"]),
        "data digest": (data_digest(known), data_digest(manifest)),
        "model": (model_name(known), model_name(manifest)),
        "digest of the weights": _both(known["model"], manifest["model"], "base_digest"),
    }
    for name, (one, other) in what.items():
        if one != other:
            raise ReportError(
                f"{first} and {folder} cannot be reported on together: {name} {one!r} against {other!r}; make a "
                "report of each",
                value=[one, other],
            )


def check_arms(folders: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Refuse one name for two configurations; the first seed, which each has in it, is none of that."""
    seen: dict[str, tuple[Path, dict[str, Any]]] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        for arm, given in manifest["methods"].items():
            config = {name: value for name, value in (given.get("config") or {}).items() if name != "seed"}
            given = {**given, "config": config}
            place, known = seen.setdefault(arm, (folder, given))
            if known != given:
                raise ReportError(
                    f"{arm} is configured differently in {place} and {folder} "
                    f"({', '.join(_differing(known, given)) or 'its keys'}); make a report of each",
                    value=arm,
                )


def _differing(known: Any, given: Any, at: str = "") -> list[str]:
    if not isinstance(known, dict) or not isinstance(given, dict):
        return [] if known == given else [f"{at} {known!r} against {given!r}"]
    names = sorted(known.keys() | given.keys())
    return [text for name in names for text in _differing(known.get(name), given.get(name), f"{at}.{name}".lstrip("."))]


def _both(known: dict[str, Any], given: dict[str, Any], name: str) -> tuple[Any, Any]:
    """What the two say, where both say something: a model behind a server has no digest."""
    return (known.get(name), given.get(name)) if known.get(name) and given.get(name) else (None, None)


def _merge(
    folder: Path, manifest: Manifest, arms: dict[str, dict[Cell, Record]], notes: list[str], torn: list[Path]
) -> None:
    files = sorted(folder.glob("results*.jsonl"))
    planned = set(_cells(manifest))
    if not files:
        notes.append(f"{folder} has no results file yet")
    for path in files:
        for place, record in _lines(path, torn):
            arm, cell = record["method"], (record["problem"], record["seed"])
            if arm not in manifest["methods"] or record["benchmark"] != manifest["benchmark"]:
                raise ReportError(
                    f"{place}: {printable(arm)} on {printable(record['benchmark'])} is not in "
                    f"{folder / 'manifest.json'}; the file is of another run",
                    value=arm,
                )
            if planned and cell not in planned:
                raise ReportError(
                    f"{place}: {printable(record['problem'])} with seed {record['seed']} is not planned in "
                    f"{folder / 'manifest.json'}; the file is of another run",
                    value=record["problem"],
                )
            if cell in arms[arm]:
                raise ReportError(
                    f"{place}: {printable(record['problem'])} by {printable(arm)} with seed {record['seed']} is there "
                    "twice; leave one of the runs out, or remove one of the two lines",
                    value=[record["problem"], arm, record["seed"]],
                )
            arms[arm][cell] = record


def _lines(path: Path, torn: list[Path]) -> Iterator[tuple[str, Record]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}", value=str(path)) from error
    if lines[-1]:
        torn.append(path)
    for number, line in enumerate(lines[:-1], start=1):
        place = f"line {number} of {path}"
        try:
            record = parse_record(line)
        except ValueError as error:
            raise ReportError(f"{place}: {error}", value=str(path)) from error
        yield place, record


def _check_rows(arms: dict[str, dict[Cell, Record]]) -> None:
    """The same row and the same tests for every method."""
    seen: dict[str, tuple[str, tuple[str, int, int]]] = {}
    for arm, cells in arms.items():
        for (problem, _), record in cells.items():
            own = (record["digest"], record["visible_total"], record["hidden_total"])
            other, known = seen.setdefault(problem, (arm, own))
            if own != known:
                raise ReportError(
                    f"{printable(problem)} was not the same problem for {printable(other)} and {printable(arm)}: "
                    f"digest, visible and hidden tests are {known} and {own}; run both on the same data",
                    value=problem,
                )


def _planned(manifests: Sequence[Manifest]) -> dict[str, set[Cell]]:
    planned: dict[str, set[Cell]] = {}
    for manifest in manifests:
        for arm in manifest["methods"]:
            planned.setdefault(arm, set()).update(_cells(manifest))
    return planned


def _cells(manifest: Manifest) -> list[Cell]:
    """What a run was to be tried on; empty where its manifest names no problems."""
    return [(problem, seed) for problem in manifest["data"].get("ids") or () for seed in manifest["seeds"]]
