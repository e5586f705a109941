"""One E2B machine: made, given the runner, run jobs on, ended. All that the SDK can raise is sorted here.

Limits first: of E2B's errors, a key that is not accepted, a template that does not exist and a request that cannot be
are for the user to mend (`SandboxUnavailableError`); all else is infrastructure (`MachineError`): no machine free, too
many requests, timeouts, lost connections, a machine that is gone. Asking for a machine is tried `TRIES` times with
pauses. `AuthenticationException` and the error of a busy service are not `SandboxException`s in the SDK.
"""

import importlib.util
import io
import logging
import threading
import time
import zipfile
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from pot_agent.errors import CancelledError, SandboxUnavailableError
from pot_agent.sandbox.codec import CodecError
from pot_agent.sandbox.execution import Job, Outcome
from pot_agent.sandbox.parcel import pack_job, unpack_outcome

_log = logging.getLogger(__name__)
TRIES = 4
SPARE_SECONDS = 60.0
"""Time that a job may take in a machine beyond its limits: starting the runner, a slow network."""
START = (
    "import sys; assert sys.version_info >= (3, 11), 'Python %s.%s, and 3.11 is needed' % sys.version_info[:2]; "
    "sys.path.insert(0, 'pot'); from pot_agent.sandbox import remote; remote.main('pot/job', 'pot/outcome')"
)
COMMAND = f'python3 -I -c "{START}"'
UNPACK = "python3 -m zipfile -e pot/runner.zip pot"
_FOR_THE_USER = ("AuthenticationException", "InvalidArgumentException", "NotFoundException", "TemplateException")


class MachineError(Exception):
    """The machine, or E2B, failed: nothing is known about the program."""


class Settings(NamedTuple):
    """How machines are made."""

    api_key: str | None
    template: str | None
    lifetime_seconds: int
    retry_seconds: float


class Machine:
    """A running E2B sandbox with the runner in it."""

    def __init__(self, settings: Settings) -> None:
        self._lifetime = settings.lifetime_seconds
        self._ends = time.monotonic() + self._lifetime
        self._made = _create(settings)
        try:
            self._call(self._made.files.write, "pot/runner.zip", _runner())
            self._call(self._made.commands.run, UNPACK, timeout=SPARE_SECONDS)
        except BaseException:
            self.kill()
            raise

    def has_time_for(self, job: Job) -> bool:
        """Whether the job would be done before E2B ends the machine; its lifetime is never extended."""
        return self._ends - time.monotonic() >= self._seconds(job)

    def _seconds(self, job: Job) -> float:
        """Time that the job may take, for all that goes slowly."""
        return min(2 * job.limits.wall * job.tests + SPARE_SECONDS, 0.9 * self._lifetime)

    def run(self, job: Job, cancel: Event | None) -> tuple[Outcome, str]:
        """Run a job; its outcome, and the tier inside.

        Raises `MachineError`, `CancelledError` and `SandboxUnavailableError`.
        """
        self._call(self._made.files.write, "pot/job", pack_job(job))
        self._command(self._seconds(job), cancel)
        data = self._call(self._made.files.read, "pot/outcome", format="bytes")
        try:
            return unpack_outcome(bytes(data), job)
        except CodecError as error:
            raise MachineError(f"what came back is no outcome: {error}") from error

    def _command(self, seconds: float, cancel: Event | None) -> None:
        if cancel is None:
            self._call(self._made.commands.run, COMMAND, timeout=seconds)
            return
        failed: list[Exception] = []

        def run() -> None:
            try:
                self._call(self._made.commands.run, COMMAND, timeout=seconds)
            except Exception as error:
                failed.append(error)

        running = threading.Thread(target=run, name="e2b", daemon=True)
        running.start()
        while running.is_alive():
            running.join(0.05)
            if cancel.is_set():
                self.kill()  # and the command with it
                raise CancelledError("judging was cancelled by its caller")
        if failed:
            raise failed[0]

    def _call(self, method: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(*given, **named)
        except Exception as error:
            raise _sorted(error) from error

    def kill(self) -> None:
        """End the machine; where even that fails, E2B ends it at the end of its lifetime."""
        try:
            self._made.kill()
        except Exception as error:
            _log.warning("an E2B sandbox could not be ended, and will end by its lifetime: %s", error)


def _create(settings: Settings) -> Any:
    from e2b_code_interpreter import Sandbox

    options: dict[str, Any] = {"timeout": settings.lifetime_seconds, "allow_internet_access": False}
    if settings.api_key is not None:
        options["api_key"] = settings.api_key
    if settings.template is not None:
        options["template"] = settings.template
    pause = settings.retry_seconds
    for attempt in range(TRIES):
        try:
            return Sandbox.create(**options)
        except Exception as error:
            found = _sorted(error)
            if not isinstance(found, MachineError) or attempt == TRIES - 1:
                raise found from error
            _log.info("no E2B sandbox yet, asking again in %g s: %s", pause, error)
            time.sleep(pause)
            pause *= 2
    raise AssertionError("unreachable")


def _sorted(error: Exception) -> Exception:
    """An error of the SDK as one of ours, by the names of its classes: the SDK may not be there to import them."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = f"{type(error).__name__}: {error}"
    if "SandboxNotFoundException" in names or "FileNotFoundException" in names:
        return MachineError(text)
    if "CommandExitException" in names:
        detail = str(getattr(error, "stderr", "")).strip().splitlines()[-1:] or [str(error)]
        text = f"the runner failed inside the E2B sandbox: {detail[0][:500]}"
        wanted = "3.11 is needed" in text or "not found" in text
        return (
            SandboxUnavailableError(f"{text}; use a template with Python 3.11 or newer")
            if wanted
            else MachineError(text)
        )
    if names & set(_FOR_THE_USER):
        return SandboxUnavailableError(
            f"E2B refused: {text}. Set E2B_API_KEY (https://e2b.dev/dashboard); check template and lifetime_seconds",
            value=str(error),
        )
    return MachineError(text)


@cache
def _runner() -> bytes:
    """This package's sandbox, and what it stands on, as a zip file."""
    root = Path(__file__).parents[1]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (root, root / "sandbox", root / "statement"):
            for path in sorted(folder.glob("*.py")):
                archive.write(path, f"pot_agent/{path.relative_to(root).as_posix()}")
    return packed.getvalue()


def available() -> bool:
    """Whether the SDK is installed."""
    return importlib.util.find_spec("e2b_code_interpreter") is not None
