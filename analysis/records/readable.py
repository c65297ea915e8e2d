"""Read files that may be another person's (`jobs.model.reading`); what is wrong is said with a cure."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jobs.model import reading
from jobs.model.record import SCHEMA
from jobs.system import untrusted

RUN_AGAIN = "copy the file anew from where the campaign ran, or delete its folder and run the campaign again"

_Kind = TypeVar("_Kind")


class UnreadableError(Exception):
    """A file does not keep the contract; `cure` says what to do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


class AbsentError(UnreadableError):
    """There is no such file."""


def content(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file that has at most so many; raises UnreadableError for anything else."""
    return _told(lambda place: untrusted.content(place, most), path)


def load(path: Path, kind: type[_Kind]) -> _Kind:
    """Return what a JSON file of this kind says, whose schema is known; raises UnreadableError for anything else."""
    return _told(lambda place: reading.read(place, kind, SCHEMA), path)


def _without_links(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    """Read a file by a path in which no folder is a link; the file itself may be none, and is refused then."""
    try:
        return read(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return read(Path(os.path.realpath(path.parent), path.name))


def _told(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    try:
        return _without_links(read, path)
    except FileNotFoundError as error:
        raise AbsentError("is not there") from error
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "make the file readable for you") from error
    except reading.NewerFileError as error:
        why = f"is of {error}; this program knows schema {SCHEMA}"
        raise UnreadableError(why, "analyse it with the newer tfio-campaign that wrote it") from error
    except untrusted.UntrustedError as error:
        raise UnreadableError(f"is damaged: {error}") from error
