"""Observer of what else can change the speed of a run (`jobs.system.tunables`), when it begins and when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.checkpoints.run_snapshots import roles
from jobs.model.results import Conditions
from jobs.model.settings import Settings
from jobs.observe.observer import Observer
from jobs.system import tunables


def observed(settings: Settings, folders: Sequence[Path], targets: Sequence[Path]) -> Conditions:
    """Return the conditions of ``process`` and ``machine``, and by their names those of the ``storages``.

    `folders` hold the data, then its copies; `targets` those of the snapshots in the order of their roles; of a
    bucket its servers' disk.
    """
    name = settings.get("storage", {}).get("name", "data")  # a run by hand has none
    saves = (f"{each['name']} (checkpoints)" for each in roles(settings.get("checkpoint", {"name": "none"})).values())
    named = [*zip((name, f"{name} (copies)"), folders, strict=False), *zip(saves, targets, strict=False)]
    return {
        "process": tunables.of_process(),
        "machine": tunables.of_machine(),
        "storages": {name: tunables.of_storage(folder) for name, folder in named if folder.exists()},
    }


class Surroundings(Observer):
    """The conditions of the process, the machine and the storages."""

    place = 2
    gives = ("conditions", "conditions_after")

    def start(self) -> None:
        """Look before the run."""
        self._before = self._look()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Look again."""
        self._after = self._look()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``conditions``, and ``conditions_after`` where they have changed meanwhile."""
        changed = {"conditions_after": self._after} if self._after != self._before else {}
        return {"conditions": self._before, **changed}

    def _look(self) -> Conditions:
        saves = self.work.checkpoints.folders if self.work.checkpoints else ()
        return observed(self.request["settings"], self.work.folders, saves)


OBSERVER = Surroundings
