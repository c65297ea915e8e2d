"""Which run of a cell a figure over time shows, and where its trace lies; Figs 8 and 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.records.frame import rows_of
from analysis.statistics.medians import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    import pandas as pd

    from analysis.records.frame import Row
    from analysis.records.settings import Facts


def typical_runs(runs: pd.DataFrame, more: Sequence[str] = ()) -> Mapping[str, Row]:
    """Return of each cell the run whose runtime is the median, of an even number the lower one of the middle two.

    Of a run, what a figure needs and what `more` names, where the runs have it.
    """
    names = ["run", "wall_s", "trace_file", *(name for name in more if name in runs)]
    good = counted(runs, names).sort_values(["cell", "wall_s", "run"])
    place, size = good.groupby("cell").cumcount(), good.groupby("cell")["cell"].transform("size")
    return {row["cell"]: row for row in rows_of(good[place == (size - 1) // 2])}


def facts_of_run(row: Row, run: Row, names: Iterable[str]) -> dict[str, Any]:
    """Return what each row of a figure says of a cell and its run; where nothing can be drawn `status` says why."""
    facts = {name: row[name] for name in names}
    if facts["status"] != "done":
        return facts
    if not isinstance(run.get("trace_file"), str):
        return facts | {"status": "no trace"}
    return facts | {"run": run["run"], "runtime_s": run["wall_s"], "file": run["trace_file"]}


def trace_of(facts: Facts, folders: Mapping[str, Path]) -> Path:
    """Return where the trace lies: by its name alone, for a record from elsewhere must not point outside its folder."""
    return folders[facts["cell"]] / str(facts["file"]).rpartition("/")[2]
