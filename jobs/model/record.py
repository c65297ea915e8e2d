"""What a campaign leaves on disk: a record for each cell, and the list of what was asked for.

Annotations are evaluated here: `jobs.shapes` asks which keys are required.
"""

from typing import Literal, NotRequired, Required, TypedDict

from jobs.model.results import Check, Conditions, Run
from jobs.model.settings import Node, Settings
from jobs.model.terms import Terms

Status = Literal["running", "done", "failed", "invalid"]


class ProfileCost(TypedDict):
    """By how much profiles made runs longer: shares of the wall time without, of valid pairs of runs."""

    pairs: int
    median: float
    min: float
    max: float


class Access(TypedDict, total=False):
    """How jobs are kept apart on a storage."""

    shared: bool
    exclusive: str
    license: str | None
    device: str | None  # below an object store
    slow_device: str | None  # below one that snapshots drain to


class Data(TypedDict, total=False):
    """What a cell reads or writes."""

    path: str  # a folder, or the URL of what is below a key of an object store
    disk: str  # the device or folder below the object store, where it is on this machine
    folder: str  # of a baseline's file
    lock: str  # of its storage
    manifest: str  # the folder of the images' manifest
    checksum: str
    files: int
    bytes: int
    listed_ns: int  # the latest change (ctime) of any of the images when they were listed
    file: str | None  # of a baseline; None for one that is written
    block_bytes: int
    stripe: Node  # the layout on Lustre
    staged: Node  # which of the files are read from copies, and where these lie (`campaign.storage.datasets`)


class Submission(TypedDict, total=False):
    """The submission that a record's last session belongs to."""

    token: Required[str]
    words: list[str]
    submitted_utc: str
    order_seed: int
    size: str | None
    site: str
    position: int
    attempt: int  # how often ``retries`` has begun it again; 0 or missing at first


class Session(Submission, total=False):
    """One worker's time with a cell."""

    id: str
    started_utc: str
    slurm: dict[str, str]


class Provenance(TypedDict, total=False):
    """What a cell was measured on, by what; more keys than these are for the reader (`jobs.observe.machine_facts`)."""

    host: str
    engine: str
    emulated: dict[str, Node]
    conditions: Conditions
    filesystem: dict[str, str]
    target_filesystems: list[dict[str, str]]
    mount: dict[str, str] | str | None  # in words where nobody can tell
    versions: dict[str, str]
    slurm: dict[str, str]
    started_utc: str
    finished_utc: str | None


class Addition(TypedDict):
    """Why ``until_spread`` added a run: how well the median was known before it."""

    until_spread: float | None
    n: int
    interval: list[float] | None
    confidence: float | None
    width: float | None


class RecordedCell(TypedDict):
    """Which cell a record is of, and what its benchmark says of itself."""

    id: str
    benchmark: str
    benchmark_version: int
    settings: Settings
    kind: str
    claim: str  # the state of the page cache that a run has: cold, warm or as_is
    data: str  # what it reads: images, hdf5, file or nothing
    figure: str
    unit: str
    better: str


class Record(TypedDict):
    """``record.json``, schema 1: the only bridge to the analysis, held by a contract test."""

    cell: RecordedCell
    campaign: Submission
    dataset: Data
    provenance: Provenance
    terms: Terms  # of its last worker
    runs: list[Run]
    status: Status
    schema: NotRequired[int]
    sittings: NotRequired[list[Session]]
    checks: NotRequired[list[Check]]
    looser_checks: NotRequired[list[str]]
    profile_cost: NotRequired[ProfileCost]
    reason: NotRequired[str | None]


class Asked(TypedDict, total=False):
    """One call of the command, in ``campaign.json``."""

    token: str
    utc: str
    words: list[str]
    order_seed: int
    cells: list[str]
    terms: Terms  # by which its front judges
    mark: str  # of the user who gave it, in this folder (`campaign.cells.requests`)


class Manifest(TypedDict):
    """``campaign.json``."""

    schema: int
    tool: str
    requests: list[Asked]
