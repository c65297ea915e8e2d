"""Observer of the storages of a run: whether one is emulated, and what became of the snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.observe.observer import Observer
from jobs.system.emulated import Account, account, emulated


class Storages(Observer):
    """What holds the data and the snapshots; an emulated one is served on our processors. Waits for the drain."""

    place = 90
    gives = ("emulated", "served", "checkpoints", "targets", "drain_wait_s", "checkpoint_troubles")

    def start(self) -> None:
        """Ask what emulated storages did so far."""
        saves = self.work.checkpoints.folders if self.work.checkpoints else ()
        self._emulated = self.work.below.emulated or any(map(emulated, saves))
        folders = (*self.work.folders, *saves) if self._emulated else ()
        self._before = {folder: said for folder in folders if (said := _account(folder))}

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Ask again; what a drain moves later is not the run's. One that was started anew has counted from 0."""
        again = {folder: said for folder in self._before if (said := _account(folder))}
        self._after = {folder: said for folder, said in again.items() if said.pid == self._before[folder].pid}

    def metrics(self) -> Mapping[str, Any]:
        """Return ``emulated``; of a run that saves, what `jobs.checkpoints.run_snapshots.Checkpoints.metrics` says.

        And ``served``: by the names of emulated storages, what everybody asked of them (`Served`), and what it takes
        the kernel to serve that (`Costs`), where they say it.
        """
        found: dict[str, Any] = {"emulated": self._emulated}
        if self._after:
            pairs = [(now, self._before[folder]) for folder, now in self._after.items()]
            found["served"] = {now.name: {**_less(now, then), **now.costs} for now, then in pairs}
        return found | (self.work.checkpoints.metrics() if self.work.checkpoints else {})


def _account(folder: Path) -> Account | None:
    with suppress(OSError, ValueError):
        return account(folder)
    return None


def _less(after: Account, before: Account) -> dict[str, float]:
    return {key: round(count - before.counts[key], 6) for key, count in after.counts.items()}


OBSERVER = Storages
