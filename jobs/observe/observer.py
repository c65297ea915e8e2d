"""Define the interface of an observer, start and stop all observers of a run, and collect their metrics."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from jobs.model.work import RunRequest
from jobs.ready_run import ReadyRun


class Observer:
    """The base class of observers; an observer observes one aspect of a run.

    `beside` contains all observers of the run. The methods of the base class do nothing.
    """

    place = 50
    """The position in the order in which observers start. The observer with the largest number starts last, just before
    the clock, and stops first."""
    gives: tuple[str, ...] = ()
    """The keys of `metrics`; two observers must not have a common key."""

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        self.request, self.work = request, work
        self.beside: Sequence[Observer] = ()

    @property
    def snapshot_folders(self) -> Sequence[Path]:
        """Return the folders of the run's snapshots, or an empty sequence for a run without snapshots."""
        return self.work.checkpoints.folders if self.work.checkpoints else ()

    def start(self) -> None:
        """Start observing. The clock of the run starts after all observers have started."""

    def stop(self, *, failed: bool) -> None:
        """Stop observing. The clock has stopped, but snapshots may still be copied to a slow storage."""

    def metrics(self) -> Mapping[str, Any]:
        """Return the metrics of the run; called after all observers have stopped.

        The method may wait until all snapshots are copied to a slow storage.
        """
        return {}


@contextmanager
def run_observers(observers: Sequence[Observer]) -> Iterator[None]:
    """Start the observers, and stop all observers at the end of the context, even if the run fails."""
    with ExitStack() as stack:
        for observer in observers:
            observer.beside = observers
            observer.start()
            stack.push(partial(_stop, observer))
        # Without `freeze`, a garbage collection of TensorFlow's objects takes tenths of a second while the clock runs.
        gc.freeze()
        yield


def collect_metrics(observers: Sequence[Observer]) -> dict[str, Any]:
    """Return the metrics of all observers; raise TypeError if an observer returns a key that is not in `gives`."""
    metrics: dict[str, Any] = {}
    for observer in observers:
        own_metrics = observer.metrics()
        if undeclared := own_metrics.keys() - {*observer.gives}:
            raise TypeError(f"{type(observer).__name__} gives {min(undeclared)}, and does not declare it")
        metrics |= own_metrics
    return metrics


def _stop(observer: Observer, kind: object, *_: object) -> None:
    observer.stop(failed=kind is not None)
