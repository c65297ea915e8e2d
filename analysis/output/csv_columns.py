"""The columns of medians.csv, runs.csv and verdicts.csv: name, unit, meaning; it prints docs/reference/columns.md.

::

    python -m analysis.output.csv_columns > docs/reference/columns.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analysis.output.text_table import Code, TextTable
from jobs.model.results import METRICS

# A line for each column: its name, the unit in brackets if it has one, and what it is.
_CELL = """\
cell: id of the cell, the name of its folder
benchmark: name of the benchmark
benchmark_version: version of the benchmark; cells of two versions are never compared
"""
_MEDIANS = """\
status: state of the cell: done, running, invalid, failed
reason: why the cell is not done
bound: what limits the speed of the cell, as one word
bound_share: share of the time, or of what the resource can give, that `bound` rests on
bound_by: the numbers behind `bound`, in words
checks: all checks of the cell in words: `passed`, or each rule that failed with the number of runs
unstable: whether min to max is wider than `spread_limit`, as a share of the median
spread_limit: limit of the spread in this cell (`checks.spread_max`), a share
size: size of the recipe that gave the cell (`smoke`), if there is one
site: site of the campaign
host: host that the cell ran on
device: device that the data is on
tensorflow: version of TensorFlow
storage: label of the storage, with what distinguishes two of one name, and whether it is emulated
n_valid: measured runs that count
n_invalid: measured runs that broke a check
n_failed: measured runs that ended without metrics
bytes_per_image [bytes]: median of bytes read per image
spread: (max - min) / median of images/s; of MB/s or seconds if the cell has no images/s
coverage: probability that min to max holds the true median, 1 - 2/2^n for n independent runs
scaling: images/s relative to the same cell at one thread
load_s [s]: time that a training waited for input
input_share: `load_s` / `wall_s`
compute_share: `compute_s` / `wall_s`
checkpoint_share: `checkpoint_s` / `wall_s`
accelerator: what the runs really computed on
no_io_s [s]: runtime of the control without input
no_compute_s [s]: runtime of the control without computing
between: place of the runtime between its controls, (runtime - `no_io_s`) / `no_compute_s`
target: checkpoint target: `none`, a storage, or the two storages of a burst buffer
target_name: name of the target, without what distinguishes two of one name
mode: whether training waits for a snapshot, `sync` or `async`
target_storage: storage that has the snapshots at the end
fast_storage: storage of a burst buffer's fast side
target_device: device that has the snapshots at the end
fast_device: device of a burst buffer's fast side
snapshot_blocked_s [s]: training stood still for a snapshot
snapshot_write_s [s]: writing a snapshot to its first storage
snapshot_drain_s [s]: draining a snapshot from the fast storage to the slow one
snapshot_exposed_s [s]: part of the drain after the end of training
snapshot_durable_fast_s [s]: from the end of the step until the snapshot was durable on the first storage
snapshot_durable_slow_s [s]: from the end of the step until it was durable on the last storage
mb_per_s [MB/s]: rate of a baseline, read or written
engine: program that measured a baseline, with its version
baseline: cell of the baseline that this cell is compared with
baseline_access: access of that baseline: `random_read` or `read`
percent_of_baseline [%]: MB/s read, of what the baseline read
"""
_METRICS = """\
images_per_s [images/s]: images delivered per second of `wall_s`
au_percent [%]: share of the time in which the worst emulated accelerator computes, nominal (docs/reference/feed.md)
cpu_wait_percent [%]: share of the time in which a reader of that accelerator was ready and had no processor
au_mean_percent [%]: mean of these shares over the accelerators
au_dlio_percent [%]: as DLIO counts: mean share of the measured times of computing
read_mb_per_s [MB/s]: bytes that the pipeline read per second of `wall_s`
write_mb_per_s [MB/s]: bytes that a baseline wrote per second of `wall_s`
wall_s [s]: time of the measured part of a run
printed: number that a program of the user's printed
marked_s [s]: time of a program from the mark where its timed part begins
restore_s [s]: reading back and comparing the newest snapshot
restore_mb_per_s [MB/s]: rate of that reading
"""
_RUNS = """\
run: number of the run in its cell
role: warmup, measured or unprofiled
status: running, ended, valid, invalid or failed
reason: why the run does not count
accelerator: what the run computed on
emulated: storages of the run that are emulated
engine: program that measured a baseline
engine_version: version of that program
trace_file: trace of the system's counters, beside the record
profile_file: profile of the POSIX calls, beside the record
tensorflow_file: profile of TensorFlow, beside the record
source_only: counter in the trace of the one checkpoint target
source_fast: counter in the trace of the fast side of a burst buffer
source_slow: counter in the trace of its slow side
startup_s [s]: the start, a part of `wall_s` of a training; of a baseline what its engine took beyond `wall_s`
load_s [s]: waiting for input, a part of `wall_s`
compute_s [s]: computing steps, a part of `wall_s`
checkpoint_s [s]: standing still for snapshots, a part of `wall_s`
other_s [s]: what is measured of `wall_s` beside the other parts
sync_s [s]: meeting the other ranks, a part of `wall_s`
validate_s [s]: validating, a part of `wall_s`
transfer_s [s]: transfer of a baseline; all of `wall_s` if its engine reports no parts
images: images that were delivered
images_asked: images that were asked for
image_errors: images that could not be decoded
bytes_read [bytes]: bytes that the pipeline read
bytes_written [bytes]: bytes that a baseline wrote
bytes_asked [bytes]: bytes that a baseline was to read or write
bytes_predicted [bytes]: bytes of the loads that follow from parameters and seed
listed_bytes [bytes]: bytes of the files by their list
device_bytes [bytes]: fetched from the device for this process and those that read for it
device_read_bytes [bytes]: read from the device by all processes
to_fetch_bytes [bytes]: the least that the devices must deliver
written_bytes [bytes]: written to devices by this process
reached_bytes [bytes]: what everybody wrote to the storage of a baseline that writes
resident_fraction: share of the data's pages in memory before the start
linked_files: names of files that have another name among the files of the data
changed_files: files that are not what their list says
requests: requests of a baseline
read_bytes_each [bytes]: size of a random read of a baseline
reads_per_s [1/s]: random reads per second
build_s [s]: building the network
parameters: weights of the network
state_bytes [bytes]: size of the network's state, which a snapshot holds
checkpoints_asked: snapshots that the run was to save
checkpoint_finish_s [s]: part of `checkpoint_s` after the last step
drain_exposed_s [s]: time for which snapshots were still drained after the end of training, all together
drain_wait_s [s]: waiting after the run for the drain to end
snapshot_bytes [bytes]: size of a snapshot, the median of the run
cpu_s [s]: processor time of the run
cpus: processors that the run might use
other_cpu [processors]: kept busy by others, on average
load_average: load of the machine before the run
steal_s [s]: processor time that the hypervisor took
elapsed_s [s]: time between the two readings of the counters, by the clock of the run
kernel_s [s]: the same time by the kernel's own clock
raw_s [s]: the same time by the clock of the hardware, which is never adjusted
elapsed_s_with_fork [s]: time of the run with its fork
overhead_s [s]: time of the run's process beyond `wall_s`
pair: number of the pair that the run belongs to
private_caches: 1 if each rank has a page cache of its own
read_s [s]: reading files of HDF5
unpack_s [s]: waiting for samples that were read and shuffled
shuffle_s [s]: shuffling samples
loads: files that were loaded
host: host of the run
started_utc: when the run began
"""
_VERDICTS = """\
claim: what the paper says, in words
kind: claim on a `device` of the paper, or on a `shape`
about: cells that the verdict is about
pair: the two cells of a row below its claim; empty for a whole set
source: paper and place
published: value of the paper
ours: our value
unit: unit of `ours` and `interval`
interval: 95 % interval of our value (JSON, low and high)
tolerance: distance at which our value still holds, a share
tolerance_from: where the tolerance comes from
verdict: holds, differs, not comparable, not measured
emulated: whether storages were emulated, and by what
why: reason of the verdict
cells: ids of the cells, separated by blanks
measure: commands that measure what is missing
"""
_PATTERNS = """\
`METRIC_min`, `METRIC_max` | medians.csv | least and largest of the runs that count; `METRIC` is their median
`threads` … and names with a dot | medians.csv, runs.csv | settings of the cell ([keys.md](keys.md))
`settings.NAME`, `run.NAME` | medians.csv, runs.csv | a setting, a metric of a run, named as another column
`check.RULE` | runs.csv | whether the run kept the rule ([proofs.md](../proofs.md)); empty: unverifiable
`posix_NAME` | runs.csv | totals of the profile of POSIX calls ([profile](../how-to/profile.md))
`posix_read_size_N` | runs.csv | reads in the Nth of Darshan's ten bins of size
`tensorflow_NAME_s` | runs.csv | time of the profiled steps and waiting in them, by TensorFlow's profiler
`tensorflow_spent_KIND` | runs.csv | seconds of these steps by kind of work ([traces](../how-to/traces.md))
`tensorflow_saves_REMEDY` | runs.csv | seconds that a remedy would save of them
`snapshot_NAME_s` | runs.csv | median over the run's snapshots of the time that medians.csv has
`PHASE_cold_loads`, `PHASE_warm_loads` | runs.csv | files of HDF5 that were loaded from the device, from memory
`PHASE_cold_read_s`, `PHASE_warm_read_s` | runs.csv | median seconds of such a load
`METRIC_low`, `METRIC_high` | a chart's CSV | interval of the median, from six runs on
"""


class CsvColumn(NamedTuple):
    """A column of a CSV: its name, its unit (empty if it has none), and what it is."""

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
"""The columns that have a name of their own, by the file that has them; a file has those of its cells' benchmarks."""


def page_lines() -> Iterator[str]:
    """Yield the lines of docs/reference/columns.md."""
    yield "# The columns of the tables"
    yield ""
    yield "Made by `python -m analysis.output.csv_columns > docs/reference/columns.md`. A missing value is empty; 1 MB"
    yield "is 10^6 bytes; a number without a unit is a count or a share. A table has"
    yield "the columns of the benchmarks whose cells it lists."
    for file, columns in FILES.items():
        units = [METRICS[each.name].unit if each.name in METRICS else each.unit for each in columns]
        rows = [[Code(each.name), unit, each.meaning] for each, unit in zip(columns, units, strict=True)]
        yield from ("", f"## tables/{file}", "")
        yield from TextTable(("column", "unit", "meaning"), rows, [True] * 3).markdown().splitlines()
    yield from ("", "## Columns by a pattern", "", "| columns | in | meaning |", "| --- | --- | --- |")
    yield from (f"| {line} |" for line in _PATTERNS.splitlines())  # our own Markdown, with links


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in page_lines()))
