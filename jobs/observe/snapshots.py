"""Observer of the snapshots that a run saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping


class Snapshots(Observer):
    """What became of the snapshots; waits for the drain."""

    place = 90

    def figures(self) -> Mapping[str, Any]:
        """Return what `jobs.checkpoints.run.Checkpoints.figures` says; nothing for a run that saves none."""
        return self.work.checkpoints.figures() if self.work.checkpoints else {}


OBSERVER = Snapshots
