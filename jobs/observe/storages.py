"""Observer of the storages of a run: whether one is emulated, and what became of the snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer
from jobs.system.emulated import emulated

if TYPE_CHECKING:
    from collections.abc import Mapping


class Storages(Observer):
    """What holds the data and the snapshots; an emulated one is served on our processors. Waits for the drain."""

    place = 90

    def figures(self) -> Mapping[str, Any]:
        """Return ``emulated``; of a run that saves, what `jobs.checkpoints.run.Checkpoints.figures` says, too."""
        saved = self.work.checkpoints
        if saved is None:
            return {"emulated": self.work.below.emulated}
        return {"emulated": self.work.below.emulated or any(map(emulated, saved.folders)), **saved.figures()}


OBSERVER = Storages
