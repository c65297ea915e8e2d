"""Observe the files of a run: bring the page cache into the requested state, and check that no file changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jobs.errors import DatasetError
from jobs.objects.run_objects import RunObjects
from jobs.observe.observer import Observer
from jobs.ranks import this_rank
from jobs.system import page_cache, untrusted
from jobs.system.layers import Layers
from jobs.system.page_cache import ColdReadBytes


class CacheObserver(Observer):
    """Sets the state of the page cache, and counts the pages in memory just before the clock starts."""

    place = 0
    gives = ("resident_fraction", "residency_method", "linked_files", "below", "to_fetch_bytes")

    def start(self) -> None:
        """Bring the page cache into the state of the setting ``cache``, and count the pages in memory."""
        work, policy = self.work, self.request["settings"].get("cache")
        if work.writes and not work.source:  # no sync for a run that only reads, because a sync may hang
            for folder in work.folders:
                page_cache.sync_file_system(folder)  # earlier writes must not be flushed during the run
        self._layers = work.below if policy == "cold" else Layers()
        if policy == "cold":
            self._residency = page_cache.drop_from_cache(work.files, work.proof, work.folder)
        else:
            if policy == "warm":
                page_cache.read_through(work.files)
            self._residency = page_cache.residency(work.proof)
        self._layers_left = self._layers.drop_from_cache()
        this_rank().barrier()  # no rank may read files while another rank still drops pages

    @property
    def fetch(self) -> ColdReadBytes:
        """Return what the devices must deliver for the files that the run certainly reads."""
        return self._residency.fetch

    def metrics(self) -> Mapping[str, Any]:
        """Return the metrics that prove the state of the page cache.

        The keys are:

        - ``resident_fraction``: share of the files' pages in memory; the pages of the backing file of a loop device
          count as well; None if unknown;
        - ``residency_method``: the system call that counted the pages;
        - ``linked_files``: number of names in the list that are hard links to files listed before;
        - ``below``: texts about the layers below the file system;
        - ``to_fetch_bytes``, only for listed files: smallest number of bytes that the devices must deliver; None if
          unknown.
        """
        fetch = self._residency.fetch
        hidden = [f"the backing file {file} cannot be seen" for file in self._layers.hidden]
        evicted = [f"the pages of the backing file {file} are counted, too" for file in self._layers.files]
        return {
            "resident_fraction": self._resident_fraction(),
            "residency_method": self._residency.method,
            "linked_files": fetch.linked,
            "below": [*self._layers.in_memory, *hidden, *evicted],
            **(
                {"to_fetch_bytes": None if fetch.unknown else self._requested_bytes(fetch.bytes)}
                if self.work.sizes
                else {}
            ),
        }

    def _requested_bytes(self, all_bytes: int) -> int:
        requested = self.work.asked
        return min(all_bytes, sum(requested[path] for path in set(self.work.proof))) if requested else all_bytes

    def _resident_fraction(self) -> float | None:
        if self.work.source:  # a client cannot see which objects the servers have in memory
            return None
        return self._layers.share_in_memory(self._residency, self._layers_left)


_NAMED_FILES = 3  # largest number of changed files that a record names


class _FileState(NamedTuple):
    """The parts of a file's status that show a change of the content.

    `changed_ns` is the ctime, which only the kernel can set.
    """

    kind: int
    device: int
    inode: int
    size: int
    changed_ns: int


class ListedFilesObserver(Observer):
    """Observes whether the files that the run certainly reads match the list of files."""

    place = 5
    gives = ("listed_bytes", "changed_files", "changed")

    def start(self) -> None:
        """Read the status of each file before the run; raise DatasetError for a pipe, which would block the run."""
        self._before = self._look_at_files()
        readable_kinds = (stat.S_IFREG, stat.S_IFDIR)  # reading a folder fails, and the run counts the error
        if other_kinds := [path for path, state in self._before.items() if state and state.kind not in readable_kinds]:
            raise DatasetError(f"{other_kinds[0]} is not a file any more", "move this path out of the dataset")

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the status of each file after the run, and look for files that are not in the list."""
        self._after, self._new = self._look_at_files(), []
        if self.work.whole:
            listed = {(state.device, state.inode) for state in self._before.values() if state}
            # If the folder was removed, its listed files count as changed, so the error need not be raised.
            with suppress(OSError, untrusted.UntrustedError):
                files = untrusted.files_below(self.work.folder)
                self._new = [path for path, status in files if (status.st_dev, status.st_ino) not in listed]

    def metrics(self) -> Mapping[str, Any]:
        """Return ``listed_bytes``, ``changed_files`` and ``changed``, or an empty mapping without a list of files.

        ``listed_bytes`` is the size, in the list, of the files that the run certainly reads. ``changed_files`` is the
        number of files that differ from the list, or that changed during the run. If the list names all files of a
        folder, new files in the folder count as well. ``changed`` has the names of at most three of these files.
        """
        if self.work.source:
            return self._metrics_of_objects(self.work.source)
        sizes, newest_ns = self.work.sizes, self.work.newest_ns or self.request.get("listed_ns")
        if not sizes:
            return {}

        def is_as_listed(path: Path, state: _FileState | None) -> bool:
            if state is None or state.size != sizes[path]:
                return False
            return newest_ns is None or state.changed_ns <= newest_ns

        changed = [
            path
            for path in self.work.proof
            if not is_as_listed(path, self._before[path]) or self._before[path] != self._after[path]
        ]
        changed += [path for path in self._new if path not in changed]
        return {
            "listed_bytes": sum(sizes[path] for path in self.work.proof),
            "changed_files": len(changed),
            "changed": [os.path.relpath(path, self.work.folder) for path in changed[:_NAMED_FILES]],
        }

    def _metrics_of_objects(self, source: RunObjects) -> Mapping[str, Any]:
        """Return ``listed_bytes``, ``changed_files`` and ``changed`` for objects.

        Each object is compared with the manifest when the object arrives.
        """
        if not source.stored:
            return {}
        source.ranges.compare()
        return {
            "listed_bytes": sum(source.stored[str(name)].size for name in self.work.proof),
            "changed_files": len(source.wrong),
            "changed": sorted(source.wrong)[:_NAMED_FILES],
        }

    def _look_at_files(self) -> dict[Path, _FileState | None]:
        return {path: _status_of(path) for path in self.work.proof} if self.work.sizes else {}


def _status_of(path: Path) -> _FileState | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _FileState(stat.S_IFMT(status.st_mode), status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


OBSERVERS = (CacheObserver, ListedFilesObserver)
