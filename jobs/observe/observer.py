"""The interface of an observer, and the functions that run all observers of a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from jobs.model.work import Request
from jobs.ready_run import Work


class Observer:
    """An observer of one aspect of a run, among others (`beside`); the methods here do nothing."""

    place = 50
    """The position in the order of starts: the last starts nearest to the clock; observers stop in reverse order."""
    gives: tuple[str, ...] = ()
    """The keys of `metrics`; no other observer has the same key."""

    def __init__(self, request: Request, work: Work) -> None:
        self.request, self.work = request, work
        self.beside: Sequence[Observer] = ()

    @property
    def snapshot_folders(self) -> Sequence[Path]:
        """Return the folders of the run's snapshots; none for a run that saves nothing."""
        return self.work.checkpoints.folders if self.work.checkpoints else ()

    def start(self) -> None:
        """Begin to observe; the clock starts when all observers have begun."""

    def stop(self, *, failed: bool) -> None:
        """End observing; the clock has stopped, and a drain of snapshots may go on."""

    def metrics(self) -> Mapping[str, Any]:
        """Return the metrics of the run, after all observers have stopped; may wait for a drain."""
        return {}


@contextmanager
def run_observers(observers: Sequence[Observer]) -> Iterator[None]:
    """Start the observers; stop them at the end, also if the run fails."""
    with ExitStack() as stack:
        for each in observers:
            each.beside = observers
            each.start()
            stack.push(partial(_stop, each))
        gc.freeze()  # what there is now is not searched within the clock: in TensorFlow that takes tenths of a second
        yield


def collect_metrics(observers: Sequence[Observer]) -> dict[str, Any]:
    """Return the metrics of all observers; TypeError for a key that its observer does not declare."""
    metrics: dict[str, Any] = {}
    for each in observers:
        own_metrics = each.metrics()
        if undeclared := own_metrics.keys() - {*each.gives}:
            raise TypeError(f"{type(each).__name__} gives {min(undeclared)}, and does not declare it")
        metrics |= own_metrics
    return metrics


def _stop(observer: Observer, kind: object, *_: object) -> None:
    observer.stop(failed=kind is not None)
