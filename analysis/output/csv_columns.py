"""List the columns of medians.csv, runs.csv and verdicts.csv with their units and meanings.

The command that makes the page docs/reference/columns.md from this list is::

    python -m analysis.output.csv_columns > docs/reference/columns.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analysis.output.text_table import Code, TextTable
from jobs.model.results import METRICS

# Each line describes one column: the name, the unit in brackets if the column has a unit, and the meaning.
_CELL = """\
cell: id of the cell, which is also the name of the cell's folder
benchmark: name of the benchmark
benchmark_version: version of the benchmark; cells of different versions are never compared
"""
_MEDIANS = """\
status: status of the cell: done, unfinished, invalid or failed
reason: reason why the cell is not done
bound: resource that limits the speed of the cell, as one word
bound_share: share of the time, or share of the resource's capacity, from which `bound` follows
bound_by: numbers from which `bound` follows, in words
checks: result of all checks in words: `passed`, or each rule that failed with the number of runs
unstable: whether (max - min) / median is above `spread_limit`
spread_limit: largest spread of a stable cell (`checks.spread_max`), as a fraction of the median
size: size of the recipe that made the cell (for example `smoke`); empty if the recipe has no size
site: name of the campaign's site
host: host on which the cell ran
device: device that holds the dataset
tensorflow: version of TensorFlow
storage: name of the storage, with a remark if the storage is emulated, and with settings if two storages have one name
n_valid: number of valid measured runs, from which the medians are made
n_invalid: number of measured runs that broke a check
n_failed: number of measured runs that ended without metrics
bytes_per_image [bytes]: median of the bytes read per image
spread: (max - min) / median of images/s; if the cell has no images/s, of MB/s or seconds
coverage: probability that the true median is between min and max, which is 1 - 2/2^n for n independent runs
scaling: images/s divided by the images/s of the same cell at one thread
load_s [s]: time for which a training waited for input
input_share: `load_s` / `wall_s`
compute_share: `compute_s` / `wall_s`
checkpoint_share: `checkpoint_s` / `wall_s`
accelerator: accelerator that the runs used
no_io_s [s]: runtime of the same cell without input (`control=no_io`)
no_compute_s [s]: runtime of the same cell without computing (`control=no_compute`)
between: position of the runtime between its two controls, (runtime - `no_io_s`) / `no_compute_s`
target: checkpoint target: `none`, a storage, or the two storages of a burst buffer
target_name: name of the checkpoint target, without the settings that distinguish two targets of one name
mode: `sync` if the training waits until a snapshot is saved, otherwise `async`
target_storage: storage that has the snapshots at the end of the run
fast_storage: fast storage of a burst buffer
target_device: device that has the snapshots at the end of the run
fast_device: device of a burst buffer's fast storage
snapshot_blocked_s [s]: time for which the training stopped for a snapshot
snapshot_write_s [s]: time to write a snapshot to the first storage
snapshot_drain_s [s]: time to copy a snapshot from the fast storage to the slow storage of a burst buffer
snapshot_exposed_s [s]: part of `snapshot_drain_s` after the end of the training
snapshot_durable_fast_s [s]: time from the end of the step until the snapshot was durable on the first storage
snapshot_durable_slow_s [s]: time from the end of the step until the snapshot was durable on the last storage
mb_per_s [MB/s]: read rate or write rate of a baseline
engine: program that measured a baseline, with its version
baseline: id of the baseline cell with which this cell is compared
baseline_access: access pattern of this baseline: `random_read` or `read`
percent_of_baseline [%]: read rate (MB/s) of the cell as a percentage of the baseline's read rate
"""
_METRICS = """\
images_per_s [images/s]: images delivered per second of `wall_s`
au_percent [%]: accelerator utilization (AU), the nominal computing time as a share of the wall time, of the emulated \
accelerator with the lowest AU (docs/reference/feed.md)
cpu_wait_percent [%]: share of the time in which a reader of this accelerator was ready to run but had no processor
au_mean_percent [%]: mean of the AU over all accelerators
au_dlio_percent [%]: AU by the definition of DLIO, from measured computing times, mean over all accelerators
read_mb_per_s [MB/s]: bytes that the input pipeline read per second of `wall_s`
write_mb_per_s [MB/s]: bytes that a baseline wrote per second of `wall_s`
wall_s [s]: duration of the measured part of a run
printed: number that the user's program printed
marked_s [s]: duration of the user's program after the mark with which its timed part begins
restore_s [s]: time to read back the newest snapshot and to compare the snapshot with the saved state
restore_mb_per_s [MB/s]: rate at which the snapshot was read back
"""
_RUNS = """\
run: number of the run in its cell
role: role of the run: warmup or measured; unprofiled in records of version 0.2
status: status of the run: running, ended, valid, invalid or failed
reason: reason why the run is invalid or failed
accelerator: accelerator that the run used
emulated: storages of the run that are emulated
engine: program that measured a baseline
engine_version: version of the program that measured a baseline
trace_file: file with the system trace, in the folder of the record
profile_file: file with the profile of POSIX calls, in the folder of the record
tensorflow_file: file with the trace of TensorFlow's profiler, in the folder of the record
source_only: counter in the system trace for the only storage of the checkpoint target
source_fast: counter in the system trace for the fast storage of a burst buffer
source_slow: counter in the system trace for the slow storage of a burst buffer
startup_s [s]: start of a training, a part of `wall_s`; for a baseline, time of its engine in addition to `wall_s`
load_s [s]: time spent waiting for input, a part of `wall_s`
compute_s [s]: time spent computing steps, a part of `wall_s`
checkpoint_s [s]: time for which the training stopped for snapshots, a part of `wall_s`
other_s [s]: part of `wall_s` that belongs to no other part
sync_s [s]: time spent waiting for the other ranks, a part of `wall_s`
validate_s [s]: time spent in validation, a part of `wall_s`
transfer_s [s]: transfer time of a baseline; equal to `wall_s` if the engine does not report parts
images: number of images that were delivered
images_asked: number of images that the run should deliver
image_errors: number of images that could not be decoded
bytes_read [bytes]: bytes that the input pipeline read
bytes_written [bytes]: bytes that a baseline wrote
bytes_asked [bytes]: bytes that a baseline should read or write
bytes_predicted [bytes]: bytes that a run should read, computed from its parameters and seed
listed_bytes [bytes]: total size of the files that the run read, by the list of the dataset's files
device_bytes [bytes]: bytes read from the device by the process of the run and by processes that read on its behalf
device_read_bytes [bytes]: bytes read from the device by all processes
lowest_read_bytes [bytes]: bytes read from the lowest device below the device by all processes
to_fetch_bytes [bytes]: least number of bytes that the devices must deliver
written_bytes [bytes]: bytes that the process of the run wrote to devices
reached_bytes [bytes]: bytes that all processes wrote to the storage of a writing baseline
resident_fraction: share of the dataset's pages that were in the page cache before the start of the run
linked_files: number of file names in the dataset that are another name (hard link) of a listed file
changed_files: number of files that differ from the list of the dataset's files
data_bytes [bytes]: size of the files that a user's program should read
data_pages_bytes [bytes]: size of the pages of these files
data_in_memory_bytes [bytes]: size of the pages of these files in the page cache after the program's end
requests: number of requests of a baseline
read_bytes_each [bytes]: size of one random read of a baseline
reads_per_s [1/s]: number of random reads per second
build_s [s]: time to build the network
parameters: number of weights in the network
state_bytes [bytes]: size of the network's state, which is saved in a snapshot
checkpoints_asked: number of snapshots that the run should save
checkpoint_finish_s [s]: part of `checkpoint_s` after the last step
drain_exposed_s [s]: time for which the drain still copied snapshots after the end of training
drain_wait_s [s]: time for which the run waited for the end of the drain after its last step
snapshot_bytes [bytes]: median size of the run's snapshots
restore_resident: share of the snapshot's pages in the page cache before the snapshot was read back
cpu_s [s]: processor time of the run
cpus: number of processors that the run was allowed to use
other_cpu [processors]: mean number of processors that other processes kept busy
load_average: load average of the machine before the run
io_pressure_s [s]: time in which a task of the control group (or of the machine) waited for reads or writes
quota_cores [processors]: CPU quota of the run
throttled_periods: number of the quota's periods in which the quota stopped threads
throttled_s [s]: time for which the quota stopped threads
steal_s [s]: processor time that the hypervisor gave to other virtual machines
elapsed_s [s]: time between the two readings of the counters, by the clock of the run
kernel_s [s]: time between the two readings of the counters, by the clock of the kernel
raw_s [s]: time between the two readings of the counters, by the hardware clock, which is never adjusted
elapsed_s_with_fork [s]: duration of the run, with the time to fork its process
overhead_s [s]: time of the run's process in addition to `wall_s`
program_s [s]: time from the start to the end of a user's program, a part of `wall_s`
left_s [s]: time for which children of a user's program ran after the program's end, a part of `wall_s`
late_share: mean lateness of a step, as a share of the step, of the emulated accelerator with the largest lateness
straggler: rank that took longest
start_skew_s [s]: longest possible time between the first and the last start of a rank
windows_over_trace: MB/s of the profile divided by MB/s of the system trace, median over the parts (`profile.every`)
pair: number of the pair to which the run belongs
private_caches: 1 if each rank has its own page cache
read_s [s]: time spent reading HDF5 files
unpack_s [s]: time spent waiting for samples that were read and shuffled
shuffle_s [s]: time spent shuffling samples
loads: number of files that were loaded
host: host of the run
started_utc: start time of the run (UTC)
"""
_VERDICTS = """\
claim: statement of the paper, in words
kind: `device` for a claim about a device of the paper, `shape` for a claim that any machine can test
about: settings of the cells to which the verdict applies
pair: the two compared cells in a row below its claim; empty in the row of a whole claim
source: paper and section, figure or table
published: value in the paper
ours: value measured in this campaign
unit: unit of `ours` and `interval`
interval: 95 % interval of `ours`, as JSON list of the lower and the upper limit
tolerance: fraction by which the range of values for which the claim holds is widened; empty if it is not widened
tolerance_from: source of the tolerance
verdict: holds, differs, not comparable or not measured
emulated: kind of emulation and the emulated storages; empty if no storage was emulated
why: reason for the verdict
cells: ids of the cells, separated by spaces
measure: commands that measure the missing cells
"""
_PATTERNS = """\
`METRIC_min`, `METRIC_max` | medians.csv | minimum and maximum over the valid measured runs; `METRIC` has the median
`threads` … and names with a dot | medians.csv, runs.csv | settings of the cell ([keys.md](keys.md))
`settings.NAME`, `run.NAME` | medians.csv, runs.csv | a setting or a metric of a run that has the name of another column
`check.RULE` | runs.csv | whether the run passed the check ([proofs.md](../proofs.md)); empty if unverifiable
`posix_NAME` | runs.csv | totals of the profile of POSIX calls ([profile](../how-to/profile.md))
`posix_read_size_N` | runs.csv | number of reads in bin N of Darshan's ten size bins, which start at 0
`tensorflow_NAME_s` | runs.csv | duration of the profiled steps, and time for which these steps waited for input
`tensorflow_spent_KIND` | runs.csv | seconds of the profiled steps by kind of work ([traces](../how-to/traces.md))
`tensorflow_saves_REMEDY` | runs.csv | seconds of the profiled steps that a remedy would save at most
`snapshot_NAME_s` | runs.csv | median over the run's snapshots; medians.csv describes the times
`PHASE_cold_loads`, `PHASE_warm_loads` | runs.csv | number of HDF5 files loaded from the device, or from memory
`PHASE_cold_read_s`, `PHASE_warm_read_s` | runs.csv | median seconds of a load from the device, or from memory
`METRIC_low`, `METRIC_high` | CSV file of a chart | confidence interval of the median, for cells with at least six runs
"""


class CsvColumn(NamedTuple):
    """A column of a CSV file: its name, its unit (`""` if the column has no unit), and its meaning."""

    name: str
    unit: str
    meaning: str


def _columns(*lists: str) -> list[CsvColumn]:
    lines = [line.partition(": ") for each in lists for line in each.splitlines()]
    names = [(name.partition(" ["), meaning) for name, _, meaning in lines]
    return [CsvColumn(name, unit.rstrip("]"), meaning) for (name, _, unit), meaning in names]


FILES: Mapping[str, list[CsvColumn]] = {
    "medians.csv": _columns(_CELL, _MEDIANS, _METRICS),
    "runs.csv": _columns(_CELL, _RUNS, _METRICS),
    "verdicts.csv": _columns(_VERDICTS),
}
"""The columns of each CSV file, without the columns in `_PATTERNS`.

A file of a campaign has only the columns that belong to the benchmarks of its cells.
"""


def page_lines() -> Iterator[str]:
    """Yield the lines of docs/reference/columns.md."""
    yield "# The columns of the tables"
    yield ""
    yield "This page is made by `python -m analysis.output.csv_columns > docs/reference/columns.md`."
    yield ""
    yield "A missing value is an empty field. 1 MB is 10^6 bytes. A number without a unit is a count or a fraction. A"
    yield "table has only the columns that belong to the benchmarks of its cells."
    for file, columns in FILES.items():
        units = [METRICS[each.name].unit if each.name in METRICS else each.unit for each in columns]
        rows = [[Code(each.name), unit, each.meaning] for each, unit in zip(columns, units, strict=True)]
        yield from ("", f"## tables/{file}", "")
        yield from TextTable(("column", "unit", "meaning"), rows, [True] * 3).markdown().splitlines()
    yield from ("", "## Columns named by a pattern", "", "| columns | file | meaning |", "| --- | --- | --- |")
    yield from (f"| {line} |" for line in _PATTERNS.splitlines())  # not escaped, because the lines are Markdown already


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in page_lines()))
