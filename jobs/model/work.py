"""Declarations of the work list of a worker, and of the request that a worker sends to one run.

Annotations are evaluated in this module, because `jobs.model.reading` needs the required keys.
"""

from __future__ import annotations

from typing import NotRequired, Required, TypedDict

from jobs.model.conduct import Conduct
from jobs.model.record import Access, Data
from jobs.model.settings import Settings


class _Item(TypedDict):
    id: str
    benchmark: str
    version: int
    settings: Settings
    access: Access
    targets: list[str]
    root: NotRequired[
        str | None
    ]  # absolute path of its storage, because a worker starts in another folder; None: it has none
    position: int
    missing: int
    at_most: int


class ListedItem(_Item):
    """A cell of a work list; ``dataset`` is None if the worker makes it."""

    dataset: Data | None


class WorkItem(_Item):
    """One cell of a work list whose data exists."""

    dataset: Data


class WorkList(TypedDict):
    """The work list of a worker; ``cluster`` is slurm, local or debug."""

    token: str
    words: list[str]
    submitted_utc: str
    campaign_dir: str
    campaign_id: str
    cluster: str
    conduct: Conduct
    cells: list[ListedItem]
    to_make: NotRequired[list[ListedItem]]  # cells of other lists whose data this worker makes
    attempt: NotRequired[int]


class TraceRequest(TypedDict):
    """The system trace: its file, the seconds between samples and the seconds after the last step."""

    file: str
    interval_s: float
    tail_s: float


class SnapshotRequest(TypedDict):
    """The folders of the snapshots, and the longest time of their drain.

    ``folders`` are in the order of `jobs.checkpoints.run_snapshots.storages_by_role`. With ``leave`` the
    snapshots are not removed.
    """

    folders: list[str]
    drain_timeout_s: float
    leave: bool


class FileRequest(TypedDict):
    """The file that a baseline reads or writes.

    ``file`` has ``file_bytes`` bytes, one request ``block_bytes``. ``raw`` is the file for the engine's output, or
    None.
    """

    file: str
    file_bytes: int
    block_bytes: int
    raw: str | None


class RankRequest(TypedDict):
    """A run as one of ``size`` ranks, which meet at ``hub``:``port`` and prove there that they know ``secret``.

    ``sync`` is the work of the ranks after each step; ``address`` is that of this rank's node, for the others;
    ``timeout_s`` is the longest wait for a rank.
    """

    rank: int
    size: int
    sync: str
    hub: str
    port: int
    secret: str
    address: str
    timeout_s: float


class RunRequest(TypedDict, total=False):
    """The request for one run.

    - ``settings``: those of the cell;
    - ``dataset``, ``manifest``: the folder of the images, and the folder of their ``manifest.json``;
    - ``trace``, ``checkpoint``: None for none;
    - ``profile``, ``tensorflow``: files for the profile, and for that of TensorFlow; None without a profile;
    - ``timelog``, ``steps``: files for the time log of a benchmark that writes one, and for the lists per step;
    - ``baseline``: the file that a benchmark of a file reads or writes;
    - ``listed_ns``: the latest change (ctime) of any file of the data set when it was listed;
    - ``staged``: the map of its files that are read from copies (`jobs.data.staged_copies`);
    - ``disk``: the device or folder of an object store, if it is on this machine;
    - ``rank``: for a run that is one of several ranks;
    - ``limit_s``: the longest time of a user's program; None without a limit.
    """

    settings: Required[Settings]
    dataset: str
    manifest: str | None
    trace: TraceRequest | None
    profile: str | None
    tensorflow: str | None
    timelog: str | None
    steps: str | None
    checkpoint: SnapshotRequest | None
    baseline: FileRequest | None
    listed_ns: int | None
    staged: str | None
    limit_s: float | None
    disk: str | None
    rank: RankRequest
