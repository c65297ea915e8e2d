"""What a run gives: its raw figures and its checks, as they stand in a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict, get_type_hints


class Metric(NamedTuple):
    """Declares a number of a run as a column of medians.csv: its median over the runs that count, `_min` and `_max`.

    A column begins where the run gets the number, and here.
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
    """What a benchmark says a run was to do, what it did (None: that cannot be told), and both in words."""

    expected: Any
    found: Any
    message: str


class Peak(TypedDict):
    """What a storage gives by itself."""

    by: str  # the cell that measured it, or the emulated storage that says so
    mb_per_s: float  # a run that is no faster is as fast as its storage can be
    ceiling_mb_per_s: float | None  # what is faster came from elsewhere; None: unknown for so many readers
    reads: int | None  # at random places, which the ceiling was measured by; None where it is calculated


class DeviceUse(TypedDict):
    """What everybody asked of a device during a run, and what of it was the run's own, at least.

    Several devices that hold the data, or that snapshots go to, are counted as one.
    """

    device: str
    block_bytes: int  # the least that one request moves
    reads: int  # requests, as the device got them
    read_bytes: int
    writes: int
    written_bytes: int
    flushes: int
    busy_s: float  # with a request in flight
    flush_s: float  # with a flush in flight
    own_reads: int
    own_read_bytes: int
    own_written_bytes: int | None  # None for a run that writes nothing: all writes and flushes are others'


class Conditions(TypedDict):
    """What is no setting of a cell and can change its speed, by its name (`jobs.system.tunables`)."""

    process: dict[str, Any]
    machine: dict[str, Any]
    storages: dict[str, dict[str, Any]]  # by their names


class RankFigures(TypedDict, total=False):
    """What one rank of a run gave, and what the hub saw of it (`jobs.ranks.hub.Seen`)."""

    rank: int
    host: str | None
    node: str | None
    left_s: float | None
    clock_s: Sequence[float] | None
    ended_s: float | None
    figures: dict[str, Any]  # a `Run`, without checks


class Rate(TypedDict):
    """The rate whose spread is judged: its key in the run, and its unit."""

    key: str
    unit: str


class Run(TypedDict, total=False):
    """The raw figures of a run that rules read; benchmarks and observers add their own."""

    run: int
    role: str
    status: str
    reason: str | None
    started_utc: str
    token: str
    added: Any
    pair: int
    refused: bool
    exclusive: Any
    host: str
    node: str | None
    job: str | None
    cpus: float
    log: str | None
    log_tail: str
    trace: dict[str, Any] | None
    profile: dict[str, Any]
    tensorflow: dict[str, Any]
    elapsed_s_with_fork: float
    wall_parts: Sequence[str]
    rate: Rate
    images: int
    images_asked: int
    image_errors: int
    unreadable: list[dict[str, str]]
    bytes_read: int
    bytes_written: int
    bytes_asked: int
    bytes_predicted: int  # of a run that reads files several times, or in part
    expected: Mapping[str, Expectation]  # by rule
    requests: int
    images_per_s: Annotated[float, Metric("images/s")]
    read_mb_per_s: Annotated[float, Metric("MB/s")]
    write_mb_per_s: Annotated[float, Metric("MB/s")]
    wall_s: Annotated[float, Metric("s")]
    resident_fraction: float | None
    linked_files: int
    below: list[str]
    to_fetch_bytes: int | None
    listed_bytes: int
    changed_files: int
    changed: list[str]
    quota_cores: float | None
    throttled_periods: int
    throttled_s: float
    device: str | None
    lowest_device: str | None
    device_read_bytes: int | None
    lowest_read_bytes: int | None
    device_bytes: int | None
    written_bytes: int | None
    reached_bytes: int | None
    device_use: list[DeviceUse] | None  # the data's, and the lowest below it; None where one of them does not tell
    other_cpu: float
    elapsed_s: float
    kernel_s: float | None
    raw_s: float | None
    io_limits: list[dict[str, Any]]  # (`jobs.observe.io_limits_reached`)
    io_limits_hidden: bool
    waits: dict[str, Any]  # of threads (`jobs.observe.waits`)
    steal_s: float
    objects: dict[str, Any]  # of a run that reads from an object store (`jobs.observe.object_store`)
    conditions: Conditions
    conditions_after: Conditions  # where they had changed when the run ended
    emulated: bool
    served: dict[str, dict[str, float]]
    steps: dict[str, Any]  # (`jobs.step_arrays`)
    checkpoints: list[dict[str, Any]]
    checkpoints_asked: int
    checkpoint_troubles: list[str]
    targets: list[dict[str, Any]]
    cpu_s: float
    straggler: int
    start_skew_s: float | None
    private_caches: int
    left_alone: bool
    ranks: list[RankFigures]
    overhead_s: float
    checks: list[Check]


def _metrics() -> Mapping[str, Metric]:
    hints = get_type_hints(Run, include_extras=True)
    annotated = {key: getattr(hint, "__metadata__", ()) for key, hint in hints.items()}
    return {key: each for key, notes in annotated.items() for each in notes if isinstance(each, Metric)}


METRICS = _metrics()
"""The declared metrics by their keys, in the order of the columns."""
