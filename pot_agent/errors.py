"""Every error this package raises on purpose.

One base class, `PotError`. Each error also inherits the standard-library type it stands for, so `except ValueError`
works for those who never read this file, and carries the offending `value`. `code` names the error on the wire: the
policy server sends it and the client raises the same class again.
"""

from typing import Any, ClassVar


class PotError(Exception):
    """Base of all errors here: a message that says what to do next, and the value that was wrong."""

    code: ClassVar[str] = "pot_error"

    def __init__(self, message: str, *, value: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.value = value

    def __str__(self) -> str:
        return self.message


class ConfigError(PotError, ValueError):
    """A setting that cannot be: out of range, unknown, or at odds with another."""

    code = "config"


class ProblemError(PotError, ValueError):
    """A problem that cannot be read: empty text, broken tests, an unknown kind of test."""

    code = "problem"


class ReportError(PotError, ValueError):
    """Runs of a benchmark that cannot be reported on, or not together."""

    code = "report"


class SearchError(PotError, ValueError):
    """The thought tree was asked for something impossible."""

    code = "search"


class StateError(PotError, ValueError):
    """A graph state that this version cannot go on from (an old checkpoint, say)."""

    code = "state"


class ModelNotFoundError(PotError, FileNotFoundError):
    """No weights where they were looked for; the message lists the places and the ways to get them."""

    code = "model_not_found"


class DatasetError(PotError, ValueError):
    """Rows of a data set that cannot be what they are said to be: broken, too few, or without a test to decide."""

    code = "dataset"


class DatasetNotFoundError(PotError, FileNotFoundError):
    """No rows where they were looked for; the message lists the places and the ways to get them."""

    code = "dataset_not_found"


class MissingExtraError(PotError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    code = "missing_extra"


class DiskFullError(PotError, OSError):
    """A file could not be written because the disk is full."""

    code = "disk_full"


class DoesNotFitError(PotError, MemoryError):
    """A model with these settings needs more memory than there is; the message names settings that would fit."""

    code = "does_not_fit"


class StateFolderError(PotError, OSError):
    """The folder where sessions are kept cannot be used: held by another process, or not to be written."""

    code = "state_folder"


class RunFolderError(PotError, OSError):
    """A benchmark run's folder that cannot be used: held by another process, of another run, or damaged."""

    code = "run_folder"


class ClusterError(PotError, RuntimeError):
    """A Ray cluster that is not there, or whose workers cannot run this package; the message says which."""

    code = "cluster"


class PolicyError(PotError, RuntimeError):
    """Base of what a policy refuses."""

    code = "policy"


class SessionNotFoundError(PolicyError, LookupError):
    """No such session: never opened, closed, expired, or lost with its process."""

    code = "session_not_found"


class SessionConflictError(PolicyError, ValueError):
    """A session of that name is open with other arguments."""

    code = "session_conflict"


class RestoreError(PolicyError, ValueError):
    """A session's folder that cannot be gone on from: another base model, another format, or changed bytes."""

    code = "restore"


class VersionError(PolicyError, ValueError):
    """An adapter version that is not the one expected, or is no longer kept; the message names both."""

    code = "version"


class SampleError(PolicyError, ValueError):
    """Samples that cannot be trained on together: unknown, of another version, or of another prompt."""

    code = "sample"


class ContextLengthError(PolicyError, ValueError):
    """A prompt longer than the model's context leaves room for; the message names the limit, in tokens."""

    code = "context_length"


class AdapterNotSampledError(PolicyError, AssertionError):
    """The sampler was caught running another policy than the adapter that was just trained."""

    code = "adapter_not_sampled"


class NotFiniteError(PolicyError, ArithmeticError):
    """The model's logits are not numbers: its type is too narrow, or an adapter is ruined."""

    code = "not_finite"


class CannotLearnError(PolicyError, NotImplementedError):
    """Learning was asked of a policy that has no weights to train."""

    code = "cannot_learn"


class CancelledError(PolicyError, InterruptedError):
    """The work was cancelled by its caller before it was done."""

    code = "cancelled"


class PolicyUnavailableError(PolicyError, ConnectionError):
    """The policy server did not answer, or is not one."""

    code = "policy_unavailable"


class PolicyBusyError(PolicyError, BlockingIOError):
    """The policy is at its limit of sessions; close one or try again later."""

    code = "policy_busy"


class PermissionDeniedError(PolicyError, PermissionError):
    """The token is missing or wrong, or the session belongs to somebody else."""

    code = "permission_denied"


class SandboxError(PotError, RuntimeError):
    """The sandbox itself failed; never a verdict about a program."""

    code = "sandbox"


class SandboxUnavailableError(SandboxError, OSError):
    """This machine cannot isolate untrusted programs; the message gives the reason and the ways out."""

    code = "sandbox_unavailable"


def _subclasses(cls: type[PotError]) -> list[type[PotError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _subclasses(child))]


def error_by_code(code: str) -> type[PotError]:
    """The class that `code` names; `PolicyError` for a code this version does not know."""
    return {found.code: found for found in _subclasses(PotError)}.get(code, PolicyError)
