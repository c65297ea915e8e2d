"""The results of a run: its raw metrics and its checks, as they are stored in a record.

A field declares the legal values; None means that the value is unknown. Annotations are evaluated in this module,
because `jobs.model.reading` checks files against them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, get_type_hints

from msgspec import Meta

from jobs.model.codes import End
from jobs.model.reading import Amount, Count, Facts, Line, Number, Word

Role = Literal["warmup", "measured", "unprofiled"]


class Metric(NamedTuple):
    """Marks a number of a run as a column of medians.csv: its median over the runs that count, `_min` and `_max`.

    A new column needs the code that gives the run its number, and this mark.
    """

    unit: str


class Check(TypedDict):
    """The outcome of one rule."""

    rule: str
    passed: bool | None
    observed: float | Mapping[str, float | None] | None
    limit: Any
    message: str


class Expectation(TypedDict):
    """What a run should do by the rules of its benchmark, what it did (None: unknown), and both as text."""

    expected: Any
    found: Any
    message: str


class Peak(TypedDict):
    """The speed of a storage alone."""

    by: str  # the cell that measured it, or the emulated storage
    mb_per_s: float  # up to this rate, the storage explains the speed of a run
    ceiling_mb_per_s: float | None  # a faster run read from elsewhere; None: unknown for this number of readers
    reads: int | None  # number of random reads of the measured ceiling; None if it was calculated


class DeviceUse(TypedDict):
    """The requests of all processes to a device during a run, and the least number of them that were the run's own.

    Several devices that hold the data, or that get the snapshots, are counted as one.
    """

    device: str
    block_bytes: Count  # smallest size of a request
    reads: Count  # number of requests that the device got
    read_bytes: Count
    writes: Count
    written_bytes: Count
    flushes: Count
    busy_s: Amount  # time with a request in flight
    flush_s: Amount  # time with a flush in flight
    own_reads: Count
    own_read_bytes: Count
    own_written_bytes: Count | None  # None if the run writes nothing: then other processes made all writes and flushes


class Conditions(TypedDict):
    """Facts, by name, that can change the speed of a cell but are no settings (`jobs.system.tunables`)."""

    process: Facts
    machine: Facts
    storages: dict[Word, Facts]  # by name of the storage


class RankFigures(TypedDict):
    """The results of one rank of a run, and the hub's facts about the rank (`jobs.ranks.hub.RankObservation`)."""

    rank: Count
    figures: dict[str, Any]  # a `Run`, without checks
    host: NotRequired[Line | None]
    node: NotRequired[Line | None]
    left_s: NotRequired[Amount | None]
    clock_s: NotRequired[Sequence[Number] | None]
    ended_s: NotRequired[Amount | None]


class Rate(TypedDict):
    """The rate whose spread is judged: its key in the run, and its unit."""

    key: Line
    unit: Line


class Snapshot(TypedDict, total=False):
    """One snapshot of a run; a time is None if it is unknown, or if the snapshot did not get so far."""

    bytes: Amount
    blocked_s: Number | None
    write_s: Number | None
    drain_s: Number | None
    exposed_s: Number | None
    durable_fast_s: Number | None
    durable_slow_s: Number | None
    verified: bool
    where: str


class Target(TypedDict, total=False):
    """A store of snapshots (`jobs.checkpoints.run_snapshots`)."""

    role: Line
    storage: Line
    bytes: Count
    source: Line | None
    written_bytes: Count | None
    below: list[Line]
    served_here: bool


class TraceSummary(TypedDict, total=False):
    """The system trace of a run, or a file beside the record."""

    file: Line | None


class Program(TypedDict):
    """The work of a user's program and of all processes that it started (`jobs.system.programs`)."""

    argv: list[str]
    cpus: Annotated[int, Meta(ge=1)]  # number of CPUs that it could use
    cpu_s: Amount
    largest_bytes: Count
    read_bytes: Count
    written_bytes: Count


class Calls(TypedDict, total=False):
    """The totals of a profile of POSIX calls over all files (`jobs.profiler.report`)."""

    file: Line | None
    files: Count
    opens: Count
    reads: Count
    writes: Count
    stream_writes: Count
    bytes_read: Count
    bytes_written: Count
    read_mb_per_s: Amount | None
    write_mb_per_s: Amount | None
    read_s: Amount | None
    write_s: Amount | None
    meta_s: Amount | None
    sequential: Amount | None
    consecutive: Amount | None
    read_sizes: list[Count]
    mode: str
    dropped: Count
    blind_spot: str | None
    seen_read_bytes: Count
    kernel_read_bytes: Count | None


class ProfiledTime(TypedDict, total=False):
    """The time of the steps of a run by kind of work, by TensorFlow's profiler (`jobs.events.step_times`)."""

    file: Line | None
    steps_s: Amount
    waited_s: Amount
    spent_s: dict[str, Amount]
    remedies_s: dict[str, Amount]


class ReasonOfAddedRun(TypedDict):
    """Why ``until_spread`` added a run: the interval of the median until then."""

    until_spread: Number | None
    n: Count
    interval: list[Number] | None
    confidence: Number | None
    width: Number | None


class Run(TypedDict, total=False):
    """The raw metrics of a run that checks read; benchmarks and observers add others."""

    run: Count
    role: Role
    status: Literal["running", "ended", "valid", "invalid", "failed"]
    end: End  # of a failed run
    reason: str | None  # why a judged run does not count, as text
    cause: str | None  # the same as a code: the code of its end, or the first failed check
    started_utc: str
    token: str
    added: ReasonOfAddedRun
    pair: Count
    exclusive: Any
    host: Line
    node: Line | None
    job: str | None
    cpus: Amount
    log: str | None
    log_tail: str
    trace: TraceSummary | None
    profile: Calls
    tensorflow: ProfiledTime
    accelerator: Line
    engine: Line
    engine_version: Line
    elapsed_s_with_fork: Amount
    startup_s: Amount
    load_s: Amount
    compute_s: Amount
    checkpoint_s: Amount
    other_s: Amount
    wall_parts: Sequence[str]
    rate: Rate
    images: Count
    images_asked: Count
    image_errors: Count
    unreadable: list[dict[str, str]]
    bytes_read: Count
    bytes_written: Count
    bytes_asked: Count
    bytes_predicted: Count  # of a run that reads files several times or partly
    expected: Mapping[str, Expectation]  # by rule
    requests: Count
    images_per_s: Annotated[Amount, Metric("images/s")]
    read_mb_per_s: Annotated[Amount, Metric("MB/s")]
    write_mb_per_s: Annotated[Amount, Metric("MB/s")]
    wall_s: Annotated[Amount, Metric("s")]
    printed: Annotated[Number, Metric("")]  # by a user's program
    marked_s: Annotated[Amount | None, Metric("s")]  # from the begin of the timed part; None if it is not marked
    program_s: Amount
    left_s: Amount
    data_bytes: Count  # size of the files that a program should read
    data_pages_bytes: Count  # the same, as whole pages
    data_in_memory_bytes: Count | None  # pages of these in memory after the end
    program: Program
    resident_fraction: Amount | None
    linked_files: Count
    below: list[str]
    to_fetch_bytes: Count | None
    listed_bytes: Count
    changed_files: Count
    changed: list[str]
    quota_cores: Amount | None
    throttled_periods: Count
    throttled_s: Amount
    device: str | None
    lowest_device: str | None
    device_read_bytes: Count | None
    lowest_read_bytes: Count | None
    device_bytes: Count | None
    written_bytes: Count | None
    reached_bytes: Count | None
    device_use: list[DeviceUse] | None  # the data's device, and the lowest one below it; None if unknown
    other_cpu: Number
    io_pressure_s: Amount | None  # time in which a task of this control group (or machine) waited for I/O
    elapsed_s: Amount
    kernel_s: Amount | None
    raw_s: Amount | None
    io_limits: list[dict[str, Any]]  # (`jobs.observe.storages`)
    io_limits_hidden: bool
    waits: dict[str, Any]  # of threads (`jobs.observe.waits`)
    steal_s: Amount
    objects: dict[str, Any]  # of a run that reads from an object store (`jobs.observe.storages`)
    conditions: Conditions
    conditions_after: Conditions  # if they had changed at the end of the run
    emulated: bool
    served: dict[str, dict[str, Number]]
    steps: dict[str, Any]  # (`jobs.run`)
    checkpoints: list[Snapshot]
    checkpoints_asked: Count
    checkpoint_troubles: list[str]
    restore_s: Annotated[Amount, Metric("s")]  # time to read back and compare the newest snapshot
    restore_mb_per_s: Annotated[Amount, Metric("MB/s")]
    restore_resident: Amount | None  # share of its pages in memory before; None if unknown
    targets: list[Target]
    cpu_s: Amount
    straggler: Count
    start_skew_s: Amount | None
    private_caches: Count
    ranks: list[RankFigures]
    au_percent: Annotated[Amount, Metric("%")]  # emulated accelerators: smallest share of time computing
    # the same accelerator's share of time in which a thread was ready and had no processor
    cpu_wait_percent: Annotated[Amount, Metric("%")]
    au_mean_percent: Annotated[Amount, Metric("%")]
    au_dlio_percent: Annotated[Amount, Metric("%")]  # the mean by DLIO's definition: with measured computing times
    late_share: Amount  # lateness as a share of a step: the largest mean of an accelerator
    accelerators: list[dict[str, Number]]  # parts of the time of each (`jobs.benchmarks.emulated_accelerators`)
    sync_s: Amount
    overhead_s: Number
    checks: list[Check]


def _metrics() -> Mapping[str, Metric]:
    hints = get_type_hints(Run, include_extras=True)
    annotated = {key: getattr(hint, "__metadata__", ()) for key, hint in hints.items()}
    return {key: note for key, notes in annotated.items() for note in notes if isinstance(note, Metric)}


METRICS = _metrics()
"""The declared metrics by their keys, in the order of the columns."""
