"""Calculate how a run or a program used its time, and how fast its storage is known to be."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs import checks, disturbances
from jobs.judging import stopping
from jobs.judging.peaks import Peaks, emulated_limit, emulation_facts
from jobs.model.conduct import Limits
from jobs.model.record import Record
from jobs.model.results import Run

MANY_READERS = 8
"""Smallest number of readers that can show the maximum rate of a storage.

The rate of so many readers is the maximum if it is less than `FLAT` times the rate of half as many readers.
"""
FLAT = 1.1
_TICK_S = 0.01  # longest tick of the kernel; the kernel counts a device as busy for a whole tick per short request
_FEWEST_LOOKS = 20  # smallest number of samples of threads from which a share is calculated


class StorageSpeed(NamedTuple):
    """The known speed of a storage; a value is None if it is unknown."""

    at_most: float | None = None  # largest MB/s for any number of readers
    to_more: float | None = None  # MB/s for a larger number of readers than the run had
    readers: int | None = None  # the larger number of readers to which `to_more` belongs


UNKNOWN = StorageSpeed()


@dataclass(frozen=True)
class StepTimes:
    """The steps of a training; times are in seconds, summed over all steps."""

    number: int
    waiting_s: float  # time of waiting for input
    first_s: float  # the part of `waiting_s` for the first batch, which prefetching cannot avoid
    compute_s: float
    saving_s: float = 0.0  # time of saving checkpoints
    ahead: bool = False  # whether batches are prefetched
    on_processors: bool = False  # whether CPUs compute the steps
    batch: int = 1  # number of images in a batch
    # Waiting, computing and saving as shares of `wall_s`, medians over the runs; None if only seconds are known.
    shares: tuple[float, float, float] | None = None

    @property
    def each_s(self) -> tuple[float, float]:
        """Return the mean seconds of waiting and of computing per step, without the wait for the first batch."""
        waited_s = (self.waiting_s - self.first_s) / max(1, self.number - 1)
        return waited_s, self.compute_s / max(1, self.number)

    @property
    def late(self) -> float:
        """Return the share of the time of a step that is spent on waiting; the first step does not count."""
        waited_s, computed_s = self.each_s
        return waited_s / (waited_s + computed_s) if waited_s + computed_s else 0.0

    def batch_s(self, threads: int) -> float:
        """Return the seconds that the pipeline needs to make a batch if it never has to wait.

        Without prefetch, the `map` stage reads `threads` images in advance while the step computes. The waiting time
        does not include the reading of these images.
        """
        waited_s, computed_s = self.each_s
        if self.ahead or threads >= self.batch:
            return waited_s + computed_s
        return min(waited_s + computed_s, waited_s * self.batch / (self.batch - threads))


@dataclass(frozen=True)
class TimeUse:
    """The use of time by a run, by the median of several runs, or by any observed program; None means unknown.

    Attributes
    ----------
    elapsed_s, start_s
        Seconds of observation; the part of these seconds in which one thread prepares the work.
    cpu_s, cores, others
        CPU seconds of the run itself; number of CPUs that the run may use if no quota applies; mean number of CPUs that
        other programs used, on this machine or on its hypervisor.
    serving
        Mean number of CPUs that the emulation of the storage used; not included in `others`.
    others_max
        Number of CPUs that other programs may use in a valid run (`checks.other_cpu_max`).
    quota, throttled_s, io_limit
        CPU quota in CPUs; seconds for which the quota stopped threads; largest share of a limit on reads and writes
        that the run reached.
    threads, decodes
        Number of parallel calls that read; whether these calls also decode images.
    storage_busy_s, storage_exact, storage_share
        Upper limit of the seconds in which the storage had requests of the run; whether these seconds are exact; share
        of the threads with work that waited for the storage.
    ready_share
        Share of the threads with work that were running or waited only for a CPU.
    read_mb, given
        Number of MB that the run read; known speed of the storage.
    """

    elapsed_s: float
    cpu_s: float = 0.0
    cores: float = 1.0
    start_s: float = 0.0
    others: float = 0.0
    others_max: float = Limits().other_cpu_max
    serving: float = 0.0
    quota: float | None = None
    throttled_s: float = 0.0
    io_limit: float = 0.0
    threads: int | None = None
    decodes: bool = False
    storage_busy_s: float | None = None
    storage_exact: bool = True
    storage_share: float | None = None
    ready_share: float | None = None
    read_mb: float = 0.0
    given: StorageSpeed = UNKNOWN
    steps: StepTimes | None = None

    @property
    def within_quota(self) -> bool:
        """Return whether a quota allows the run fewer CPUs than `cores`."""
        return self.allowed < self.cores

    @property
    def allowed(self) -> float:
        """Return the number of CPUs that the run may use under the quota."""
        return self.cores if self.quota is None else min(self.cores, self.quota)

    @property
    def free_cores(self) -> float:
        """Return the number of CPUs that were available to the run beside the quota and other programs."""
        used_by_others = 0.0 if self.within_quota else max(0.0, self.others + self.serving)
        return max(self.allowed - used_by_others, min(1.0, self.allowed))

    @property
    def making_s(self) -> float:
        """Return the seconds in which input was prepared."""
        if self.steps is None:
            return max(0.0, self.elapsed_s - self.start_s)
        return self.steps.batch_s(self.threads or 1) * self.steps.number

    @property
    def making_cpu_s(self) -> float:
        """Return the CPU seconds for preparing input; if CPUs compute the steps, the training time is included."""
        return max(0.0, self.cpu_s - self.start_s)


def time_use(record: Record, peaks: Peaks | None = None) -> TimeUse | None:
    """Return how the runs of a judged record used their time, as medians, or None if no run has metrics.

    Only the valid measured runs count; without a valid run, the invalid measured runs count. Raises one of
    `jobs.model.record.ODD_FIGURES` if metrics are missing.
    """
    runs = runs_with_metrics(record)
    if not runs:
        return None
    settings, provenance, kind = record["cell"]["settings"], record["provenance"], record["cell"]["kind"]
    # For a user's program (`jobs.benchmarks.command`), the threads, their work and the start time are unknown.
    is_program = kind == "program"
    threads = None if is_program else settings.get("threads")
    quota = min(metric_values(runs, "quota_cores"), default=None)
    cores = float(len(_affinity(provenance)))
    medians = {name: statistics.median(values) for name in _MEDIANS if (values := metric_values(runs, name))}
    elapsed_s = medians["elapsed_s"]
    parts_s = sum(medians.get(name, 0.0) for name in ("load_s", "compute_s", "sync_s", "checkpoint_s", "other_s"))
    is_cold = record["cell"]["page_cache"] == "cold"
    serving = statistics.median(map(checks.serving_s, runs)) / elapsed_s
    ready_share, waiting_share = thread_shares(runs)
    return TimeUse(
        elapsed_s=elapsed_s,
        others_max=record["terms"]["checks"]["other_cpu_max"],
        start_s=0.0 if is_program else max(0.0, elapsed_s - parts_s),
        cpu_s=_median(run["program"]["cpu_s"] for run in runs) or 0.0 if is_program else medians.get("cpu_s", 0.0),
        cores=cores,
        others=medians.get("other_cpu", 0.0) + medians.get("steal_s", 0.0) / elapsed_s - serving,
        serving=serving,
        quota=quota,
        throttled_s=medians.get("throttled_s", 0.0),
        io_limit=statistics.median((disturbances.nearest_limit(run) or (0.0,))[0] for run in runs),
        threads=threads,
        decodes=not is_program and record["cell"]["data"] == "images" and settings["benchmark"].get("preprocess", True),
        storage_busy_s=_median(_storage_busy_s(run, record) for run in runs),
        storage_exact=threads == 1 or all(_is_exact(run, record) for run in runs),
        storage_share=waiting_share,
        ready_share=ready_share,
        read_mb=medians.get("bytes_read", 0) / 1e6,
        given=storage_speed(record, peaks) if peaks and is_cold else UNKNOWN,
        steps=_steps(record, runs, medians) if kind == "training" else None,
    )


_NUMBERS = (int, float)
_MEDIANS = ("elapsed_s", "cpu_s", "other_cpu", "steal_s", "load_s", "compute_s", "sync_s", "checkpoint_s", "other_s",
            "throttled_s", "bytes_read", "images")  # fmt: skip


def runs_with_metrics(record: Record) -> Sequence[Run]:
    """Return the valid measured runs or, without a valid run, the invalid measured runs that have metrics."""
    valid = stopping.measured_runs(record, "valid")
    return valid or [run for run in stopping.measured_runs(record, "invalid") if "elapsed_s" in run]


def metric_values(runs: Sequence[Any], name: str) -> list[float]:
    """Return the values of a metric, with one value for each run that has the metric."""
    return [float(value) for run in runs if type(value := run.get(name)) in _NUMBERS]


def storage_speed(record: Record, peaks: Peaks) -> StorageSpeed:
    """Return the known speed of the storage of a cell: the maximum rate, and the rate for more readers.

    The maximum is the limit of an emulated storage, or the highest baseline if twice as many readers were not faster.
    If a model emulates the storage, the worker has calculated the rate for twice as many readers with the model.
    """
    settings = record["cell"]["settings"]
    if "staging" in settings:  # with staging, a cell reads from two storages at the same time
        return UNKNOWN
    limit, threads = emulated_limit(record), int(settings.get("threads") or 1)
    rates = peaks.rates_by_reader_count(record) if record["cell"]["data"] == "images" else {}
    maxima = [limit["mb_per_s"]] if limit else []
    enough = {count: rate for count, rate in rates.items() if count >= threads}
    pairs = [(few, many) for few in enough for many in enough if many >= max(MANY_READERS, 2 * few)]
    maxima += [max(rates.values()) for few, many in pairs if rates[many] < FLAT * rates[few]]
    more_readers = {count: rate for count, rate in rates.items() if count > threads}
    if not more_readers and (expected := emulation_facts(record).get("expected")):
        more_readers = {2 * threads: expected["ceiling_mb_per_s"]}
    best = max(more_readers, key=more_readers.__getitem__, default=None)
    return StorageSpeed(min(maxima, default=None), more_readers[best] if best else None, best)


def _affinity(provenance: Mapping[str, Any]) -> Sequence[int]:
    return provenance.get("affinity") or [0]


def _median(values: Any) -> float | None:
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def _model_busy_s(run: Run, record: Record) -> float | None:
    """Return the seconds in which the model of an emulated storage had a request, as its server process counted.

    Return None if no model emulates the storage.
    """
    served: Mapping[str, Any] = (
        run["served"].get(str(emulation_facts(record).get("name")), {}) if "served" in run else {}
    )
    return served.get("busy_s")


def _is_exact(run: Run, record: Record) -> bool:
    """Return whether the busy time of the storage is exact: a model counted the time, or there were few requests.

    Many requests make the kernel's count inexact, because the kernel counts a device as busy for the whole tick in
    which the device gets a request. If requests come one after the other, the sum of their durations is known as well;
    this sum is smaller than the count of ticks (`jobs.observe.counters`).
    """
    requests = sum(use["reads"] + use["writes"] for use in (run.get("device_use") or ())[:1])
    return _model_busy_s(run, record) is not None or requests * _TICK_S <= run["elapsed_s"]


def _storage_busy_s(run: Run, record: Record) -> float | None:
    """Return the seconds in which the device of the data had requests of the run, or None if unknown.

    The busy time of the device is divided between the run and other programs in proportion to their bytes.
    """
    if (modelled := _model_busy_s(run, record)) is not None:
        return modelled
    uses = run.get("device_use")
    if not uses:
        return None
    use = uses[0]
    all_bytes = use["read_bytes"] + use["written_bytes"]
    own_bytes = min(use["own_read_bytes"], use["read_bytes"]) + min(use["own_written_bytes"] or 0, use["written_bytes"])
    return use["busy_s"] * own_bytes / all_bytes if all_bytes else 0.0


def thread_shares(runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """Return two shares of the threads with work: the threads ready to run, and the threads that waited for storage.

    The shares are calculated over the samples of all runs. They are None if there are too few samples.
    """
    counts = [run["waits"]["threads"] for run in runs if (run.get("waits") or {}).get("error", "") is None]
    ready, waiting = (sum(states.get(state, 0) for states in counts) for state in ("running", "storage"))
    total = ready + waiting + sum(states.get(state, 0) for states in counts for state in disturbances.DELAYS)
    return (ready / total, waiting / total) if total >= _FEWEST_LOOKS else (None, None)


def _steps(record: Record, runs: Sequence[Run], medians: Mapping[str, float]) -> StepTimes:
    summaries = [run["steps"] for run in runs if "steps" in run]
    settings = record["cell"]["settings"]
    measured: Sequence[Any] = runs
    waiting, computing, saving = (
        statistics.median(run.get(name, 0.0) / run["wall_s"] if run["wall_s"] else 0.0 for run in measured)
        for name in ("load_s", "compute_s", "checkpoint_s")
    )
    return StepTimes(
        number=min((int(summary["number"]) for summary in summaries), default=0),
        waiting_s=medians.get("load_s", 0.0),
        first_s=statistics.median(metric_values(summaries, "first_load_s") or [0.0]),
        compute_s=medians.get("compute_s", 0.0),
        saving_s=medians.get("checkpoint_s", 0.0),
        ahead=bool(settings.get("prefetch")),
        on_processors=runs[0].get("accelerator") == "cpu" and settings["benchmark"].get("control", "none") == "none",
        batch=int(settings.get("batch_size") or 1),
        shares=(waiting, computing, saving),
    )
