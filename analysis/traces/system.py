"""Read the system trace of a run (format of `dstat --output`), and select the run of a cell whose trace is drawn."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.frame import Row, rows_of
from analysis.records.read_records import AbsentError, UnreadableError, read_content
from analysis.statistics.medians import valid_measured_runs
from jobs.model.reading import MOST

BYTES_PER_MB = 10**6
# The maximum size of a trace file. A trace of one day with a sample every 0.1 s has 150 MB.
MOST_BYTES = 1 << 28
# Prefixes of counter names: a local device (named as in dstat), a Lustre client and an NFS mount.
STORAGE = ("dsk/", "llite/", "nfs/")
PROCESS, EPOCH = "process", ("epoch", "epoch")
MISSING = "trace missing"
SPOILT = UNREADABLE, SHORT, WITHOUT_READS = "trace unreadable", "trace too short", "trace without reads"


class TraceError(Exception):
    """An error for a trace that cannot be drawn; `str()` gives the reason in a few words."""


@dataclass(frozen=True)
class ReadTrace:
    """The read rate of a run over time, from its system trace.

    `samples` has one row per interval: the elapsed time at the end of the interval (`elapsed_s`), the read rate in the
    interval (`read_mb_per_s`, may be missing) and the `phase` of the run. `source` is the name of the counter: the
    first storage counter that has values, or else the counter of the process.
    """

    source: str
    samples: pd.DataFrame
    began_s: float  # the Unix time at which `elapsed_s` is 0, or 0.0 if the trace has no Unix times

    def mb_between(self, edges_s: Sequence[float]) -> NDArray[Any]:
        """Return the MB read between each two consecutive Unix times in `edges_s`.

        The read rate is assumed to be constant within an interval of the trace.
        """
        spans, rates = self.samples["elapsed_s"].diff().fillna(0), self.samples["read_mb_per_s"].fillna(0)
        read = (spans * rates).cumsum()
        return np.diff(np.interp(np.asarray(edges_s) - self.began_s, self.samples["elapsed_s"], read))

    def edge_s(self, start_s: float, end_s: float) -> float:
        """Return the seconds of the intervals in which `start_s` and `end_s` (Unix times) lie.

        The MB that were read before or after these times in the two intervals are unknown. Times between `start_s` and
        `end_s` without any interval are added.
        """
        times = self.began_s + self.samples["elapsed_s"].to_numpy()
        first, last = np.clip(
            [np.searchsorted(times, start_s, "right"), np.searchsorted(times, end_s)], 1, len(times) - 1
        )
        lengths = np.diff(times)
        missing_s = max(0.0, times[0] - start_s) + max(0.0, end_s - times[-1])
        return float(lengths[first - 1] + lengths[last - 1] + missing_s)


def read_trace(path: Path) -> ReadTrace:
    """Return the read rates in a system trace file.

    The file has two header rows: the groups of the columns, then the names of the columns. An empty field in the first
    row means that the column belongs to the group on its left. Raises TraceError if the file is missing or has another
    format.
    """
    with _trace_errors():
        table, columns = _table(path)
        source, rate = _first_read(table, columns)
        samples = _samples(table, columns, read_mb_per_s=rate / BYTES_PER_MB)
        began = table[columns[EPOCH]].astype("float64") - samples["elapsed_s"] if EPOCH in columns else None
        return ReadTrace(source, samples, 0.0 if began is None else float(began.iloc[0]))


def read_written(path: Path, source: str, images: Sequence[str] = ()) -> pd.DataFrame:
    """Return the write rates of the counter `source` over time: `elapsed_s`, `written_mb_per_s` and `phase`.

    `images` names the counters of loop devices whose image files are on the device of `source`. The writes of these
    counters are subtracted, because they are also counted on the device of `source`, possibly later. Raises TraceError
    if the file is missing or has another format.
    """
    with _trace_errors():
        table, columns = _table(path)
        rate, *above = (table[columns[each, "writ"]].astype("float64") for each in (source, *images))
        spans = table[columns["elapsed", "s"]].astype("float64").diff()
        if above:
            own = ((rate - sum(above)) * spans).cumsum().clip(lower=0).cummax()
            rate = (own.ffill().fillna(0).diff() / spans).where(rate.notna())
        return _samples(table, columns, written_mb_per_s=rate / BYTES_PER_MB)


@contextmanager
def _trace_errors() -> Iterator[None]:
    try:
        yield
    except AbsentError as error:
        raise TraceError(MISSING) from error
    except (UnreadableError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise TraceError(UNREADABLE) from error


def _table(path: Path) -> tuple[pd.DataFrame, dict[tuple[str, str], int]]:
    """Return the rows of a trace file, and a mapping from (group, name) of a column to the index of the column."""
    text = read_content(path, MOST_BYTES).decode()
    groups, names = itertools.islice(csv.reader(io.StringIO(text)), 2)
    names_of_columns = list(zip(pd.Series(groups).replace("", None).ffill(), names, strict=True))
    table = pd.read_csv(io.StringIO(text), skiprows=2, header=None, names=range(len(names_of_columns)), index_col=False)
    return table, {column: number for number, column in reversed([*enumerate(names_of_columns)])}


def _samples(table: pd.DataFrame, columns: Mapping[tuple[str, str], int], **rates: pd.Series[float]) -> pd.DataFrame:
    elapsed = table[columns["elapsed", "s"]].astype("float64")
    if len(elapsed) < 2 or not elapsed.is_monotonic_increasing:  # noqa: PLR2004 - one interval needs two samples
        raise TraceError(SHORT)
    samples = pd.DataFrame({"elapsed_s": elapsed, **rates})
    if ((samples < 0) | (samples > MOST)).any(axis=None):
        raise TraceError(UNREADABLE)
    return samples.assign(phase=table[columns["phase", "phase"]])


def _first_read(table: pd.DataFrame, columns: dict[tuple[str, str], int]) -> tuple[str, pd.Series[float]]:
    """Return the name and the read rates of the first counter that has values.

    The storage counter of the dataset, which is the first storage column, is tried before the counter of the process.
    """
    storage = [group for group, name in columns if name == "read" and group.startswith(STORAGE)]
    first = [min(storage, key=lambda group: columns[group, "read"])] if storage else []
    for source in (*first, PROCESS):
        rate = table[columns[source, "read"]].astype("float64")
        if rate.notna().any():
            return source, rate
    raise TraceError(WITHOUT_READS)


def typical_runs(runs: pd.DataFrame, more: Sequence[str] = ()) -> Mapping[str, Row]:
    """Return for each cell the valid measured run with the median runtime.

    If a cell has an even number of runs, return the faster of the two runs in the middle. Each run is a dictionary with
    the columns that a chart needs. Columns named in `more` are added if `runs` has them.
    """
    names = ["run", "wall_s", *(name for name in ("trace_file", *more) if name in runs)]
    good = valid_measured_runs(runs, names).sort_values(["cell", "wall_s", "run"])
    position, size = good.groupby("cell").cumcount(), good.groupby("cell")["cell"].transform("size")
    return {row["cell"]: row for row in rows_of(good[position == (size - 1) // 2])}


def samples_of_cells(  # noqa: PLR0913 - all parameters are needed to make the table
    cells: pd.DataFrame,
    typical: Mapping[str, Row],
    folders: Mapping[str, Path],
    of_cell: Sequence[str],
    of_trace: Sequence[str],
    *,
    read: Callable[[Row, Row, Path], pd.DataFrame],
) -> pd.DataFrame:
    """Return the table of a chart over time, which has one row per sample of each cell's trace.

    A cell without a readable trace has a single row, and the column `status` of this row gives the reason.

    Parameters
    ----------
    of_cell
        The columns of the cell, which are repeated in each row of the cell.
    of_trace
        The columns of the trace.
    read
        A function that returns the samples, given the row of the cell, the run and the path of the trace.
    """
    nothing = {name: math.nan if name.endswith(("elapsed_s", "mb_per_s")) else None for name in of_trace}
    parts = []
    for row in rows_of(cells):
        run = typical.get(row["cell"], {})
        facts = {name: row[name] for name in of_cell} | _of_run(row, run)
        rows = pd.DataFrame([nothing])
        try:
            rows = read(row, run, _trace(folders[row["cell"]], run)) if facts["status"] == "done" else rows
        except TraceError as error:
            facts["status"] = str(error)
        parts.append(rows.assign(**facts)[[*of_cell, *of_trace]])
    return pd.concat(parts, ignore_index=True)


def any_trace(frame: pd.DataFrame) -> bool:
    """Return whether a chart is made, because some cell has a trace that can be drawn or that cannot be read.

    A trace that cannot be read must be reported in the table of the chart.
    """
    return bool(frame["status"].isin(["done", *SPOILT]).any())


def has_trace(folder: Path, run: Row) -> bool:
    """Return whether a run names a trace file, and this file exists in the folder of the cell."""
    return isinstance(run["trace_file"], str) and os.path.lexists(_trace(folder, run))


def _of_run(row: Row, run: Row) -> dict[str, Any]:
    if row["status"] != "done":
        return {}
    if not isinstance(run.get("trace_file"), str):
        return {"status": "no trace"}
    return {"run": run["run"], "runtime_s": run["wall_s"], "file": run["trace_file"]}


def _trace(folder: Path, run: Row) -> Path:
    """Return the path of a run's trace file.

    Only the last part of the recorded path is used, so that a record cannot name a file outside its own folder.
    """
    return folder / str(run["trace_file"]).rpartition("/")[2]
