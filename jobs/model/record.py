"""Declare the files of a campaign (records, manifest of requests, advice.json), and find contradictions in a record.

The terms of a verdict are everything that it depends on except the raw metrics of the runs. A contradiction is a set of
legal values that cannot be true together, such as a rate that is not amount over time. Annotations are evaluated here:
`jobs.model.reading` checks files against them.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypedDict

from jobs.model.codes import Wait
from jobs.model.conduct import Conduct, Limits, Runs, Share, Tolerances, WarmUps
from jobs.model.reading import Amount, Count, Line, Name, Nested, Number, Word, unprintable
from jobs.model.results import Check, Conditions, Role, Run
from jobs.model.settings import Node, Settings

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of a record that was written by hand, whose metrics are missing or are no numbers."""
OF_SITE = Tolerances.__struct_fields__  # of the other limits the defaults are everybody's


if TYPE_CHECKING:
    OfChecks = dict[str, float]
    OfSite = dict[str, float]
else:
    OfChecks, OfSite = Limits, Tolerances


class Terms(TypedDict):
    """The terms of a verdict: the limits of the checks, and the number of runs."""

    checks: OfChecks  # the limits
    of_site: OfSite  # the site's own limits, of those that it has; looser ones are named in a verdict
    runs: Runs  # with the warm-ups
    warmup_runs: WarmUps
    min_valid_runs: Runs  # measured ones
    max_runs: Runs  # with the warm-ups, where `until_spread` adds runs
    until_spread: Share | None  # width of the interval of the median, as a share of the median
    compare: bool  # each measured run has one without a profile beside it


def terms_of(conduct: Conduct) -> Terms:
    """Return the terms that a configuration asks for."""
    site: dict[str, float] = {**conduct["site"]}
    return {
        "checks": conduct["checks"],
        "of_site": {name: site[name] for name in OF_SITE if name in site},
        "runs": conduct["runs"],
        "warmup_runs": conduct["warmup_runs"],
        "min_valid_runs": conduct["min_valid_runs"],
        "max_runs": conduct["max_runs"],
        "until_spread": conduct["until_spread"],
        "compare": bool(conduct.get("profile", {}).get("compare")),
    }


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
    """The machine and the software of a measurement; other keys are for people only (`jobs.observe.conditions`)."""

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
    """A call of the command, in ``campaign.json``."""

    token: str
    utc: str
    words: list[str]
    order_seed: int
    cells: list[Name]
    terms: Terms  # by which its front judges
    mark: str  # of the user who gave it, in this folder (`campaign.cells.folder`)


class Manifest(TypedDict):
    """``campaign.json``."""

    schema: int
    tool: str
    requests: list[Asked]


# Each rate with the key of its amount, and the unit of the amount.
RATES = {
    "images_per_s": ("images", 1),
    "read_mb_per_s": ("bytes_read", 10**6),
    "write_mb_per_s": ("bytes_written", 10**6),
}
ROUNDED = 1e-3
# Without which a benchmark that makes batches of images cannot run, nor be drawn.
OF_PIPELINE = ("threads", "batch_size", "prefetch")
_WITH_PIPELINE = frozenset({"micro", "alexnet"})


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions in a judged record of the declared shape, each with its key."""
    cell = record["cell"]
    settings: Mapping[str, Any] = cell["settings"]
    own = settings.get("benchmark")
    if isinstance(own, dict):  # the words of a program may be anything, and are shown as a list of texts in quotes
        settings = {**settings, "benchmark": {key: value for key, value in own.items() if key != "argv"}}
    for name, value in (("cell.settings", settings), ("provenance.emulated", record["provenance"].get("emulated"))):
        if (odd := unprintable(value)) is not None:
            yield f"{name} has {reprlib.repr(odd)}, which is no text for a name"
    if cell["benchmark"] in _WITH_PIPELINE:
        missing = [name for name in OF_PIPELINE if settings.get(name) is None]
        yield from (f"it has no cell.settings.{name}, without which {cell['benchmark']} cannot run" for name in missing)
    numbers = Counter(run["run"] for run in record["runs"])
    yield from (f"{count} of its runs have the number {run}" for run, count in numbers.items() if count > 1)
    for place, run in enumerate(record["runs"]):
        if run["status"] in ("running", "failed"):
            continue  # its metrics count for nothing
        yield from (
            f"{why} (run {run['run']})" for why in _contradictions_of_run(run, f"runs[{place}]", cell["figure"])
        )
        program, fetched = run.get("program", {}), run.get("device_bytes")
        if fetched is not None and (read := program.get("read_bytes", 0)) > fetched:  # that includes what it waited for
            yield f"runs[{place}].program.read_bytes is {read}, and device_bytes, of which it is a part, {fetched}"
        cores, used = record["provenance"].get("cores"), program.get("cpu_s", 0.0)
        if isinstance(cores, int) and used > (1 + ROUNDED) * cores * run.get("elapsed_s", math.inf):
            yield f"runs[{place}].program.cpu_s is {used:g}, more than {cores} cores have (run {run['run']})"


def _contradictions_of_run(run: Run, place: str, figure: str) -> Iterator[str]:
    figures: Mapping[str, Any] = run
    wall_s, images, asked = (figures.get(name) for name in ("wall_s", "images", "images_asked"))
    for name, (moved, unit) in RATES.items():
        rate, all_moved = figures.get(name), figures.get(moved)
        if rate is None or all_moved is None or wall_s is None:
            continue
        if not math.isclose(rate * wall_s * unit, all_moved, rel_tol=ROUNDED):
            yield f"{place}.{name} is {rate:g}, and {moved} / wall_s is {all_moved / unit:g} / {wall_s:g}"
    for shorter, longer in (("marked_s", "wall_s"), ("wall_s", "elapsed_s")) if "program" in run else ():
        if (figures.get(shorter) or 0.0) > (1 + ROUNDED) * (figures.get(longer) or math.inf):
            yield f"{place}.{shorter} is {figures[shorter]:g}, and {longer}, of which it is a part, {figures[longer]:g}"
    if asked is not None and images is not None and images > asked:
        yield f"{place}.images is {images}, and images_asked {asked}"
    if run["status"] == "valid":
        for name in ["wall_s", figure] if run["role"] == "measured" else ["wall_s"]:
            value = figures.get(name)
            is_positive = name == "wall_s" or name in RATES
            if not isinstance(value, int | float) or value < 0 or (is_positive and value == 0):
                yield f"{place} is valid, and its {name} is {reprlib.repr(value)}"


class Measured(TypedDict):
    """The measured value of the predicted metric: median, minimum and maximum of the runs."""

    median: Number
    min: Number
    max: Number
    runs: Count


class Tested(TypedDict):
    """One prediction; ``measured`` is None until its cell is done, and ``why_not`` is the reason."""

    utc: str
    rules: int  # their version
    rule: Line
    cell: Line
    tested: Line  # the cell that tests it
    command: str
    figure: Line
    unit: Line
    before: Number  # of the cell itself
    predicted: Number
    low: Number
    high: Number
    known: bool  # that cell had been measured before
    measured: Measured | None
    holds: bool | None
    why_not: str | None


class Account(TypedDict):
    """The file ``advice.json``: the predictions of ``python -m campaign show``, and their outcomes."""

    schema: int
    tests: list[Tested]
