"""The campaign folder: where everything lies, whose it is, and which process uses it."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from filelock import FileLock, Timeout

from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from jobs.model import reading
from jobs.model.record import SCHEMA, Manifest
from jobs.system import files, untrusted
from jobs.system.clock import is_utc
from jobs.system.files import write_json

TOOL = "tfio-campaign"
_PRIVATE = 0o700
_PLENTY_BYTES = 64 << 20  # where this is free nobody counts
_ROOM_BYTES = 64 << 10  # of a first record with its logs


class _Process(TypedDict):
    """The front process that holds the folder."""

    pid: int
    host: str


@dataclass(frozen=True)
class CampaignFolder:
    """Paths inside one campaign folder.

    ::

        results/
          campaign.json                    the requests; also the marker that the folder is ours
          records/<cell id>/record.json    one cell; written after each run
          records/<cell id>/lease.json     the session that may write it
          records/<cell id>/run-<n>.log    what the run printed
          records/<cell id>/run-<n>.npz    its lists of one number a step
          records/<cell id>/trace-<n>.csv  what the system did meanwhile
          records/<cell id>/profile-<n>.npz  its POSIX calls, where the cell asks for them
          records/<cell id>/tensorflow-<n>.npz  what TensorFlow's profiler saw, likewise
          records/<cell id>/timelog-<n>.timelog  when it did what, where the benchmark logs it
          report.html figures/ tables/     made by the analysis
          manifests/                       of the user's own folders of images
          advice.json                      what `advise` predicted, and what came of it
          summaries.json                   what `status` has found: a cache (`campaign.cells.summaries`)
          staging/                         which files to read from copies (`campaign.staging`)
          workers/<token>-<n>/             a batch: work lists, submitit's script, logs of the workers
    """

    root: Path

    @property
    def marker(self) -> Path:
        """``campaign.json``."""
        return self.root / "campaign.json"

    @property
    def records(self) -> Path:
        """Folder of the cells' folders."""
        return self.root / "records"

    @property
    def manifests(self) -> Path:
        """Folder of the manifests of datasets that are not ours to write into."""
        return self.root / "manifests"

    def manifest(self, name: str) -> Path:
        """Folder of one of these manifests, made; the campaign folder itself is not made anew."""
        own = self.manifests / hashlib.sha256(name.encode()).hexdigest()[:10]
        for folder in (self.manifests, own):
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
        return own

    @property
    def staging(self) -> Path:
        """Folder of the plan and the maps of staged files (`campaign.staging`)."""
        return self.root / "staging"

    @property
    def advice(self) -> Path:
        """File of what was predicted (`campaign.advice.account`)."""
        return self.root / "advice.json"

    @property
    def workers(self) -> Path:
        """Folder of the batches (`campaign.worker.batch`)."""
        return self.root / "workers"

    def cell(self, cell_id: str) -> Path:
        """Folder of one cell."""
        return self.records / cell_id

    def record(self, cell_id: str) -> Path:
        """``record.json`` of one cell."""
        return self.cell(cell_id) / "record.json"

    def recorded(self) -> list[str]:
        """Return the ids of the cells that have a record, sorted."""
        try:
            with os.scandir(self.records) as entries:
                return sorted(entry.name for entry in entries if os.path.lexists(f"{entry.path}/record.json"))
        except OSError:
            return []

    def lease(self, cell_id: str) -> Path:
        """``lease.json`` of one cell."""
        return self.cell(cell_id) / "lease.json"

    def hindrance(self) -> str:
        """Return what keeps workers from writing their records; empty where nothing does. They cannot report it.

        A quota is not seen.
        """
        try:
            system = os.statvfs(self.root)
        except OSError as error:
            return f"{self.root} cannot be reached: {error.strerror}"
        if system.f_flag & os.ST_RDONLY:
            return f"{self.root} is read-only: workers wait to write their records"
        free = system.f_bavail * system.f_frsize
        if free < _PLENTY_BYTES and free < self._needed_bytes():
            return f"{self.root} is full: workers wait to write their records"
        return ""

    def _needed_bytes(self) -> int:
        """Return what the next record needs: it is written beside the one before, with a run more."""
        largest = max(map(_size, self.records.glob("*/record.json")), default=0)
        return max(_ROOM_BYTES, 2 * largest)

    def worker_lock(self) -> FileLock:
        """Lock that a worker on a workstation holds while it works in this folder: there is one at a time."""
        return FileLock(self.workers / "worker.lock")

    def worker_at_work(self) -> bool | None:
        """Return whether a worker of this machine holds its lock; None where this user may not try it."""
        if not self.workers.is_dir():
            return False
        try:
            with self.worker_lock().acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return None


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 where it has just been set aside."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def existing(root: Path) -> tuple[CampaignFolder, Manifest]:
    """Open a campaign folder to read it; returns the contents of its ``campaign.json``, too."""
    folder = CampaignFolder(root.resolve())
    try:
        campaign = reading.read(folder.marker, Manifest, SCHEMA)
        if strange := [utc for each in campaign["requests"] if (utc := each.get("utc")) and not is_utc(utc)]:
            raise untrusted.UntrustedError(f"'utc' of a request is {strange[0]!r}")  # noqa: TRY301 - told as the rest
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"no campaign in {folder.root}", "name its folder, or start one: python -m campaign -m threads=1,2,4,8"
        ) from None
    except OSError as error:
        raise EnvironmentFaultError(f"cannot read {folder.marker}: {error.strerror}", "only its owner may") from error
    except untrusted.UntrustedError as error:
        raise EnvironmentFaultError(
            f"{folder.marker} is damaged: {error}", "move it away; the records beside it are complete without it"
        ) from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(
            f"{folder.marker} was written by a newer {TOOL} (schema {error.schema}, this one knows {SCHEMA})",
            f"update {TOOL}, or use another folder: campaign_dir=…",
        ) from error
    return folder, campaign


def opened(root: Path) -> tuple[CampaignFolder, Manifest]:
    """Open or create a campaign folder to work in: private to the user, and never somebody else's."""
    folder = CampaignFolder(root.resolve())
    try:
        if not folder.marker.exists():
            # Records whose campaign.json was moved away are whole without it.
            if folder.root.exists() and any(folder.root.iterdir()) and not folder.records.is_dir():
                raise UsageError(
                    f"{folder.root} holds files and no campaign", "choose an empty or a new folder: campaign_dir=…"
                )
            return _create(folder)
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot create the campaign folder {folder.root}: {error.strerror}",
            "choose a folder that you may write to: campaign_dir=…",
        ) from error
    _own(folder)
    return existing(root)


def _create(folder: CampaignFolder) -> tuple[CampaignFolder, Manifest]:
    folder.root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if folder.root.stat().st_uid == os.geteuid() and not any(folder.root.iterdir()):
        folder.root.chmod(_PRIVATE)  # an empty folder of the user's own becomes a campaign's
    _own(folder)
    for part in (folder.records, folder.workers):
        part.mkdir(mode=_PRIVATE, exist_ok=True)
    campaign: Manifest = {"schema": SCHEMA, "tool": TOOL, "requests": []}
    write_json(folder.marker, campaign)
    return folder, campaign


def _own(folder: CampaignFolder) -> None:
    """Refuse a folder that another user could have prepared, or could put another one in the place of."""
    if fault := files.distrust(folder.root):
        raise EnvironmentFaultError(fault, "choose a folder of yours: campaign_dir=…")


@contextmanager
def removed_if_refused(folder: CampaignFolder, *, is_new: bool) -> Iterator[None]:
    """Remove a new folder again where an error comes before a worker was given anything to do."""
    try:
        yield
    except CampaignError:
        if is_new and not any(folder.records.iterdir()) and not any(path.is_dir() for path in folder.workers.iterdir()):
            files.remove_tree(folder.root)
        raise


@contextmanager
def occupied(folder: CampaignFolder) -> Iterator[None]:
    """Hold the folder for one front process; a second one is refused."""
    lock = FileLock(folder.root / "campaign.lock")
    holder = folder.root / "campaign.lock.holder"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise EnvironmentFaultError(
            f"another campaign is running in {folder.root} ({_holder(holder)})",
            f"`python -m campaign watch {folder.root}` shows it; another folder is free: campaign_dir=…",
        ) from None
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot lock {folder.root}: {error.strerror}", "choose a folder that you may write to: campaign_dir=…"
        ) from error
    try:
        write_json(holder, {"pid": os.getpid(), "host": platform.node()})
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        who = reading.read(path, _Process)
        return f"process {who['pid']} on {who['host']}"
    except (OSError, ValueError):
        return "process unknown"
