"""A real PostgreSQL server of its own in a temporary folder, for one run of the tests."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ACCOUNT = "nobody"
"""Whom the server runs as where the tests run as root, which it refuses."""


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    given = shutil.which("pg_ctl")
    return found[-1].parent if found else Path(given).resolve().parent if given else None


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a server that listens on a socket in `folder` alone."""
    where = programs()
    assert where is not None
    folder.mkdir(parents=True)
    if os.geteuid() == 0:
        account = pwd.getpwnam(ACCOUNT)
        os.chown(folder, account.pw_uid, account.pw_gid)
    _run(where / "initdb", "-D", folder / "data", "-U", "pot", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    _run(where / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w", "-o", options, "start")
    try:
        yield f"postgresql://pot@/postgres?host={folder}"
    finally:
        _run(where / "pg_ctl", "-D", folder / "data", "-m", "fast", "-w", "stop")


def _run(*command: object) -> None:
    user = ACCOUNT if os.geteuid() == 0 else None
    done = subprocess.run(
        [str(part) for part in command],
        user=user,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
