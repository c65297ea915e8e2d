"""Where the snapshots of a cell go: a folder of its own below the root of each storage of its checkpoint target."""

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
from campaign.storage.roots import own_folder, place, seen_by, storage_root
from jobs.burst_buffer.bucket import Bucket
from jobs.checkpoints.run_snapshots import FOLDER, ONLY, roles
from jobs.errors import FolderError, JobError
from jobs.model.conduct import Conduct
from jobs.model.record import Record
from jobs.model.request import SnapshotRequest
from jobs.model.settings import Node, Settings
from jobs.model.work import WorkItem
from jobs.objects.address import address_of, below, storage_of
from jobs.objects.client import Client
from jobs.system.device import Mount, mount_of


def roots(settings: Settings) -> list[str]:
    """Return the roots for a work list, absolute: a relative one is below the folder the campaign is started from."""
    return [
        root if "://" in (root := each["root"]) else str(Path(root).expanduser().resolve())
        for each in storages(settings).values()
    ]


def storages(settings: Settings) -> dict[str, Node]:
    """Return the storages that snapshots go to; a baseline has none."""
    return roles(settings["checkpoint"]) if "checkpoint" in settings else {}


def require_storages(settings: Settings) -> None:
    """See that the storages are there; a relative root is made, as that of a dataset's storage, and a bucket listed."""
    for role, storage in storages(settings).items():
        if "://" in storage["root"]:
            _require_bucket(storage["root"])
            continue
        own_folder(storage_root(storage, key_of(role)), FOLDER, key_of(role))


def _require_bucket(address: str) -> None:
    try:
        Bucket(below(address, FOLDER)).sealed()
    except FolderError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error


def key_of(role: str) -> str:
    """Return the key of a storage of a checkpoint target in the settings."""
    return "checkpoint" if role == ONLY else f"checkpoint.{role}"


def places(item: WorkItem) -> Sequence[str]:
    """List what a cell of a work list uses: where its data and their copies lie, and its checkpoint target's roots.

    Objects lie on the disk that is named for them (``storage.device``), or nowhere that is seen from here.
    """
    data, settings = item["dataset"], item["settings"]
    path = data.get("disk", "") if "://" in data["path"] else data.get("folder", data["path"])
    seen = (seen_by(path, settings["storage"], rank) for rank in range(settings.get("nodes", 1)) if path)
    return [*dict.fromkeys(seen), *_copies(item), *_folders(item["targets"])]


def _folders(targets: Sequence[str]) -> list[str]:
    return [root for root in targets if "://" not in root]


def _copies(item: WorkItem) -> list[str]:
    return [staged["root"]] if (staged := item["dataset"].get("staged")) else []


def moved(item: WorkItem) -> str | None:
    """Return what is on another storage than at this worker's first run: below a mount there is a folder too."""
    for root in places(item):
        then, now = _began_on(root), mount_of(Path(root))
        if (then.point, then.source) != (now.point, now.source):
            return (
                f"{root} was on {then.source} (mounted at {then.point}) when this began and is on {now.source} now;"
                " mount it again, and the same command continues"
            )
    return None


@lru_cache
def _began_on(root: str) -> Mount:
    return mount_of(Path(root))


def locks(item: WorkItem, folder: CampaignFolder) -> Sequence[Path]:
    """Return the locks of the storages of a work list's cell, without that of its dataset's."""
    found = [lock_path(Path(root), folder.root) for root in (*_copies(item), *_folders(item["targets"]))]
    found += [bucket_lock(storage_of(root), item["access"], folder) for root in item["targets"] if "://" in root]
    return [lock for lock in found if str(lock) != item["dataset"]["lock"]]


def left(recorded: Record) -> list[Path]:
    """List the folders of snapshots that a cell's last run, which was cut, could not take away; its next run does."""
    return [folder for folder in _places(recorded) if folder.is_dir()]


def _places(recorded: Record) -> list[Path]:
    cell = recorded["cell"]
    there = [root for root in map(Path, _folders(roots(cell["settings"]))) if root.is_dir()]
    return [place(root, FOLDER) / cell["id"] for root in there]


def campaign_id(folder: CampaignFolder, first: str) -> str:
    """Name a campaign in a bucket, by the token of its first request.

    Other machines have the same paths, and a copied folder has the same token.
    """
    return hashlib.sha256(f"{first} {folder.root}".encode()).hexdigest()[:12]


def left_in_buckets(recorded: Sequence[Record], campaign: str) -> Iterator[str]:
    """Yield in words what the last runs of cells, which were cut, could not take away from buckets.

    Each bucket is asked once, with the credentials of whoever asks here.
    """
    of: dict[str, list[Record]] = {}
    for each in recorded:
        for root in roots(each["cell"]["settings"]):
            if "://" in root:
                of.setdefault(root, []).append(each)
    for root, records in of.items():
        address = below(root, FOLDER, campaign)
        try:
            keys = Counter(_first_names(address))
        except JobError as error:
            yield f"warning: whether a run that was cut left snapshots in {address} cannot be seen: {error}"
            continue
        for each in records:
            if count := keys[each["cell"]["id"]]:
                yield _in_bucket(each, below(address, each["cell"]["id"]), count)


def _in_bucket(recorded: Record, address: str, objects: int) -> str:
    fast = next(iter(_places(recorded)), Path("FAST"))
    said = f"snapshots of a run that was cut are left in {address} ({objects} objects):"
    gone = [] if fast.is_dir() else ["--gone"]
    clear = shlex.join(["python", "-m", "jobs.burst_buffer", "clear", *gone, str(fast), address])
    return f"{said} the next run of its cell removes them, or: {clear}"


def _first_names(address: str) -> Iterator[str]:
    impatient = {**storage_of(address), **IMPATIENT}
    return (each.key.partition("/")[0] for each in Client(impatient).listed())


def request(item: WorkItem, conduct: Conduct, campaign_id: str) -> SnapshotRequest | None:
    """Return where the snapshots of a run go, as `jobs.checkpoints.run_snapshots.opened` reads it.

    None for a cell that saves nothing. A bucket has no locks: there a campaign has its own place (`campaign_id`).
    """
    if not item["targets"]:
        return None
    targets = zip(item["targets"], storages(item["settings"]), strict=True)
    folders = [_folder(root, role, item, campaign_id) for root, role in targets]
    return {"folders": folders, "drain_timeout_s": conduct["drain_timeout_s"], "leave": False}


def _folder(root: str, role: str, item: WorkItem, campaign_id: str) -> str:
    if "://" not in root:
        return str(own_folder(Path(root), FOLDER, key_of(role)) / item["id"])
    found = storage_of(below(root, FOLDER, campaign_id, item["id"]))
    return address_of({**found, "device": item["access"].get("slow_device")})
