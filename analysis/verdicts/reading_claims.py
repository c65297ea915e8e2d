"""What the paper claims of the mini-application's threads, MB each second, steps and batch sizes; Figs 6, 7 and 8."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.statistics.selection import BATCH_PLACE, batch_sets, in_order, settled, unsaved
from analysis.text.plain import listed
from analysis.verdicts import all_claims
from analysis.verdicts.claim_judge import SECONDS, Verdict, emulated, judge, middle, over, ratio, weakest
from analysis.verdicts.evidence import Cell, Evidence, cells_of, headings, neighbours
from analysis.verdicts.tolerance import LARGER, between

HDD, SSD, LUSTRE = "hdd", "ssd", "lustre"
READ = "read_mb_per_s"
# Seconds that a step computes "in most of the benchmark configurations" (Section VII).
STEP_S = (1.0, 2.0)


def threads_on_hdd(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    """Test whether threads shorten the runtime without prefetch most on hdd: ratio of the gains, hdd over another.

    Lustre is none of the others: the paper shows no run on it without prefetch (Fig. 6).
    """
    places: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        if (name := cell["storage_name"].casefold()) != LUSTRE:
            places.setdefault(name, {})[cell["threads"]] = cell
    common = sorted(set.intersection(*(set(of) for of in places.values()))) if places else []
    if HDD not in places or len(places) < 2 or len(common) < 2:  # noqa: PLR2004 - a comparison has two sides
        return
    few, many = common[0], common[-1]
    gains = {name: ratio(found.values("wall_s"), of[few], of[many]) for name, of in places.items()}
    steps = {name: over(gains[HDD], gain) for name, gain in gains.items() if name != HDD}
    told = listed(f"{places[name][few]['storage']} {gain.ours:.2f}" for name, gain in gains.items())
    words = f"runtime with {few} threads over that with {many}: {told}"
    yield judge(all_claims.THREADS_ON_HDD, weakest(steps)[0], LARGER, words)


def each_second(found: Evidence, pairs: Sequence[tuple[Cell, Cell]]) -> Iterator[Verdict]:
    """Test whether prefetch raises the MB that are read each second from hdd, and on ssd less so.

    At the most threads at which there is such a pair, of the bytes that the pipeline read in the runtime.
    """
    most: dict[str, tuple[Cell, Cell]] = {}
    for pair in sorted(pairs, key=lambda both: both[0]["threads"]):
        most[pair[0]["storage_name"].casefold()] = pair
    gains = {
        name: replace(ratio(found.values(READ), *pair), cells=pair) for name, pair in most.items() if name in (HDD, SSD)
    }
    told = listed(
        f"{pair['storage']} {gains[name].ours:.2f}, threads {pair['threads']}"
        for name, (pair, _) in most.items()
        if name in gains
    )
    words = f"MB/s with prefetch over without: {told}"
    if HDD in gains:
        yield judge(all_claims.READS_MORE, gains[HDD], LARGER, words)
    if len(gains) > 1:
        yield judge(all_claims.LESS_ON_SSD, over(gains[HDD], gains[SSD]), LARGER, words)


def steps(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    """Test how long a step computes: the median over the cells, each of which is trained for real."""
    real = [cell for cell in cells if "accelerator" not in emulated(cell["series_key"].facts)]
    seconds = [
        statistics.median(found.values("compute_s")[name]) * cell["batch_size"] / found.values("images")[name][0]
        for cell in real
        if (name := cell["cell"]) in found.values("compute_s")
    ]
    if seconds:
        words = f"{listed(cell['accelerator'] for cell in real)}; {len(seconds)} cells"
        yield judge(all_claims.STEP, middle(seconds, SECONDS, real), between(*STEP_S), words)


def of_batches(found: Evidence) -> Iterator[Verdict]:
    """Yield whether images/s increase with the batch size: of each storage, with prefetch and without."""
    sets = batch_sets(unsaved(found.trained))
    sets = {key: cells for key, cells in sets.items() if len(set(cells["batch_size"])) > 1}
    for key, about in headings(sets, {"prefetch", "batch_size", "iterations"}).items():
        rows = in_order(settled(sets[key], BATCH_PLACE, "images_per_s"), ["batch_size"])
        lines: dict[tuple[str, int], list[Cell]] = {}
        for cell in cells_of(rows, ["batch_size"]):
            lines.setdefault((cell["storage"], cell["prefetch"]), []).append(cell)
        steps = {
            _grown(small, large): ratio(found.values("images_per_s"), large, small)
            for line in lines.values()
            for small, large in neighbours(line, "batch_size")
        }
        if len({ahead > 0 for (_, ahead), line in lines.items() if len(line) > 1}) > 1:  # with prefetch and without
            step, which = weakest(steps)
            played = any("accelerator" in emulated(cell["series_key"].facts) for cell in step.cells)
            why_not = "a step of an emulated accelerator takes as long whatever the batch" if played else ""
            words = f"the least of {len(steps)} steps: {which}"
            verdict = judge(all_claims.BATCH, step, LARGER, words, why_not=why_not)
            yield replace(verdict, about=about)


def _grown(small: Cell, large: Cell) -> str:
    return f"{small['storage']}, prefetch {small['prefetch']}, batch {small['batch_size']} to {large['batch_size']}"
