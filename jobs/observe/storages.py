"""Observer of the storages of a run: whether one is emulated, and what became of the snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from jobs.observe.observer import Observer
from jobs.system.emulated import Served, emulated, model_behind, served

_COUNTED = (
    "reads", "writes", "flushes", "read_bytes", "written_bytes", "spoiled", "busy_s", "queue_s", "late_s", "cpu_s",
)  # fmt: skip


class Storages(Observer):
    """What holds the data and the snapshots; an emulated one is served on our processors. Waits for the drain."""

    place = 90
    gives = ("emulated", "served", "checkpoints", "targets", "drain_wait_s", "checkpoint_troubles")

    def start(self) -> None:
        """Ask the servers of models what they did so far."""
        saves = self.work.checkpoints.folders if self.work.checkpoints else ()
        self._emulated = self.work.below.emulated or any(map(emulated, saves))
        models = {model_behind(folder) for folder in (*self.work.folders, *saves)} if self._emulated else set()
        self._before = {model: said for model in models if model and (said := _said(model))}

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Ask again; what a drain moves later is not the run's. One that was started anew has counted from 0."""
        again = {model: said for model in self._before if (said := _said(model))}
        self._after = {model: said for model, said in again.items() if said["pid"] == self._before[model]["pid"]}

    def metrics(self) -> Mapping[str, Any]:
        """Return ``emulated``; of a run that saves, what `jobs.checkpoints.run_snapshots.Checkpoints.metrics` says.

        And ``served``, where models serve storages: by their names, requests, bytes, and the seconds of `Served`.
        """
        found: dict[str, Any] = {"emulated": self._emulated}
        if self._after:
            found["served"] = {model.stem: _less(now, self._before[model]) for model, now in self._after.items()}
        return found | (self.work.checkpoints.metrics() if self.work.checkpoints else {})


def _said(model: Path) -> Served | None:
    with suppress(OSError, ValueError):
        return served(model)
    return None


def _less(after: Served, before: Served) -> dict[str, float]:
    late, early = cast("Mapping[str, float]", after), cast("Mapping[str, float]", before)
    return {key: round(late[key] - early[key], 6) for key in _COUNTED}


OBSERVER = Storages
