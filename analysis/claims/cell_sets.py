"""Select the sets of cells for which the claims of papers are tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis import paper
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import (
    Facts,
    Settings,
    describe_settings,
    distinguishing_names,
    model_texts,
    reduced_set_key,
)
from analysis.statistics import selection
from analysis.statistics.baselines import ACCESS, OF_A_BASELINE, fastest_baselines, is_baseline
from analysis.statistics.comparable import COLUMNS, FEWEST_RUNS
from analysis.statistics.medians import valid_measured_runs, values_by_cell
from analysis.statistics.training import CONTROL

# A cell is a row of the table of medians with the columns `EVIDENCE`. `name` is the name of the storage in the paper.
Cell = Mapping[str, Any]
Values = Mapping[str, Sequence[float]]
"""A mapping from a cell id to the values of a metric in the runs of the cell."""

PREPROCESS, RATE, READ_MB, WALL = "benchmark.preprocess", "images_per_s", "read_mb_per_s", "wall_s"
BLOCKED = "snapshot_blocked_s"
PIPELINES = {True: "Fig 4", False: "Fig 5"}
OF_TRAINING = ("wall_s", "wall_s_min", "wall_s_max", "load_s", "load_s_min", "load_s_max", "batch_size")
DEVICES = ("target_storage", "target_device", "target_below", "fast_storage", "fast_device", "fast_below")
OF_SAVING = ("target", "target_name", "wall_s", *DEVICES, *(f"{BLOCKED}{end}" for end in ("", "_min", "_max")))

EVIDENCE = ["benchmark", "status", "storage", "threads", "prefetch", "unstable", "size", "site"]


@dataclass(frozen=True)
class Evidence:
    """All measurements of a campaign: the frame of medians (`table`, one row per cell) and the frame of runs."""

    table: pd.DataFrame
    runs: pd.DataFrame
    _values: dict[tuple[str, bool], Values] = field(default_factory=dict)
    _sets: dict[Any, list[CellSet]] = field(default_factory=dict)

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The rows of the training cells that `analysis.statistics.selection.training_cells` selects."""
        return selection.training_cells(self.table)

    @cached_property
    def peaks(self) -> Mapping[str, Cell]:
        """The fastest baseline of each storage by `baseline_key`, if this baseline read with a cold page cache."""
        best = fastest_baselines(rows_of(self.table, OF_A_BASELINE)) if ACCESS in self.table else {}
        names = {row["cell"]: key for key, row in best.items()}
        rows = self.table[self.table["cell"].isin(names) & (self.table["cache"] == "cold")] if names else self.table[:0]
        return {names[cell["cell"]]: cell for cell in cells_of(rows)}

    def sets(self, cells: Callable[[Evidence], Iterable[CellSet]]) -> list[CellSet]:
        """Return the sets that the function `cells` selects. The function is called only once, its result is cached."""
        if cells not in self._sets:
            self._sets[cells] = list(cells(self))
        return self._sets[cells]

    def values(self, metric: str, *, zeros: bool = False) -> Values:
        """Return for each cell the values of a metric in the valid measured runs of the cell.

        Values of 0 or less are left out if `zeros` is false. The metric `a/b` is the metric `a` divided by the metric
        `b`, run by run; runs in which `b` is 0 are left out.
        """
        if (metric, zeros) not in self._values:
            self._values[metric, zeros] = self._of_runs(metric, zeros=zeros)
        return self._values[metric, zeros]

    def _of_runs(self, metric: str, *, zeros: bool) -> Values:
        part, _, whole = metric.partition("/")
        names = [part, whole] if whole else [part]
        if not set(names) <= set(self.runs):
            return {}
        good = valid_measured_runs(self.runs, names).dropna(subset=names)
        if whole:
            good = good[good[whole] > 0]
            good = good.assign(**{metric: good[part] / good[whole]})
        return values_by_cell(good if zeros else good[good[metric] > 0], metric)


@dataclass(frozen=True)
class CellSet:
    """Cells with the status "done" that differ only in the settings that a claim compares.

    `about` describes the common settings in words, and `facts` has these settings. `planned_count` is the number of
    planned combinations of storage and number of threads. `alone` is true if this set has no two cells to
    compare, and another set has.
    """

    about: str
    cells: Sequence[Cell]
    evidence: Evidence
    facts: Facts = field(default_factory=dict)
    planned_count: int = 0
    alone: bool = False

    def values(self, metric: str, *, zeros: bool = False) -> Values:
        """Return for each cell the values of a metric in the runs of the cell (see `Evidence.values`)."""
        return self.evidence.values(metric, zeros=zeros)


def cells_of(rows: pd.DataFrame, more: Iterable[str] = ()) -> list[Cell]:
    """Return the rows with the status "done" as cells. A column that a benchmark does not have is empty."""
    columns = list(dict.fromkeys([*EVIDENCE, *COLUMNS, *more]))
    done = rows[rows["status"] == "done"].reindex(columns=columns).astype({"unstable": object})
    texts = ["accelerator", "site"]
    done[texts] = done[texts].astype(object).where(done[texts].notna(), "")
    done["name"] = done["storage_name"].str.casefold()
    return list(rows_of(done))


def cell_sets(  # noqa: PLR0913
    evidence: Evidence,
    groups: Mapping[Settings, pd.DataFrame],
    metric: str = "cell",
    more: Iterable[str] = (),
    *,
    without: Iterable[str] = (),
    apart: bool = True,
    prefix: str = "",
) -> Iterator[CellSet]:
    """Yield one set of cells per group of rows.

    A set has the done cells that have the metric, with at most one cell per storage and number of threads. `more` names
    additional columns of the cells. The description `about` of a set does not contain the settings in `without`. If
    `apart` is true, `about` contains the settings that distinguish the sets.
    """
    if not groups:
        return
    rows = pd.concat(groups.values()).drop_duplicates("cell")
    place = [name for name in ("set_key", "storage", "threads") if name in rows]
    measured = {cell["cell"]: cell for cell in cells_of(selection.with_status_of_drawing(rows, place, metric), more)}
    facts = {key: {name: it for name, it in key.facts.items() if name not in set(without)} for key in groups}
    names = distinguishing_names(list(facts.values())) if apart else ()
    for key, group in groups.items():
        about = describe_settings(facts[key], names, group.get("accelerator", ()), group["size"])
        cells = [measured[cell] for cell in group["cell"] if cell in measured]
        places = group.drop_duplicates(place[1:])
        yield CellSet(f"{prefix}{about}", cells, evidence, key.facts, len(places))


def emulated_parts(cell: Cell) -> list[str]:
    """Return the names of the emulated parts of a cell, for example `accelerator`, `storage` or `checkpoint.fast`."""
    facts = cell["series_key"].facts
    parts = ["accelerator"] if facts.get("accelerator.name") == "emulated" else []
    return parts + [name.rpartition(".")[0] for name, value in facts.items() if name.endswith(".emulated") and value]


def model_names(cells: Iterable[Cell]) -> list[str]:
    """Return the models that emulate the storages of these cells, or an empty list if a storage is not a model.

    A storage model is as fast in a small experiment as in a large experiment. Numbers of a model can thus be compared
    with the paper's numbers of a storage at any size of the experiment. Numbers of a training cannot be compared at any
    size, because these numbers depend on the size. A verdict on a model says nothing about hardware.
    """
    of_cells = [model_texts(cell["series_key"].facts) for cell in cells]
    return list(dict.fromkeys(model for one in of_cells for model in one)) if of_cells and all(of_cells) else []


def neighbouring_pairs(cells: Iterable[Cell], axis: str) -> list[tuple[Cell, Cell]]:
    """Return pairs of cells with neighbouring values on an axis, where an axis is a setting such as `threads`.

    A value that several cells have is left out, because it is unknown which of these cells to compare.
    """
    line = list(cells)
    counts = Counter(cell[axis] for cell in line)
    return list(pairwise(sorted((cell for cell in line if counts[cell[axis]] == 1), key=lambda cell: cell[axis])))


def baseline_sets(evidence: Evidence, access: str) -> Iterator[CellSet]:
    """Yield sets of baselines that have this access pattern and the same settings except threads and storage.

    Baselines that read must have a cold page cache.
    """
    table = evidence.table
    if ACCESS in table:
        rows = table[is_baseline(table) & (table[ACCESS] == access)]
        rows = rows[rows["cache"] == "cold"] if access != "write" else rows
        yield from cell_sets(evidence, group_rows(rows, rows["set_key"]))


def whole_benchmark_set(evidence: Evidence, benchmark: str) -> Iterator[CellSet]:
    """Yield one set: all cells of a benchmark that have at least `FEWEST_RUNS` valid runs and are not controls."""
    table = evidence.table
    rows = table[(table["benchmark"] == benchmark) & (table["n_valid"] >= FEWEST_RUNS)]
    rows = rows[rows[CONTROL].fillna("none") == "none"] if CONTROL in rows else rows
    yield CellSet(f"every cell of {benchmark}", cells_of(rows), evidence)


def pipeline_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of micro-benchmark cells with a cold page cache, which differ in storage, threads and pipeline.

    The pipeline is with preprocessing (Fig 4) or without preprocessing (Fig 5).
    """
    table = evidence.table
    if {PREPROCESS, "threads", "cache"} <= set(table):
        counts = table["threads"].map(lambda threads: type(threads) is int)
        rows = table[(table["benchmark"] == paper.MICRO) & (table["cache"] == "cold") & counts]
        rows = rows.sort_values(PREPROCESS, ascending=False, kind="stable")
        sets = selection.sets_of_settings(rows, {PREPROCESS})
        for group in cell_sets(evidence, sets, RATE, [PREPROCESS, READ_MB], without={PREPROCESS}):
            cells = [{**cell, "pipeline": PIPELINES[bool(cell[PREPROCESS])]} for cell in group.cells]
            yield replace(group, cells=cells)


def _unsaved(evidence: Evidence, axis: str) -> pd.DataFrame:
    """Return the rows of training cells that save no snapshots, with storages in the paper's order."""
    rows = selection.cells_without_snapshots(evidence.trained)
    return selection.sort_as_in_paper(rows, [axis]) if len(rows) else rows


def prefetch_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of training cells that differ in storage, threads and prefetch.

    In a set, prefetch is either 0 or one other number of batches.
    """
    sets, several = {}, []
    for key, cells in selection.sets_of_settings(_unsaved(evidence, "threads"), {"prefetch"}).items():
        for ahead in sorted(set(cells["prefetch"]) - {0}) or [1]:
            held = reduced_set_key(key, frozenset(), (("prefetch", ahead),))
            sets[held] = cells[cells["prefetch"].isin([0, ahead])]
            several.append(min(cells["storage"].nunique(), cells["threads"].nunique()) > 1)
    # The cells of Fig. 7 make sets with a single thread count, which cannot be compared. If other sets can be compared,
    # no verdict is needed for the sets of Fig. 7.
    for group, comparable in zip(cell_sets(evidence, sets, WALL, OF_TRAINING), several, strict=True):
        yield replace(group, alone=any(several) and not comparable)


def batch_size_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of training cells that differ in storage, batch size and prefetch."""
    sets = selection.batch_sets(_unsaved(evidence, "batch_size"))
    sets = {key: cells for key, cells in sets.items() if len(set(cells["batch_size"])) > 1}
    yield from cell_sets(evidence, sets, RATE, ["batch_size"], without={"prefetch", "batch_size", "iterations"})


def checkpoint_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of training cells that differ only in the checkpoint target.

    Only trainings that stop while a snapshot is saved (`checkpoint.mode=sync`) are selected.
    """
    sets = selection.saving_sets(evidence.trained, (*selection.HOW, *selection.MODE))
    sets = {key: cells for key, cells in sets.items() if key.facts["checkpoint.mode"] == "sync"}
    blocked = evidence.values(BLOCKED)
    for group in cell_sets(evidence, sets, WALL, OF_SAVING, apart=False):
        yield replace(group, cells=[{**cell, **_target(cell)} for cell in group.cells if cell["cell"] in blocked])


def _target(cell: Cell) -> Cell:
    """Return additional columns for the checkpoint target of a cell.

    `to` is the target's name in the paper. `fast` and `slow` are the storages of a burst buffer, and `buffered` tells
    whether the target is a burst buffer with two different storages.
    """
    facts, name = cell["series_key"].facts, cell["target_name"]
    sides = {side: str(facts.get(f"checkpoint.{side}.name", "")).casefold() for side in ("fast", "slow")}
    return {"to": name.casefold(), **sides, "buffered": name == paper.BURST_BUFFER and sides["fast"] != sides["slow"]}
