"""Declare the work list of a worker, and the request that a worker sends to one run.

Annotations are evaluated here: `jobs.model.reading` asks which keys are required.
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
    root: NotRequired[str | None]  # of its storage, absolute: a worker starts in another folder; None: it has none
    position: int
    missing: int
    at_most: int


class ListedItem(_Item):
    """A cell of a work list; ``dataset`` is None if the worker itself makes it."""

    dataset: Data | None


class WorkItem(_Item):
    """One cell of a work list whose data exist."""

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
    to_make: NotRequired[list[ListedItem]]  # cells of other lists, whose data this worker makes
    attempt: NotRequired[int]


class TraceRequest(TypedDict):
    """The system trace: its file, the seconds between samples and the seconds after the last step."""

    file: str
    interval_s: float
    tail_s: float


class SnapshotRequest(TypedDict):
    """The folders that snapshots go to, and how long their drain may take.

    ``folders`` in the order of `jobs.checkpoints.run_snapshots.roles`; ``drain_timeout_s``; ``leave``: none is removed.
    """

    folders: list[str]
    drain_timeout_s: float
    leave: bool


class FileRequest(TypedDict):
    """The file that a baseline reads or writes.

    ``file`` of ``file_bytes``, one request of ``block_bytes``; ``raw``: where the engine's own output is kept, or None.
    """

    file: str
    file_bytes: int
    block_bytes: int
    raw: str | None


class RankRequest(TypedDict):
    """The place of a run among ``size`` ranks, who meet at ``hub``:``port`` and prove there that they know ``secret``.

    ``sync``: what a step does; ``address`` of this rank's node, for the others; ``timeout_s``: how long one is waited
    for.
    """

    rank: int
    size: int
    sync: str
    hub: str
    port: int
    secret: str
    address: str
    timeout_s: float


class Request(TypedDict, total=False):
    """The request for one run.

    ``settings`` of the cell; ``dataset``, the folder of the images,
    and ``manifest``, the folder of their ``manifest.json``; ``trace`` and ``checkpoint``, None for none; ``profile``,
    the file of a profile, for settings that ask for one, None for a run without it; ``tensorflow``, that of TensorFlow
    itself; ``timelog``, that of a time log, for a benchmark that writes one; ``steps``, that of the lists of steps;
    ``baseline``, what a benchmark of a file reads or writes; ``listed_ns``, the latest change (ctime) of any
    file of the data set when it was listed; ``staged``, the map of its files that are read from copies
    (`jobs.data.staged_copies`); ``disk``, the device or folder below an object store, where it is on this machine;
    ``rank``, of a run that is one of several; ``limit_s``, the longest time that a program of the user's may run, None
    for any.
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
