"""What is observed of a run: what an observer is, and how those of a run begin and end together."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from jobs.model.request import Request
from jobs.ready_run import Work


class Observer:
    """One thing that is observed of a run, among others (`beside`); what it has no use for, it leaves as it is here."""

    place = 50
    """Observers start in the order of their places, so the last is nearest to the clock, and stop the other way."""
    gives: tuple[str, ...] = ()
    """The keys of `metrics`; no other observer gives one of them."""

    def __init__(self, request: Request, work: Work) -> None:
        self.request, self.work = request, work
        self.beside: Sequence[Observer] = ()

    def start(self) -> None:
        """Begin: the clock starts when all observers have begun."""

    def stop(self, *, failed: bool) -> None:
        """End: the clock has stopped; what the run has saved may still be on its way."""

    def metrics(self) -> Mapping[str, Any]:
        """Return what the run has of it, when all have stopped; may wait for what is on its way."""
        return {}


@contextmanager
def observed(those: Sequence[Observer]) -> Iterator[None]:
    """Start them; stop them at the end, also where the run fails."""
    with ExitStack() as stack:
        for each in those:
            each.beside = those
            each.start()
            stack.push(partial(_stop, each))
        gc.freeze()  # what there is now is not searched within the clock: in TensorFlow that takes tenths of a second
        yield


def all_metrics(those: Sequence[Observer]) -> dict[str, Any]:
    """Return what all of them give, when they have stopped; TypeError for one that its observer does not declare."""
    found: dict[str, Any] = {}
    for each in those:
        given = each.metrics()
        if undeclared := given.keys() - {*each.gives}:
            raise TypeError(f"{type(each).__name__} gives {min(undeclared)}, and does not declare it")
        found |= given
    return found


def _stop(observer: Observer, kind: object, *_: object) -> None:
    observer.stop(failed=kind is not None)
