"""The claims and the published numbers of Chien et al., "Characterizing Deep-Learning I/O Workloads in TensorFlow".

The paper is PDSW-DISCS 2018, arXiv:1810.03035. This module lists every claim that the text of the paper states as a
number or as an order, in the order of the text. One claim is inferred from two figures, and the claim says so. The text
has no numbers for the bars of the figures. Only the ratios in Section VII and the numbers in Table I can be compared.

The paper is ambiguous in two places. Section VII does not say for which pipeline (Fig. 4 or Fig. 5) its ratios are
valid. For the burst buffer, the paper does not say which time is 2.6 times as fast. We use the time of a checkpoint,
because the runtime is mostly training. The words of this claim also have the runtimes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis import paper
from analysis.claims import cell_sets as sets
from analysis.claims import claim as of
from analysis.claims import comparisons as by
from analysis.claims.cell_sets import (
    BLOCKED,
    PREPROCESS,
    RATE,
    READ_MB,
    WALL,
    Cell,
    CellSet,
    emulated_parts,
    model_names,
    neighbouring_pairs,
)
from analysis.claims.claim import DIGITS, EACH, FLAT, ORDER, SITE, STORAGES, Claim, Finding, NothingToCompare
from analysis.claims.comparisons import CellQuantity, CellRatio, RatioOfRatios, Steps, median_finding, ratio_finding
from analysis.statistics.baselines import baseline_key
from analysis.text import join_values

PAPER = "Chien et al. 2018"
END = "Sec. VII"
SOURCE = f"{PAPER}, {END}"
BLACKDOG, TEGNER = "blackdog", "tegner"
HDD, SSD, OPTANE, LUSTRE = "hdd", "ssd", "optane", "lustre"

# Published throughput relative to one thread, by storage and number of threads.
THREAD_SCALING = {HDD: {2: "1.65", 4: "1.95", 8: "2.3"}, LUSTRE: {8: "7.8"}}
# Table I has the maximum MB/s measured by IOR (Section IV). IOR read or wrote one file of 5 GB six times, and the first
# time was discarded. The numbers are texts as printed, because the last digit shows the precision of a number.
FILE_MB = 5000
TABLE_1_SOURCE = f"{PAPER}, Table I"
TABLE_1 = {
    HDD: {"read": "163.00", "write": "133.14"},
    SSD: {"read": "280.55", "write": "195.05"},
    OPTANE: {"read": "1603.06", "write": "511.78"},
    LUSTRE: {"read": "1968.618", "write": "991.914"},
}
# The batch size in all figures of the mini-application except Fig. 7, which varies the batch size (Section V.B).
BATCH_SIZE = 64

AXES_OF_EQUAL = {"storage": "storages", "threads": "thread counts"}


def published_number(numbers: Mapping[str, Mapping[Any, str]], storage: str, key: Any) -> float | None:
    """Return a published number of a storage, or None if the paper does not give this number."""
    number = numbers.get(storage.casefold(), {}).get(key)
    return None if number is None else float(number)


# The following functions are comparisons that only the claims of this paper need.


def _deviation(group: CellSet, metric: str, machine: str) -> Iterator[Finding]:
    """Yield the largest relative deviation of a run from the median of its cell, over all cells of the paper's machine.

    If no cell was measured on this machine, all cells are used.
    """
    cells = [cell for cell in group.cells if cell["cell"] in group.values(metric)]
    cells = [cell for cell in cells if cell["site"] == machine] or cells
    vary = {}
    for cell in cells:
        runs = group.values(metric)[cell["cell"]]
        vary[cell["cell"]] = max(abs(each - statistics.median(runs)) for each in runs) / statistics.median(runs)
    if vary:
        most = max(vary, key=lambda cell: vary[cell])
        yield median_finding([vary[most]], by.SHARE, cells, {"cells": len(cells), "most": most})


def _best(group: CellSet, *, alone: bool) -> Iterator[tuple[Cell, Cell]]:
    """Yield for each storage the fastest cell with preprocessing, paired with the storage's baseline.

    If `alone` is true, the fastest cell with preprocessing is paired with the fastest cell without preprocessing.
    """
    best: dict[bool, dict[str, Cell]] = {True: {}, False: {}}
    for cell in group.cells:
        of_kind = best[bool(cell[PREPROCESS])]
        of_kind[cell["storage"]] = max(of_kind.get(cell["storage"], cell), cell, key=lambda each: each[READ_MB])
    for name, cell in best[True].items():
        if other := best[False].get(name) if alone else group.evidence.peaks.get(baseline_key(cell, "read")):
            yield cell, other


def _equal_runtime(group: CellSet) -> Iterator[Finding | NothingToCompare]:
    """Yield (max - min) / median of the median runtimes of all cells with prefetch.

    Each cell has a range from its fastest to its slowest run. The lower end of the interval is the gap between these
    ranges, and the upper end is the whole span of these ranges.
    """
    cells = tuple(cell for cell in group.cells if cell["prefetch"])
    words = {name: join_values(cell[name] for cell in cells) for name in ("storage", "threads")}
    lone = [word for name, word in AXES_OF_EQUAL.items() if len({cell[name] for cell in cells}) <= 1]
    if group.alone:
        return
    if lone:
        yield NothingToCompare(f"fewer than two {lone[0]} are done with prefetch: there is nothing to compare", cells)
        return
    times, lows, highs = ([cell[f"wall_s{end}"] for cell in cells] for end in ("", "_min", "_max"))
    ends = max(times) - min(times), max(0.0, max(lows) - min(highs)), max(highs) - min(lows)
    ours, low, high = (end / statistics.median(times) for end in ends)
    yield Finding(ours, low, high, by.SHARE, cells, words | {"n": len(cells)})


def _ahead(group: CellSet) -> list[tuple[Cell, Cell]]:
    """Return pairs of a cell with prefetch and a cell without prefetch, one pair per storage and thread count."""
    places: dict[tuple[str, int], list[Cell]] = {}
    for cell in group.cells:
        places.setdefault((cell["storage"], cell["threads"]), []).append(cell)
    return [(ahead, none) for cells in places.values() for none, ahead in neighbouring_pairs(cells, "prefetch")]


def _excess(group: CellSet) -> Iterator[Finding | NothingToCompare]:
    """Yield (excess - load_s) / runtime without prefetch, for each storage and thread count.

    The excess is the runtime without prefetch minus the runtime with prefetch. The ends of the interval are the extreme
    combinations of the minima and maxima of these times.
    """
    for ahead, none in (pairs := _ahead(group)):
        ends = (("", "", ""), ("_min", "_max", "_max"), ("_max", "_min", "_min"))
        ours, low, high = ((none[WALL + a] - ahead[WALL + b] - none["load_s" + c]) / none[WALL] for a, b, c in ends)
        words = {"added": none[WALL] - ahead[WALL], "none": none}
        pair = f"{none['storage']}, threads {none['threads']}"
        yield Finding(ours, low, high, by.SHARE, (ahead, none), words, pair)
    if not pairs:
        yield NothingToCompare("no storage and thread count is done with prefetch and without")


def _each_second(group: CellSet, *, over_ssd: bool) -> Iterator[Finding]:
    """Yield the MB/s with prefetch divided by the MB/s without prefetch on hdd.

    The cells with the largest number of threads are used. If `over_ssd` is true, the ratio on hdd is divided by the
    ratio on ssd.
    """
    most = {pair[0]["name"]: pair for pair in sorted(_ahead(group), key=lambda pair: pair[0]["threads"])}
    gains = {
        name: replace(ratio_finding(group.values(READ_MB), *pair), cells=pair)
        for name, pair in most.items() if name in (HDD, SSD)
    }  # fmt: skip
    entry = "{cell[storage]} {ours:.2f}, threads {cell[threads]}"
    entries = (entry.format(cell=gain.cells[0], ours=gain.ours) for gain in gains.values())
    if HDD in gains and (not over_ssd or SSD in gains):
        gain = by.ratio_of_ratios(gains[HDD], gains[SSD]) if over_ssd else gains[HDD]
        yield replace(gain, words={"gains": join_values(entries)})


def _beside(group: CellSet, side: str) -> list[tuple[Cell, Cell]]:
    """Return pairs of cells that save checkpoints: directly to one storage of a burst buffer, and to the burst buffer.

    `side` is the storage of the burst buffer: `fast` or `slow`.
    """
    direct = {cell["to"]: cell for cell in group.cells}
    return [(direct[cell[side]], cell) for cell in group.cells if cell["buffered"] and cell[side] in direct]


def _gain(group: CellSet) -> Iterator[Finding | NothingToCompare]:
    """Yield the time of a checkpoint to the slow storage divided by the time of a checkpoint to the burst buffer.

    The interval follows from the minima and maxima of these times.
    """
    for alone, buffered in (pairs := _beside(group, "slow")):
        ends = ("", ""), ("_min", "_max"), ("_max", "_min")
        ours, low, high = (alone[BLOCKED + mine] / buffered[BLOCKED + other] for mine, other in ends)
        yield Finding(ours, low, high, by.TIMES, (alone, buffered), {"first": alone, "second": buffered})
    if not pairs:
        yield NothingToCompare("no burst buffer is done beside a checkpoint straight to its slow storage")


def _drained(group: CellSet, *, later: bool) -> Iterator[Finding]:
    """Yield how long the copying of snapshots from the fast to the slow storage lasts after the end of the training.

    If `later` is true, yield instead the time until a snapshot is durable on the slow storage, divided by the time
    until the snapshot is durable on the fast storage.
    """
    for cell in group.cells:
        runs = by.CellMetrics(group, cell)
        sides = {side: runs.values(f"snapshot_durable_{side}_s") for side in ("slow", "fast")}
        beyond = runs.values("drain_exposed_s", zeros=True)
        if cell["buffered"] and all(sides.values()) and beyond:
            times = ratio_finding(sides, {"cell": "slow"}, {"cell": "fast"})
            medians = {name: statistics.median(seconds) for name, seconds in (*sides.items(), ("exposed", beyond))}
            found = times if later else median_finding(beyond, by.SECONDS, (), {})
            yield replace(found, cells=(cell,), words=medians | {"cell": cell})


def _both_ways(steps: Steps) -> Steps:
    """Return the weakest step if there are both steps with prefetch and steps without prefetch.

    Otherwise return an empty mapping.
    """
    return by.weakest_step(steps) if len({step.cells[0]["prefetch"] > 0 for step in steps.values()}) > 1 else {}


# The following functions return the reason why cells are not comparable with a claim, or `""`.


def _small_file(cells: Sequence[Cell]) -> str:
    """Return a reason if the file is smaller than the paper's file, because a device may be faster for a short time."""
    file_mb = cells[0]["series_key"].facts.get("benchmark.file_mb") or FILE_MB
    small = file_mb < FILE_MB and not model_names(cells)
    return f"the file has {file_mb:,} MB, and the paper's {FILE_MB:,}" if small else ""


def _played(cells: Sequence[Cell]) -> str:
    played = any("accelerator" in emulated_parts(cell) for cell in cells)
    return "a step of an emulated accelerator takes as long whatever the batch" if played else ""


def _other_network(cells: Sequence[Cell]) -> str:
    """Return a reason if the network does not have the default width, which determines the size of a snapshot."""
    width = cells[0]["series_key"].facts.get("benchmark.width", 1.0)
    return f"a network of {width:g} times the width" if width != 1 else ""


# The claims of the paper follow, in the order of the text.

_claim = partial(Claim, PAPER)
_FIG4, _BOTH = (f"+paper={name} storage=hdd,ssd,optane,lustre" for name in ("fig4", "fig4,fig5"))
_FIG6, _FIG8 = "+paper=fig6 storage=hdd,ssd,optane", "+paper=fig8 storage=hdd,ssd"
_FIG7, _FIG9, _FIG10 = "+paper=fig7 storage=ssd", "+paper=fig9", "+paper=fig10"
_TABLE = "+paper=table1 storage=hdd,ssd,optane,lustre"
_MICRO, _APP, _SAVED = "Sec. V.A", "Sec. V.B", "Sec. V.C"
_ACCESSES = {access: partial(sets.baseline_sets, access=access) for access in ("read", "write")}
_BENCHMARKS = {name: partial(sets.whole_benchmark_set, benchmark=name) for name in (paper.MICRO, paper.APPLICATION)}


def _named(storage: str) -> by.Where:
    return lambda cell: cell["name"] == storage


def _no_lustre(cell: Cell) -> bool:
    """Return whether a cell has no prefetch and another storage than lustre, because Fig. 6 does not show lustre."""
    return not cell["prefetch"] and cell["name"] != LUSTRE


def _gains(few: int, many: int, **more: Any) -> CellRatio:
    """Return the comparison "images/s with `many` threads divided by images/s with `few` threads" for each storage.

    Only cells with preprocessing are compared.
    """
    return CellRatio(RATE, by.pairs_along("threads", few, many, where=lambda cell: bool(cell[PREPROCESS])), **more)


READ, WRITTEN = (
    {
        name: _claim(
            f"{name}: a file of 5 GB is {done} at {numbers[access]} MB/s", "Table I", f"{numbers[access]} MB/s", _TABLE,
            _ACCESSES[access], CellQuantity(f"{access}_mb_per_s", by.MB_PER_S, where=_named(name)),
            of.equal_to(numbers[access], SITE, DIGITS), "{cell[storage]} on {host}, {n} runs",
            machine=TEGNER if name == LUSTRE else BLACKDOG, emulable=True, compares=EACH, hindrance=_small_file,
        )
        for name, numbers in TABLE_1.items()
    }
    for access, done in (("read", "read"), ("write", "written"))
)  # fmt: skip
FASTER = {
    access: _claim(
        f"the storages' order in {noun}: hdd, ssd, optane, lustre", "Table I", "each faster", _TABLE,
        _ACCESSES[access], CellRatio(f"{access}_mb_per_s", by.pairs_along("name", *TABLE_1, per=())), ORDER,
        "MB/s: {rates}",
        compares=STORAGES,
    )
    for access, noun in (("read", "reading"), ("write", "writing"))
}  # fmt: skip
# The variation of the runs. For each benchmark and machine, the paper gives a percentage below which the runs vary.
SPREAD = {
    (benchmark, machine): _claim(
        f"the {program}'s runs vary by less than {percent} %", place, f"< {percent} %", recipe, _BENCHMARKS[benchmark],
        partial(_deviation, metric=metric, machine=machine), of.below_bound(f"0.0{percent}"),
        "{cells} cells; the widest is {most}", machine=machine, compares=EACH,
    )
    for benchmark, metric, program, place, recipe, limits in (
        (paper.MICRO, RATE, "micro-benchmark", "Sec. IV.A", _FIG4, {BLACKDOG: 1, TEGNER: 4}),
        (paper.APPLICATION, WALL, "mini-application", "Sec. IV.B", _FIG6, {BLACKDOG: 1, TEGNER: 6}),
    )
    for machine, percent in limits.items()
}  # fmt: skip
DOUBLED = _claim(
    "two threads almost double the bandwidth of one on most devices", _MICRO, "almost twice", _FIG4,
    sets.pipeline_sets, _gains(1, 2, choose=by.lower_median_step),
    of.Predicate(1.5, math.inf, source="of the words: 'almost', nearer to two than to one; 'most', more than half"),
    "two threads over one: {steps}", compares=STORAGES,
)  # fmt: skip
FAST_DOUBLE = _claim(
    "the effect of a second thread is larger on ssd and optane than on hdd", _MICRO, "ssd, optane > hdd", _FIG4,
    sets.pipeline_sets, RatioOfRatios(_gains(1, 2), above=(SSD, OPTANE), below=(HDD,)),
    ORDER, "two threads over one: {gains}",
)  # fmt: skip
SOON_FLAT = _claim(
    "on hdd the last doubling of threads, four to eight, gains less than the first", _MICRO, "soon flattens", _FIG4,
    sets.pipeline_sets, RatioOfRatios(_gains(1, 2), _gains(4, 8), (HDD,)), ORDER,
    "one to two threads {gain:.2f}, four to eight {last:.2f}",
)  # fmt: skip
LUSTRE_BEST = _claim(
    "lustre scales best with threads", _MICRO, "lustre > others", _FIG4,
    sets.pipeline_sets, RatioOfRatios(_gains(1, 8), above=(LUSTRE,)),
    ORDER, "eight threads over one: {gains}", compares=STORAGES,
)  # fmt: skip
BELOW_IOR = _claim(
    "the input pipeline's bandwidth is below that of the storage", _MICRO, "IOR > pipeline", f"{_FIG4}; {_TABLE}",
    sets.pipeline_sets, CellRatio(READ_MB, partial(_best, alone=False)), ORDER,
    "baseline over the best of the pipeline, least on {which}; {n} storages", compares=STORAGES,
)  # fmt: skip
PREPROCESSING = _claim(
    "without preprocessing the bandwidth is larger (inferred from Figs 4 and 5)", "inferred from Figs 4 and 5",
    "read only > with preprocessing", _BOTH, sets.pipeline_sets, CellRatio(READ_MB, partial(_best, alone=True)), ORDER,
    "read only over with preprocessing, the best of each, least on {which}; {n} storages", compares=STORAGES,
)  # fmt: skip
SCALING = {
    (storage, threads): _claim(
        f"{storage}: {threads} threads read {number} times as much as one", END, f"{number} times", _BOTH,
        sets.pipeline_sets,
        CellRatio(RATE, by.pairs_along("threads", 1, threads, per=("pipeline", "storage"), where=_named(storage)),
                               name="{first[pipeline]} {first[storage]}", entry="{first[pipeline]} {ours:.2f}",
                               choose=by.nearest_step(float(number))),
        of.equal_to(number, SITE, DIGITS), f"{{first[storage]}}, {threads} threads over one: {{steps}}{{nearer}}",
        emulable=True,
    )
    for storage, ratios in THREAD_SCALING.items()
    for threads, number in ratios.items()
}  # fmt: skip
EQUAL = _claim(
    "with prefetch the runtime is equal whatever the storage and the threads", _APP, "the same runtime", _FIG6,
    sets.prefetch_sets, _equal_runtime, FLAT, "{n} cells: {storage}; threads {threads}",
)  # fmt: skip
EXCESS = _claim(
    "the excess without prefetch is the cost of I/O", _APP, "excess = cost of I/O", _FIG6,
    sets.prefetch_sets, _excess, FLAT,
    "excess {added:.3g} s, waiting for input {none[load_s]:.3g} s, runtime {none[wall_s]:.3g} s", in_all=True,
)  # fmt: skip
THREADS_ON_HDD = _claim(
    "without prefetch, threads shorten the runtime most on hdd", _APP, "hdd > others", _FIG6, sets.prefetch_sets,
    RatioOfRatios(CellRatio(WALL, by.pairs_along("threads", *by.ENDS, per=("name",), where=_no_lustre), inverted=True),
                  above=(HDD,)),
    ORDER, "runtime with {first[threads]} threads over that with {second[threads]}: {gains}",
)  # fmt: skip
READS_MORE = _claim(
    "with prefetch more is read each second from hdd", _APP, "prefetch 1 > prefetch 0", _FIG8,
    sets.prefetch_sets, partial(_each_second, over_ssd=False), ORDER, "MB/s with prefetch over without: {gains}",
)  # fmt: skip
LESS_ON_SSD = _claim(
    "prefetch gains less on ssd than on hdd", _APP, "hdd > ssd", _FIG8,
    sets.prefetch_sets, partial(_each_second, over_ssd=True), ORDER, "MB/s with prefetch over without: {gains}",
)  # fmt: skip
BATCH = _claim(
    "a larger batch is trained faster, with and without prefetch", _APP, "faster with each batch size", _FIG7,
    sets.batch_size_sets, CellRatio(
        RATE, by.pairs_along("batch_size", per=("storage", "prefetch")), choose=_both_ways,
        name="{first[storage]}, prefetch {first[prefetch]}, batch {first[batch_size]} to {second[batch_size]}",
    ),
    ORDER, "the least of {n} steps: {which}", hindrance=_played,
)  # fmt: skip
# The paper says "in most of the benchmark configurations", so the median over the cells is compared. Cells with an
# emulated accelerator are left out, because the length of their steps is configured.
STEP = _claim(
    "a step's computing takes 1 to 2 s", END, "1 to 2 s", _FIG6, sets.prefetch_sets,
    CellQuantity(
        lambda runs: [seconds * runs.cell["batch_size"] for seconds in runs.values("compute_s/images")],
        by.SECONDS, where=lambda cell: "accelerator" not in emulated_parts(cell), pooled=True,
    ),
    of.Predicate(1.0, 2.0), "{accelerators}; {cells} cells", machine=f"{BLACKDOG} or {TEGNER}",
)  # fmt: skip
TARGETS = _claim(
    "the runtime with checkpoints is lowest to optane, then to ssd, then to hdd", _SAVED, "optane < ssd < hdd", _FIG9,
    sets.checkpoint_sets,
    CellRatio(WALL, by.pairs_along("to", HDD, SSD, OPTANE, per=()), inverted=True, name="{first[target]}",
                       rate="{cell[target]} {median:.4g}"),
    ORDER, "runtimes in s: {rates}",
)  # fmt: skip
LIKE_FAST = _claim(
    "with a burst buffer the runtime is that with its fast storage alone", _SAVED, "little difference", _FIG9,
    sets.checkpoint_sets,
    CellRatio(WALL, partial(_beside, side="fast"), share=True, choose=None, name="{second[cell]}"),
    FLAT,
    "runtime {second[wall_s]:.4g} s, {first[wall_s]:.4g} s to {first[target]} alone",
)  # fmt: skip
GAIN = _claim(
    "a burst buffer checkpoints 2.6 times as fast as its slow storage alone", END, "2.6 times as fast", _FIG9,
    sets.checkpoint_sets, _gain, of.at_least("2.6", SITE),
    f"{{first[{BLOCKED}]:.3g}} s a checkpoint to {{first[target]}}, {{second[{BLOCKED}]:.3g}} s to"
    " {second[target]}; runtime {first[wall_s]:.3g} s and {second[wall_s]:.3g} s",
)  # fmt: skip
# The paper says "roughly 600 MB", so only the first digit counts ("6e2"). A snapshot of another size does not refute
# the paper, because the size follows from the network and not from the storage.
SNAPSHOT = _claim(
    "a snapshot has roughly 600 MB", END, "600 MB", _FIG9, sets.checkpoint_sets,
    CellQuantity(lambda runs: [size / 10**6 for size in runs.values("snapshot_bytes")], by.MB, pooled=True),
    of.equal_to("6e2", DIGITS), "{n} runs of {cells} cells", compares=EACH, hindrance=_other_network,
    doubt="the paper does not give its network's widths",
)  # fmt: skip
LATER = _claim(
    "through a burst buffer a snapshot is on the slow storage later than on the fast", _SAVED, "slow > fast", _FIG10,
    sets.checkpoint_sets, partial(_drained, later=True), ORDER,
    "durable after {slow:.3g} s on the slow, {fast:.3g} s on the fast",
)  # fmt: skip
DRAIN = _claim(
    "the burst buffer's copying goes on after the application ends", _SAVED, "after the end", _FIG10,
    sets.checkpoint_sets, partial(_drained, later=False), of.POSITIVE,
    "snapshots are copied for {exposed:.3g} s after the end of training, {cell[target]}",
)  # fmt: skip

CLAIMS = (
    *READ.values(), *WRITTEN.values(), *FASTER.values(), *SPREAD.values(),
    DOUBLED, FAST_DOUBLE, SOON_FLAT, LUSTRE_BEST, BELOW_IOR, PREPROCESSING, *SCALING.values(),
    EQUAL, EXCESS, THREADS_ON_HDD, READS_MORE, LESS_ON_SSD, BATCH, STEP,
    TARGETS, LIKE_FAST, GAIN, SNAPSHOT, LATER, DRAIN,
)  # fmt: skip
SETS = (
    *_ACCESSES.values(),
    *_BENCHMARKS.values(),
    sets.pipeline_sets,
    sets.prefetch_sets,
    sets.batch_size_sets,
    sets.checkpoint_sets,
)


def claims(_: pd.DataFrame) -> Sequence[Claim]:
    """Return all claims of the paper, whichever benchmarks were measured."""
    return CLAIMS
