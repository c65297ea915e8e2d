"""The snapshots of one run: their targets, the proof that they became durable, and their removal."""

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
"""The folder below a storage's root that has one folder of snapshots per cell."""
_OPTIONS = {option.name for option in fields(DrainOptions)}


def storages_by_role(settings: Node) -> dict[str, Node]:
    """Return the storages (``name``, ``root``) of a node ``checkpoint`` by role, in the order of writing."""
    if settings["name"] == "none":
        return {}
    if "fast" in settings:
        return {"fast": settings["fast"], "slow": settings["slow"]}
    return {ONLY: settings}


@contextmanager
def open_target(
    settings: Node, request: SnapshotRequest | None, to_save: Callable[[], tuple[int, int]]
) -> Iterator[RunSnapshots | None]:
    """Yield the checkpoint target of a run, without a killed run's snapshots; remove this run's at the end.

    `to_save` returns the number of snapshots and the bytes of one. Raises BurstBufferError before any work of the run
    if the number is 0, a folder cannot be used or the snapshots do not fit.
    """
    if request is None:
        yield None
        return
    count, size = to_save()
    if not count:
        raise BurstBufferError(
            f"every={settings['every']} is more than there are steps", "save more often, or train longer"
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
        # The oldest snapshot is removed after the newest one was written.
        Snapshots(stores[-1]).require_room(size, min(count, settings["keep"] + 1))
        yield checkpoints


def _make_parent(folder: Path) -> None:
    """Make the folder of all cells' folders; nothing is raised if its storage is missing: the target does that."""
    try:
        files.make_folder(folder, exist_ok=True)
        fault = files.reason_to_distrust(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(
            f"cannot make {folder}: {error.strerror}", "mount its storage so that you may write"
        ) from error
    if fault:
        raise FolderError(fault, "checkpoint.root=… (checkpoint.fast.root, checkpoint.slow.root) names another folder")


class RunSnapshots:
    """The snapshots of one run; the stores are in the order of `storages_by_role`."""

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
        """Return the distinct devices below the folders."""
        return list(dict.fromkeys(device_of(folder) for folder in self.folders))

    @property
    def folders(self) -> Sequence[Path]:
        """Return the folders of the snapshots; for a bucket the servers' disk, if this machine can see it."""
        return [folder for folder in self._visible_folders if folder]

    def helpers(self) -> list[int]:
        """Return the ids of the processes that work for this run, including those that serve a bucket."""
        servers = [pid for store in self._stores if isinstance(store, Bucket) for pid in store.pids()]
        return [*self._new_target.helpers(), *servers]

    def saver(self, state: Mapping[str, Any]) -> Saver:
        """Return the saver of these variables."""
        every = self._settings["every"]
        if self._settings["mode"] == "async":
            self._saver = BackgroundSaver(state, self._new_target, every, self._settings["in_flight"])
        else:
            self._saver = Saver(state, self._new_target, every)
        return self._saver

    def settle(self) -> None:
        """Wait, after the end of the training, until the storage at the end of the drain has all snapshots."""
        if self._drain_wait_s is None:
            start = time.perf_counter()
            is_drained = self._new_target.wait_until_drained(self._drain_timeout_s)
            self._drain_wait_s = time.perf_counter() - start
            if not is_drained and self._drain_wait_s >= self._drain_timeout_s:
                self._troubles = (f"the drain was not over after drain_timeout_s={self._drain_timeout_s:g}",)
            for written in self._written:
                written.settle()

    def metrics(self) -> dict[str, Any]:
        """Wait for the drain, and return the metrics for the record.

        The keys are:

        - ``checkpoints``: per snapshot, the report of `jobs.checkpoints.saver.Saver.report`, and whether it is
          ``verified`` (it was read back with the same content);
        - ``targets``: per store, its ``role``, its ``storage``, the ``bytes`` of all snapshots for it; ``source``, the
          name of the kernel's counter, and ``written_bytes``, its bytes of all processes meanwhile; the counters
          ``below`` it that count the same bytes, if any; for a bucket ``served_here``, whether this machine serves it;
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
        """Return the metrics of reading the newest snapshot back from its last storage and comparing every byte.

        The keys are ``restore_s``, ``restore_mb_per_s`` and ``restore_resident``: the share of its pages that were
        still in memory, also as pages of the file of a loop device. It is 0 for a cold read, and None if unknown, as
        for a bucket. The dictionary is empty without a good snapshot.
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
        """Release the folders; snapshots that are not yet written are dropped."""
        if self._saver:
            self._saver.close()
        self._new_target.close()

    def _is_verified(self, line: Mapping[str, Any], newer: int) -> bool:
        if line["where"] == "fast":
            return line["retries"] is not None  # None until the drainer has read it back
        problems = Snapshots(self._stores[-1]).verify(line["name"])
        return not problems if problems is not None else newer >= self._settings["keep"]


def _new_target(settings: Node, stores: Sequence[Folder | Bucket], snapshot_bytes: int) -> DirectTarget:
    first = Path(str(stores[0]))
    if len(stores) == 1:
        return DirectTarget(first, keep=settings["keep"], snapshot_bytes=snapshot_bytes)
    options = {key: value for key, value in settings.items() if key in _OPTIONS}
    return BurstBuffer(first, stores[1], snapshot_bytes=snapshot_bytes, **options)
