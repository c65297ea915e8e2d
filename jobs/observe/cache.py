"""Observer of the page cache: brings it into the state that is asked for, and proves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.observe.observer import Observer
from jobs.ranks import here
from jobs.system import page_cache
from jobs.system.extents import Fetch
from jobs.system.layers import Layers


class Cache(Observer):
    """The pages of the run's files in memory, just before the clock."""

    place = 0
    gives = ("resident_fraction", "residency_method", "linked_files", "below", "to_fetch_bytes")

    def start(self) -> None:
        """Bring the pages into the state that ``cache`` names, and count those that are in memory."""
        work, policy = self.work, self.request["settings"].get("cache")
        if work.writes and not work.source:  # a run that reads is not to wait for a storage that answers no flush
            for folder in work.folders:
                page_cache.sync(folder)  # nothing that was written before the run is flushed within its clock
        self._below = work.below if policy == "cold" else Layers()
        if policy == "cold":
            self._residency = page_cache.cooled(work.files, work.proof, work.folder)
        else:
            if policy == "warm":
                page_cache.read_through(work.files)
            self._residency = page_cache.residency(work.proof)
        self._below_left = [page_cache.cooled([file], [file], file.parent) for file in self._below.files]
        here().barrier()  # nobody counts, or reads, while another rank still evicts

    @property
    def fetch(self) -> Fetch:
        """What the devices have to give of the files that are sure to be read."""
        return self._residency.fetch

    def metrics(self) -> Mapping[str, Any]:
        """Return the proof of the cache.

        Returns ``resident_fraction`` (share of the pages in memory, those of a loop device's file too; None where it
        cannot be told), ``residency_method`` (by which system call), ``linked_files`` (names of files that have another
        name among them), ``below`` (what is known of the layers below the file system, in words); and of files that are
        listed ``to_fetch_bytes`` (what the devices have to give, at least; None where it cannot be told).
        """
        fetch = self._residency.fetch
        hidden = [f"the backing file {file} cannot be looked at" for file in self._below.hidden]
        evicted = [f"the pages of the backing file {file} are counted, too" for file in self._below.files]
        return {
            "resident_fraction": self._fraction(),
            "residency_method": self._residency.method,
            "linked_files": fetch.linked,
            "below": [*self._below.in_memory, *hidden, *evicted],
            **({"to_fetch_bytes": None if fetch.unknown else self._asked(fetch.bytes)} if self.work.sizes else {}),
        }

    def _asked(self, whole: int) -> int:
        asked = self.work.asked
        return min(whole, sum(asked[path] for path in set(self.work.proof))) if asked else whole

    def _fraction(self) -> float | None:
        if self.work.source:  # objects are in the memory of their servers, or are not
            return None
        own, below = self._residency, self._below_left
        if self._below.in_memory:
            return 1.0
        if own.unverifiable or self._below.hidden or any(each.unverifiable for each in below):
            return None
        return min(1.0, (own.resident + sum(each.resident for each in below)) / own.pages) if own.pages else 0.0


OBSERVER = Cache
