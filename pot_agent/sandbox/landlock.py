"""Which files a program may reach: the Python installation, to read, and nothing else. A Landlock ruleset.

Limits first: Landlock (Linux 5.13) does not hide names. `stat` still tells whether a path exists and how large it is,
and names below `site-packages` can be listed. Contents cannot be read, nothing can be written, on any ABI: what older
ABIs leave open (truncation before 3, device ioctls before 5, TCP before 4, abstract sockets and signals before 6) the
seccomp filter closes as well. Standard library only: this runs in the zygote.
"""

import ctypes
import os
from collections.abc import Iterable

from pot_agent.sandbox import kernel

READ_FILE, WRITE_FILE, READ_DIR = 1 << 2, 1 << 1, 1 << 3
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file access rights that the kernel knows from each ABI on."""
_NET_BIND_AND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_RULE_PATH_BENEATH = 1
_SKIPPED = frozenset({"site-packages", "dist-packages", "__pycache__"})


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def abi() -> int:
    """The kernel's Landlock ABI; raises `OSError` where there is none."""
    get_version = 1
    return kernel.syscall("landlock_create_ruleset", kernel.SYS_LANDLOCK_CREATE_RULESET, None, 0, get_version)


def _file_rights(version: int) -> int:
    return int((1 << max(count for least, count in _RIGHTS_BY_ABI.items() if least <= version)) - 1)


def _create(version: int) -> int:
    attributes = _Ruleset(_file_rights(version))
    size = 8
    if version >= 4:
        attributes.net, size = _NET_BIND_AND_CONNECT, 16
    if version >= 6:
        attributes.scoped, size = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS, 24
    call = kernel.SYS_LANDLOCK_CREATE_RULESET
    return kernel.syscall("landlock_create_ruleset", call, ctypes.byref(attributes), size, 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this system: there is nothing to allow
    try:
        beneath = _PathBeneath(rights, parent)
        call = kernel.SYS_LANDLOCK_ADD_RULE
        kernel.syscall("landlock_add_rule", call, ruleset, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(parent)


def _allow_tree(ruleset: int, path: str) -> None:
    _allow(ruleset, path, READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE)


def build(libraries: Iterable[str], site_packages: Iterable[str], packages: Iterable[str]) -> int:
    """A ruleset: read the standard library in `libraries`, `packages` in `site_packages`, and shared objects.

    Returns its descriptor, for `restrict`. Other installed packages stay closed: one of them may hold a benchmark's
    answers.
    """
    ruleset = _create(abi())
    for directory in libraries:
        _allow(ruleset, directory, READ_DIR)
        for entry in _entries(directory):
            if entry.name not in _SKIPPED:
                _allow_tree(ruleset, entry.path)
        _allow_tree(ruleset, os.path.join(directory, "__pycache__"))
    for directory in site_packages:
        _allow(ruleset, directory, READ_DIR)
        for package in packages:
            for name in (package, f"{package}.libs", f"{package}.py"):
                _allow_tree(ruleset, os.path.join(directory, name))
    for path in (*_shared_objects(), "/etc/ld.so.cache", "/dev/urandom", "/usr/share/zoneinfo"):
        _allow_tree(ruleset, path)
    _allow(ruleset, "/dev/null", READ_FILE | WRITE_FILE)
    return ruleset


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _shared_objects() -> list[str]:
    """Every shared library beside one that this process has mapped: extension modules are linked with those."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line and line.count(" /")}
    directories = {os.path.dirname(path) for path in mapped}
    return [
        entry.path
        for directory in directories
        for entry in _entries(directory)
        if entry.name.startswith("lib") and ".so" in entry.name
    ]


def restrict(ruleset: int) -> None:
    """Put the calling process under `ruleset`, for good. Needs no_new_privs."""
    kernel.syscall("landlock_restrict_self", kernel.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
