"""Observer of the limits that control groups set to reads and writes, and of how near a run came to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jobs.observe.observer import Observer
from jobs.system import io_limits
from jobs.system.device import Device, devices_behind
from jobs.system.emulated import emulated
from jobs.system.io_limits import Limit

# The bounds of an emulated storage, which it may keep by such limits, and their unit.
_BOUNDS = {
    "read_bps": ("read_mb_per_s", 1e6), "write_bps": ("write_mb_per_s", 1e6),
    "read_iops": ("read_iops", 1), "write_iops": ("write_iops", 1),
}  # fmt: skip
_COUNTS = {"read_iops": "reads", "read_bps": "read_bytes", "write_iops": "writes", "write_bps": "written_bytes"}


class IoLimits(Observer):
    """The limits on all devices of the run, those below others and those of snapshots included."""

    place = 12
    gives = ("io_limits", "io_limits_hidden")

    def start(self) -> None:
        """Look which limits there are, and begin to count what they count."""
        saves = self.work.checkpoints.folders if self.work.checkpoints else ()
        folders = [folder for folder in (*self.work.folders, *saves) if folder.exists()]
        devices = {device.name: device for folder in folders for device in devices_behind(folder)}
        bounds = {device.name: emulated(folder) for folder in folders for device in devices_behind(folder)[:1]}
        found = io_limits.limits([*devices.values()])
        self._limits = [(limit, devices[limit.device]) for limit in found if not _emulates(limit, bounds)]
        self._before = [_count(*each) for each in self._limits]
        self._began_s = time.perf_counter()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Count again."""
        took_s = time.perf_counter() - self._began_s
        after = [_count(*each) for each in self._limits]
        self._reached = [(now - then) / took_s for now, then in zip(after, self._before, strict=True)]

    def metrics(self) -> Mapping[str, Any]:
        """Return ``io_limits``: device, kind, ``per_s``, group, and ``reached_per_s``, what everybody did there.

        What an emulated storage is made of is none. And ``io_limits_hidden``: groups above cannot be seen from here.
        """
        pairs = zip(self._limits, self._reached, strict=True)
        return {
            "io_limits": [{**limit._asdict(), "reached_per_s": reached} for (limit, _), reached in pairs],
            "io_limits_hidden": io_limits.hidden(),
        }


def _count(limit: Limit, device: Device) -> int:
    return int(getattr(device.use(), _COUNTS[limit.kind]))


def _emulates(limit: Limit, bounds: Mapping[str, Mapping[str, Any] | None]) -> bool:
    """Return whether the device is to be no faster than that: then the limit is what emulates it."""
    key, unit = _BOUNDS[limit.kind]
    bound = (bounds.get(limit.device) or {}).get(key)
    return bound is not None and limit.per_s >= round(bound * unit)


OBSERVER = IoLimits
