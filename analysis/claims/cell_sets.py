"""The sets of cells and runs that the verdicts on claims rest on."""

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
from analysis.statistics.medians import counted_runs, values_by_cell
from analysis.statistics.training import CONTROL

# A cell: the row of its medians (`EVIDENCE`), with `name`: its storage as the paper calls it.
Cell = Mapping[str, Any]
Values = Mapping[str, Sequence[float]]
"""Per cell, the values of a metric in its runs."""

PREPROCESS, RATE, READ_MB, WALL = "benchmark.preprocess", "images_per_s", "read_mb_per_s", "wall_s"
BLOCKED = "snapshot_blocked_s"
PIPELINES = {True: "Fig 4", False: "Fig 5"}
OF_TRAINING = ("wall_s", "wall_s_min", "wall_s_max", "load_s", "load_s_min", "load_s_max", "batch_size")
DEVICES = ("target_storage", "target_device", "target_below", "fast_storage", "fast_device", "fast_below")
OF_SAVING = ("target", "target_name", "wall_s", *DEVICES, *(f"{BLOCKED}{end}" for end in ("", "_min", "_max")))

EVIDENCE = ["benchmark", "status", "storage", "threads", "prefetch", "unstable", "size", "site"]


@dataclass(frozen=True)
class Evidence:
    """All measurements: a table of medians (one row per cell) and one of runs, as for `figures.all.chart_specs`."""

    table: pd.DataFrame
    runs: pd.DataFrame
    _values: dict[tuple[str, bool], Values] = field(default_factory=dict)
    _sets: dict[Any, list[CellSet]] = field(default_factory=dict)

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The cells of the mini-application (`analysis.statistics.selection.training_cells`)."""
        return selection.training_cells(self.table)

    @cached_property
    def peaks(self) -> Mapping[str, Cell]:
        """The fastest baseline of each storage, if it read with a cold cache, by the key that cells share with it."""
        best = fastest_baselines(rows_of(self.table, OF_A_BASELINE)) if ACCESS in self.table else {}
        names = {row["cell"]: key for key, row in best.items()}
        rows = self.table[self.table["cell"].isin(names) & (self.table["cache"] == "cold")] if names else self.table[:0]
        return {names[cell["cell"]]: cell for cell in cells_of(rows)}

    def sets(self, cells: Callable[[Evidence], Iterable[CellSet]]) -> list[CellSet]:
        """Return the sets that the function `cells` selects; it is called once only."""
        if cells not in self._sets:
            self._sets[cells] = list(cells(self))
        return self._sets[cells]

    def values(self, metric: str, *, zeros: bool = False) -> Values:
        """Return per cell the values of a metric in its valid measured runs: values above 0, with `zeros` all.

        The metric `a/b` is the metric `a` divided by `b`, run by run.
        """
        if (metric, zeros) not in self._values:
            self._values[metric, zeros] = self._of_runs(metric, zeros=zeros)
        return self._values[metric, zeros]

    def _of_runs(self, metric: str, *, zeros: bool) -> Values:
        part, _, whole = metric.partition("/")
        if whole:
            parts, wholes = self.values(part), self.values(whole)
            alike = [cell for cell, values in parts.items() if len(values) == len(wholes.get(cell, ()))]
            return {cell: [one / of for one, of in zip(parts[cell], wholes[cell], strict=True)] for cell in alike}
        if metric not in self.runs:
            return {}
        good = counted_runs(self.runs, [metric]).dropna(subset=[metric])
        return values_by_cell(good if zeros else good[good[metric] > 0], metric)


@dataclass(frozen=True)
class CellSet:
    """Done cells that differ only in what a claim compares.

    `about` says in words what the cells share, `facts` are their common settings, `asked` is the number of planned
    places (storage and number of threads). `alone`: its cells have nothing to compare with, but those of other sets do.
    """

    about: str
    cells: Sequence[Cell]
    evidence: Evidence
    facts: Facts = field(default_factory=dict)
    asked: int = 0
    alone: bool = False

    def values(self, metric: str, *, zeros: bool = False) -> Values:
        """Return per cell the values of a metric in its runs (see `Evidence.values`)."""
        return self.evidence.values(metric, zeros=zeros)


def cells_of(rows: pd.DataFrame, more: Iterable[str] = ()) -> list[Cell]:
    """Return the cells of the done rows; columns that a benchmark does not have are empty."""
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
    """Yield one set per group of rows: its done cells that have the metric, at most one cell per place.

    `more` are additional columns of the cells. The settings in `without` are left out of a set's `about`; with `apart`
    the settings that distinguish the sets are in it.
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
    """Return the emulated parts of a cell: its accelerator, a storage, a checkpoint target."""
    facts = cell["series_key"].facts
    parts = ["accelerator"] if facts.get("accelerator.name") == "emulated" else []
    return parts + [name.rpartition(".")[0] for name, value in facts.items() if name.endswith(".emulated") and value]


def model_names(cells: Iterable[Cell]) -> list[str]:
    """Return the names of the models that serve all storages of these cells; empty if a storage is no model.

    A model is as fast in a small experiment as in a large one, so it can be compared with the paper's numbers of a
    storage at any size; a training's numbers depend on its size. A verdict on it says nothing about hardware.
    """
    of_cells = [model_texts(cell["series_key"].facts) for cell in cells]
    return list(dict.fromkeys(model for one in of_cells for model in one)) if of_cells and all(of_cells) else []


def neighbouring_pairs(cells: Iterable[Cell], axis: str) -> list[tuple[Cell, Cell]]:
    """Return pairs of cells with neighbouring values on an axis; a value that several cells have is left out.

    Of several cells with one value it is unknown which one to compare.
    """
    line = list(cells)
    counts = Counter(cell[axis] for cell in line)
    return list(pairwise(sorted((cell for cell in line if counts[cell[axis]] == 1), key=lambda cell: cell[axis])))


def baseline_sets(evidence: Evidence, access: str) -> Iterator[CellSet]:
    """Yield sets of the baselines with one access that share all settings; those that read must have a cold cache."""
    table = evidence.table
    if ACCESS in table:
        rows = table[is_baseline(table) & (table[ACCESS] == access)]
        rows = rows[rows["cache"] == "cold"] if access != "write" else rows
        yield from cell_sets(evidence, group_rows(rows, rows["set_key"]))


def whole_benchmark_set(evidence: Evidence, benchmark: str) -> Iterator[CellSet]:
    """Yield one set: all cells of a benchmark with at least `FEWEST_RUNS` runs, without controls."""
    table = evidence.table
    rows = table[(table["benchmark"] == benchmark) & (table["n_valid"] >= FEWEST_RUNS)]
    rows = rows[rows[CONTROL].fillna("none") == "none"] if CONTROL in rows else rows
    yield CellSet(f"every cell of {benchmark}", cells_of(rows), evidence)


def pipeline_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of cells of the micro-benchmark with a cold cache that differ in storage, threads and pipeline."""
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
    """Return the rows of the trainings that save no snapshots, in the paper's order."""
    rows = selection.cells_without_snapshots(evidence.trained)
    return selection.sort_as_in_paper(rows, [axis]) if len(rows) else rows


def prefetch_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of trainings that differ in storage, threads and prefetch (0 or one other number of batches)."""
    sets, several = {}, []
    for key, cells in selection.sets_of_settings(_unsaved(evidence, "threads"), {"prefetch"}).items():
        for ahead in sorted(set(cells["prefetch"]) - {0}) or [1]:
            held = reduced_set_key(key, frozenset(), (("prefetch", ahead),))
            sets[held] = cells[cells["prefetch"].isin([0, ahead])]
            several.append(min(cells["storage"].nunique(), cells["threads"].nunique()) > 1)
    # Fig. 7's cells are sets with one thread count: if other sets can be compared, these need not say that they cannot.
    for group, comparable in zip(cell_sets(evidence, sets, WALL, OF_TRAINING), several, strict=True):
        yield replace(group, alone=any(several) and not comparable)


def batch_size_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of trainings that differ in storage, batch size and prefetch."""
    sets = selection.batch_sets(_unsaved(evidence, "batch_size"))
    sets = {key: cells for key, cells in sets.items() if len(set(cells["batch_size"])) > 1}
    yield from cell_sets(evidence, sets, RATE, ["batch_size"], without={"prefetch", "batch_size", "iterations"})


def checkpoint_sets(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of trainings that differ only in the checkpoint target and stand still while a snapshot is saved."""
    sets = selection.saving_sets(evidence.trained, (*selection.HOW, *selection.MODE))
    sets = {key: cells for key, cells in sets.items() if key.facts["checkpoint.mode"] == "sync"}
    blocked = evidence.values(BLOCKED)
    for group in cell_sets(evidence, sets, WALL, OF_SAVING, apart=False):
        yield replace(group, cells=[{**cell, **_target(cell)} for cell in group.cells if cell["cell"] in blocked])


def _target(cell: Cell) -> Cell:
    """Return the columns of a cell's checkpoint target: its storage as the paper calls it, both if a burst buffer."""
    facts, name = cell["series_key"].facts, cell["target_name"]
    sides = {side: str(facts.get(f"checkpoint.{side}.name", "")).casefold() for side in ("fast", "slow")}
    return {"to": name.casefold(), **sides, "buffered": name == paper.BURST_BUFFER and sides["fast"] != sides["slow"]}
