"""The interface of an observer, and the functions that run all observers of a run."""

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
    """An observer of one aspect of a run. `beside` has all observers of the run. The methods here do nothing."""

    place = 50
    """The position in the order of starts: the largest starts last, just before the clock; stops are reversed."""
    gives: tuple[str, ...] = ()
    """The keys of `metrics`; no other observer has the same key."""

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        self.request, self.work = request, work
        self.beside: Sequence[Observer] = ()

    @property
    def snapshot_folders(self) -> Sequence[Path]:
        """Return the folders of the run's snapshots; none for a run that saves nothing."""
        return self.work.checkpoints.folders if self.work.checkpoints else ()

    def start(self) -> None:
        """Begin to observe; the clock starts when all observers have begun."""

    def stop(self, *, failed: bool) -> None:
        """End observing; the clock has stopped, but a drain of snapshots may still run."""

    def metrics(self) -> Mapping[str, Any]:
        """Return the metrics of the run, after all observers have stopped; this may wait for a drain."""
        return {}


@contextmanager
def run_observers(observers: Sequence[Observer]) -> Iterator[None]:
    """Start the observers; stop them at the end, even if the run fails."""
    with ExitStack() as stack:
        for observer in observers:
            observer.beside = observers
            observer.start()
            stack.push(partial(_stop, observer))
        gc.freeze()  # else a garbage collection within the clock takes tenths of a second (TensorFlow's objects)
        yield


def collect_metrics(observers: Sequence[Observer]) -> dict[str, Any]:
    """Return the metrics of all observers; raise TypeError for a key that its observer does not declare."""
    metrics: dict[str, Any] = {}
    for observer in observers:
        own_metrics = observer.metrics()
        if undeclared := own_metrics.keys() - {*observer.gives}:
            raise TypeError(f"{type(observer).__name__} gives {min(undeclared)}, and does not declare it")
        metrics |= own_metrics
    return metrics


def _stop(observer: Observer, kind: object, *_: object) -> None:
    observer.stop(failed=kind is not None)
