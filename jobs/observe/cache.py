"""Observer of the page cache: brings it into the state that is asked for, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer
from jobs.system import page_cache

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cache(Observer):
    """The pages of the run's files in memory, just before the clock."""

    place = 0

    def start(self) -> None:
        """Bring the pages into the state that ``cache`` names, and count those that are in memory."""
        work, policy = self.work, self.request["settings"].get("cache")
        if work.writes:
            page_cache.sync(work.folder)  # no flush and no removal of earlier files within the clock
        if policy == "cold":
            self._residency = page_cache.cooled(work.files, work.proof, work.folder)
            return
        if policy == "warm":
            page_cache.read_through(work.files)
        self._residency = page_cache.residency(work.proof)

    def figures(self) -> Mapping[str, Any]:
        """Return the share that was in memory, None where it cannot be told, and by which system call."""
        return {"resident_fraction": self._residency.fraction, "residency_method": self._residency.method}


OBSERVER = Cache
