"""The claims of NERSC's slides on the benchmarks HEPCNNB and CDB (2018).

The slides are from NERSC's project on deep-learning I/O, 2018-07-27. Earlier slides have other tables. Some numbers are
recomputed from the rows of the HEPCNNB workbooks of 2018-06-29 in the repository NERSC/DL-Parallel-IO, commit 290ed4a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis.claims import comparisons as by
from analysis.claims.cell_sets import Cell, CellSet, Evidence, cell_sets
from analysis.claims.claim import ORDER, SIZES, Claim, Finding, NothingToCompare, Predicate
from analysis.claims.comparisons import CellRatio, RatioOfRatios
from analysis.statistics.selection import CLIMATE, HEPCNN, NODES, SHUFFLE, SYNC, sets_by_nodes, workloads

PAPER = "NERSC 2018"
LOADS = ("train_cold", "train_warm", "validation_cold", "validation_warm")
EPOCHS, FILES = "benchmark.epochs", "dataset.files"
_READ_S = ("read_s", "read_s_min", "read_s_max")
COLUMNS = (NODES, SHUFFLE, SYNC, EPOCHS, FILES, "private_caches", "loads", *_READ_S,
           *(f"{name}_{what}" for name in LOADS for what in ("loads", *_READ_S)))  # fmt: skip
# The predicted read time divided by the published read time with global shuffling, minimum and maximum. The prediction
# is the median time of a cold load times the number of loads.
PREDICTED = (0.86, 0.96)
NEAR = 0.10
"""The largest relative error of a predicted read time with which the claim `BY_MEMORY` holds."""


def _nodes(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of cells of one storage that differ in the number of nodes and in the shuffling (local or global)."""
    yield from _lines(
        cell_sets(evidence, sets_by_nodes(workloads(evidence.table, evidence.runs)), more=COLUMNS, prefix="NERSC: ")
    )


def _grown(evidence: Evidence, benchmark: str, setting: str) -> Iterator[CellSet]:
    """Yield sets of cells of a benchmark that have the same number of nodes and differ in one setting."""
    cells = workloads(evidence.table, evidence.runs)
    sets = sets_by_nodes(cells[cells["benchmark"] == benchmark], {setting, "data"})
    for group in cell_sets(evidence, sets, more=COLUMNS, prefix="NERSC: "):
        for nodes in sorted({cell[NODES] for cell in group.cells}):
            alike = [cell for cell in group.cells if cell[NODES] == nodes]
            for line in _lines([replace(group, cells=alike)]):
                yield replace(line, about=f"{line.about}, {nodes} nodes")


def _lines(groups: Iterable[CellSet]) -> Iterator[CellSet]:
    """Yield the sets split by storage, threads and the synchronization of ranks (`sync`).

    The storage, and the other settings if they differ, are added to `about`. A cell with one node has no
    synchronization, so such a cell is put into the sets of all kinds of synchronization.
    """
    for group in groups:
        meetings = list(dict.fromkeys(cell[SYNC] for cell in group.cells if cell[NODES] > 1)) or [""]
        lines: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in group.cells:
            for sync in [cell[SYNC]] if cell[NODES] > 1 else meetings:
                lines.setdefault((cell["storage"], f"threads {cell['threads']}", sync), []).append(cell)
        varies = [len(set(values)) > 1 for values in zip(*lines, strict=True)]
        for (storage, *others), line in lines.items():
            words = [word for word, differs in zip(others, varies[1:], strict=True) if differs]
            yield replace(group, cells=line, about=", ".join([group.about, storage, *words]))


def _shuffled(group: CellSet) -> list[tuple[Cell, Cell]]:
    """Return pairs of a cell with local shuffling and a cell with global shuffling on the same number of nodes.

    Cells with only one node are left out.
    """
    at = {(cell[NODES], cell[SHUFFLE]): cell for cell in group.cells if cell["cell"] in group.values("read_s")}
    several = sorted({nodes for nodes, _ in at if nodes > 1})
    both = [(at.get((nodes, "local")), at.get((nodes, "global"))) for nodes in several]
    return [(local, everywhere) for local, everywhere in both if local and everywhere]


def _longer(group: CellSet) -> Iterator[Finding | NothingToCompare]:
    """Yield the ratio of read times: global shuffling divided by local shuffling on the same number of nodes."""
    cold = "; ".join(
        f"not in memory at {local[NODES]}: {_cold(local)} locally, {_cold(everywhere)} globally"
        for local, everywhere in _shuffled(group)
    )
    longer = CellRatio("read_s", _shuffled, name="{first[nodes]} nodes", entry="{name} {ours:.2f} times")
    for finding in longer(group):
        yield replace(finding, words={"steps": str(finding.words["steps"]).replace(", ", "; "), "cold": cold})
    if not cold and any(cell[SHUFFLE] and cell["cell"] in group.values("read_s") for cell in group.cells):
        yield NothingToCompare("no number of nodes above 1 is done with local and with global shuffling")


def _foreseen(group: CellSet) -> Iterator[Finding]:
    """Yield the predicted read time of a rank with global shuffling, divided by the measured read time.

    The prediction uses the median load times of the cell with local shuffling. The interval has the shortest load times
    over the longest read time as lower end, and the longest load times over the shortest read time as upper end.
    Nothing is yielded if this cell has no loads of a needed kind (cold or warm), or if it is unknown which loads came
    from memory.
    """
    steps = {}
    for local, everywhere in _shuffled(group):
        loads = {name: everywhere[f"{name}_loads"] for name in LOADS if everywhere[f"{name}_loads"]}
        share, low, high = (
            sum(count * local[f"{name}_read_s{of_load}"] for name, count in loads.items())
            / everywhere[NODES]
            / everywhere[f"read_s{of_reading}"]
            for of_load, of_reading in (("", ""), ("_min", "_max"), ("_max", "_min"))
        )
        if loads and not math.isnan(share):
            steps[f"{local[NODES]} nodes"] = Finding(share, low, high, by.TIMES, (local, everywhere))
    if steps:
        worst = max(steps, key=lambda name: abs(steps[name].ours - 1))
        shares = ", ".join(f"{name} {step.ours:.2f}" for name, step in steps.items())
        yield replace(by.step_with_all_cells(worst, steps)[worst], words={"shares": shares})


def _cold(cell: Cell) -> str:
    cold = sum(cell[f"{name}_loads"] for name in LOADS if name.endswith("cold"))
    whole = sum(cell[f"{name}_loads"] for name in LOADS) == cell["loads"]
    return f"{cold:g} of {cell['loads']:g} files" if whole else "unknown"


def _by_shuffle(group: CellSet, benchmark: str, compare: Callable[[CellSet], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a comparison, separately for cells with local shuffling and with global shuffling."""
    shuffles = dict.fromkeys(cell[SHUFFLE] for cell in group.cells if group.facts["benchmark"] == benchmark)
    for shuffle in shuffles:
        alike = replace(group, cells=[cell for cell in group.cells if cell[SHUFFLE] == shuffle])
        for finding in compare(alike):
            words = {**finding.words, "shuffle": f"shuffle {shuffle}: " if shuffle else ""}
            yield replace(finding, words=words, pair="shuffle global" if shuffle == "global" else "")


def _with_memory(group: CellSet, compare: CellRatio) -> Iterator[Finding]:
    """Yield the findings of a comparison, whose words also have the number of files that were not in memory."""
    for finding in compare(group):
        cold = [f"; not in memory with {cell[EPOCHS]}: {_cold(cell)}" for cell in finding.cells]
        yield replace(finding, words={**finding.words, "cold": "".join(cold)})


def _shared(cells: Sequence[Cell]) -> str:
    """Return the reason "nodes share a page cache" if this is true for a cell with global shuffling, or else `""`."""
    shared = any(cell["private_caches"] != 1 for cell in cells if cell[SHUFFLE] == "global")
    return "these nodes share a page cache: what one has read, no other reads from the storage" if shared else ""


def _as_many(cells: Sequence[Cell]) -> str:
    fixed = any(cell["series_key"].facts.get("iterations") is not None for cell in cells)
    words = "iterations is set: an epoch trains on as many files of any data set; with iterations=null on all"
    return words if fixed else ""


def _claim(text: str, place: str, published: str, recipe: str, *how: Any, **more: Any) -> Claim:
    return Claim(PAPER, text, place, published, f"+paper={recipe}", *how, **more)


_HEP, _CDB = "slides on HEPCNNB", "slides on CDB"
_TITLES = {HEPCNN: ("HEPCNNB", "hepcnn", "read_s"), CLIMATE: ("CDB", "cdb", "load_s")}
_MORE_NODES = by.pairs_along(NODES, per=())
_STEP = "{first[nodes]} to {second[nodes]} nodes"
_WEAKEST = "{shuffle}weakest from {which}; times: {steps}"

SLOWER_WITH_GLOBAL_SHUFFLE = _claim(
    "HEPCNNB: I/O takes longer with global shuffling", _HEP, "2.4 times at 64 nodes, none at 1,024", "hepcnn",
    _nodes, _longer, ORDER, "{steps}; {cold}", hindrance=_shared,
)  # fmt: skip
BY_MEMORY = _claim(
    "HEPCNNB: that is what loads from the storage in place of memory cost (ours)", "workbooks of HEPCNNB, recomputed",
    "predicted / read: {:g} to {:g}".format(*PREDICTED), "hepcnn",
    _nodes, _foreseen, Predicate(1.0, 1.0, (NEAR,)), "predicted / read: {shares}", hindrance=_shared,
)  # fmt: skip
WITH_EPOCHS = _claim(
    "HEPCNNB: with global shuffling the share of I/O grows with the epochs", _HEP,
    "the bottleneck can become more severe", "hepcnn benchmark.epochs=2,5,10",
    partial(_grown, benchmark=HEPCNN, setting=EPOCHS),
    partial(_with_memory, compare=CellRatio(
        "read_s/wall_s", by.pairs_along(EPOCHS, per=(), where=lambda cell: cell[SHUFFLE] == "global"),
        name=f"{{first[{EPOCHS}]}} to {{second[{EPOCHS}]}} epochs",
    )),
    ORDER, "times: {steps}{cold}", hindrance=lambda cells: _shared(cells) or _as_many(cells),
)  # fmt: skip
WITH_DATA = _claim(
    "CDB: the share of I/O is larger with a larger data set", _CDB,
    "8.7 % of 3.5 TB, 3.6 % of HEPCNNB's 0.5 TB at 64 nodes",
    f"cdb +size=lab benchmark.control=none iterations=null {FILES}=65,129,257",
    partial(_grown, benchmark=CLIMATE, setting=FILES),
    CellRatio("load_s/wall_s", by.pairs_along(FILES, per=(), where=lambda cell: isinstance(cell[FILES], int)),
          name=f"{{first[{FILES}]}} to {{second[{FILES}]}} files"),
    ORDER, "times: {steps}", compares=SIZES, hindrance=_as_many,
)  # fmt: skip
# With these words `holds` means that the published change was found: HEPCNNB's share fell, and CDB's grew.
SHARE = {
    name: _claim(
        f"{title}: the share of I/O {'falls' if name == HEPCNN else 'grows'} with the nodes", f"slides on {title}",
        published, recipe, _nodes,
        partial(_by_shuffle, benchmark=name, compare=CellRatio(
            f"{read}/wall_s", _MORE_NODES, name=_STEP, inverted=name == HEPCNN,
        )),
        ORDER, _WEAKEST, hindrance=_shared,
    )
    for (name, (title, recipe, read)), published in zip(
        _TITLES.items(), ("3.6 to 2.9 % at 64 to 512 nodes", "8.7 to 15 %"), strict=True
    )
}  # fmt: skip
TRAINING = {
    name: _claim(
        f"{title}: training gains more from more nodes than I/O", f"slides on {title}", "training > I/O", recipe,
        _nodes, partial(_by_shuffle, benchmark=name, compare=RatioOfRatios(
            CellRatio("compute_s", _MORE_NODES, name=_STEP, inverted=True),
            CellRatio(read, _MORE_NODES, name=_STEP, inverted=True),
        )),
        ORDER, _WEAKEST, hindrance=_shared,
    )
    for name, (title, recipe, read) in _TITLES.items()
}  # fmt: skip
OF_HEPCNN = (SLOWER_WITH_GLOBAL_SHUFFLE, BY_MEMORY, WITH_EPOCHS, SHARE[HEPCNN], TRAINING[HEPCNN])
CLAIMS = (SLOWER_WITH_GLOBAL_SHUFFLE, BY_MEMORY, WITH_EPOCHS, WITH_DATA, *SHARE.values(), *TRAINING.values())
SETS = (_nodes, WITH_EPOCHS.cells, WITH_DATA.cells)


def published_rate(reads: float, training_files: int, sizes: tuple[float, float], read_s: float) -> float:
    """Return bytes per second by the formula of NERSC's training HEPCNNB.

    The formula counts one read for each training file, and counts all other reads as reads of validation files.
    `sizes` has the bytes of a training file and of a validation file. `read_s` is the read time `sum_per_rank`.
    """
    return (training_files * sizes[0] + (reads - training_files) * sizes[1]) / read_s


def claims(table: pd.DataFrame) -> Sequence[Claim]:
    """Return the claims about the measured benchmarks, or an empty list if no benchmark of NERSC was measured."""
    measured = set(table["benchmark"])
    return [claim for claim in CLAIMS if (HEPCNN if claim in OF_HEPCNN else CLIMATE) in measured]
