"""The system trace of a run, in the format of `dstat --output`, and the typical run of a cell, whose trace is drawn."""

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
from analysis.statistics.medians import counted_runs
from jobs.model.reading import MOST

BYTES_PER_MB = 10**6
# A day with a sample per tenth of a second has 150 MB.
MOST_BYTES = 1 << 28
# Counters of a local device (dstat's own name), of Lustre's client and of an NFS mount.
STORAGE = ("dsk/", "llite/", "nfs/")
PROCESS, EPOCH = "process", ("epoch", "epoch")
MISSING = "trace missing"
SPOILT = UNREADABLE, SHORT, WITHOUT_READS = "trace unreadable", "trace too short", "trace without reads"


class TraceError(Exception):
    """An error of a trace that cannot be drawn; `str()` gives the reason in two or three words."""


@dataclass(frozen=True)
class ReadTrace:
    """The reads of a run, one row per interval: `elapsed_s` at its end, `read_mb_per_s` (may be missing), `phase`.

    `source` is the name of the first storage counter if that has values, else of the counter of the process.
    """

    source: str
    samples: pd.DataFrame
    began_s: float  # Unix time at which `elapsed_s` is 0

    def mb_between(self, edges_s: Sequence[float]) -> NDArray[Any]:
        """Return the MB read between consecutive Unix times `edges_s`, with a constant rate within each interval."""
        spans, rates = self.samples["elapsed_s"].diff().fillna(0), self.samples["read_mb_per_s"].fillna(0)
        read = (spans * rates).cumsum()
        return np.diff(np.interp(np.asarray(edges_s) - self.began_s, self.samples["elapsed_s"], read))


def read_trace(path: Path) -> ReadTrace:
    """Return the trace in a file with two header rows (group, column); an empty group repeats the one to its left.

    Raises TraceError if the file is missing or is no such trace.
    """
    with _trace_errors():
        table, columns = _table(path)
        source, rate = _first_read(table, columns)
        samples = _samples(table, columns, read_mb_per_s=rate / BYTES_PER_MB)
        began = table[columns[EPOCH]].astype("float64") - samples["elapsed_s"] if EPOCH in columns else None
        return ReadTrace(source, samples, 0.0 if began is None else float(began.iloc[0]))


def read_written(path: Path, source: str, images: Sequence[str] = ()) -> pd.DataFrame:
    """Return the writes that a counter shows: `Trace.samples` with `written_mb_per_s`; raises as `read_trace` does.

    The writes of the counters `images`, of devices that lie on that of `source`, are subtracted, also if they reach
    `source` later.
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
    """Return the rows of a trace, and the index of each column by (group, name)."""
    text = read_content(path, MOST_BYTES).decode()
    groups, names = itertools.islice(csv.reader(io.StringIO(text)), 2)
    names_of_columns = list(zip(pd.Series(groups).replace("", None).ffill(), names, strict=True))
    table = pd.read_csv(io.StringIO(text), skiprows=2, header=None, names=range(len(names_of_columns)), index_col=False)
    return table, {column: number for number, column in reversed([*enumerate(names_of_columns)])}


def _samples(table: pd.DataFrame, columns: Mapping[tuple[str, str], int], **rates: pd.Series[float]) -> pd.DataFrame:
    elapsed = table[columns["elapsed", "s"]].astype("float64")
    if len(elapsed) < 2 or not elapsed.is_monotonic_increasing:  # noqa: PLR2004 - an interval has two ends
        raise TraceError(SHORT)
    samples = pd.DataFrame({"elapsed_s": elapsed, **rates})
    if ((samples < 0) | (samples > MOST)).any(axis=None):
        raise TraceError(UNREADABLE)
    return samples.assign(phase=table[columns["phase", "phase"]])


def _first_read(table: pd.DataFrame, columns: dict[tuple[str, str], int]) -> tuple[str, pd.Series[float]]:
    """Return the name and rates of the dataset's storage counter (the first column), else those of the process."""
    storage = [group for group, name in columns if name == "read" and group.startswith(STORAGE)]
    first = [min(storage, key=lambda group: columns[group, "read"])] if storage else []
    for source in (*first, PROCESS):
        rate = table[columns[source, "read"]].astype("float64")
        if rate.notna().any():
            return source, rate
    raise TraceError(WITHOUT_READS)


def typical_runs(runs: pd.DataFrame, more: Sequence[str] = ()) -> Mapping[str, Row]:
    """Return for each cell the run with the median runtime; if their number is even, the lower of the middle two.

    A run has the columns that a chart needs, and those of `more` that exist.
    """
    names = ["run", "wall_s", *(name for name in ("trace_file", *more) if name in runs)]
    good = counted_runs(runs, names).sort_values(["cell", "wall_s", "run"])
    position, size = good.groupby("cell").cumcount(), good.groupby("cell")["cell"].transform("size")
    return {row["cell"]: row for row in rows_of(good[position == (size - 1) // 2])}


def samples_of_cells(  # noqa: PLR0913 - what samples are made of
    cells: pd.DataFrame,
    typical: Mapping[str, Row],
    folders: Mapping[str, Path],
    of_cell: Sequence[str],
    of_trace: Sequence[str],
    *,
    read: Callable[[Row, Row, Path], pd.DataFrame],
) -> pd.DataFrame:
    """Return the table of a chart over time; a cell without a trace has one row, whose `status` gives the reason.

    Parameters
    ----------
    of_cell, of_trace
        The columns of the cell, repeated in each of its rows, and the columns of its trace.
    read
        The function that returns the samples, given the cell's row, its run and the path of the trace.
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
    """Return whether a chart has a trace to show, or one that cannot be read and must be reported."""
    return bool(frame["status"].isin(["done", *SPOILT]).any())


def has_trace(folder: Path, run: Row) -> bool:
    """Return whether a run has a trace and the file exists in the folder of its cell."""
    return isinstance(run["trace_file"], str) and os.path.lexists(_trace(folder, run))


def _of_run(row: Row, run: Row) -> dict[str, Any]:
    if row["status"] != "done":
        return {}
    if not isinstance(run.get("trace_file"), str):
        return {"status": "no trace"}
    return {"run": run["run"], "runtime_s": run["wall_s"], "file": run["trace_file"]}


def _trace(folder: Path, run: Row) -> Path:
    """Return the path of the trace: only the file name is used, so that no record points outside its folder."""
    return folder / str(run["trace_file"]).rpartition("/")[2]
