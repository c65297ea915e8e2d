"""Observer of a run that writes a file: how many of its bytes came to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer
from jobs.observe.trace_sources import Written

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reached(Observer):
    """The bytes that everybody writes to what holds the file."""

    place = 20

    def start(self) -> None:
        """Count what has been written before."""
        self._written = Written(self.work.folder) if self.work.writes else None

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Count no further."""
        if self._written:
            self._written.settle()

    def figures(self) -> Mapping[str, Any]:
        """Return the bytes, None where no counter tells; nothing for a run that writes no file."""
        return {"reached_bytes": self._written.bytes} if self._written else {}


OBSERVER = Reached
