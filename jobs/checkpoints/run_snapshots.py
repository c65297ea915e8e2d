"""The snapshots of one run: where they go, whether they came to be durable there, and that nothing of them is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from jobs.burst_buffer import BurstBuffer, reclaim, snapshots
from jobs.burst_buffer.drain_loop import Options
from jobs.burst_buffer.slow_storage import Place, place_of
from jobs.checkpoints.direct import Direct
from jobs.checkpoints.saver import BackgroundSaver, Saver
from jobs.errors import BurstBufferError, FolderError
from jobs.model.request import SnapshotRequest
from jobs.model.settings import Node
from jobs.system import files
from jobs.system.device import Device, device_of
from jobs.system.traffic import Written

FOLDER = "checkpoints"
"""Where, below a storage's root, each cell has its folder."""
ONLY = "only"
"""Role of the storage of a target that has but one."""
_OPTIONS = {option.name for option in fields(Options)}


def roles(settings: Node) -> dict[str, Node]:
    """Return the storages of a node ``checkpoint``, ``name`` and ``root``, in the order that snapshots reach them."""
    if settings["name"] == "none":
        return {}
    if "fast" in settings:
        return {"fast": settings["fast"], "slow": settings["slow"]}
    return {ONLY: settings}


@contextmanager
def opened(
    settings: Node, asked: SnapshotRequest | None, to_save: Callable[[], tuple[int, int]]
) -> Iterator[Checkpoints | None]:
    """Open the target of a run; what a run that was killed has left there goes first, and what this one saves at last.

    `to_save` says how many snapshots there will be, and the bytes of each. Raises BurstBufferError where there would be
    none, a folder cannot be used or they do not fit: before anything is read or trained.
    """
    if asked is None:
        yield None
        return
    number, size = to_save()
    if not number:
        raise BurstBufferError(
            f"every={settings['every']} is more than there are steps", "save more often, or train longer"
        )
    places = [place_of(word) for word in asked["folders"]]
    with ExitStack() as stack:
        if not asked["leave"]:
            reclaim.clear(places)
            stack.callback(reclaim.clear, places)
            for each in places:
                if isinstance(each, Path):
                    _make(each.parent)
        made = stack.enter_context(closing(Checkpoints(settings, places, asked["drain_timeout_s"], size)))
        most = min(number, settings["keep"] + 1)  # the oldest goes when the newest is there
        if isinstance(slow := places[-1], Path):
            snapshots.require_room(slow, size, most)
        else:
            slow.require_room(size * most)
        yield made


def _make(above: Path) -> None:
    """Make the folder that holds those of all cells; where its storage is not there, the target says so."""
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
    """The snapshots of one run; its places are in the order of `roles`."""

    def __init__(self, settings: Node, places: Sequence[Place], drain_timeout_s: float, snapshot_bytes: int) -> None:
        self._settings, self._places, self._drain_timeout_s = settings, places, drain_timeout_s
        self._target = _target(settings, places, snapshot_bytes)
        self._saver: Saver | None = None
        self._drain_wait_s: float | None = None
        self._troubles: tuple[str, ...] = ()
        self._seen = [each if isinstance(each, Path) else each.disk for each in places]
        self._written = [Written(each) for each in self._seen]

    @property
    def devices(self) -> list[Device | None]:
        """The devices behind the folders, each once."""
        return list(dict.fromkeys(device_of(folder) for folder in self.folders))

    @property
    def folders(self) -> Sequence[Path]:
        """Where the snapshots go, as far as that is seen from here: of a bucket the servers' disk."""
        return [each for each in self._seen if each]

    def helpers(self) -> list[int]:
        """Return the numbers of the processes that work for this run, those that serve a bucket among them."""
        served = [pid for each in self._places if not isinstance(each, Path) for pid in each.pids()]
        return [*self._target.helpers(), *served]

    def saver(self, state: Mapping[str, Any]) -> Saver:
        """Return what saves these variables."""
        every = self._settings["every"]
        if self._settings["mode"] == "async":
            self._saver = BackgroundSaver(state, self._target, every, self._settings["in_flight"])
        else:
            self._saver = Saver(state, self._target, every)
        return self._saver

    def settle(self) -> None:
        """Wait, once the training has ended, until all snapshots are where they are to stay."""
        if self._drain_wait_s is None:
            began = time.perf_counter()
            drained = self._target.drained(self._drain_timeout_s)
            self._drain_wait_s = time.perf_counter() - began
            if not drained and self._drain_wait_s >= self._drain_timeout_s:
                self._troubles = (f"the drain was not over after drain_timeout_s={self._drain_timeout_s:g}",)
            for written in self._written:
                written.settle()

    def metrics(self) -> dict[str, Any]:
        """Wait for the drain, and return what a record holds.

        Returns ``checkpoints`` (for each snapshot what `jobs.checkpoints.saver.Saver.report` says and whether it is
        ``verified``: read back and found to be what was written), ``targets`` (for each folder its ``role``,
        ``storage``, the ``bytes`` of all snapshots that went there, and by ``source``, the kernel's counter,
        ``written_bytes`` of everybody meanwhile, the counters ``below`` that count the same bytes, where there are any,
        and of a bucket whether it is ``served_here``, on this machine), ``drain_wait_s``, ``checkpoint_troubles``.
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
                    "bytes": _bytes(lines, role),
                    "source": written.source,
                    "written_bytes": written.bytes,
                    **({"below": written.below} if written.below else {}),
                    **({} if isinstance(each, Path) else {"served_here": bool(each.pids())}),
                }
                for (role, storage), each, written in zip(
                    roles(self._settings).items(), self._places, self._written, strict=True
                )
            ],
            "drain_wait_s": self._drain_wait_s,
            "checkpoint_troubles": [*self._troubles, *self._target.troubles()],
        }

    def close(self) -> None:
        """Release the folders; what is not yet written is dropped."""
        if self._saver:
            self._saver.close()
        self._target.close()

    def _verified(self, line: Mapping[str, Any], newer: int) -> bool:
        if line["where"] == "fast":
            return line["durable_slow_s"] is not None  # the drainer has read it back
        folder = Path(str(self._places[-1]), line["name"])  # no bucket: all of its snapshots are drained
        return not snapshots.verify(folder) if folder.exists() else newer >= self._settings["keep"]


def _target(settings: Node, places: Sequence[Place], snapshot_bytes: int) -> BurstBuffer | Direct:
    first = Path(str(places[0]))
    if len(places) == 1:
        return Direct(first, keep=settings["keep"], snapshot_bytes=snapshot_bytes)
    options = {key: value for key, value in settings.items() if key in _OPTIONS}
    return BurstBuffer(first, places[1], when_full=settings["when_full"], snapshot_bytes=snapshot_bytes, **options)


def _bytes(lines: Sequence[Mapping[str, Any]], role: str) -> int:
    """Add up what went to one of the folders; on the slow one all of it ends."""
    return sum(line["bytes"] for line in lines if role == "slow" or line["where"] == role)
