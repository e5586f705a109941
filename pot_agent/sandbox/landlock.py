"""Which files a program may reach: the Python installation, to read, and nothing else. A Landlock ruleset.

Limits first: Landlock (Linux 5.13) does not hide names. `stat` still tells whether a path exists and how large it is,
and names below `site-packages` can be listed. Contents cannot be read, nothing can be written, on any ABI: what older
ABIs leave open (truncation before 3, device ioctls before 5, TCP before 4, abstract sockets and signals before 6) the
seccomp filter closes as well. Standard library only: this runs in the zygote.
"""

import ctypes
import os

from pot_agent.sandbox import kernel
from pot_agent.sandbox.readable import HIDDEN, SYSTEM, Readable, entries

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
SCRATCH = WRITE_FILE | READ_FILE | READ_DIR | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 13 | 1 << 14
"""Write, list, remove folders and files, make folders, files and links, rename, truncate; no devices, sockets."""
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file access rights that the kernel knows from each ABI on."""
_NET_BIND_AND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_RULE_PATH_BENEATH = 1
_SKIPPED = HIDDEN | {"__pycache__"}


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


def _allow_tree(ruleset: int, path: str, more: int = 0) -> None:
    _allow(ruleset, path, more | (READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE))


def build(readable: Readable, *, scratch: str | None) -> int:
    """A ruleset: read what is readable, write below `scratch`, run commands where there are any.

    Returns its descriptor, for `restrict`. Other installed packages stay closed: one of them may hold a benchmark's
    answers. `scratch` must be mounted: the rule is about what is there now.
    """
    version = abi()
    ruleset = _create(version)
    runs = EXECUTE if readable.commands else 0
    for directory in readable.libraries:
        _allow(ruleset, directory, READ_DIR)
        for entry in entries(directory):
            if entry.name not in _SKIPPED:
                _allow_tree(ruleset, entry.path)
        _allow_tree(ruleset, os.path.join(directory, "__pycache__"))
    for directory in readable.site_packages:
        _allow(ruleset, directory, READ_DIR)
    for path in (*readable.packages, *SYSTEM):
        _allow_tree(ruleset, path)
    for path in (*readable.shared_objects, *readable.commands):
        _allow_tree(ruleset, path, runs)
    _allow(ruleset, "/dev/null", READ_FILE | WRITE_FILE)
    if scratch is not None:
        _allow(ruleset, scratch, SCRATCH & _file_rights(version))
    return ruleset


def restrict(ruleset: int) -> None:
    """Put the calling process under `ruleset`, for good. Needs no_new_privs."""
    kernel.syscall("landlock_restrict_self", kernel.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
