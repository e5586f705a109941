"""The process's own sandbox: what a graph or a tool uses when it was given none."""

from threading import Lock

from pot_agent.sandbox.local import LocalSandbox

_lock = Lock()
_made: list[LocalSandbox] = []


def default_sandbox() -> LocalSandbox:
    """The one local sandbox of this process, made at the first call; it is closed at exit."""
    with _lock:
        if not _made or _made[0].closed:
            _made[:] = [LocalSandbox()]
        return _made[0]
