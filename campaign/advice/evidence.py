"""Gather the evidence on a cell from its record, trace and profile, and from baselines of its storage."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from campaign.cells.verdicts import Verdicts
from campaign.errors import CampaignError, UsageError
from jobs.benchmarks import registry
from jobs.judging.bound import Bottleneck, bound_of_work
from jobs.judging.work_done import StepTimes, TimeUse, metric_values, runs_with_metrics, time_use
from jobs.model.record import Record
from jobs.model.settings import Node, flat_items
from jobs.system import files

_MOST_TRACE_BYTES = 1 << 24  # half a day with one sample per second
_MEDIANS = ("elapsed_s", "wall_s", "load_s", "compute_s", "cpu_s", "startup_s", "other_cpu", "steal_s", "images",
            "bytes_read", "throttled_s", "read_mb_per_s", "images_per_s")  # fmt: skip
_TRACED = {("io pressure", "some"): "I/O pressure", ("total cpu usage", "idl"): "processors idle"}  # in %


class Fact(NamedTuple):
    """A number on which a finding is based."""

    what: str
    value: float
    unit: str
    source: str  # where the number was measured: record, trace, profile, tensorflow, file, baseline


@dataclass(frozen=True)
class Evidence:
    """The measurements of a cell that the rules read; metrics are medians over the runs, times are in seconds."""

    cell: str
    settings: Mapping[str, Any]  # by dotted keys
    kind: str
    figure: str  # key of the figure of merit
    unit: str
    rates: Mapping[str, tuple[float, ...]]  # for each metric that rules predict, the values of all runs
    run: Mapping[str, float]  # medians of the metrics over the runs
    work: TimeUse  # how the runs spent their time
    accelerator: str = ""
    emulated: bool = False  # whether the storage is emulated
    valid: bool = True  # whether the runs are valid; false if the cell has only invalid runs
    readers: Mapping[int, float] = field(default_factory=dict)  # MB/s of small reads, by the number of readers
    sequential: float | None = None  # MB/s of one large file, or the limit of an emulated storage
    other_storages: Mapping[str, tuple[Node, float]] = field(
        default_factory=dict
    )  # other storages, MB/s of small reads
    profile: Mapping[str, float] = field(default_factory=dict)  # counts and times of POSIX calls
    tensorflow: Mapping[str, float] = field(default_factory=dict)  # times of the profiled steps, by dotted keys
    trace: Mapping[str, float] = field(default_factory=dict)  # means of the system trace, in %

    def __getitem__(self, name: str) -> float:
        """Return the median of a metric over the runs, or 0 if no run has this metric."""
        return self.run.get(name, 0.0)

    @property
    def threads(self) -> int:
        """Return the number of files that the pipeline reads at once (``num_parallel_calls`` of its map)."""
        return int(self.settings["threads"])

    @property
    def cold(self) -> bool:
        """Return whether the runs read their files from the storage and not from the page cache."""
        return self.settings.get("cache") == "cold" and self["bytes_read"] > 0

    @property
    def batch(self) -> int:
        """Return the number of images in a batch."""
        return int(self.settings["batch_size"])

    @property
    def steps(self) -> StepTimes:
        """Return the times of the training steps; raises TypeError if the cell is no training."""
        if self.work.steps is None:
            raise TypeError(self.kind)
        return self.work.steps

    @property
    def bound(self) -> Bottleneck:
        """Return the bound of the cell (see `jobs.judging.bound`), with the numbers that decide it."""
        return bound_of_work(self.work)

    @property
    def trains(self) -> bool:
        """Return whether the training computes on the CPU.

        Then nobody knows how much of the CPU time the input pipeline used.
        """
        return self.work.steps is not None and self.work.steps.on_processors

    @property
    def waiting_share(self) -> float:
        """Return the share of the run time that was spent waiting for input."""
        return min(1.0, self["load_s"] / self["elapsed_s"])

    def facts(self, *names: str) -> list[Fact]:
        """Return the medians of the named metrics as facts with units."""
        return [Fact(name, self[name], _unit_of(name), "record") for name in names]

    def trace_facts(self) -> list[Fact]:
        """Return the facts of the system trace."""
        return [Fact(name, value, "%", "trace") for name, value in self.trace.items()]


def _unit_of(name: str) -> str:
    units = {"mb_per_s": "MB/s", "images_per_s": "images/s", "_s": "s", "_cpu": "cores", "bytes_read": "B"}
    return next((unit for suffix, unit in units.items() if name.endswith(suffix)), "")


def gather_evidence(verdicts: Verdicts, recorded: Record) -> Evidence:
    """Return the evidence on a cell from its judged record.

    Raises UsageError for a cell to which the rules do not apply, CampaignError if no run has metrics.
    """
    settings = recorded["cell"]["settings"]
    benchmark = registry.benchmark_of(settings)
    if benchmark.data != "images" or settings.get("nodes", 1) != 1:
        raise UsageError(f"{recorded['cell']['id']} does not read images on one node", "name a cell that reads images")
    runs, work = runs_with_metrics(recorded), time_use(recorded, verdicts.peaks)
    if work is None:
        raise CampaignError(
            f"{recorded['cell']['id']} has no run with metrics", "first measure the cell: show prints the command"
        )
    figure = benchmark.figure_of(settings["benchmark"])
    provenance: Mapping[str, Any] = recorded["provenance"]
    peaks = verdicts.peaks
    median_run: Mapping[str, Any] = sorted(runs, key=lambda run: run["elapsed_s"])[len(runs) // 2]
    return Evidence(
        cell=recorded["cell"]["id"],
        settings=dict(flat_items(settings)),
        kind=benchmark.kind,
        figure=figure.key,
        unit=figure.unit,
        rates={key: tuple(metric_values(runs, key)) for key in {figure.key, "read_mb_per_s", "wall_s"}},
        run={name: statistics.median(values) for name in _MEDIANS if (values := metric_values(runs, name))},
        work=work,
        accelerator=str(median_run.get("accelerator", "")),
        emulated=bool((provenance.get("emulated") or {}).get("storage")),
        valid=any(run["status"] == "valid" for run in runs),
        readers=peaks.rates_by_reader_count(recorded),
        sequential=peaks.sequential_rate(recorded),
        other_storages=peaks.other_storages(recorded),
        profile=_medians_of_part(runs, "profile", "meta_s"),
        tensorflow=_medians_of_part(runs, "tensorflow", "remedies_s"),
        trace=_trace_means(verdicts.folder.cell(recorded["cell"]["id"]), median_run),
    )


def _medians_of_part(runs: Sequence[Any], part: str, needed: str) -> dict[str, float]:
    """Return the medians of the numbers in one part of the runs, such as ``profile``.

    Runs whose part lacks the key `needed` are ignored.
    """
    parts = [dict(flat_items(run[part])) for run in runs if needed in (run.get(part) or {})]
    by_name = {name: metric_values(parts, name) for name in (parts[0] if parts else ())}
    return {name: statistics.median(values) for name, values in by_name.items() if values}


def _trace_means(cell_folder: Path, run: Mapping[str, Any]) -> dict[str, float]:
    """Return means from the system trace of a run, over the time of its iteration.

    The result is empty if the trace cannot be read.
    """
    name = Path(str((run.get("trace") or {}).get("file") or "")).name
    try:
        text = files.read_file(cell_folder / name, _MOST_TRACE_BYTES).decode("utf-8") if name else ""
        groups, columns, *rows = csv.reader(io.StringIO(text))
    except (OSError, ValueError, csv.Error):
        return {}
    columns_of_label: dict[str, int] = {}
    group = ""
    for index, (group_name, column) in enumerate(zip(groups, columns, strict=False)):
        group = group_name or group
        label = f"{group} busy" if group.startswith("model/") and column == "busy" else _TRACED.get((group, column))
        columns_of_label |= {label: index} if label else {}
    iteration_rows = [row for row in rows if len(row) == len(columns) and row[-1] == "iteration"]
    values_of_label = {
        label: [float(row[index]) for row in iteration_rows if _is_number(row[index])]
        for label, index in columns_of_label.items()
    }
    return {label: statistics.fmean(values) for label, values in values_of_label.items() if values}


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.replace(".", "", 1).isdigit()
