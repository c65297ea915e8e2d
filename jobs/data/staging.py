"""Files that are read from copies on a faster storage: the map that ``python -m campaign stage apply`` writes.

A script of one's own::

    paths = staged(paths, "results/staging/advised.json")
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from jobs.errors import DatasetError
from jobs.system import versioned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
_CURE = "python -m campaign stage plan, then stage apply"


class _Map(TypedDict):
    """The file: folders of the originals and of the copies, the root of the storage that holds these, and the copies.

    Of each copy name, bytes and time of change (ns).
    """

    source: str
    copies: str
    root: str
    files: list[list[str | int]]


@dataclass(frozen=True)
class StagedFiles:
    """What a map says."""

    source: Path
    copies: Path
    root: Path  # of the storage that holds the copies
    files: Mapping[str, tuple[int, int]]  # relative name to bytes and time of change (ns), of original and copy

    def path_of(self, path: Path) -> Path:
        """Return where a file is to be read: its copy, or `path` itself where there is none in the map.

        Raises DatasetError: the copy is gone or is not what was copied, or the original is no longer that.
        """
        here = path.absolute()
        if not here.is_relative_to(self.source):
            here = path.parent.resolve() / path.name  # a folder may be called by a link
        name = str(here.relative_to(self.source)) if here.is_relative_to(self.source) else ""
        wanted = self.files.get(name)
        if wanted is None:
            return path
        for each, what in ((self.copies / name, "is no longer as it was copied"), (path, "has changed since")):
            if identity(each) != wanted:
                raise DatasetError(f"{each} {what}, or is gone", f"copy anew: {_CURE}")
        return self.copies / name


def identity(path: Path) -> tuple[int, int] | None:
    """Return bytes and time of change (ns) of a regular file, by which a copy is that of its original; else None."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def load(path: Path) -> StagedFiles:
    """Read a map; DatasetError where it is missing, damaged or newer."""
    try:
        found = versioned.read_as(path.parent.resolve() / path.name, _Map, SCHEMA)
        files = {str(name): (int(size), int(changed)) for name, size, changed in found["files"]}
    except (OSError, ValueError, versioned.NewerFileError) as error:
        raise DatasetError(f"{path} is no map of staged files that can be read: {error}", _CURE) from error
    if odd := [name for name in files if {"", ".", ".."}.intersection(name.split("/"))]:
        raise DatasetError(f"{path}: {odd[0]!r} is no file below {found['source']}", _CURE)
    return StagedFiles(Path(found["source"]), Path(found["copies"]), Path(found["root"]), files)


def staged(paths: Sequence[str | Path], staged_map: str | Path) -> list[str]:
    """Return the paths with those replaced of which the map has a copy; errors are those of `StagedFiles.path_of`."""
    found = load(Path(staged_map))
    return [str(found.path_of(Path(path))) for path in paths]
