"""Declare the types of the work list of a worker, and of the request that a worker sends to one run.

`jobs.model.reading` evaluates the annotations in this module at run time, to know which keys are required.
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
    # absolute path of the storage, because the worker starts in another folder; None if the storage has no folder
    root: NotRequired[str | None]
    position: int  # position of the cell in the order of the campaign
    missing: int  # number of runs that the cell still needs
    at_most: int  # largest number of runs that the worker may add to the cell


class ListedItem(_Item):
    """A cell of a work list; ``dataset`` is None if the worker must generate the dataset."""

    dataset: Data | None


class WorkItem(_Item):
    """A cell of a work list whose dataset exists."""

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
    to_make: NotRequired[list[ListedItem]]  # cells of other work lists whose dataset this worker generates
    attempt: NotRequired[int]


class TraceRequest(TypedDict):
    """The request for a system trace: the file, the time between samples, and the time to trace after the last step."""

    file: str
    interval_s: float
    tail_s: float


class SnapshotRequest(TypedDict):
    """The request for snapshots: the folders, and the longest time for copying snapshots to the slow storage.

    ``folders`` are in the order of `jobs.checkpoints.run_snapshots.storages_by_role`. If ``leave`` is true, the
    snapshots stay after the run.
    """

    folders: list[str]
    drain_timeout_s: float
    leave: bool


class FileRequest(TypedDict):
    """The file that a baseline reads or writes.

    ``file`` has ``file_bytes`` bytes, and every request has ``block_bytes`` bytes. The output of the engine is saved in
    the file ``raw``, or is not saved if ``raw`` is None.
    """

    file: str
    file_bytes: int
    block_bytes: int
    raw: str | None


class RankRequest(TypedDict):
    """The request for one rank of a run with ``size`` ranks.

    All ranks connect to ``hub``:``port`` and prove that they know ``secret``. ``sync`` is the synchronization after
    each step. Other ranks reach this rank's node at ``address``. ``timeout_s`` is the longest wait for a rank.
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

    - ``settings``: the settings of the cell;
    - ``dataset``: the folder of the data;
    - ``manifest``: the folder of ``manifest.json``, which lists the images;
    - ``trace``: the request for a system trace; None for a run without a trace;
    - ``checkpoint``: the request for snapshots; None for a run without snapshots;
    - ``profile``: the file for the profile of the POSIX calls; None for a run without a profile;
    - ``tensorflow``: the file for the profile by TensorFlow's profiler; None for a run without this profile;
    - ``timelog``: the file for the time log, if the benchmark writes a time log;
    - ``steps``: the file for lists with one value per step;
    - ``baseline``: the file that benchmark=baseline reads or writes;
    - ``listed_ns``: the latest time at which a file of the data set had changed (ctime) when the files were listed;
    - ``staged``: the file that lists which files are read from copies (`jobs.data.staged_copies`);
    - ``disk``: the device or folder of an object store on this machine;
    - ``rank``: the request for this rank, if the run has several ranks;
    - ``limit_s``: the longest duration of a user's program; None for no limit.
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
