"""Observer of what is read from an object store: requests, retries, first bytes, and who served them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from jobs.objects import servers
from jobs.objects.client import Counts
from jobs.observe.observer import Observer

_DIGITS = 6


class Objects(Observer):
    """The client's counts over the run, and its servers on this machine."""

    place = 20
    gives = ("objects",)

    def start(self) -> None:
        """Look for the servers, and read what they have used; what was asked for before is no part of the run."""
        if source := self.work.source:
            with source.client.lock:
                source.client.counts = Counts()
            self._before = self._used()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read it again; a server that was started meanwhile is looked for. Later requests are no part of the run."""
        if self.work.source:
            client = self.work.source.client
            with client.lock:
                self._counts = deepcopy(client.counts)
            self._after = self._used()

    def _used(self) -> Any:
        return servers.used(servers.of(self.work.source.client.storage["endpoint"])) if self.work.source else {}

    def metrics(self) -> Mapping[str, Any]:
        """Return ``objects``: the way to them, the client's counts, ``servers`` by their names."""
        source = self.work.source
        if not source:
            return {}
        served = servers.between(self._before, self._after)
        return {"objects": {**source.client.path, **source.engine, **_counted(self._counts), "servers": served}}


def _counted(counts: Any) -> dict[str, Any]:
    return {
        "requests": counts.requests,
        "retries": counts.retries,
        "errors": dict(counts.errors),
        "bytes": counts.bytes,
        "first_byte_s": _quantiles(counts.first_byte_s),
        "whole_s": _quantiles(counts.whole_s),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the longest; nothing where there are none."""
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {name: round(ordered[int(share * (len(ordered) - 1))], _DIGITS) for name, share in places.items()}


OBSERVER = Objects
