"""What the jobs raise: each error says what is wrong and, where there is one, the cure."""

from __future__ import annotations

from typing import Any


class JobError(Exception):
    """What is wrong, in one line, and the cure as a hint, which may be empty."""

    exit_code = 2
    """Of a run by hand."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Come from another process as it was."""
        return _from_elsewhere, (type(self), self.message, self.hint)


def _from_elsewhere(kind: type[JobError], message: str, hint: str) -> JobError:
    error = kind.__new__(kind)
    JobError.__init__(error, message, hint)
    return error


class DatasetError(JobError):
    """A dataset, or the file of a baseline, that cannot be made, read or trusted."""


class UnreadableImageError(JobError):
    """A file could not be loaded, and the run was not to drop it."""


class NoGpuError(JobError):
    """A GPU was asked for and TensorFlow finds none."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__(
            "the accelerator is to be a GPU, and TensorFlow finds none here",
            "see what nvidia-smi and $CUDA_VISIBLE_DEVICES say and install tensorflow[and-cuda],"
            " or take accelerator=auto, cpu or emulated",
        )


class EngineError(JobError):
    """An engine is missing, failed, or its answer cannot be believed."""

    exit_code = 3


class ProgramError(JobError):
    """A program of the user's cannot be started, failed, or did not print what was to be found."""

    exit_code = 1


class ObjectStoreError(JobError):
    """An object store does not answer, refuses what is asked of it, or lacks it."""

    exit_code = 3


class BurstBufferError(JobError):
    """Snapshots cannot be kept; the root of all errors of the burst buffer."""


class FolderError(BurstBufferError):
    """A folder is missing, in use, somebody else's, of another buffer or a newer version; it has not been touched."""


class NotOursError(FolderError):
    """A folder or bucket is not, or not any more, that of this training: another one may have opened it."""


class RoomError(BurstBufferError):
    """There is not enough room for one snapshot."""


class DamageError(BurstBufferError):
    """Files of a snapshot are not what its manifest says."""
