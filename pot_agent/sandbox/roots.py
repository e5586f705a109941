"""The tiny root directory of a zygote with namespaces: mounts of what is readable, and nothing else of the machine.

Limits first: with Landlock on top, folders of shared libraries are mounted whole (what else they hold is closed by
Landlock); without it each library is mounted for itself. Everything is read-only. Standard library only.
"""

import os
from collections.abc import Iterable, Sequence

from pot_agent.sandbox import kernel
from pot_agent.sandbox.readable import HIDDEN, SYSTEM, Readable

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME = 0x1, 0x2, 0x4, 0x8, 0x400
MS_REMOUNT, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 0x20, 0x800, 0x1000, 0x4000, 0x40000, 0x200000
_KEPT = (
    (0x2, MS_NOSUID),
    (0x4, MS_NODEV),
    (0x8, MS_NOEXEC),
    (0x400, MS_NOATIME),
    (0x800, MS_NODIRATIME),
    (0x1000, MS_RELATIME),
)
"""Flags as `statvfs` has them, and as `mount` has them: a mount that was inherited keeps its own."""
PLACES = ("/mnt", "/srv", "/media", "/opt", "/run", "/var/tmp", "/home", "/tmp")
"""Folders that the new root can be mounted on for the moment."""
TOP_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
EMPTY_FOLDERS = ("proc", "old", "dev")
SCRATCH_FOLDERS = ("/tmp", "/var/tmp", "/scratch")
SCRATCH_BYTES, SCRATCH_FILES = 16 << 20, 2000
"""Size of the scratch folder, and how many files it holds."""


def place(readable: Readable) -> str:
    """A folder to mount the new root on, above none of the files that are to be found in it."""
    return _above_nothing(readable, [folder for folder in PLACES if os.path.isdir(folder)])


def scratch_folder(readable: Readable) -> str:
    """Where programs may write; /tmp, unless this very installation is there."""
    return _above_nothing(readable, SCRATCH_FOLDERS)


def _above_nothing(readable: Readable, folders: Sequence[str]) -> str:
    few = readable._replace(shared_objects=tuple({os.path.dirname(path) for path in readable.shared_objects}))
    sources = [f"{name}/" for part in few for path in part for name in (path, os.path.realpath(path))]
    for folder in folders:
        if not any(name.startswith(f"{folder}/") for name in sources):
            return folder
    raise OSError(f"Python is installed below every folder that could be mounted on: {', '.join(folders)}")


def build(root: str, readable: Readable, *, whole_folders: bool) -> None:
    """Mount the new root on `root` and all that belongs in it."""
    kernel.mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _tmpfs(root, "size=4m,nr_inodes=20000,mode=755")
    for name in EMPTY_FOLDERS:
        os.mkdir(f"{root}/{name}", 0o755)
    for name in TOP_LINKS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
            os.makedirs(os.path.join(root, os.readlink(f"/{name}").lstrip("/")), exist_ok=True)
    shared = readable.shared_objects
    _mount_all(root, sorted({os.path.dirname(path) for path in shared}) if whole_folders else shared)
    _mount_all(root, sorted(readable.libraries))
    for library in readable.libraries:
        for name in HIDDEN:
            if os.path.isdir(f"{root}{library}/{name}"):
                _tmpfs(f"{root}{library}/{name}", "size=64k,nr_inodes=1000,mode=755")
    for folder in readable.site_packages:
        os.makedirs(root + folder, exist_ok=True)
    _mount_all(root, (*readable.packages, *SYSTEM, *readable.commands))
    if readable.commands:
        os.symlink(scratch_folder(readable), f"{root}/dev/shm")  # named semaphores of multiprocessing


def scratch(folder: str) -> None:
    """Mount an empty file system of a fixed size that programs may write to."""
    os.makedirs(folder, exist_ok=True)
    _tmpfs(folder, f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=1777")


def seal(root: str) -> None:
    """Nothing can be made or removed in the root itself any more."""
    kernel.mount("none", root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _tmpfs(folder: str, options: str) -> None:
    kernel.mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, options)


def _mount_all(root: str, paths: Iterable[str]) -> None:
    for path in paths:
        target = root + path
        if not os.path.exists(path) or _is_there(path, target):
            continue
        _make(path, target)
        if not os.path.islink(target):
            _bind(path, target)


def _is_there(path: str, target: str) -> bool:
    """As a link, or as part of a folder that is mounted already."""
    return os.path.islink(target) or (os.path.exists(target) and os.path.samefile(path, target))


def _make(path: str, target: str) -> None:
    """Something to mount `path` on; a link stays a link where what it points at is beside it."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path) and "/" not in os.readlink(path) and not os.path.isdir(path):
        os.symlink(os.readlink(path), target)
    elif os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _bind(path: str, target: str) -> None:
    kernel.mount(path, target, flags=MS_BIND | MS_REC)
    held = os.statvfs(target).f_flag
    kept = sum(mount for stat, mount in _KEPT if held & stat)
    kernel.mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)
