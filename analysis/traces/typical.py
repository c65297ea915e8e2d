"""Which run of a cell a figure over time shows, and where its trace lies; Figs 8 and 10."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.statistics.medians import counted
from analysis.traces import system


def typical_runs(runs: pd.DataFrame, more: Sequence[str] = ()) -> Mapping[str, Row]:
    """Return of each cell the run whose runtime is the median, of an even number the lower one of the middle two.

    Of a run, what a figure needs and what `more` names, where the runs have it.
    """
    names = ["run", "wall_s", *(name for name in ("trace_file", *more) if name in runs)]
    good = counted(runs, names).sort_values(["cell", "wall_s", "run"])
    place, size = good.groupby("cell").cumcount(), good.groupby("cell")["cell"].transform("size")
    return {row["cell"]: row for row in rows_of(good[place == (size - 1) // 2])}


def samples(  # noqa: PLR0913 - what samples are made of
    cells: pd.DataFrame,
    typical: Mapping[str, Row],
    folders: Mapping[str, Path],
    of_cell: Sequence[str],
    of_trace: Sequence[str],
    *,
    read: Callable[[Row, Row, Path], pd.DataFrame],
) -> pd.DataFrame:
    """Return what a figure over time draws; a cell without a trace keeps one row, whose `status` says why.

    Parameters
    ----------
    of_cell, of_trace
        The columns, those that each row of a cell repeats and those of its trace.
    read
        Returns the samples of a cell's run from its row, its run and its trace.
    """
    nothing = {name: math.nan if name.endswith(("elapsed_s", "mb_per_s")) else None for name in of_trace}
    parts = []
    for row in rows_of(cells):
        run = typical.get(row["cell"], {})
        facts = {name: row[name] for name in of_cell} | _of_run(row, run)
        found = pd.DataFrame([nothing])
        try:
            found = read(row, run, _trace(folders[row["cell"]], run)) if facts["status"] == "done" else found
        except system.TraceError as error:
            facts["status"] = str(error)
        parts.append(found.assign(**facts)[[*of_cell, *of_trace]])
    return pd.concat(parts, ignore_index=True)


def any_trace(frame: pd.DataFrame) -> bool:
    """Say whether a figure has a trace to show: one that cannot be read is reported, even in an empty figure."""
    return bool(frame["status"].isin(["done", *system.SPOILT]).any())


def has_trace(folder: Path, run: Row) -> bool:
    """Say whether a run has a trace, and it lies in the folder of its cell."""
    return isinstance(run["trace_file"], str) and os.path.lexists(_trace(folder, run))


def _of_run(row: Row, run: Row) -> dict[str, Any]:
    if row["status"] != "done":
        return {}
    if not isinstance(run.get("trace_file"), str):
        return {"status": "no trace"}
    return {"run": run["run"], "runtime_s": run["wall_s"], "file": run["trace_file"]}


def _trace(folder: Path, run: Row) -> Path:
    """Return where the trace lies: by its name alone, for a record from elsewhere must not point outside its folder."""
    return folder / str(run["trace_file"]).rpartition("/")[2]
