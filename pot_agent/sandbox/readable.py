"""Which files a program may read: the Python installation, a few packages, and the shared libraries under them.

Landlock opens these and nothing else; the tiers with namespaces show these and little else. Standard library only.
"""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

HIDDEN = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages below a library: closed, but for the packages that were named."""
SYSTEM = ("/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom", "/dev/null")
COMMANDS = ("/usr/bin", "/bin")
"""Folders whose commands may be run where a program may start processes."""
LOADERS = ("/lib", "/lib64")
"""Where the kernel looks for the program that loads shared libraries."""


class Readable(NamedTuple):
    """What is there to read, as paths of this machine."""

    libraries: tuple[str, ...]
    """Folders of the standard library."""
    site_packages: tuple[str, ...]
    packages: tuple[str, ...]
    """Paths of the packages that programs may import."""
    shared_objects: tuple[str, ...]
    commands: tuple[str, ...] = ()
    """Folders of commands and the interpreter itself, where programs may start processes."""


def find(site_packages: Sequence[str], packages: Sequence[str], *, processes: bool) -> Readable:
    """Look around; to be called in the zygote, which has the interpreter's own libraries mapped."""
    names = [name for package in packages for name in (package, f"{package}.libs", f"{package}.py")]
    paths = [os.path.join(folder, name) for folder in site_packages for name in names]
    return Readable(
        libraries=tuple(path for path in sys.path if os.path.isdir(path)),
        site_packages=tuple(path for path in site_packages if os.path.isdir(path)),
        packages=tuple(path for path in paths if os.path.exists(path)),
        shared_objects=tuple(_shared_objects()),
        commands=tuple(_commands()) if processes else (),
    )


def interpreter() -> str:
    """The installed interpreter, not the link to it in a virtual environment."""
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    return os.path.realpath(base)


def _commands() -> list[str]:
    loaders = [entry.path for folder in LOADERS for entry in entries(folder) if entry.name.startswith("ld-")]
    folders = [path for path in COMMANDS if not os.path.islink(path)]
    return [path for path in (*folders, *loaders, interpreter()) if os.path.exists(path)]


def entries(directory: str) -> list["os.DirEntry[str]"]:
    """What a folder holds; nothing where it cannot be read."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _shared_objects() -> list[str]:
    """Every shared library beside one that this process has mapped: extension modules are linked with those."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line and line.count(" /")}
    folders = sorted({os.path.dirname(path) for path in mapped})
    found = [entry for folder in folders for entry in entries(folder)]
    return [entry.path for entry in found if _is_library(entry.name) or entry.path in mapped]


def _is_library(name: str) -> bool:
    return name.startswith("lib") and ".so" in name
