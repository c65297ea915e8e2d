"""The snapshots of one run: their targets, the proof that they became durable, and their removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from jobs.checkpoints import lease
from jobs.checkpoints.buffer import BurstBuffer, Direct
from jobs.checkpoints.drain_loop import Options
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
from jobs.system.traffic import Written

FOLDER = "checkpoints"
"""The folder below a storage's root that has one folder per cell."""
_OPTIONS = {option.name for option in fields(Options)}


def roles(settings: Node) -> dict[str, Node]:
    """Return the storages (``name``, ``root``) of a node ``checkpoint`` by role, in the order of the snapshots' way."""
    if settings["name"] == "none":
        return {}
    if "fast" in settings:
        return {"fast": settings["fast"], "slow": settings["slow"]}
    return {ONLY: settings}


@contextmanager
def opened(
    settings: Node, request: SnapshotRequest | None, to_save: Callable[[], tuple[int, int]]
) -> Iterator[Checkpoints | None]:
    """Yield the checkpoint target of a run; a killed run's snapshots are removed first, this run's at the end.

    `to_save` returns the number of snapshots and the bytes of one. Raises BurstBufferError if there would be
    none, a folder cannot be used or they do not fit: before anything is read or trained.
    """
    if request is None:
        yield None
        return
    number, size = to_save()
    if not number:
        raise BurstBufferError(
            f"every={settings['every']} is more than there are steps", "save more often, or train longer"
        )
    stores = [store_of(word) for word in request["folders"]]
    with ExitStack() as stack:
        if not request["leave"]:
            lease.clear(stores)
            stack.callback(lease.clear, stores)
            for each in stores:
                if isinstance(each, Folder):
                    _make(each.root.parent)
        checkpoints = stack.enter_context(closing(Checkpoints(settings, stores, request["drain_timeout_s"], size)))
        # The oldest is removed after the newest was written.
        Snapshots(stores[-1]).require_room(size, min(number, settings["keep"] + 1))
        yield checkpoints


def _make(above: Path) -> None:
    """Make the folder of all cells' folders; if its storage is missing, the target raises that error."""
    try:
        files.make_folder(above, exist_ok=True)
        fault = files.distrust(above)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(
            f"cannot make {above}: {error.strerror}", "mount its storage so that you may write"
        ) from error
    if fault:
        raise FolderError(fault, "checkpoint.root=… (checkpoint.fast.root, checkpoint.slow.root) gives another place")


class Checkpoints:
    """The snapshots of one run; the stores are in the order of `roles`."""

    def __init__(
        self, settings: Node, stores: Sequence[Folder | Bucket], drain_timeout_s: float, snapshot_bytes: int
    ) -> None:
        self._settings, self._stores, self._drain_timeout_s = settings, stores, drain_timeout_s
        self._target = _target(settings, stores, snapshot_bytes)
        self._saver: Saver | None = None
        self._drain_wait_s: float | None = None
        self._troubles: tuple[str, ...] = ()
        self._seen = [each.root if isinstance(each, Folder) else each.disk for each in stores]
        self._written = [Written(each) for each in self._seen]

    @property
    def devices(self) -> list[Device | None]:
        """Return the devices behind the folders, each once."""
        return list(dict.fromkeys(device_of(folder) for folder in self.folders))

    @property
    def folders(self) -> Sequence[Path]:
        """Return the folders of the snapshots; for a bucket the servers' disk, if this machine can see it."""
        return [each for each in self._seen if each]

    def helpers(self) -> list[int]:
        """Return the ids of the processes that work for this run, including those that serve a bucket."""
        served = [pid for each in self._stores if isinstance(each, Bucket) for pid in each.pids()]
        return [*self._target.helpers(), *served]

    def saver(self, state: Mapping[str, Any]) -> Saver:
        """Return the saver of these variables."""
        every = self._settings["every"]
        if self._settings["mode"] == "async":
            self._saver = BackgroundSaver(state, self._target, every, self._settings["in_flight"])
        else:
            self._saver = Saver(state, self._target, every)
        return self._saver

    def settle(self) -> None:
        """Wait, after the end of the training, until all snapshots are on their last storage."""
        if self._drain_wait_s is None:
            began = time.perf_counter()
            drained = self._target.drained(self._drain_timeout_s)
            self._drain_wait_s = time.perf_counter() - began
            if not drained and self._drain_wait_s >= self._drain_timeout_s:
                self._troubles = (f"the drain was not over after drain_timeout_s={self._drain_timeout_s:g}",)
            for written in self._written:
                written.settle()

    def metrics(self) -> dict[str, Any]:
        """Wait for the drain, and return the metrics for the record.

        The keys are ``checkpoints`` (per snapshot the report of `jobs.checkpoints.saver.Saver.report` and whether it is
        ``verified``: read back and found to be what was written), ``targets`` (for each folder its ``role``,
        ``storage``, the ``bytes`` of all snapshots that went there, and by ``source``, the kernel's counter,
        ``written_bytes`` of all processes meanwhile, the counters ``below`` that count the same bytes, if any, and for
        a bucket whether this machine serves it, ``served_here``), ``drain_wait_s``, ``checkpoint_troubles``, and the
        keys of `_restored`.
        """
        self.settle()
        lines = self._saver.report() if self._saver else []
        for place, line in enumerate(lines):
            line["verified"] = self._verified(line, newer=len(lines) - 1 - place)
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
                    **({"served_here": bool(each.pids())} if isinstance(each, Bucket) else {}),
                }
                for (role, storage), each, written in zip(
                    roles(self._settings).items(), self._stores, self._written, strict=True
                )
            ],
            "drain_wait_s": self._drain_wait_s,
            "checkpoint_troubles": [*self._troubles, *self._target.troubles()],
            **self._restored(),
        }

    def _restored(self) -> dict[str, Any]:
        """Return the metrics of reading the newest snapshot back from its last storage and comparing every byte.

        The keys are ``restore_s``, ``restore_mb_per_s`` and ``restore_resident``, the share of its pages that were
        still in memory, those of a loop device's file included: 0 proves a cold read; None if unknown, as for a bucket.
        Empty if there is no good snapshot.
        """
        last = Snapshots(self._stores[-1])
        with suppress(OSError, JobError):
            if (names := last.names()) and (manifest := last.find(names[-1])):
                resident = None
                if isinstance(last.store, Folder):
                    paths = [last.path(manifest.name) / file.name for file in manifest.files]
                    below = layers_below(last.store.root)
                    own = page_cache.drop_from_cache(paths, paths, last.store.root)
                    resident = below.share_in_memory(own, below.drop_from_cache())
                began = time.perf_counter()
                if last.verify(manifest.name) == []:
                    took_s = time.perf_counter() - began
                    rate = manifest.total_bytes / 1e6 / took_s
                    return {"restore_s": took_s, "restore_mb_per_s": rate, "restore_resident": resident}
        return {}

    def close(self) -> None:
        """Release the folders; snapshots that are not yet written are dropped."""
        if self._saver:
            self._saver.close()
        self._target.close()

    def _verified(self, line: Mapping[str, Any], newer: int) -> bool:
        if line["where"] == "fast":
            return line["retries"] is not None  # the drainer has read it back
        wrong = Snapshots(self._stores[-1]).verify(line["name"])
        return not wrong if wrong is not None else newer >= self._settings["keep"]


def _target(settings: Node, stores: Sequence[Folder | Bucket], snapshot_bytes: int) -> Direct:
    first = Path(str(stores[0]))
    if len(stores) == 1:
        return Direct(first, keep=settings["keep"], snapshot_bytes=snapshot_bytes)
    options = {key: value for key, value in settings.items() if key in _OPTIONS}
    return BurstBuffer(first, stores[1], snapshot_bytes=snapshot_bytes, **options)
