"""Observe the storages of a run: emulation, snapshots, I/O limits of control groups, requests to an object store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from jobs.objects import servers
from jobs.objects.client import RequestCounts
from jobs.observe.observer import Observer
from jobs.system import cgroup
from jobs.system.cgroup import IoLimit
from jobs.system.device import Device, devices_behind
from jobs.system.layers import RequestAccount, account_of_storage, emulated_storage


class StoragesObserver(Observer):
    """Observes the storages of the data and the snapshots, and waits until all snapshots are on the slow storage."""

    place = 90
    gives = (
        *("emulated", "served", "checkpoints", "targets", "drain_wait_s", "checkpoint_troubles"),
        *("restore_s", "restore_mb_per_s", "restore_resident"),
    )

    def start(self) -> None:
        """Read how many requests each emulated storage has served."""
        snapshot_folders = self.snapshot_folders
        self._emulated = self.work.below.emulated or any(map(emulated_storage, snapshot_folders))
        folders = (*self.work.folders, *snapshot_folders) if self._emulated else ()
        self._before = {folder: account for folder in folders if (account := _account_or_none(folder))}

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counts of requests again, before the remaining snapshots are copied to a slow storage.

        A server that was restarted during the run is left out, because a new server counts from 0.
        """
        accounts = {folder: account for folder in self._before if (account := _account_or_none(folder))}
        self._after = {
            folder: account for folder, account in accounts.items() if account.pid == self._before[folder].pid
        }

    def metrics(self) -> Mapping[str, Any]:
        """Return ``emulated``, ``served`` for emulated storages, and the metrics of the snapshots.

        ``served`` has, for each emulated storage that reports its counts, the requests of all processes and the CPU
        time that the kernel needs for these requests (`jobs.system.layers.RequestAccount`).
        """
        metrics: dict[str, Any] = {"emulated": self._emulated}
        if self._after:
            pairs = [(account, self._before[folder]) for folder, account in self._after.items()]
            metrics["served"] = {after.name: {**_difference(after, before), **after.costs} for after, before in pairs}
        return metrics | (self.work.checkpoints.metrics() if self.work.checkpoints else {})


def _account_or_none(folder: Path) -> RequestAccount | None:
    with suppress(OSError, ValueError):
        return account_of_storage(folder)
    return None


def _difference(after: RequestAccount, before: RequestAccount) -> dict[str, float]:
    return {key: round(count - before.counts[key], 6) for key, count in after.counts.items()}


# The limits that can emulate a storage by a control group: for each limit, the key of the emulated speed and its unit.
_EMULATED_BOUNDS = {
    "read_bps": ("read_mb_per_s", 1e6), "write_bps": ("write_mb_per_s", 1e6),
    "read_iops": ("read_iops", 1), "write_iops": ("write_iops", 1),
}  # fmt: skip
_COUNTS = {"read_iops": "reads", "read_bps": "read_bytes", "write_iops": "writes", "write_bps": "written_bytes"}


class IoLimitsObserver(Observer):
    """Observes the I/O limits on all devices of the run, including lower devices and the devices of snapshots."""

    place = 12
    gives = ("io_limits", "io_limits_hidden")

    def start(self) -> None:
        """Find the limits, and read the counters that the limits apply to."""
        snapshot_folders = self.snapshot_folders
        folders = [folder for folder in (*self.work.folders, *snapshot_folders) if folder.exists()]
        devices = {device.name: device for folder in folders for device in devices_behind(folder)}
        bounds = {device.name: emulated_storage(folder) for folder in folders for device in devices_behind(folder)[:1]}
        limits = cgroup.io_limits([*devices.values()])
        self._limits = [(limit, devices[limit.device]) for limit in limits if not _emulates_storage(limit, bounds)]
        self._before = [_count_on_device(limit, device) for limit, device in self._limits]
        self._start_s = time.perf_counter()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counters again, and calculate the rates that were reached during the run."""
        elapsed_s = time.perf_counter() - self._start_s
        after = [_count_on_device(limit, device) for limit, device in self._limits]
        self._rates = [
            (count - count_before) / elapsed_s for count, count_before in zip(after, self._before, strict=True)
        ]

    def metrics(self) -> Mapping[str, Any]:
        """Return ``io_limits``, and ``io_limits_hidden``: whether there are parent groups that cannot be seen.

        A limit has the device, the kind, the limit ``per_s``, the control group, and ``reached_per_s``. The latter is
        the rate that all processes of the group reached. A limit that emulates a storage is left out.
        """
        pairs = zip(self._limits, self._rates, strict=True)
        return {
            "io_limits": [{**limit._asdict(), "reached_per_s": rate} for (limit, _), rate in pairs],
            "io_limits_hidden": cgroup.has_hidden_groups(),
        }


def _count_on_device(limit: IoLimit, device: Device) -> int:
    return int(getattr(device.read_counters(), _COUNTS[limit.kind]))


def _emulates_storage(limit: IoLimit, bounds: Mapping[str, Mapping[str, Any] | None]) -> bool:
    """Return whether a limit emulates the speed of a storage."""
    key, unit = _EMULATED_BOUNDS[limit.kind]
    bound = (bounds.get(limit.device) or {}).get(key)
    return bound is not None and limit.per_s >= round(bound * unit)


_DIGITS = 6


class ObjectStoreObserver(Observer):
    """Observes the requests of the object store's client, and the servers of the object store on this machine."""

    place = 20
    gives = ("objects",)

    def start(self) -> None:
        """Find the server processes and read their resource use; reset the client's counts of requests to 0."""
        if source := self.work.source:
            with source.client.lock:
                source.client.counts = RequestCounts()
            self._before = self._server_use()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Save the client's counts, and read the resource use of all server processes again, with new processes."""
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
        """Return ``objects``: facts about the object store and the client, the client's counts, and the ``servers``."""
        source = self.work.source
        if not source:
            return {}
        server_use = servers.usage_between(self._before, self._after)
        return {
            "objects": {**source.client.path, **source.engine, **_client_metrics(self._counts), "servers": server_use}
        }


def _client_metrics(counts: RequestCounts) -> dict[str, Any]:
    return {
        "requests": counts.requests,
        "retries": counts.retries,
        "errors": dict(counts.errors),
        "bytes": counts.bytes,
        "first_byte_s": _quantiles(counts.first_byte_s),
        "whole_s": _quantiles(counts.whole_s),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum, or an empty dictionary if there are no values."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {name: round(ordered[int(share * (len(ordered) - 1))], _DIGITS) for name, share in shares.items()}


OBSERVERS = (IoLimitsObserver, ObjectStoreObserver, StoragesObserver)
