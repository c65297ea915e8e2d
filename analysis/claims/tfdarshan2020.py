"""The claims and the published numbers of the tf-Darshan paper, about its profiler and the profiled workloads.

The paper is Chien, Podobas, Peng, Markidis: "tf-Darshan: Understanding Fine-grained I/O Performance in Machine Learning
Workloads", CLUSTER 2020, arXiv:2008.04395.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis import paper
from analysis.claims import claim as of
from analysis.claims import comparisons as by
from analysis.claims.cell_sets import Cell, CellSet, Evidence, cell_sets, cells_of, emulated_parts
from analysis.claims.claim import CELLS, EACH, FLAT, ORDER, SITE, Claim
from analysis.claims.comparisons import CellMetrics, CellQuantity, CellRatio
from analysis.records.settings import describe_settings
from analysis.statistics.selection import sets_of_settings
from analysis.traces.posix import AGREEMENT, EVERY

PAPER = "tf-Darshan (Chien et al. 2020)"
IMAGENET, MALWARE = paper.APPLICATION, "malware"
HDD, LUSTRE = "hdd", "lustre"
# Published numbers: POSIX MB/s by benchmark, storage and threads (Figs 7, 9, 11); MB/s with staged small files divided
# by MB/s without staging (Fig 12); fraction by which profiling makes a run longer (Fig 5); fwrite calls per checkpoint
# (ten checkpoints have 1,400 calls, Fig 6).
POSIX_MB_PER_S = {(IMAGENET, LUSTRE): {1: 3, 28: 24}, (MALWARE, HDD): {1: 94, 16: 77}}
STAGING_GAIN = 1.19
OVERHEAD_SHARES = (0.10, 0.20)
FWRITES_A_CHECKPOINT = 140

POSIX, STAGING, TARGET, CONTROL = "profile.posix", "staging", "checkpoint.name", "benchmark.control"
DATASETS = {IMAGENET: "imagenet_subset", MALWARE: "malware"}  # the dataset of each benchmark in the claims
OF_STAGING = frozenset({STAGING, "staging.emulated"})
PROFILE = frozenset({POSIX, EVERY})
BANDWIDTH, FWRITES, WALL = "posix_read_mb_per_s", "posix_stream_writes", "wall_s"
TO_100_B, TO_1_MIB = "posix_read_size_0", "posix_read_size_4"  # numbers of reads: up to 100 B, and 100 KiB to 1 MiB


def profiled_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the cells whose POSIX calls were profiled."""
    return table[table[POSIX].notna()] if {POSIX, "threads"} <= set(table) else table[:0]


def pairs_by_profile(table: pd.DataFrame) -> list[tuple[Cell, Cell]]:
    """Return pairs of a cell without a profile and a profiled cell that have otherwise equal settings.

    The profiled cell has recorded every call (`profile.posix=trace`), and its profile is not divided into parts.
    """
    if profiled_rows(table).empty:
        return []
    pairs = []
    for rows in sets_of_settings(table[table["threads"].notna()], PROFILE, ["storage", "threads"]).values():
        undivided = rows[EVERY].isna() if EVERY in rows else rows[POSIX].notna()
        plain, traced = (cells_of(rows[rows[POSIX].isna()]), cells_of(rows[(rows[POSIX] == "trace") & undivided]))
        pairs += [(plain[0], traced[0])] if len(plain) == len(traced) == 1 else []
    return pairs


def _pairs(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of two cells: a cell without a profile, and a profiled cell with otherwise equal settings."""
    for plain, traced in pairs_by_profile(evidence.table):
        about = describe_settings({**traced["series_key"].facts, "threads": traced["threads"]})
        yield CellSet(f"tf-Darshan: {traced['benchmark']}, {about}", (plain, traced), evidence)


def _profiled(evidence: Evidence) -> Iterator[CellSet]:
    """Yield sets of profiled cells that differ in storage, threads and staging."""
    sets = sets_of_settings(profiled_rows(evidence.table), OF_STAGING)
    for group in cell_sets(evidence, sets, WALL, [STAGING], prefix="tf-Darshan: "):
        cells = [{**cell, STAGING: cell[STAGING] if isinstance(cell[STAGING], str) else ""} for cell in group.cells]
        yield replace(group, cells=[cell for cell in cells if cell["cell"] in evidence.values("posix_reads")])


def _trainings(evidence: Evidence, benchmark: str, *, first: bool = False) -> Iterator[CellSet]:
    """Yield sets of profiled training cells of a benchmark that save no snapshots and are not controls.

    If `first` is true, a set has only one cell: the cell with the fewest threads and without staging.
    """
    for group in evidence.sets(_profiled):
        facts = group.facts
        whole = all(facts.get(name, "none") == "none" for name in (TARGET, CONTROL))
        if whole and (facts.get("benchmark"), facts.get("dataset.name")) == (benchmark, DATASETS[benchmark]):
            own = [cell for cell in group.cells if not cell[STAGING]]
            own = sorted(own, key=lambda cell: (cell["storage"], cell["threads"]))[:1]
            opened = [cell for cell in own if CellMetrics(group, cell)["posix_opens"]]
            yield replace(group, cells=opened) if first else group


def _staged(group: CellSet) -> Iterator[tuple[Cell, Cell]]:
    """Yield pairs of hdd cells with equal threads: without staging, and with small files staged on a faster storage."""
    at = {(cell["threads"], cell[STAGING]): cell for cell in group.cells if cell["name"] == HDD}
    for (threads, rule), cell in at.items():
        if rule in ("smallest", "advised") and (threads, "") in at:
            yield at[threads, ""], cell


def _bandwidth(pairs: by.Pairs) -> CellRatio:
    return CellRatio(BANDWIDTH, pairs, choose=None, name="{second[cell]}", rate="{median:.3g}")


def _plain(storage: str) -> by.Where:
    return lambda cell: cell["name"] == storage and not cell[STAGING]


def _played(cells: Sequence[Cell]) -> str:
    played = any("accelerator" in emulated_parts(cell) for cell in cells)
    return "the step of an emulated accelerator has the configured length" if played else ""


def _share(part: str) -> Callable[[CellMetrics], Sequence[float]]:
    """Return a function that returns for each run the share of its reads in one size bin (`part`)."""
    return lambda runs: runs.values(f"{part}/posix_reads", zeros=True)


def _claim(text: str, figure: str, recipes: str, *how: Any, **more: Any) -> Claim:
    """Return a claim of this paper. `figure` has the figure of the paper and, after a colon, the published value."""
    place, _, published = figure.partition(": ")
    return Claim(PAPER, text, place, published, f"+paper={recipes}", *how, **{"compares": EACH} | more)


_FIG7, _FIG9 = "tfdarshan_fig7", "tfdarshan_fig9"
_ON_LUSTRE, _ON_HDD = (partial(_trainings, benchmark=name) for name in (IMAGENET, MALWARE))
_ONE_OF_IMAGENET, _ONE_OF_MALWARE = (partial(_trainings, benchmark=name, first=True) for name in (IMAGENET, MALWARE))
MOST = of.Predicate(math.nextafter(0.5, 1), math.inf, source="of the word 'most': more than half")
_WHERE = "{cell[storage]}, threads {cell[threads]}"
_CALLS = f"{{median[posix_reads]:,.0f}} reads, {{median[posix_opens]:,.0f}} opens; {_WHERE}"
_RATES = "{rates} MB/s"

WINDOWS = _claim(
    "the MB/s of each window are those of the system's trace", "Figs 3, 4: they agree",
    "tfdarshan_fig3,tfdarshan_fig4", _profiled,
    CellQuantity(lambda runs: [value - 1 for value in runs.values(AGREEMENT)], by.SHARE), FLAT,
    "of each of {n} runs the middle window, over the trace, less one; {cell[storage]}",
)  # fmt: skip
OVERHEAD = _claim(
    "seeing every call makes a run at most 20 % longer", "Fig 5: 10 to 20 %, by hand 0.6 to 7 %",
    "tfdarshan_fig5,tfdarshan_fig5_malware", _pairs,
    CellRatio(WALL, lambda group: [(group.cells[0], group.cells[1])], share=True, choose=None),
    of.Predicate(-math.inf, math.nextafter(OVERHEAD_SHARES[1], -math.inf)), "profile.posix=trace, {second[storage]}",
    compares=CELLS,
)  # fmt: skip
STREAMS = _claim(
    "checkpoints are written by fwrite, and each call is seen",
    f"Fig 6: {10 * FWRITES_A_CHECKPOINT:,} in ten checkpoints", "tfdarshan_fig6", _profiled,
    CellQuantity(lambda runs: runs.values(FWRITES) if runs.values("checkpoints_asked") else (), by.CALLS), of.POSITIVE,
    "{median[posix_stream_writes/checkpoints_asked]:g} in each of {median[checkpoints_asked]:g} checkpoints",
)  # fmt: skip
TWICE, HALF_SMALL_READS, NEITHER = (
    _claim(text, figure, _FIG7, _ONE_OF_IMAGENET, CellQuantity(quantity, unit), of.equal_to(number, SITE), _CALLS)
    for text, figure, quantity, unit, number in (
        ("ImageNet: two reads for each open", "Fig 7: 128 K opens, 256 K reads",
         "posix_reads/posix_opens", by.TIMES, 2.0),
        ("ImageNet: half of the reads return less than 100 B", "Fig 7: 50 %", _share(TO_100_B), by.SHARE, 0.5),
        ("ImageNet: half of the reads are neither sequential nor consecutive", "Fig 7: 50 %",
         lambda runs: [1 - share for share in runs.values("posix_sequential", zeros=True)], by.SHARE, 0.5),
    )
)  # fmt: skip
WHOLE, FOLLOWS = (
    _claim(text, "Fig 9: most", _FIG9, _ONE_OF_MALWARE, CellQuantity(quantity, by.SHARE), MOST, _CALLS)
    for text, quantity in (
        ("Malware: most reads return between 100 KiB and 1 MiB", _share(TO_1_MIB)),
        ("Malware: most reads follow the one before", lambda runs: runs.values("posix_consecutive", zeros=True)),
    )
)
WAITS = {
    name: _claim(
        f"{title}: a training waits for its input most of its time", figure, recipe, cells,
        CellQuantity(f"load_s/{WALL}", by.SHARE), MOST, _WHERE, hindrance=_played,
    )
    for name, title, figure, recipe, cells in (
        (IMAGENET, "ImageNet", "Fig 7: 96 %", _FIG7, _ONE_OF_IMAGENET),
        (MALWARE, "Malware", "Fig 9: 99 %", _FIG9, _ONE_OF_MALWARE),
    )
}  # fmt: skip
SCALES = _claim(
    "lustre: 28 threads read ImageNet 8 times as fast as one", "Fig 7: 8 times", _FIG7, _ON_LUSTRE,
    _bandwidth(by.pairs_along("threads", 1, 28, per=("name",), where=_plain(LUSTRE))),
    of.equal_to("8", SITE, of.DIGITS), _RATES,
    compares=CELLS, emulable=True,
)  # fmt: skip
FEWER = _claim(
    "hdd: 16 threads read Malware slower than one", "Fig 11: 77 MB/s after 94", _FIG9, _ON_HDD,
    _bandwidth(by.pairs_along("threads", 16, 1, per=("name",), where=_plain(HDD))), ORDER, _RATES, compares=CELLS,
)  # fmt: skip
STAGED = _claim(
    "hdd: Malware's small files, 8 % of its bytes, on a faster storage: 19 % more MB/s", "Fig 12: 1.19 times",
    "tfdarshan_fig12", _ON_HDD, _bandwidth(_staged), of.at_least(str(STAGING_GAIN), SITE), _RATES,
    compares=CELLS, emulable=True,
)  # fmt: skip

CLAIMS = (
    WINDOWS, OVERHEAD, STREAMS, TWICE, HALF_SMALL_READS, NEITHER, WAITS[IMAGENET], SCALES, WAITS[MALWARE],
    WHOLE, FOLLOWS, FEWER,
    STAGED,
)  # fmt: skip
SETS = (_pairs, _profiled)


def claims(table: pd.DataFrame) -> Sequence[Claim]:
    """Return the claims of the paper, or an empty sequence if no cell was profiled."""
    return () if profiled_rows(table).empty else CLAIMS
