"""Define the exceptions of the package `jobs`. An exception has a message and a hint that says what the user can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MORE_FILES = "allow more open files: ulimit -n NUMBER"
"""The cure of the error EMFILE."""


class JobError(Exception):
    """An error with a message of one line and a hint that says what the user can do; the hint may be empty."""

    exit_code = 2
    """The exit code of `python -m jobs` after this error."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickled form that keeps the type, the message and the hint."""
        return _unpickle, (type(self), self.message, self.hint)


def _unpickle(error_type: type[JobError], message: str, hint: str) -> JobError:
    error = error_type.__new__(error_type)
    JobError.__init__(error, message, hint)
    return error


class DatasetError(JobError):
    """Raised if a dataset, or the file of a baseline, cannot be generated, read or trusted."""


class UnreadableImageError(JobError):
    """Raised for an image file that cannot be loaded, in a run that must not skip files."""


class NotInstalledError(JobError, ModuleNotFoundError):
    """Raised if a package of the extra ``tensorflow`` is not installed."""

    exit_code = 3

    def __init__(self, name: str, benchmarks: Sequence[str] = ()) -> None:
        need = f", and benchmark={','.join(benchmarks)} needs it" if benchmarks else ""
        super().__init__(
            f"{name} is not installed{need}",
            "pip install 'tfio-campaign[tensorflow]'; stall, feed, benchmark=command and benchmark=baseline work"
            " without TensorFlow",
        )


class NoGpuError(JobError):
    """Raised if a run requires a GPU, but TensorFlow finds no GPU."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__(
            "the run requires a GPU (accelerator=gpu), but TensorFlow finds no GPU here",
            "check nvidia-smi and $CUDA_VISIBLE_DEVICES, and install tensorflow[and-cuda];"
            " or use accelerator=auto, cpu or emulated",
        )


class EngineError(JobError):
    """Raised if the engine of a baseline is missing, has failed, or reports a result that cannot be true."""

    exit_code = 3


class ProgramError(JobError):
    """Raised if a user's program could not start, failed, or did not print the expected line."""

    exit_code = 1


class ObjectStoreError(JobError):
    """Raised if an object store does not answer, refuses a request, or lacks an object."""

    exit_code = 3


class BurstBufferError(JobError):
    """Raised if snapshots cannot be saved; the base class of all errors of the burst buffer."""


class FolderError(BurstBufferError):
    """Raised for a folder that cannot be used; the folder was not changed.

    The folder is missing, in use, of a newer version, or belongs to another user or another burst buffer.
    """


class NotOursError(FolderError):
    """Raised for a folder or bucket that does not belong to this training.

    Another training may have opened the folder or bucket while this training was running.
    """


class RoomError(BurstBufferError):
    """Raised if a storage does not have enough free space for one snapshot."""


class DamageError(BurstBufferError):
    """Raised for a snapshot whose files differ from the manifest of the snapshot."""
