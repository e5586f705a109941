"""A problem's folder in the format of the DMOJ judge: `init.yml`, an archive of cases, and how outputs are compared.

Limits first: the checkers `standard` (tokens; here line ends do not count, and 42.0 equals 42), `identical`, `floats`,
`floatsabs`, `floatsrel`, `sorted` and `bridged` (a program in C++ that accepts by status 0, type `default` or
`testlib`); any other is an error that names it. Interactive problems are an `InteractiveError`. Points are not counted:
every case must pass.
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pot_agent.bench.datasets.cpp_checker import python_checker
from pot_agent.errors import DatasetError, ProblemError
from pot_agent.problem import StdinTest
from pot_agent.values import shorten

MAX_CASE_BYTES = 1 << 28
INIT = "init.yml"
Comparison = Mapping[str, Any]
"""Fields of a `StdinTest` that say how outputs are compared."""


class InteractiveError(DatasetError):
    """The problem talks with its solver, and no test of it can be judged by outputs."""

    code = "dataset_interactive"


def read_init(folder: Path) -> Mapping[str, Any]:
    """What `init.yml` says. Raises `DatasetError`, and `InteractiveError` for a problem that is a conversation."""
    path = folder / INIT
    try:
        init = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DatasetError(f"{path} cannot be read: {error}", value=str(path)) from error
    if not isinstance(init, dict):
        raise DatasetError(f"{path} must hold an object, got {shorten(init)}", value=init)
    if "interactive" in init:
        raise InteractiveError(f"{folder.name} is interactive", value=folder.name)
    return init


def comparison(folder: Path, init: Mapping[str, Any]) -> Comparison:
    """How outputs are compared, from `checker`."""
    given = init.get("checker", "standard")
    name = given if isinstance(given, str) else given.get("name") if isinstance(given, dict) else None
    args = (given.get("args") if isinstance(given, dict) else None) or {}
    if not isinstance(name, str) or name not in _CHECKERS:
        known = ", ".join(_CHECKERS)
        raise DatasetError(f"{folder / INIT}: checker must be one of {known}, got {shorten(given)}", value=given)
    return _CHECKERS[name](folder, args)


def cases(folder: Path, init: Mapping[str, Any], compared: Comparison) -> Iterator[StdinTest]:
    """The cases in order, those of batches included."""
    with _Files(folder, init.get("archive")) as files:
        for case in _flat(init.get("test_cases"), folder):
            try:
                yield StdinTest(input=files.text(case["in"]), output=files.text(case["out"]), **compared)
            except ProblemError as error:
                raise DatasetError(f"{folder / INIT}, {case['in']}: {error}", value=case["in"]) from error


def inside(folder: Path, name: Any) -> Path:
    """A file of the folder, and of no other."""
    path = folder / name if isinstance(name, str) and name else folder
    if path == folder or not path.resolve().is_relative_to(folder.resolve()):
        raise DatasetError(f"{folder / INIT} names {shorten(name)}, which is not a file of its folder", value=name)
    return path


def _flat(given: Any, folder: Path) -> Iterator[Mapping[str, str]]:
    if not isinstance(given, list):
        raise DatasetError(f"{folder / INIT}: test_cases must be a list, got {shorten(given)}", value=given)
    for case in given:
        if isinstance(case, dict) and "batched" in case:
            yield from _flat(case["batched"], folder)
        elif isinstance(case, dict) and isinstance(case.get("in"), str) and isinstance(case.get("out"), str):
            yield case
        else:
            raise DatasetError(f"{folder / INIT}: a case needs `in` and `out`, got {shorten(case)}", value=case)


class _Files:
    """Files of the archive, or of the folder where there is none."""

    def __init__(self, folder: Path, archive: Any) -> None:
        self.folder, self.path = folder, inside(folder, archive) if archive is not None else None

    def __enter__(self) -> "_Files":
        try:
            self.archive = zipfile.ZipFile(self.path) if self.path is not None else None
        except (OSError, zipfile.BadZipFile) as error:
            raise DatasetError(
                f"the hidden tests of {self.folder.name} are not there: {error}; get the folder again (git-lfs "
                "pointers are not the files)",
                value=str(self.path),
            ) from error
        return self

    def __exit__(self, *error: object) -> None:
        if self.archive is not None:
            self.archive.close()

    def text(self, name: str) -> str:
        """A file's text; bytes that are not UTF-8 are kept as lone surrogates, and refused by the test."""
        try:
            data = self._bytes(name)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{self.path or self.folder}: {name} cannot be read: {error}", value=name) from error
        return data.decode("utf-8", "surrogateescape")

    def _bytes(self, name: str) -> bytes:
        if self.archive is None:
            return inside(self.folder, name).read_bytes()
        if self.archive.getinfo(name).file_size > MAX_CASE_BYTES:
            raise DatasetError(f"{self.path}: {name} is longer than {MAX_CASE_BYTES:,} bytes", value=name)
        return self.archive.read(name)


def _floats(mode: str) -> Callable[[Path, Mapping[str, Any]], Comparison]:
    def read(folder: Path, args: Mapping[str, Any]) -> Comparison:
        digits, how = args.get("precision", 6), args.get("error_mode", mode)
        if not isinstance(digits, int) or isinstance(digits, bool) or not 0 <= digits <= 18:
            raise DatasetError(f"{folder / INIT}: precision must be 0 to 18, got {shorten(digits)}", value=digits)
        if how not in ("default", "absolute", "relative"):
            raise DatasetError(f"{folder / INIT}: no such error_mode: {shorten(how)}", value=how)
        epsilon = 10.0**-digits
        return {
            "compare": "float",
            "abs": 0.0 if how == "relative" else epsilon,
            "rel": 0.0 if how == "absolute" else epsilon,
        }

    return read


def _bridged(folder: Path, args: Mapping[str, Any]) -> Comparison:
    kind, named, language = args.get("type", "default"), args.get("files"), args.get("lang", "CPP17")
    names = [named] if isinstance(named, str) else named
    if kind not in ("default", "testlib") or not isinstance(names, list):
        raise DatasetError(
            f"{folder / INIT}: a bridged checker needs files and type default or testlib, got {shorten(dict(args))}",
            value=dict(args),
        )
    return {"checker": python_checker([inside(folder, name) for name in names], str(language))}


_CHECKERS: dict[str, Callable[[Path, Mapping[str, Any]], Comparison]] = {
    "standard": lambda folder, args: {"compare": "tokens"},
    "identical": lambda folder, args: {"compare": "exact"},
    "sorted": lambda folder, args: {"compare": "unordered"},
    "floats": _floats("default"),
    "floatsabs": _floats("absolute"),
    "floatsrel": _floats("relative"),
    "bridged": _bridged,
}
