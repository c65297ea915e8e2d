"""Declarations of a campaign's files (records, manifest of requests, advice.json); contradictions in a record.

The terms of a verdict are everything that it depends on except the raw metrics of the runs. A contradiction is a set of
legal values that cannot be true together, such as a rate that is not amount over time. Annotations are evaluated in
this module, because `jobs.model.reading` checks files against them.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypedDict

from jobs.model.codes import Wait
from jobs.model.conduct import Conduct, Limits, Runs, Share, Tolerances, WarmUps
from jobs.model.reading import Amount, Count, Line, Name, Nested, Number, Word, first_unprintable
from jobs.model.results import Check, Conditions, Role, Run
from jobs.model.settings import Node, Settings

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors for a record that was edited by hand: its metrics are missing or are no numbers."""
OF_SITE = Tolerances.__struct_fields__  # all other limits have the same default on every site


if TYPE_CHECKING:
    OfChecks = dict[str, float]
    OfSite = dict[str, float]
else:
    OfChecks, OfSite = Limits, Tolerances


class Terms(TypedDict):
    """The terms of a verdict: the limits of the checks, and the number of runs."""

    checks: OfChecks  # limits of the cell
    of_site: OfSite  # limits that the site has set; a verdict names looser limits of a cell
    runs: Runs  # includes warm-ups
    warmup_runs: WarmUps
    min_valid_runs: Runs  # measured runs
    max_runs: Runs  # includes warm-ups; used if `until_spread` adds runs
    until_spread: Share | None  # width of the interval of the median, as a share of the median
    compare: bool  # whether each measured run is paired with a run without a profile


def terms_of_conduct(conduct: Conduct) -> Terms:
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
"""On disk a record is running or ended; the others are verdicts, which are not stored."""


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
    device: str | None  # disk of an object store
    slow_device: str | None  # disk of an object store to which snapshots drain


class Data(TypedDict, total=False):
    """The data that a cell reads or writes."""

    path: str  # a folder, or the URL of a prefix in an object store
    disk: str  # device or folder of the object store, if it is on this machine
    folder: str  # folder of a baseline's file
    lock: str  # lock of its storage
    manifest: str  # the folder of the images' manifest
    checksum: str
    files: Count
    bytes: Count
    listed_ns: Count  # the latest change (ctime) of any of the images when they were listed
    file: str | None  # file of a baseline; None if the run writes it
    block_bytes: Count
    stripe: Node  # the layout on Lustre
    staged: Node  # the files that are read from copies, and the folder of these (`campaign.storage.datasets`)


class Submission(TypedDict, total=False):
    """The submission of the last session of a record."""

    token: Required[str]
    words: list[str]
    submitted_utc: str
    order_seed: int
    size: Word | None
    site: Word
    position: Count
    attempt: Count  # how often ``retries`` has repeated it


class Session(Submission, total=False):
    """The time that one worker spends on a cell."""

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
    mount: dict[str, Any] | Word | None  # a word if unknown
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
        """A run that has begun, and has a number."""

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
    page_cache: PageCache  # the required state of the page cache
    data: Reads
    figure: Line
    unit: Line
    better: Literal["higher", "lower"]


class Record(TypedDict):
    """``record.json``, schema 1: the only bridge to the analysis; a contract test checks it."""

    cell: RecordedCell
    campaign: Submission
    dataset: Data
    provenance: Provenance
    terms: Terms  # terms of its last worker
    runs: list[RecordedRun]
    status: Status
    schema: NotRequired[Count]
    sittings: NotRequired[list[Session]]
    waits_for: NotRequired[Wait | None]  # what its worker waits for before the next run
    checks: NotRequired[list[Check]]
    looser_checks: NotRequired[list[Word]]
    profile_cost: NotRequired[ProfileCost]
    reason: NotRequired[str | None]
    cause: NotRequired[str | None]  # the most frequent cause of runs that do not count


class RecordedCall(TypedDict, total=False):
    """A call of the command, as stored in ``campaign.json``."""

    token: str
    utc: str
    words: list[str]
    order_seed: int
    cells: list[Name]
    terms: Terms  # the terms of its front process
    mark: str  # mark of the user who gave it, in this folder (`campaign.cells.folder`)


class Manifest(TypedDict):
    """``campaign.json``."""

    schema: int
    tool: str
    requests: list[RecordedCall]


# The key of the amount and the unit of the amount, for each rate.
RATES = {
    "images_per_s": ("images", 1),
    "read_mb_per_s": ("bytes_read", 10**6),
    "write_mb_per_s": ("bytes_written", 10**6),
}
ROUNDED = 1e-3
# Settings without which a benchmark that makes batches of images can neither run nor be drawn.
OF_PIPELINE = ("threads", "batch_size", "prefetch")
_WITH_PIPELINE = frozenset({"micro", "alexnet"})


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions in a judged record of the declared type, each with its key."""
    cell = record["cell"]
    settings: Mapping[str, Any] = cell["settings"]
    own = settings.get("benchmark")
    if isinstance(own, dict):  # a program's arguments may be any text
        settings = {**settings, "benchmark": {key: value for key, value in own.items() if key != "argv"}}
    for name, value in (("cell.settings", settings), ("provenance.emulated", record["provenance"].get("emulated"))):
        if (text := first_unprintable(value)) is not None:
            yield f"{name} has {reprlib.repr(text)}, which is not printable"
    if cell["benchmark"] in _WITH_PIPELINE:
        missing = [name for name in OF_PIPELINE if settings.get(name) is None]
        yield from (f"it has no cell.settings.{name}, without which {cell['benchmark']} cannot run" for name in missing)
    numbers = Counter(run["run"] for run in record["runs"])
    yield from (f"{count} of its runs have the number {run}" for run, count in numbers.items() if count > 1)
    for index, run in enumerate(record["runs"]):
        if run["status"] in ("running", "failed"):
            continue  # its metrics are not used
        yield from (
            f"{text} (run {run['run']})" for text in _contradictions_of_run(run, f"runs[{index}]", cell["figure"])
        )
        program, fetched = run.get("program", {}), run.get("device_bytes")
        if fetched is not None and (read := program.get("read_bytes", 0)) > fetched:  # `fetched` includes the program
            yield f"runs[{index}].program.read_bytes is {read}, and device_bytes, of which it is a part, {fetched}"
        cores, cpu_s = record["provenance"].get("cores"), program.get("cpu_s", 0.0)
        if isinstance(cores, int) and cpu_s > (1 + ROUNDED) * cores * run.get("elapsed_s", math.inf):
            yield f"runs[{index}].program.cpu_s is {cpu_s:g}, more than {cores} cores have (run {run['run']})"


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
            yield f"{path}.{shorter} is {figures[shorter]:g}, and {longer}, of which it is a part, {figures[longer]:g}"
    if requested is not None and images is not None and images > requested:
        yield f"{path}.images is {images}, and images_asked {requested}"
    if run["status"] == "valid":
        for name in ["wall_s", figure] if run["role"] == "measured" else ["wall_s"]:
            value = figures.get(name)
            is_positive = name == "wall_s" or name in RATES
            if not isinstance(value, int | float) or value < 0 or (is_positive and value == 0):
                yield f"{path} is valid, and its {name} is {reprlib.repr(value)}"


class MeasuredMetric(TypedDict):
    """The measured value of the predicted metric: median, minimum and maximum of the runs."""

    median: Number
    min: Number
    max: Number
    runs: Count


class TestedPrediction(TypedDict):
    """One prediction; ``measured`` is None until its cell is done, and ``why_not`` is the reason."""

    utc: str
    rules: int  # version of the rules
    rule: Line
    cell: Line
    tested: Line  # the cell that tests the prediction
    command: str
    figure: Line
    unit: Line
    before: Number  # value of the cell itself
    predicted: Number
    low: Number
    high: Number
    known: bool  # whether the testing cell had already been measured
    measured: MeasuredMetric | None
    holds: bool | None
    why_not: str | None


class PredictionAccount(TypedDict):
    """The file ``advice.json``: the predictions of ``python -m campaign show``, and their outcomes."""

    schema: int
    tests: list[TestedPrediction]
