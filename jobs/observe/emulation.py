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
        places = [self.work.folder, *(self.work.checkpoints.folders if self.work.checkpoints else ())]
        return {"emulated": any(emulated(place) for place in places)}


OBSERVER = Emulation
