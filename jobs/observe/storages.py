"""The observers of a run's storages: emulation, snapshots, control groups' limits, requests to an object store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from jobs.objects import servers
from jobs.objects.client import Counts
from jobs.observe.observer import Observer
from jobs.system import cgroup
from jobs.system.cgroup import Limit
from jobs.system.device import Device, devices_behind
from jobs.system.layers import Account, account_of_storage, emulated_storage


class Storages(Observer):
    """The observer of the storages of the data and the snapshots; it waits for the drain."""

    place = 90
    gives = (
        *("emulated", "served", "checkpoints", "targets", "drain_wait_s", "checkpoint_troubles"),
        *("restore_s", "restore_mb_per_s", "restore_resident"),
    )

    def start(self) -> None:
        """Read the counts of requests to emulated storages."""
        saves = self.snapshot_folders
        self._emulated = self.work.below.emulated or any(map(emulated_storage, saves))
        folders = (*self.work.folders, *saves) if self._emulated else ()
        self._before = {folder: account for folder in folders if (account := _account_or_none(folder))}

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counts again, before the rest of a drain; a restarted server (counts from 0) is left out."""
        again = {folder: account for folder in self._before if (account := _account_or_none(folder))}
        self._after = {folder: account for folder, account in again.items() if account.pid == self._before[folder].pid}

    def metrics(self) -> Mapping[str, Any]:
        """Return ``emulated``; for a run that saves also the metrics of its snapshots.

        And ``served``: by name of an emulated storage, the requests of all processes (`Served`), and the kernel's costs
        of serving them (`Costs`), if the storage reports them.
        """
        metrics: dict[str, Any] = {"emulated": self._emulated}
        if self._after:
            pairs = [(now, self._before[folder]) for folder, now in self._after.items()]
            metrics["served"] = {now.name: {**_difference(now, then), **now.costs} for now, then in pairs}
        return metrics | (self.work.checkpoints.metrics() if self.work.checkpoints else {})


def _account_or_none(folder: Path) -> Account | None:
    with suppress(OSError, ValueError):
        return account_of_storage(folder)
    return None


def _difference(after: Account, before: Account) -> dict[str, float]:
    return {key: round(count - before.counts[key], 6) for key, count in after.counts.items()}


# The bounds of an emulated storage, which it may keep by such limits, and their unit.
_BOUNDS = {
    "read_bps": ("read_mb_per_s", 1e6), "write_bps": ("write_mb_per_s", 1e6),
    "read_iops": ("read_iops", 1), "write_iops": ("write_iops", 1),
}  # fmt: skip
_COUNTS = {"read_iops": "reads", "read_bps": "read_bytes", "write_iops": "writes", "write_bps": "written_bytes"}


class IoLimits(Observer):
    """The observer of the limits on all devices of the run, including lower devices and those of snapshots."""

    place = 12
    gives = ("io_limits", "io_limits_hidden")

    def start(self) -> None:
        """Find the limits, and read the counts of the limited requests."""
        saves = self.snapshot_folders
        folders = [folder for folder in (*self.work.folders, *saves) if folder.exists()]
        devices = {device.name: device for folder in folders for device in devices_behind(folder)}
        bounds = {device.name: emulated_storage(folder) for folder in folders for device in devices_behind(folder)[:1]}
        limits = cgroup.io_limits([*devices.values()])
        self._limits = [(limit, devices[limit.device]) for limit in limits if not _is_of_emulation(limit, bounds)]
        self._before = [_count_on_device(*each) for each in self._limits]
        self._began_s = time.perf_counter()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counts again, and compute the rates reached."""
        took_s = time.perf_counter() - self._began_s
        after = [_count_on_device(*each) for each in self._limits]
        self._reached = [(now - then) / took_s for now, then in zip(after, self._before, strict=True)]

    def metrics(self) -> Mapping[str, Any]:
        """Return ``io_limits``: device, kind, ``per_s``, group, and ``reached_per_s``, the rate of all processes there.

        A limit that emulates a storage is left out. ``io_limits_hidden``: whether higher groups cannot be seen.
        """
        pairs = zip(self._limits, self._reached, strict=True)
        return {
            "io_limits": [{**limit._asdict(), "reached_per_s": reached} for (limit, _), reached in pairs],
            "io_limits_hidden": cgroup.has_hidden_groups(),
        }


def _count_on_device(limit: Limit, device: Device) -> int:
    return int(getattr(device.use(), _COUNTS[limit.kind]))


def _is_of_emulation(limit: Limit, bounds: Mapping[str, Mapping[str, Any] | None]) -> bool:
    """Return whether a limit is the one that emulates the device's speed."""
    key, unit = _BOUNDS[limit.kind]
    bound = (bounds.get(limit.device) or {}).get(key)
    return bound is not None and limit.per_s >= round(bound * unit)


_DIGITS = 6


class ObjectStoreObserver(Observer):
    """The observer of the client's counts over the run, and of the servers on this machine."""

    place = 20
    gives = ("objects",)

    def start(self) -> None:
        """Find the servers and read their resource use; requests before the run do not count."""
        if source := self.work.source:
            with source.client.lock:
                source.client.counts = Counts()
            self._before = self._server_use()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the resource use again, also of new servers; requests after the run do not count."""
        if self.work.source:
            client = self.work.source.client
            with client.lock:
                self._counts = deepcopy(client.counts)
            self._after = self._server_use()

    def _server_use(self) -> Any:
        return (
            servers.usage_of(servers.processes_of(self.work.source.client.storage["endpoint"]))
            if self.work.source
            else {}
        )

    def metrics(self) -> Mapping[str, Any]:
        """Return ``objects``: the address and client, the client's counts, ``servers`` by their names."""
        source = self.work.source
        if not source:
            return {}
        served = servers.usage_between(self._before, self._after)
        return {"objects": {**source.client.path, **source.engine, **_client_metrics(self._counts), "servers": served}}


def _client_metrics(counts: Counts) -> dict[str, Any]:
    return {
        "requests": counts.requests,
        "retries": counts.retries,
        "errors": dict(counts.errors),
        "bytes": counts.bytes,
        "first_byte_s": _quantiles(counts.first_byte_s),
        "whole_s": _quantiles(counts.whole_s),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum; empty for no values."""
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {name: round(ordered[int(share * (len(ordered) - 1))], _DIGITS) for name, share in places.items()}


OBSERVERS = (IoLimits, ObjectStoreObserver, Storages)
