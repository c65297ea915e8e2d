"""The errors of the jobs: each gives the message and, if there is one, the cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class JobError(Exception):
    """An error with a message of one line and a hint how to cure it (empty: none)."""

    exit_code = 2
    """The exit code of a run by hand."""

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
    """A dataset, or the file of a baseline, that cannot be made, read or trusted."""


class UnreadableImageError(JobError):
    """An image file that could not be loaded, in a run that must not drop files."""


class NotInstalledError(JobError, ModuleNotFoundError):
    """A package of the extra ``tensorflow`` that is not installed."""

    exit_code = 3

    def __init__(self, name: str, benchmarks: Sequence[str] = ()) -> None:
        need = f", and benchmark={','.join(benchmarks)} needs it" if benchmarks else ""
        super().__init__(
            f"{name} is not installed{need}",
            "pip install 'tfio-campaign[tensorflow]'; stall, feed, benchmark=command and benchmark=baseline need none",
        )


class NoGpuError(JobError):
    """A missing GPU: one is required, and TensorFlow finds none."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__(
            "the accelerator is to be a GPU, and TensorFlow finds none here",
            "see what nvidia-smi and $CUDA_VISIBLE_DEVICES say and install tensorflow[and-cuda],"
            " or take accelerator=auto, cpu or emulated",
        )


class EngineError(JobError):
    """An engine that is missing, that failed, or whose result is not credible."""

    exit_code = 3


class ProgramError(JobError):
    """A user's program that could not be started, failed, or did not print the expected line."""

    exit_code = 1


class ObjectStoreError(JobError):
    """An object store that does not answer, refuses a request, or lacks an object."""

    exit_code = 3


class BurstBufferError(JobError):
    """An error in saving snapshots; the base class of all errors of the burst buffer."""


class FolderError(BurstBufferError):
    """A folder that is missing, in use, too new, or belongs to another user or buffer; it was not changed."""


class NotOursError(FolderError):
    """A folder or bucket that belongs to no training, or to another one, which may have opened it meanwhile."""


class RoomError(BurstBufferError):
    """A storage without room for one snapshot."""


class DamageError(BurstBufferError):
    """A snapshot whose files differ from its manifest."""
