"""Observer of emulated storages, which the kernel serves on the processors of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer
from jobs.system.emulated import emulated

if TYPE_CHECKING:
    from collections.abc import Mapping


class Emulation(Observer):
    """Whether a run reads from an emulated storage or saves to one."""

    def figures(self) -> Mapping[str, Any]:
        """Return whether it does."""
        saved_to = self.work.checkpoints.folders if self.work.checkpoints else ()
        return {"emulated": self.work.below.emulated or any(emulated(folder) for folder in saved_to)}


OBSERVER = Emulation
