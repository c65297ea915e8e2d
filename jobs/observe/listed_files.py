"""Observer of the files that a run reads: whether they are what their list says, before the run and after it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jobs.errors import DatasetError
from jobs.objects.source import Source
from jobs.observe.observer import Observer

_NAMED = 3  # files that a record names; the rest are counted


class _Seen(NamedTuple):
    """What of a file's status changes when its content does; the time is set by the kernel alone."""

    kind: int
    device: int
    inode: int
    size: int
    changed_ns: int


class Files(Observer):
    """The files that the run is sure to read."""

    place = 5
    gives = ("listed_bytes", "changed_files", "changed")

    def start(self) -> None:
        """Look at each file before the run; DatasetError for a pipe, whose writer the run would wait for."""
        self._before, read = self._look(), (stat.S_IFREG, stat.S_IFDIR)  # a folder gives an error, which is counted
        if odd := [path for path, seen in self._before.items() if seen and seen.kind not in read]:
            raise DatasetError(f"{odd[0]} is no file any more", "move it out of the dataset")

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Look again."""
        self._after = self._look()

    def metrics(self) -> Mapping[str, Any]:
        """Return what a record holds; nothing for a run whose files nobody has listed.

        Returns ``listed_bytes`` (of the files that are sure to be read, by their list), ``changed_files`` (how many are
        not what the list says, or another file or another content than before the run) and ``changed`` (some names).
        """
        if self.work.source:
            return self._of_objects(self.work.source)
        sizes, newest_ns = self.work.sizes, self.work.newest_ns or self.request.get("listed_ns")
        if not sizes:
            return {}

        def as_listed(path: Path, seen: _Seen | None) -> bool:
            return seen is not None and seen.size == sizes[path] and (newest_ns is None or seen.changed_ns <= newest_ns)

        changed = [
            path
            for path in self.work.proof
            if not as_listed(path, self._before[path]) or self._before[path] != self._after[path]
        ]
        return {
            "listed_bytes": sum(sizes[path] for path in self.work.proof),
            "changed_files": len(changed),
            "changed": [os.path.relpath(path, self.work.folder) for path in changed[:_NAMED]],
        }

    def _of_objects(self, source: Source) -> Mapping[str, Any]:
        """Return the same of objects: each was compared with its manifest as it arrived."""
        if not source.stored:
            return {}
        source.ranges.compare()
        return {
            "listed_bytes": sum(source.stored[str(name)].size for name in self.work.proof),
            "changed_files": len(source.wrong),
            "changed": sorted(source.wrong)[:_NAMED],
        }

    def _look(self) -> dict[Path, _Seen | None]:
        return {path: _status(path) for path in self.work.proof} if self.work.sizes else {}


def _status(path: Path) -> _Seen | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _Seen(stat.S_IFMT(status.st_mode), status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


OBSERVER = Files
