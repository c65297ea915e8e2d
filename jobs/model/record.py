"""The files of a campaign: a record per cell, and the manifest with the requests.

Annotations are evaluated here: `jobs.model.reading` holds what was read against them.
"""

from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypedDict

from jobs.model.codes import Wait
from jobs.model.results import Check, Conditions, Role, Run
from jobs.model.settings import Node, Settings
from jobs.model.terms import Terms
from jobs.model.values import Amount, Count, Line, Name, Nested, Number, Word

SCHEMA = 1
if TYPE_CHECKING:
    Status = Literal["running", "ended", "done", "failed", "invalid", "unfinished"]
else:
    Status = Literal["running", "ended"]
"""On disk a record is running or ended; the others are verdicts, which are in memory alone."""


class ProfileCost(TypedDict):
    """The cost of a profile over the valid pairs of runs, as shares of the wall time without it."""

    pairs: Count
    median: Number
    min: Number
    max: Number


class Access(TypedDict, total=False):
    """What prevents jobs from using a storage at the same time."""

    shared: bool
    exclusive: str
    license: str | None
    device: str | None  # below an object store
    slow_device: str | None  # below one that snapshots drain to


class Data(TypedDict, total=False):
    """The data that a cell reads or writes."""

    path: str  # a folder, or the URL of what is below a key of an object store
    disk: str  # the device or folder below the object store, where it is on this machine
    folder: str  # of a baseline's file
    lock: str  # of its storage
    manifest: str  # the folder of the images' manifest
    checksum: str
    files: Count
    bytes: Count
    listed_ns: Count  # the latest change (ctime) of any of the images when they were listed
    file: str | None  # of a baseline; None for one that is written
    block_bytes: Count
    stripe: Node  # the layout on Lustre
    staged: Node  # which of the files are read from copies, and where these lie (`campaign.storage.datasets`)


class Submission(TypedDict, total=False):
    """The submission that a record's last session belongs to."""

    token: Required[str]
    words: list[str]
    submitted_utc: str
    order_seed: int
    size: Word | None
    site: Word
    position: Count
    attempt: Count  # how often ``retries`` has begun it again; 0 or missing at first


class Session(Submission, total=False):
    """One worker's time with a cell."""

    id: str
    started_utc: str
    slurm: dict[str, str]


class Provenance(TypedDict, total=False):
    """The machine and the software of a measurement; other keys are for people only (`jobs.observe.machine_facts`)."""

    host: Word
    engine: Line
    quota_cores: Amount | None
    emulated: dict[Word, Nested]
    conditions: Conditions
    filesystem: dict[str, str]
    target_filesystems: list[dict[str, Any] | Word]
    mount: dict[str, Any] | Word | None  # in words where nobody can tell
    device: dict[str, Any] | Word | None
    versions: dict[str, Word]
    slurm: dict[str, str]
    started_utc: str
    finished_utc: str | None


if TYPE_CHECKING:
    RecordedRun = Run
    PageCache = str
    Reads = str
else:
    PageCache = Literal["cold", "warm", "as_is"]
    Reads = Literal["images", "files", "hdf5", "file", "nothing"]

    class RecordedRun(Run):
        """A run that was begun, and so is numbered."""

        run: Required[Count]
        role: Required[Role]
        status: Required[Literal["running", "ended", "failed"]]  # valid and invalid are verdicts


class RecordedCell(TypedDict):
    """The cell of a record, and facts of its benchmark; ``figure`` is the key of its main metric in the runs."""

    id: Name
    benchmark: Line
    benchmark_version: Count
    settings: Settings
    kind: Literal["storage", "pipeline", "training", "program"]
    page_cache: PageCache  # the state of the page cache that a run has
    data: Reads
    figure: Line
    unit: Line
    better: Literal["higher", "lower"]


class Record(TypedDict):
    """``record.json``, schema 1: the only bridge to the analysis, held by a contract test."""

    cell: RecordedCell
    campaign: Submission
    dataset: Data
    provenance: Provenance
    terms: Terms  # of its last worker
    runs: list[RecordedRun]
    status: Status
    schema: NotRequired[Count]
    sittings: NotRequired[list[Session]]
    waits_for: NotRequired[Wait | None]  # its worker, before the next run
    checks: NotRequired[list[Check]]
    looser_checks: NotRequired[list[Word]]
    profile_cost: NotRequired[ProfileCost]
    reason: NotRequired[str | None]
    cause: NotRequired[str | None]  # of most of the runs that do not count


class Asked(TypedDict, total=False):
    """One call of the command, in ``campaign.json``."""

    token: str
    utc: str
    words: list[str]
    order_seed: int
    cells: list[Name]
    terms: Terms  # by which its front judges
    mark: str  # of the user who gave it, in this folder (`campaign.cells.requests`)


class Manifest(TypedDict):
    """``campaign.json``."""

    schema: int
    tool: str
    requests: list[Asked]
