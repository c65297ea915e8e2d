"""Declare the types of the results of a run, as a record stores them: raw metrics and checks.

The type of a field declares the legal values. None means that the value is unknown, unless a comment says otherwise.
The annotations in this module are evaluated at run time, because `jobs.model.reading` checks files against these types.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, get_type_hints

from msgspec import Meta

from jobs.model.codes import End
from jobs.model.reading import Amount, Count, Facts, Line, Number, Word

Role = Literal["warmup", "measured", "unprofiled"]  # unprofiled: only in records of version 0.2


class Metric(NamedTuple):
    """Marks a number of a run as a metric, which becomes a column of medians.csv.

    The column has the median over the valid runs; two more columns, `_min` and `_max`, have the minimum and the
    maximum. To add a column, add code that measures the number, and mark the field of the number with `Metric`.
    """

    unit: str


class Check(TypedDict):
    """The outcome of one check."""

    rule: str  # name of the check
    passed: bool | None  # None if the check is unverifiable
    observed: float | Mapping[str, float | None] | None
    limit: Any
    message: str


class Expectation(TypedDict):
    """A value that the rules of the benchmark predict for a run, and the value that was observed (None: unknown)."""

    expected: Any
    found: Any
    message: str


class Peak(TypedDict):
    """The highest speed of a storage, measured without a training."""

    by: str  # the cell that measured the speed, or the name of the emulated storage
    mb_per_s: float  # a run up to this rate is plausible on this storage
    # A run above this rate must have read from another place, for example from memory. None if the ceiling is unknown
    # for the number of readers of the run.
    ceiling_mb_per_s: float | None
    reads: int | None  # number of random reads with which the ceiling was measured; None if the ceiling was calculated


class DeviceUse(TypedDict):
    """The requests of all processes to a device during a run, and the smallest possible part of the run itself.

    Several devices that hold the data or the snapshots count as one device.
    """

    device: str
    block_bytes: Count  # smallest size of a request
    reads: Count  # number of requests that the device got
    read_bytes: Count
    writes: Count
    written_bytes: Count
    flushes: Count
    busy_s: Amount  # time in which at least one request was in flight
    flush_s: Amount  # time in which a flush was in flight
    own_reads: Count  # smallest possible number of requests of the run itself
    own_read_bytes: Count
    own_written_bytes: Count | None  # None if the run writes nothing: then other processes made all writes and flushes


class Conditions(TypedDict):
    """Facts by name that are not settings, but can change the speed of a cell (`jobs.system.tunables`)."""

    process: Facts
    machine: Facts
    storages: dict[Word, Facts]  # by name of the storage


class RankFigures(TypedDict):
    """The results of one rank of a run, and what the hub observed of the rank (`jobs.ranks.hub.RankObservation`)."""

    rank: Count
    figures: dict[str, Any]  # a `Run`, without checks
    host: NotRequired[Line | None]
    node: NotRequired[Line | None]
    left_s: NotRequired[Amount | None]
    clock_s: NotRequired[Sequence[Number] | None]
    ended_s: NotRequired[Amount | None]


class Rate(TypedDict):
    """The rate whose spread over the runs of a cell is judged: the key of the rate in the run, and the unit."""

    key: Line
    unit: Line


class Snapshot(TypedDict, total=False):
    """One snapshot of a run. A time is None if the time is unknown or if the snapshot did not reach this stage."""

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
    """A storage that gets the snapshots of a run (`jobs.checkpoints.run_snapshots`)."""

    role: Line
    storage: Line
    bytes: Count
    source: Line | None
    written_bytes: Count | None
    below: list[Line]
    served_here: bool


class TraceSummary(TypedDict, total=False):
    """The system trace of a run, with the name of the file beside the record."""

    file: Line | None


class Program(TypedDict):
    """The work of a user's program and of all processes that the program started (`jobs.system.programs`)."""

    argv: list[str]
    cpus: Annotated[int, Meta(ge=1)]  # number of CPUs that the program could use
    cpu_s: Amount
    exit: NotRequired[Count | None]  # exit code
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
    """The time of the steps of a run, split by kind of work from TensorFlow's profile (`jobs.events.step_times`)."""

    file: Line | None
    steps_s: Amount
    waited_s: Amount
    spent_s: dict[str, Amount]
    remedies_s: dict[str, Amount]


class ReasonOfAddedRun(TypedDict):
    """The reason why ``until_spread`` added a run: the confidence interval of the median before this run."""

    until_spread: Number | None
    n: Count
    interval: list[Number] | None
    confidence: Number | None
    width: Number | None


class Run(TypedDict, total=False):
    """The raw metrics of a run that checks use. Benchmarks and observers may add further metrics to a run."""

    run: Count
    role: Role
    status: Literal["running", "ended", "valid", "invalid", "failed"]
    end: End  # why a failed run has no metrics
    reason: str | None  # sentence that says why a judged run does not count
    cause: str | None  # code for the reason: the code of a failed run's end, or the first check that failed
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
    bytes_predicted: Count  # only for a run that reads files several times or partly
    expected: Mapping[str, Expectation]  # by the name of the check
    requests: Count
    images_per_s: Annotated[Amount, Metric("images/s")]
    read_mb_per_s: Annotated[Amount, Metric("MB/s")]
    write_mb_per_s: Annotated[Amount, Metric("MB/s")]
    wall_s: Annotated[Amount, Metric("s")]
    printed: Annotated[Number, Metric("")]  # number that a user's program printed
    # time from the mark that starts the timed part of a user's program; None if the program set no mark
    marked_s: Annotated[Amount | None, Metric("s")]
    program_s: Amount
    left_s: Amount
    data_bytes: Count  # size of the files that a user's program should read
    data_pages_bytes: Count  # size of the pages of these files
    data_in_memory_bytes: Count | None  # size of the pages of these files in the page cache after the program's end
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
    device_use: list[DeviceUse] | None  # the device of the data, and the lowest device below; None if unknown
    other_cpu: Number
    io_pressure_s: Amount | None  # time in which a task of this control group (or machine) waited for I/O
    elapsed_s: Amount
    kernel_s: Amount | None
    raw_s: Amount | None
    io_limits: list[dict[str, Any]]  # limits on reads and writes (`jobs.observe.storages`)
    io_limits_hidden: bool
    waits: dict[str, Any]  # waiting times of the threads (`jobs.observe.waits`)
    steal_s: Amount
    objects: dict[str, Any]  # only for a run that reads from an object store (`jobs.observe.storages`)
    conditions: Conditions
    conditions_after: Conditions  # only if the conditions changed during the run
    emulated: bool
    served: dict[str, dict[str, Number]]
    steps: dict[str, Any]  # summary of the lists with one value per step (`jobs.run`)
    checkpoints: list[Snapshot]
    checkpoints_asked: Count
    checkpoint_troubles: list[str]
    restore_s: Annotated[Amount, Metric("s")]  # time to read back and compare the newest snapshot
    restore_mb_per_s: Annotated[Amount, Metric("MB/s")]
    restore_resident: Amount | None  # share of the snapshot's pages in the page cache before the restore
    targets: list[Target]
    cpu_s: Amount
    straggler: Count
    start_skew_s: Amount | None
    private_caches: Count
    ranks: list[RankFigures]
    # lowest utilization of an emulated accelerator: the share of the time in which the accelerator computes
    au_percent: Annotated[Amount, Metric("%")]
    # share of the time in which a thread of the accelerator with the lowest utilization was ready to run without a CPU
    cpu_wait_percent: Annotated[Amount, Metric("%")]
    au_mean_percent: Annotated[Amount, Metric("%")]  # mean utilization of the emulated accelerators
    # mean utilization by DLIO's definition: with measured computing times
    au_dlio_percent: Annotated[Amount, Metric("%")]
    late_share: Amount  # mean lateness of a step, as a share of the step, for the accelerator with the largest lateness
    accelerators: list[dict[str, Number]]  # times per emulated accelerator (`jobs.benchmarks.emulated_accelerators`)
    sync_s: Amount
    overhead_s: Number
    checks: list[Check]


def _metrics() -> Mapping[str, Metric]:
    hints = get_type_hints(Run, include_extras=True)
    annotated = {key: getattr(hint, "__metadata__", ()) for key, hint in hints.items()}
    return {key: note for key, notes in annotated.items() for note in notes if isinstance(note, Metric)}


METRICS = _metrics()
"""The metrics that `Run` declares, by key, in the order of the columns of medians.csv."""
