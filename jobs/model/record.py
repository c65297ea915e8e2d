"""Declare the types of a campaign's files (record.json, campaign.json); find contradictions in records.

A verdict depends on the raw metrics of the runs and on the terms, for example the limits of the checks. A contradiction
is a set of legal values that cannot be true together, for example a rate that differs from amount / time.

The annotations in this module are evaluated at run time, because `jobs.model.reading` checks files against these types.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypedDict

from jobs.model.codes import Wait
from jobs.model.conduct import Conduct, Limits, Runs, Share, Tolerances, WarmUps
from jobs.model.reading import Amount, Count, Line, Name, Nested, Word, first_unprintable
from jobs.model.results import Check, Conditions, Role, Run
from jobs.model.settings import Node, Settings

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that a hand-edited record can cause, because metrics are missing or are not numbers."""
SITE_LIMIT_NAMES = (
    Tolerances.__struct_fields__
)  # the limits that a site can change; all other limits have a fixed default


if TYPE_CHECKING:
    OfChecks = dict[str, float]
    OfSite = dict[str, float]
else:
    OfChecks, OfSite = Limits, Tolerances


class Terms(TypedDict):
    """The terms of a verdict: the limits of the checks, and the required numbers of runs."""

    checks: OfChecks  # limits of the cell
    of_site: OfSite  # limits that the site has set; a verdict names the cell's limits that are looser
    runs: Runs  # number of runs, including the warm-up runs
    warmup_runs: WarmUps
    min_valid_runs: Runs  # required number of valid measured runs
    max_runs: Runs  # largest number of runs if `until_spread` adds runs, including the warm-up runs
    until_spread: Share | None  # largest width of the confidence interval of the median, as a share of the median


def terms_of_conduct(conduct: Conduct) -> Terms:
    """Return the terms of a verdict that a configuration sets."""
    site: dict[str, float] = {**conduct["site"]}
    return {
        "checks": conduct["checks"],
        "of_site": {name: site[name] for name in SITE_LIMIT_NAMES if name in site},
        "runs": conduct["runs"],
        "warmup_runs": conduct["warmup_runs"],
        "min_valid_runs": conduct["min_valid_runs"],
        "max_runs": conduct["max_runs"],
        "until_spread": conduct["until_spread"],
    }


SCHEMA = 1
if TYPE_CHECKING:
    Status = Literal["running", "ended", "done", "failed", "invalid", "unfinished"]
else:
    Status = Literal["running", "ended"]
"""The status of a record. A stored record is running or ended; all other values are verdicts, which are not stored."""


class Access(TypedDict, total=False):
    """Method that keeps two jobs from using a storage at the same time."""

    shared: bool
    exclusive: str
    license: str | None
    device: str | None  # disk of an object store
    slow_device: str | None  # disk of the object store to which a burst buffer copies snapshots


class Data(TypedDict, total=False):
    """The data that a cell reads or writes."""

    path: str  # a folder, or the URL of a prefix in an object store
    disk: str  # device or folder of the object store; missing if the object store is on another machine
    folder: str  # folder of the file that a baseline reads or writes
    lock: str  # path of the lock file of the storage
    manifest: str  # folder of the manifest, which lists the images
    checksum: str
    files: Count
    bytes: Count
    left_out: dict[Word, Count]  # number of files beside the images that no run reads, by suffix
    rows_read: Count  # rows of the HDF5 data set of the user's own files that are read, and the number of its rows
    rows: Count
    file_share: Amount  # share of a file's bytes that these rows take
    listed_ns: Count  # latest time at which an image had changed (ctime) when the images were listed
    file: str | None  # file that a baseline reads; None if the run writes a new file
    block_bytes: Count
    stripe: Node  # the layout on Lustre
    staged: Node  # the files that are read from copies, and the folder of the copies (`campaign.storage.datasets`)


class Submission(TypedDict, total=False):
    """The submission that started the last session of a record."""

    token: Required[str]  # random id of the submission
    words: list[str]  # words of the command line
    submitted_utc: str
    order_seed: int
    size: Word | None
    site: Word
    position: Count  # position of the cell in the order of the campaign
    attempt: Count  # how often ``retries`` has repeated the cell


class Session(Submission, total=False):
    """The work of one worker on a cell."""

    id: str
    started_utc: str
    slurm: dict[str, str]


class Provenance(TypedDict, total=False):
    """The machine and the software of a measurement. `jobs.observe.conditions` adds further keys about the machine."""

    host: Word
    engine: Line
    quota_cores: Amount | None
    emulated: dict[Word, Nested]
    conditions: Conditions
    filesystem: dict[str, str]
    target_filesystems: list[dict[str, Any] | Word]
    mount: dict[str, Any] | Word | None  # the text "unknown" if the mount is unknown
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
        """A run that has begun and has a number."""

        run: Required[Count]
        role: Required[Role]
        status: Required[Literal["running", "ended", "failed"]]  # "valid" and "invalid" are verdicts, not stored


class RecordedCell(TypedDict):
    """The cell of a record, and facts of the benchmark; ``figure`` is the key of the main metric of a run."""

    id: Name
    benchmark: Line
    benchmark_version: Count
    settings: Settings
    kind: Literal["storage", "pipeline", "training", "program"]
    page_cache: PageCache  # the required state of the page cache
    data: Reads
    figure: Line
    unit: Line
    better: Literal["higher", "lower"]


class Record(TypedDict):
    """The content of ``record.json``, schema 1. The campaign writes records, and the analysis reads records.

    A contract test checks the format of records.
    """

    cell: RecordedCell
    campaign: Submission
    dataset: Data
    provenance: Provenance
    terms: Terms  # the terms that the last worker of the cell used
    runs: list[RecordedRun]
    status: Status
    schema: NotRequired[Count]
    sittings: NotRequired[list[Session]]
    waits_for: NotRequired[Wait | None]  # what the worker waits for before the next run; None if it does not wait
    checks: NotRequired[list[Check]]
    looser_checks: NotRequired[list[Word]]
    reason: NotRequired[str | None]
    cause: NotRequired[str | None]  # the most frequent cause of runs that do not count


class RecordedCall(TypedDict, total=False):
    """A call of the command, as stored in ``campaign.json``."""

    token: str
    utc: str
    words: list[str]
    command: list[str]  # the verb and the arguments that the user typed, if `words` were made from them
    order_seed: int
    cells: list[Name]
    terms: Terms  # the terms of a verdict that the configuration of the call set
    mark: str  # signature that only the user who called the command can make (`campaign.cells.folder`)


class Manifest(TypedDict):
    """The content of ``campaign.json``: all calls of the command for this campaign."""

    schema: int
    tool: str
    requests: list[RecordedCall]


# For each rate: the key of the amount in the numerator, and the number by which the amount is divided.
RATES = {
    "images_per_s": ("images", 1),
    "read_mb_per_s": ("bytes_read", 10**6),
    "write_mb_per_s": ("bytes_written", 10**6),
}
ROUNDED = 1e-3
# A benchmark that makes batches of images cannot run without these settings, and charts cannot show its cells.
PIPELINE_SETTINGS = ("threads", "batch_size", "prefetch")
_WITH_PIPELINE = frozenset({"micro", "alexnet"})


def contradictions(record: Record) -> Iterator[str]:
    """Yield a message for each contradiction in a judged record; each message names the key of the wrong value.

    The record must have the declared type.
    """
    cell = record["cell"]
    settings: Mapping[str, Any] = cell["settings"]
    own = settings.get("benchmark")
    if isinstance(own, dict):  # the arguments of a user's program may be unprintable
        settings = {**settings, "benchmark": {key: value for key, value in own.items() if key != "argv"}}
    for name, value in (("cell.settings", settings), ("provenance.emulated", record["provenance"].get("emulated"))):
        if (text := first_unprintable(value)) is not None:
            yield f"{name} has {reprlib.repr(text)}, which is not printable"
    if cell["benchmark"] in _WITH_PIPELINE:
        missing = [name for name in PIPELINE_SETTINGS if settings.get(name) is None]
        yield from (f"cell.settings.{name} is missing, but benchmark={cell['benchmark']} needs it" for name in missing)
    starts = Counter(
        (run.get("token"), run["started_utc"])
        for run in record["runs"]
        if run["status"] not in ("running", "failed") and run.get("started_utc")
    )
    yield from (f"{count} of its runs have the same start, {utc}" for (_, utc), count in starts.items() if count > 1)
    numbers = Counter(run["run"] for run in record["runs"])
    yield from (f"{count} of its runs have the number {run}" for run, count in numbers.items() if count > 1)
    for index, run in enumerate(record["runs"]):
        if run["status"] in ("running", "failed"):
            continue  # no code uses the metrics of such a run
        yield from (
            f"{text} (run {run['run']})" for text in _contradictions_of_run(run, f"runs[{index}]", cell["figure"])
        )
        program, fetched = run.get("program", {}), run.get("device_bytes")
        if fetched is not None and (read := program.get("read_bytes", 0)) > fetched:  # `fetched` includes `read`
            yield f"runs[{index}].program.read_bytes is {read}, but device_bytes, which includes it, is {fetched}"
        cores, cpu_s = record["provenance"].get("cores"), program.get("cpu_s", 0.0)
        if isinstance(cores, int) and cpu_s > (1 + ROUNDED) * cores * run.get("elapsed_s", math.inf):
            yield f"runs[{index}].program.cpu_s is {cpu_s:g}, more CPU time than {cores} cores have (run {run['run']})"


def _contradictions_of_run(run: Run, path: str, figure: str) -> Iterator[str]:
    figures: Mapping[str, Any] = run
    wall_s, images, requested = (figures.get(name) for name in ("wall_s", "images", "images_asked"))
    for name, (amount_key, unit) in RATES.items():
        rate, amount = figures.get(name), figures.get(amount_key)
        if rate is None or amount is None or wall_s is None:
            continue
        if not math.isclose(rate * wall_s * unit, amount, rel_tol=ROUNDED):
            yield f"{path}.{name} is {rate:g}, and {amount_key} / wall_s is {amount / unit:g} / {wall_s:g}"
    for shorter, longer in (("marked_s", "wall_s"), ("wall_s", "elapsed_s")) if "program" in run else ():
        if (figures.get(shorter) or 0.0) > (1 + ROUNDED) * (figures.get(longer) or math.inf):
            yield f"{path}.{shorter} is {figures[shorter]:g}, but {longer}, which includes it, is {figures[longer]:g}"
    if requested is not None and images is not None and images > requested:
        yield f"{path}.images is {images}, but images_asked is {requested}"
    if run["status"] == "valid":
        for name in ["wall_s", figure] if run["role"] == "measured" else ["wall_s"]:
            value = figures.get(name)
            is_positive = name == "wall_s" or name in RATES
            if not isinstance(value, int | float) or value < 0 or (is_positive and value == 0):
                yield f"{path} is valid, but its {name} is {reprlib.repr(value)}"
