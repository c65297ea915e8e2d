"""Lay out the campaign folder, lock it for one process, and recognise the user's own requests in it.

A copied folder has the requests of another user. So each request is signed with a keyed hash over the request and the
path of its folder. Only the user has the key: ``~/.local/state/tfio-campaign/key`` (``XDG_STATE_HOME``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import platform
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from filelock import FileLock, Timeout

from campaign.cells.cell import make_cell
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError, environment_fault
from jobs.model import reading
from jobs.model.record import ODD_FIGURES, SCHEMA, Manifest, Record, RecordedCall
from jobs.system import files, untrusted
from jobs.system.clock import is_utc
from jobs.system.files import write_json

TOOL = "tfio-campaign"
_PRIVATE = 0o700
_ENOUGH_BYTES = 64 << 20  # free space that suffices for every record, so that the sizes of the records do not matter
_FIRST_RECORD_BYTES = 64 << 10  # space for the first record of a cell, with its logs


class _Process(TypedDict):
    """The campaign process that has locked the folder."""

    pid: int
    host: str


@dataclass(frozen=True)
class CampaignFolder:
    """The paths inside one campaign folder.

    ::

        results/
          campaign.json                    the requests; also marks the folder as a campaign folder
          records/<cell id>/record.json    one cell; written after each run
          records/<cell id>/lease.json     the session that may write the record
          records/<cell id>/run-<n>.log    what the run printed
          records/<cell id>/run-<n>.npz    lists of the run with one number per step
          records/<cell id>/trace-<n>.csv  the load of the system during the run
          records/<cell id>/profile-<n>.npz  POSIX calls of the run, if they are recorded
          records/<cell id>/tensorflow-<n>.npz  the events of TensorFlow's profiler, if they are recorded
          records/<cell id>/timelog-<n>.timelog  the times of the run's actions, if the benchmark logs them
          report.html figures/ tables/     made by the analysis
          comparison/                      comparison with another campaign, made by `compare`
          manifests/                       manifests of the user's own folders of images
          summaries.json                   summaries of the records: a cache (`campaign.cells.verdicts`)
          staging/                         which files to read from copies (`campaign.staging`)
          workers/<token>-<n>/             a batch: work lists, submitit's script, logs of the workers
    """

    root: Path

    @property
    def marker(self) -> Path:
        """Return the path of ``campaign.json``."""
        return self.root / "campaign.json"

    @property
    def records(self) -> Path:
        """Return the folder ``records/``, which has one folder for each cell."""
        return self.root / "records"

    @property
    def manifests(self) -> Path:
        """Return the folder of the manifests of the user's own data sets; nothing is written into the data sets."""
        return self.root / "manifests"

    def manifest(self, name: str) -> Path:
        """Create and return the folder for the manifest of one data set; the campaign folder itself must exist."""
        manifest_folder = self.manifests / hashlib.sha256(name.encode()).hexdigest()[:10]
        for folder in (self.manifests, manifest_folder):
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
        return manifest_folder

    @property
    def staging(self) -> Path:
        """Return the folder of the plan and the maps of staged copies (`campaign.staging`)."""
        return self.root / "staging"

    @property
    def workers(self) -> Path:
        """Return the folder of the batches (`campaign.worker.batch`)."""
        return self.root / "workers"

    def cell(self, cell_id: str) -> Path:
        """Return the folder of one cell."""
        return self.records / cell_id

    def record(self, cell_id: str) -> Path:
        """Return the path of ``record.json`` of one cell."""
        return self.cell(cell_id) / "record.json"

    def recorded_cells(self) -> list[str]:
        """Return the ids of the cells that have a record, sorted."""
        try:
            with os.scandir(self.records) as entries:
                return sorted(entry.name for entry in entries if os.path.lexists(f"{entry.path}/record.json"))
        except OSError:
            return []

    def lease(self, cell_id: str) -> Path:
        """Return the path of ``lease.json`` of one cell."""
        return self.cell(cell_id) / "lease.json"

    def write_hindrance(self) -> str:
        """Return the reason why workers cannot write their records, or an empty string if they can.

        Workers cannot report this reason themselves. An exhausted disk quota is not detected.
        """
        try:
            system = os.statvfs(self.root)
        except OSError as error:
            return f"{self.root} cannot be reached: {error.strerror}"
        if system.f_flag & os.ST_RDONLY:
            return f"{self.root} is read-only: workers wait to write their records"
        free = system.f_bavail * system.f_frsize
        if free < _ENOUGH_BYTES and free < self._needed_bytes():
            return f"{self.root} is full: workers wait to write their records"
        return ""

    def _needed_bytes(self) -> int:
        """Return the bytes that the next record needs; the old record is kept until the new record is complete."""
        largest = max(map(_file_size, self.records.glob("*/record.json")), default=0)
        return max(_FIRST_RECORD_BYTES, 2 * largest)

    @property
    def cancel_command(self) -> str:
        """Return the command that ends the jobs or the worker of the campaign, quoted for a shell."""
        return f"python -m campaign cancel {shlex.quote(str(self.root))}"

    def worker_lock(self) -> FileLock:
        """Return the lock that the only worker on a workstation holds while the worker runs in this folder."""
        return FileLock(self.workers / "worker.lock")

    def is_worker_running(self) -> bool | None:
        """Return whether a worker on this machine holds the worker lock; None if this user may not open the lock."""
        if not self.workers.is_dir():
            return False
        try:
            with self.worker_lock().acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return None


def _file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if the file has been removed."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def open_existing(root: Path) -> tuple[CampaignFolder, Manifest]:
    """Open a campaign folder for reading; return the folder and the content of its ``campaign.json``.

    Raises UsageError if the folder has no campaign. Raises EnvironmentFaultError if ``campaign.json`` is damaged,
    cannot be read, or was written by a newer version.
    """
    folder = CampaignFolder(files.resolve_links(root))
    try:
        campaign = reading.read_json(folder.marker, Manifest, SCHEMA)
        if wrong := [utc for request in campaign["requests"] if (utc := request.get("utc")) and not is_utc(utc)]:
            raise untrusted.UntrustedError(f"'utc' of a request is {wrong[0]!r}")  # noqa: TRY301 - as other damage
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"no campaign in {folder.root}",
            "name the folder of a campaign, or start a campaign: python -m campaign -m threads=1,2,4,8",
        ) from None
    except OSError as error:
        raise environment_fault(error, f"cannot read {folder.marker}") from error
    except untrusted.UntrustedError as error:
        raise EnvironmentFaultError(
            f"{folder.marker} is damaged: {error}", "move it away: the records in the folder do not need campaign.json"
        ) from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(
            f"{folder.marker} was written by a newer {TOOL} (schema {error.schema}, this version reads {SCHEMA})",
            f"update {TOOL}, or use another folder: campaign_dir=…",
        ) from error
    return folder, campaign


def resolve_campaign_folder(text: str) -> Path:
    """Return the path of a campaign folder with all links resolved; the folder need not exist.

    Raises UsageError if the path is a file. Raises EnvironmentFaultError if it is a link of another user, because that
    user could make the link point elsewhere.
    """
    path = Path(text).expanduser()
    with suppress(OSError):  # such an error is reported later, when the folder is opened
        if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
            raise EnvironmentFaultError(f"{path} is another user's link", "choose a folder of yours: campaign_dir=…")
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, not the folder of a campaign", "choose another name: campaign_dir=…")
    return files.resolve_links(path)


def open_or_create(root: Path) -> tuple[CampaignFolder, Manifest]:
    """Open or create a campaign folder for writing; return the folder and the content of its ``campaign.json``.

    The folder must belong to this user. A created folder is private (mode 0700).
    """
    folder = CampaignFolder(files.resolve_links(root))
    try:
        if not folder.marker.exists():
            # A folder with records is accepted although campaign.json was moved away: records do not need this file.
            names = {path.name for path in folder.root.iterdir()} if folder.root.exists() else set()
            # A process that was killed here has left the two empty folders.
            if names - {folder.records.name, folder.workers.name} and not folder.recorded_cells():
                raise UsageError(
                    f"{folder.root} has files, but no campaign", "choose an empty or a new folder: campaign_dir=…"
                )
            return _create(folder)
    except OSError as error:
        raise environment_fault(
            error,
            f"cannot create the campaign folder {folder.root}",
            "choose a folder that you may write to: campaign_dir=…",
        ) from error
    _require_own(folder)
    return open_existing(root)


def _create(folder: CampaignFolder) -> tuple[CampaignFolder, Manifest]:
    is_new = not folder.root.exists()
    folder.root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if folder.root.stat().st_uid == os.geteuid() and not any(folder.root.iterdir()):
        folder.root.chmod(_PRIVATE)  # an empty folder of this user becomes a private campaign folder
    _require_own(folder)
    campaign: Manifest = {"schema": SCHEMA, "tool": TOOL, "requests": []}
    try:
        for part in (folder.records, folder.workers):
            part.mkdir(mode=_PRIVATE, exist_ok=True)
        write_json(folder.marker, campaign)
    except OSError:
        for made in (folder.records, folder.workers, *([folder.root] if is_new else [])):
            with suppress(OSError):  # a folder with files stays
                made.rmdir()
        raise
    return folder, campaign


def _require_own(folder: CampaignFolder) -> None:
    """Refuse a folder that another user could have prepared, or could replace."""
    if fault := files.reason_to_distrust(folder.root):
        raise EnvironmentFaultError(fault, "choose a folder of yours: campaign_dir=…")


@contextmanager
def remove_if_refused(folder: CampaignFolder, *, is_new: bool) -> Iterator[None]:
    """Remove a new campaign folder if the code inside raises CampaignError before it writes a work list or record."""
    try:
        yield
    except CampaignError:
        if is_new and not any(folder.records.iterdir()) and not any(path.is_dir() for path in folder.workers.iterdir()):
            files.remove_tree(folder.root)
        raise


@contextmanager
def lock_folder(folder: CampaignFolder, what: str = "campaign") -> Iterator[None]:
    """Lock the campaign folder for one process while the code inside runs.

    `what` is the kind of the process: ``campaign`` or ``feed``. Raises EnvironmentFaultError if another process of the
    same kind has locked the folder.
    """
    lock = FileLock(folder.root / f"{what}.lock")
    holder = folder.root / f"{what}.lock.holder"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise EnvironmentFaultError(
            f"another {what} is running in {folder.root} ({_describe_holder(holder)})",
            f"watch it: python -m campaign status --watch {folder.root}; or use another folder: campaign_dir=…",
        ) from None
    except OSError as error:
        cure = "choose a folder that you may write to: campaign_dir=…"
        raise environment_fault(error, f"cannot lock {folder.root}", cure) from error
    try:
        write_json(holder, {"pid": os.getpid(), "host": platform.node()})
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _describe_holder(path: Path) -> str:
    """Return in words which process has locked the folder."""
    try:
        process = reading.read_json(path, _Process)
        return f"process {process['pid']} on {process['host']}"
    except (OSError, ValueError):
        return "unknown process"


_KEY_BYTES = 32
_NO_KEY = (OSError, RuntimeError)  # RuntimeError: the user has no home folder


def sign_request(root: Path, request: RecordedCall) -> RecordedCall:
    """Return a request with this user's signature. If no key can be stored, return the request without a signature."""
    with suppress(*_NO_KEY):
        return {**request, "mark": _signature(root, request)}
    return request


def is_own_request(root: Path, request: RecordedCall) -> bool:
    """Return whether this user made a request in this campaign folder."""
    with suppress(*_NO_KEY):
        return hmac.compare_digest(str(request.get("mark", "")).encode(), _signature(root, request).encode())
    return False


def last_own_request(root: Path, campaign: Manifest, recorded: Record) -> RecordedCall | None:
    """Return this user's last request for the cell of a record, or None if there is no such request.

    Also returns None if the id of the cell does not match its settings, because such a record was changed.
    """
    cell = recorded["cell"]["id"]
    with suppress(*ODD_FIGURES):
        point: Any = recorded["cell"]["settings"]
        if make_cell(point).id == cell:
            requests = (request for request in reversed(campaign["requests"]) if cell in request.get("cells", ()))
            return next((request for request in requests if is_own_request(root, request)), None)
    return None


def _signature(root: Path, request: RecordedCall) -> str:
    """Return the keyed hash over a request and the path of its campaign folder."""
    signed = [str(root), {key: value for key, value in request.items() if key != "mark"}]
    return hmac.new(_own_key(), json.dumps(signed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _own_key() -> bytes:
    """Return the user's secret key; create the key at its first use. Raises OSError if the key cannot be stored."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().resolve()
    path = state / "tfio-campaign" / "key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        new = path.with_name(f".key.{secrets.token_hex(8)}")
        with files.write_whole(new, mode=0o600) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            with suppress(FileExistsError):  # another process was faster; a hard link never exposes a half-written key
                path.hardlink_to(new)
        finally:
            files.remove(new)
    key = files.read_file(path, owner=os.geteuid())
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is no key")
    return key
