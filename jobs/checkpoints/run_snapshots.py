"""The snapshots of one run: open the checkpoint target, verify that the snapshots are durable, and remove them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from jobs.checkpoints import lease
from jobs.checkpoints.buffer import BurstBuffer, DirectTarget
from jobs.checkpoints.drain_loop import DrainOptions
from jobs.checkpoints.lease import ONLY
from jobs.checkpoints.saver import BackgroundSaver, Saver
from jobs.checkpoints.snapshots import Snapshots, store_of
from jobs.errors import BurstBufferError, FolderError, JobError
from jobs.model.settings import Node
from jobs.model.work import SnapshotRequest
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system import files, page_cache
from jobs.system.device import Device, device_of
from jobs.system.layers import layers_below
from jobs.system.traffic import WrittenBytes

FOLDER = "checkpoints"
"""The name of the folder on a storage that has one folder of snapshots per cell."""
_OPTIONS = {option.name for option in fields(DrainOptions)}


def storages_by_role(settings: Node) -> dict[str, Node]:
    """Return the storages of a node ``checkpoint`` by their roles (``fast`` and ``slow``, or ``only``).

    The storages are in the order in which snapshots are written to them. A storage has the keys ``name`` and ``root``.
    """
    if settings["name"] == "none":
        return {}
    if "fast" in settings:
        return {"fast": settings["fast"], "slow": settings["slow"]}
    return {ONLY: settings}


@contextmanager
def open_target(
    settings: Node, request: SnapshotRequest | None, count_snapshots: Callable[[], tuple[int, int]]
) -> Iterator[RunSnapshots | None]:
    """Yield the snapshots of a run, or None if the run saves no snapshots (`request` is None).

    Old snapshots of a killed run are removed first, and the snapshots of this run at the end, unless the request says
    ``leave``. `count_snapshots` returns the number of snapshots of the run, and the bytes of one snapshot. Raises
    BurstBufferError if this number is 0, if a folder cannot be used, or if the snapshots do not fit.
    """
    if request is None:
        yield None
        return
    count, size = count_snapshots()
    if not count:
        raise BurstBufferError(
            f"checkpoint.every={settings['every']} is more than the number of steps", "save more often, or train longer"
        )
    stores = [store_of(word) for word in request["folders"]]
    with ExitStack() as stack:
        if not request["leave"]:
            lease.clear_stores(stores)
            stack.callback(lease.clear_stores, stores)
            for store in stores:
                if isinstance(store, Folder):
                    _make_parent(store.root.parent)
        checkpoints = stack.enter_context(closing(RunSnapshots(settings, stores, request["drain_timeout_s"], size)))
        # One snapshot more than `keep` must fit, because the oldest snapshot is removed after the newest was written.
        Snapshots(stores[-1]).require_room(size, min(count, settings["keep"] + 1))
        yield checkpoints


def _make_parent(folder: Path) -> None:
    """Make the folder that has the snapshot folders of all cells.

    If the storage of the folder is missing, nothing is raised here, because opening the target raises the error.
    """
    try:
        files.make_folder(folder, exist_ok=True)
        fault = files.reason_to_distrust(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(
            f"cannot make {folder}: {error.strerror}", "mount the storage so that you can write to it"
        ) from error
    if fault:
        raise FolderError(fault, "name another folder: checkpoint.root=… (checkpoint.fast.root, checkpoint.slow.root)")


class RunSnapshots:
    """The snapshots of one run, and the stores to which they are written, in the order of `storages_by_role`."""

    def __init__(
        self, settings: Node, stores: Sequence[Folder | Bucket], drain_timeout_s: float, snapshot_bytes: int
    ) -> None:
        self._settings, self._stores, self._drain_timeout_s = settings, stores, drain_timeout_s
        self._new_target = _new_target(settings, stores, snapshot_bytes)
        self._saver: Saver | None = None
        self._drain_wait_s: float | None = None
        self._troubles: tuple[str, ...] = ()
        self._visible_folders = [store.root if isinstance(store, Folder) else store.disk for store in stores]
        self._written = [WrittenBytes(folder) for folder in self._visible_folders]

    @property
    def devices(self) -> list[Device | None]:
        """Return the devices of the folders with snapshots, each device once; None stands for an unknown device."""
        return list(dict.fromkeys(device_of(folder) for folder in self.folders))

    @property
    def folders(self) -> Sequence[Path]:
        """Return the folders with snapshots; a bucket has the folder of its servers' disk, if it is on this machine."""
        return [folder for folder in self._visible_folders if folder]

    def helpers(self) -> list[int]:
        """Return the ids of the processes that work for this run: the drainer, and the servers of a bucket."""
        servers = [pid for store in self._stores if isinstance(store, Bucket) for pid in store.pids()]
        return [*self._new_target.helpers(), *servers]

    def saver(self, state: Mapping[str, Any]) -> Saver:
        """Return a saver that saves snapshots of these variables; `state` has the variables by name."""
        every = self._settings["every"]
        if self._settings["mode"] == "async":
            self._saver = BackgroundSaver(state, self._new_target, every, self._settings["in_flight"])
        else:
            self._saver = Saver(state, self._new_target, every)
        return self._saver

    def settle(self) -> None:
        """Wait until all snapshots are drained, at most `drain_timeout_s`; called after the end of the training."""
        if self._drain_wait_s is None:
            start = time.perf_counter()
            is_drained = self._new_target.wait_until_drained(self._drain_timeout_s)
            self._drain_wait_s = time.perf_counter() - start
            if not is_drained and self._drain_wait_s >= self._drain_timeout_s:
                self._troubles = (f"the drain has not ended within drain_timeout_s={self._drain_timeout_s:g}",)
            for written in self._written:
                written.stop()

    def metrics(self) -> dict[str, Any]:
        """Wait for the drain, and return the metrics for the record.

        The keys are:

        - ``checkpoints``: for each snapshot, the report of `jobs.checkpoints.saver.Saver.report`, and ``verified``,
          which says whether the snapshot was read back with the same content;
        - ``targets``: for each store, its ``role``, its ``storage``, and the ``bytes`` of all snapshots. ``source`` is
          the name of the kernel's counter of written bytes, and ``written_bytes`` are the bytes that all processes
          wrote during the run. ``below`` has lower counters that count these bytes, too, if there are any. For a
          bucket, ``served_here`` says whether its servers run on this machine;
        - ``drain_wait_s``, ``checkpoint_troubles``, and the keys of `_restore_metrics`.
        """
        self.settle()
        lines = self._saver.report() if self._saver else []
        for index, line in enumerate(lines):
            line["verified"] = self._is_verified(line, newer=len(lines) - 1 - index)
        return {
            "checkpoints": lines,
            "targets": [
                {
                    "role": role,
                    "storage": storage["name"],
                    "bytes": sum(line["bytes"] for line in lines),
                    "source": written.source,
                    "written_bytes": written.bytes,
                    **({"below": written.below} if written.below else {}),
                    **({"served_here": bool(store.pids())} if isinstance(store, Bucket) else {}),
                }
                for (role, storage), store, written in zip(
                    storages_by_role(self._settings).items(), self._stores, self._written, strict=True
                )
            ],
            "drain_wait_s": self._drain_wait_s,
            "checkpoint_troubles": [*self._troubles, *self._new_target.troubles()],
            **self._restore_metrics(),
        }

    def _restore_metrics(self) -> dict[str, Any]:
        """Read the newest snapshot from the last storage, compare every byte, and return metrics of this reading.

        The keys are ``restore_s``, ``restore_mb_per_s`` and ``restore_resident``. ``restore_resident`` is the share of
        the snapshot's pages that were in memory before the reading, including pages of the file of a loop device. This
        share is 0 for a cold read, and None if unknown, as for a bucket. The dictionary is empty if there is no good
        snapshot.
        """
        last = Snapshots(self._stores[-1])
        with suppress(OSError, JobError):
            if (names := last.names()) and (manifest := last.find(names[-1])):
                resident_fraction = None
                if isinstance(last.store, Folder):
                    paths = [last.path(manifest.name) / file.name for file in manifest.files]
                    layers = layers_below(last.store.root)
                    residency = page_cache.drop_from_cache(paths, paths, last.store.root)
                    resident_fraction = layers.share_in_memory(residency, layers.drop_from_cache())
                start = time.perf_counter()
                if last.verify(manifest.name) == []:
                    took_s = time.perf_counter() - start
                    rate = manifest.total_bytes / 1e6 / took_s
                    return {"restore_s": took_s, "restore_mb_per_s": rate, "restore_resident": resident_fraction}
        return {}

    def close(self) -> None:
        """Release the folders; snapshots whose writing has not begun are not saved any more."""
        if self._saver:
            self._saver.close()
        self._new_target.close()

    def _is_verified(self, line: Mapping[str, Any], newer: int) -> bool:
        if line["where"] == "fast":
            return line["retries"] is not None  # None until the drainer has read the copy back
        problems = Snapshots(self._stores[-1]).verify(line["name"])
        return not problems if problems is not None else newer >= self._settings["keep"]


def _new_target(settings: Node, stores: Sequence[Folder | Bucket], snapshot_bytes: int) -> DirectTarget:
    first = Path(str(stores[0]))
    if len(stores) == 1:
        return DirectTarget(first, keep=settings["keep"], snapshot_bytes=snapshot_bytes)
    options = {key: value for key, value in settings.items() if key in _OPTIONS}
    return BurstBuffer(first, stores[1], snapshot_bytes=snapshot_bytes, **options)
