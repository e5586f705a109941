"""Problems as Ray tasks: methods run on a cluster's workers, records are graded and written by the driver alone.

A task is given a problem (never hidden tests), a method's name and its configuration, and answers with plain data. The
policy is a server that the driver chose (`--policy URL`, several for several replicas), or the worker's own model,
loaded once a process. A worker that dies is no harm: Ray runs its task again elsewhere (`RETRIES` times), the driver
takes one answer a problem, and a session that was left behind on a server ends by its lease. A server that stops
answering gets no more problems, and those that it had are begun again on another.

Limits: every node needs this package in the same version, a sandbox, and a way to the servers' URLs; the token of a
server travels to the workers. Arms whose adapter goes on from problem to problem do not run here. Methods are found by
name, so only those of `pot_agent.methods` do. A cluster without a free processor lets the run wait. Ray's statistics
are off, and a cluster that is begun here has no dashboard.
"""

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Event
from types import TracebackType
from typing import Any, Literal, Self

from typing_extensions import TypedDict

from pot_agent.bench.estimate import Probe, probe
from pot_agent.bench.manifest import model_of
from pot_agent.bench.record import Attempt
from pot_agent.bench.servers import Servers, check_replicas
from pot_agent.bench.trial import OF_THE_MACHINE, Trial, attempt, lost
from pot_agent.config import PotConfig
from pot_agent.errors import CancelledError, ClusterError, ConfigError, MissingExtraError, PotError
from pot_agent.errors import error_by_code as error_of
from pot_agent.policy.base import Capabilities, Policy
from pot_agent.problem import Problem
from pot_agent.sandbox.shared import default_sandbox
from pot_agent.settings import Settings, set_where_unset
from pot_agent.version import __version__

log = logging.getLogger(__name__)

RETRIES = 3
"""Times that Ray begins a task again whose worker died."""
LOOK_SECONDS = 0.2
REACH_SECONDS = 10.0
LOCAL = "local"
"""As an address: a cluster on this machine, for this run."""
_SHOWN = 300


class Answer(TypedDict, total=False):
    """What a task answers: what was asked for, or an error by its code."""

    given: Any
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Door:
    """Which policy a task uses: a server's, or its worker's own."""

    settings: Settings
    url: str | None = None

    def open(self) -> Policy:
        """The policy, one for each process that asks."""
        return _opened(self)


@cache
def _opened(door: Door) -> Policy:
    if door.url is not None:
        from pot_agent.policy.client import HttpPolicy

        return HttpPolicy(door.url, token=door.settings.token)
    from pot_agent.handles import local_policy

    return local_policy(door.settings.model, door.settings)


def answer(work: Callable[..., Any], *given: Any) -> Answer:
    """`work` in a worker's process: its errors travel as data, since a class of ours may not survive the way."""
    try:
        return Answer(given=work(*given))
    except PotError as error:
        return Answer(code=error.code, message=str(error))
    except OF_THE_MACHINE as error:
        return Answer(code="does_not_fit", message=f"{type(error).__name__}: {error}")


def attempt_there(problem: Problem, method: str, config: PotConfig, door: Door) -> Attempt:
    """One problem."""
    from pot_agent.methods import find

    return attempt(problem, find(method).build, config, door.open(), default_sandbox())


def about_there(door: Door) -> tuple[str, Capabilities, dict[str, Any]]:
    """This package's version there, and what is known of the policy."""
    policy = door.open()
    return __version__, policy.capabilities, model_of(policy)


def probe_there(door: Door, problem: Problem, config: PotConfig, learn: bool) -> Probe:
    """How fast a policy is with one problem at a time, asked from there."""
    return probe(door.open(), problem, config, sessions=1, learn=learn)


class OnRay:
    """A cluster that methods run on. A context manager: it leaves the cluster, or ends the one it began."""

    def __init__(
        self, address: str, *, urls: Sequence[str] = (), settings: Settings, cpus: float = 1.0, **options: Any
    ) -> None:
        """Join the cluster at an address (`auto`, `host:port`, `ray://...`), or begin one here (`local`).

        `cpus` are those of one task; `options` go to `ray.init`. Raises `MissingExtraError` and `ClusterError`.
        """
        self._ray = _import_ray()
        self._doors = [Door(settings=settings, url=url) for url in urls] or [Door(settings=settings)]
        begun = {"include_dashboard": False} if address == LOCAL else {}
        _check_reachable(address)
        try:
            self._ray.init(address, log_to_driver=False, configure_logging=False, **begun, **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(_nobody(address, error), value=address) from error
        gpus = 0 if urls else min(1, self._ray.cluster_resources().get("GPU", 0))
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}
        self._task = self._ray.remote(**self._resources)(answer)
        self._servers: Servers[Door] = Servers(self._doors)
        self.lanes = len(urls) or max(1, int(self._slots()))
        """Policies that work side by side: the servers, or as many workers as there is room for."""

    def attempt(self, trial: Trial, cancel: Event) -> Attempt:
        """One problem, as a task."""
        return self._servers.run(lambda door: self._attempt(trial, door, cancel))

    def forget(self, trial: Trial) -> None:
        """Refused: an adapter that is carried on lives in one process."""
        raise ConfigError(
            f"{trial.arm.name} carries one adapter from problem to problem, and Ray's tasks share none; run it without "
            "--ray",
            value=trial.arm.name,
        )

    def about(self) -> tuple[Capabilities, dict[str, Any]]:
        """What is known of the policies, the same for all. Raises `ConfigError` where they, or versions, differ."""
        asked = [self._task.remote(about_there, door) for door in self._doors]
        found = [self._given(waiting) for waiting in asked]
        for version, _, _ in found:
            if version != __version__:
                raise ConfigError(
                    f"a worker has policy-of-thoughts {version}, and the driver {__version__}; install one version",
                    value=version,
                )
        check_replicas([capabilities for _, capabilities, _ in found])
        return found[0][1], found[0][2]

    def probe(self, problem: Problem, config: PotConfig, *, learn: bool, cancel: Event | None = None) -> Probe:
        """How fast the first policy is. Raises `CancelledError` once `cancel` is set."""
        waiting = self._task.remote(probe_there, self._doors[0], problem, config, learn)
        self._wait(waiting, cancel or Event())
        one: Probe = self._given(waiting)
        return one

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()

    def _slots(self) -> float:
        there: dict[str, float] = self._ray.cluster_resources()
        cpus, gpus = float(self._resources["num_cpus"]), float(self._resources["num_gpus"])
        return min(there.get("CPU", 1.0) / cpus, there.get("GPU", 0.0) / gpus if gpus else float("inf"))

    def _attempt(self, trial: Trial, door: Door, cancel: Event) -> Attempt:
        problem, method = trial.task.problem, trial.arm.method.name
        task = self._task.options(max_retries=RETRIES, name="/".join(map(str, trial.key)))
        waiting = task.remote(attempt_there, problem, method, trial.config, door)
        self._wait(waiting, cancel)
        gone = self._ray.exceptions
        try:
            made: Attempt = self._given(waiting)
        except (gone.WorkerCrashedError, gone.NodeDiedError, gone.OutOfMemoryError) as error:
            log.warning("%s: %s", trial.key, error)
            return lost(problem, f"{type(error).__name__}: its worker died {RETRIES + 1} times; {_gist(error)}")
        return made

    def _wait(self, waiting: Any, cancel: Event) -> None:
        while not self._ray.wait([waiting], timeout=LOOK_SECONDS)[0]:
            if cancel.is_set():
                self._ray.cancel(waiting, force=True)
                raise CancelledError("cancelled; nothing of it is recorded")

    def _given(self, waiting: Any) -> Any:
        """What a task was asked for. Raises its error; `ClusterError` where the cluster could not run it at all."""
        with self._errors():
            found: Answer = self._ray.get(waiting)
        if "code" in found:
            raise error_of(found["code"])(found["message"])
        return found["given"]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        gone = self._ray.exceptions
        try:
            yield
        except (gone.WorkerCrashedError, gone.NodeDiedError, gone.OutOfMemoryError):
            raise
        except gone.RayError as error:
            raise ClusterError(
                f"a Ray task failed ({type(error).__name__}: {_gist(error)}); every node needs "
                f"policy-of-thoughts {__version__} with its extras, and must reach the policy. Go on with "
                "--resume",
                value=type(error).__name__,
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False


def _gist(error: BaseException) -> str:
    """One line: the first, or the last of a stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if "Traceback" in str(error) else 0][:_SHOWN]


def _check_reachable(address: str) -> None:
    """Raise `ClusterError` where nobody listens at a `host:port`: Ray itself asks there for minutes."""
    host, colon, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    if not (colon and host):
        return
    try:
        if not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise OSError(f"no port is called {port}")
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise ClusterError(_nobody(address, error), value=address) from error


def _nobody(address: str, error: Exception) -> str:
    return (
        f"no Ray cluster answers at {address!r} ({_gist(error)}); begin one with `ray start --head`, or give --ray "
        f"{LOCAL}"
    )


def _import_ray() -> Any:
    set_where_unset({"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"})
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            '--ray needs the extra `ray`: pip install "policy-of-thoughts[ray]"', value=error.name
        ) from error
    return ray
