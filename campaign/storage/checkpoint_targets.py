"""Find the folders to which cells save snapshots; a checkpoint target has one or two storages.

A cell has its own snapshot folder below the root of each storage of its checkpoint target.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from campaign.cells.folder import CampaignFolder
from campaign.errors import EnvironmentFaultError
from campaign.storage.locks import lock_path
from campaign.storage.objects import IMPATIENT, bucket_lock
from campaign.storage.roots import own_folder, own_path, path_on_rank, storage_root
from jobs.checkpoints.lease import ONLY
from jobs.checkpoints.run_snapshots import FOLDER, storages_by_role
from jobs.checkpoints.snapshots import Snapshots
from jobs.errors import JobError
from jobs.model.conduct import Conduct
from jobs.model.record import Record
from jobs.model.settings import Node, Settings
from jobs.model.work import SnapshotRequest, WorkItem
from jobs.objects.address import address_below, address_of, storage_of
from jobs.objects.client import Client
from jobs.store.bucket import Bucket
from jobs.system.device import Mount, mount_of
from jobs.system.files import resolve_links


def target_roots(settings: Settings) -> list[str]:
    """Return the absolute roots of a checkpoint target's storages; a relative root is below the current folder."""
    return [
        root if "://" in (root := storage["root"]) else str(resolve_links(root))
        for storage in target_storages(settings).values()
    ]


def target_storages(settings: Settings) -> dict[str, Node]:
    """Return the storages of a checkpoint target by role (``fast``, ``slow`` or ``only``); empty for a baseline."""
    return storages_by_role(settings["checkpoint"]) if "checkpoint" in settings else {}


def require_storages(settings: Settings) -> None:
    """Raise EnvironmentFaultError if a storage of the checkpoint target is missing; create a relative root."""
    for role, storage in target_storages(settings).items():
        if "://" in storage["root"]:
            try:
                Snapshots(Bucket.at(address_below(storage["root"], FOLDER))).states()
            except JobError as error:
                raise EnvironmentFaultError(error.message, error.hint) from error
        else:
            own_folder(storage_root(storage, settings_key(role)), FOLDER, settings_key(role))


def settings_key(role: str) -> str:
    """Return the settings key of the checkpoint storage with a role, for example ``checkpoint.fast``."""
    return "checkpoint" if role == ONLY else f"checkpoint.{role}"


def used_paths(item: WorkItem) -> Sequence[str]:
    """Return the paths that a cell of a work list uses: its data, the staged copies, and the checkpoint roots.

    For data in an object store, the path is the disk that ``storage.device`` names. Without ``storage.device``, such
    data have no path on this machine.
    """
    data, settings = item["dataset"], item["settings"]
    path = data.get("disk", "") if "://" in data["path"] else data.get("folder", data["path"])
    paths = (path_on_rank(path, settings["storage"], rank) for rank in range(settings.get("nodes", 1)) if path)
    return [*dict.fromkeys(paths), *_copies(item), *_folders(item["targets"])]


def _folders(targets: Sequence[str]) -> list[str]:
    return [root for root in targets if "://" not in root]


def _copies(item: WorkItem) -> list[str]:
    return [staged["root"]] if (staged := item["dataset"].get("staged")) else []


def moved_path_sentence(item: WorkItem) -> str | None:
    """Return an error message if a path of the cell is now on another mount than at this worker's first run.

    Return None if all paths are on the same mounts as before.
    """
    for root in used_paths(item):
        first, present = _first_mount(root), mount_of(Path(root))
        if (first.point, first.source) != (present.point, present.source):
            return (
                f"{root} was on {first.source} (mounted at {first.point}) when the worker started, but is on"
                f" {present.source} now; mount {first.source} again and repeat the command"
            )
    return None


@lru_cache
def _first_mount(root: str) -> Mount:
    return mount_of(Path(root))


def target_locks(item: WorkItem, folder: CampaignFolder) -> Sequence[Path]:
    """Return the lock files for a cell's staged copies and checkpoint storages, without the lock of its dataset."""
    paths = [lock_path(Path(root), folder.root) for root in (*_copies(item), *_folders(item["targets"]))]
    paths += [bucket_lock(storage_of(root), item["access"], folder) for root in item["targets"] if "://" in root]
    return [lock for lock in paths if str(lock) != item["dataset"]["lock"]]


def leftover_folders(recorded: Record) -> list[Path]:
    """Return the folders with snapshots that an interrupted run of a cell has left; the next run removes them."""
    return [folder for folder in _snapshot_folders(recorded) if folder.is_dir()]


def _snapshot_folders(recorded: Record) -> list[Path]:
    cell = recorded["cell"]
    existing_roots = [root for root in map(Path, _folders(target_roots(cell["settings"]))) if root.is_dir()]
    return [own_path(root, FOLDER) / cell["id"] for root in existing_roots]


def campaign_id(folder: CampaignFolder, first: str) -> str:
    """Return the name of a campaign in a bucket, computed from the token `first` of its first request and its folder.

    The folder alone is not unique, because other machines have the same paths. The token alone is not unique either,
    because a copied campaign folder has the same token.
    """
    return hashlib.sha256(f"{first} {folder.root}".encode()).hexdigest()[:12]


def leftover_objects(recorded: Sequence[Record], campaign: str) -> Iterator[str]:
    """Yield one sentence for each cell whose interrupted run has left snapshots in a bucket.

    The objects of a bucket are listed once, with the credentials of the present user.
    """
    records_by_root: dict[str, list[Record]] = {}
    for record in recorded:
        for root in target_roots(record["cell"]["settings"]):
            if "://" in root:
                records_by_root.setdefault(root, []).append(record)
    for root, records in records_by_root.items():
        address = address_below(root, FOLDER, campaign)
        try:
            listed = Client({**storage_of(address), **IMPATIENT}).list_objects()
            objects_by_cell = Counter(stored.key.partition("/")[0] for stored in listed)
        except JobError as error:
            yield f"warning: cannot list the snapshots of interrupted runs in {address}: {error}"
            continue
        for record in records:
            if count := objects_by_cell[record["cell"]["id"]]:
                yield _describe_left_objects(record, address_below(address, record["cell"]["id"]), count)


def _describe_left_objects(recorded: Record, address: str, objects: int) -> str:
    fast = next(iter(_snapshot_folders(recorded)), Path("FAST"))
    sentence = f"an interrupted run has left snapshots in {address} ({objects} objects):"
    flags = [] if fast.is_dir() else ["--gone"]
    command = shlex.join(["python", "-m", "jobs.burst_buffer", "clear", *flags, str(fast), address])
    return f"{sentence} the next run of the cell removes the snapshots, or: {command}"


def snapshot_request(item: WorkItem, conduct: Conduct, campaign_id: str) -> SnapshotRequest | None:
    """Return the folders for the snapshots of a run (`run_snapshots.open_target`), or None if the run saves none.

    A bucket has no locks, so each campaign has its own prefix in a bucket (`campaign_id`).
    """
    if not item["targets"]:
        return None
    targets = zip(item["targets"], target_storages(item["settings"]), strict=True)
    folders = [_folder(root, role, item, campaign_id) for root, role in targets]
    return {"folders": folders, "drain_timeout_s": conduct["drain_timeout_s"], "leave": False}


def _folder(root: str, role: str, item: WorkItem, campaign_id: str) -> str:
    if "://" not in root:
        return str(own_folder(Path(root), FOLDER, settings_key(role)) / item["id"])
    storage = storage_of(address_below(root, FOLDER, campaign_id, item["id"]))
    return address_of({**storage, "device": item["access"].get("slow_device")})
