"""What the paper claims of checkpoints and of its burst buffer; Figs 9 and 10.

The paper does not say of which time its 2.6 is; it is taken to be that of a checkpoint, for a runtime is mostly
training, and the runtimes stand beside it. That gain *holds* where it is the published one or more.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from analysis import paper
from analysis.records.settings import describe
from analysis.statistics.selection import HOW, MODE, saving_sets
from analysis.text.plain import listed
from analysis.verdicts import all_claims
from analysis.verdicts.claim_judge import (
    DIFFERS,
    MB,
    NOT_COMPARABLE,
    NOT_MEASURED,
    SECONDS,
    SHARE,
    TIMES,
    Finding,
    Verdict,
    judge,
    middle,
    ratio,
    weakest,
)
from analysis.verdicts.evidence import Cell, Evidence, cells_of
from analysis.verdicts.tolerance import LARGER, POSITIVE, alike, as_printed, at_least

COUNTED = "snapshot_blocked_s"
DEVICES = ("target_storage", "target_device", "target_below", "fast_storage", "fast_device", "fast_below")
OF_SAVING = ("target", "target_name", "wall_s", *DEVICES, *(f"{COUNTED}{end}" for end in ("", "_min", "_max")))
# From slow to fast.
ORDER = ("hdd", "ssd", "optane")
BYTES_PER_MB = 10**6


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on each set of cells that differ in their target alone, which training stands still for."""
    for key, rows in saving_sets(found.trained, (*HOW, *MODE)).items():
        facts = key.facts
        if facts["checkpoint.mode"] == "sync":
            about = describe(facts, (), rows["accelerator"], rows["size"])
            yield from (replace(verdict, about=about) for verdict in _of_set(found, cells_of(rows, OF_SAVING)))


def _of_set(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    saved = [cell for cell in cells if cell["cell"] in found.values(COUNTED)]
    direct = {cell["target_name"].casefold(): cell for cell in saved if cell["target_name"] != paper.BURST_BUFFER}
    buffers = [cell for cell in saved if cell["target_name"] == paper.BURST_BUFFER and len(set(_sides(cell))) > 1]
    yield from order(found, [direct[name] for name in ORDER if name in direct])
    yield from (like_fast(found, direct[fast], cell) for cell in buffers if (fast := _sides(cell)[0]) in direct)
    gains = [gain(direct[slow], cell) for cell in buffers if (slow := _sides(cell)[1]) in direct]
    why = "no burst buffer is done beside a checkpoint straight to its slow storage"
    yield from gains or [Verdict(all_claims.GAIN, NOT_MEASURED, why)]
    yield from size(found, saved)
    yield from (each for cell in buffers for each in drained(found, cell))


def order(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    """Test whether each target of the paper's order gives a shorter runtime than the one before."""
    if len(cells) < len(ORDER):
        return
    steps = {fast["target"]: ratio(found.values("wall_s"), slow, fast) for slow, fast in pairwise(cells)}
    told = listed(f"{cell['target']} {cell['wall_s']:.4g}" for cell in cells)
    yield judge(all_claims.TARGETS, weakest(steps)[0], LARGER, f"runtimes in s: {told}")


def like_fast(found: Evidence, alone: Cell, buffered: Cell) -> Verdict:
    """Test whether a burst buffer's runtime is that with its fast storage alone: (ratio of the medians) - 1."""
    times = ratio(found.values("wall_s"), buffered, alone)
    finding = Finding(times.ours - 1, times.low - 1, times.high - 1, SHARE, (alone, buffered))
    words = f"runtime {buffered['wall_s']:.4g} s, {alone['wall_s']:.4g} s to {alone['target']} alone"
    return judge(all_claims.LIKE_FAST, finding, alike(finding.cells), words)


def gain(alone: Cell, buffered: Cell) -> Verdict:
    """Test how many times as fast a checkpoint to a burst buffer is; the interval is what the cells' ranges allow."""
    low, high = (
        alone[f"{COUNTED}{mine}"] / buffered[f"{COUNTED}{other}"]
        for mine, other in (("_min", "_max"), ("_max", "_min"))
    )
    finding = Finding(alone[COUNTED] / buffered[COUNTED], low, high, TIMES, (alone, buffered))
    words = (
        f"{alone[COUNTED]:.3g} s a checkpoint to {alone['target']}, {buffered[COUNTED]:.3g} s to {buffered['target']};"
        f" runtime {alone['wall_s']:.3g} s and {buffered['wall_s']:.3g} s"
    )
    return judge(all_claims.GAIN, finding, at_least(all_claims.GAIN, finding.cells), words)


def size(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    """Test how large a snapshot is; that depends on the network alone, of which the paper gives no widths."""
    known = [cell for cell in cells if cell["cell"] in found.values("snapshot_bytes")]
    if not known:
        return
    sizes = [each / BYTES_PER_MB for cell in known for each in found.values("snapshot_bytes")[cell["cell"]]]
    width = known[0]["series_key"].facts.get("benchmark.width", 1.0)
    why_not = f"a network of {width:g} times the width" if width != 1 else ""
    words = f"{len(sizes)} runs of {len(known)} cells"
    held = as_printed(all_claims.SNAPSHOT, None)
    verdict = judge(all_claims.SNAPSHOT, middle(sizes, MB, known), held, words, why_not=why_not)
    if verdict.verdict == DIFFERS:  # of a file system, which verdicts are there to test, this would say nothing
        verdict = replace(verdict, verdict=NOT_COMPARABLE, why=f"{words}; the paper does not give its network's widths")
    yield verdict


def drained(found: Evidence, cell: Cell) -> Iterator[Verdict]:
    """Test whether a burst buffer's snapshots reach its slow storage later, and the last after the training."""
    slow, fast = (
        found.values(name).get(cell["cell"]) for name in ("snapshot_durable_slow_s", "snapshot_durable_fast_s")
    )
    beyond = found.all_values("drain_exposed_s").get(cell["cell"])
    if slow and fast and beyond:
        later = replace(ratio({"slow": slow, "fast": fast}, {"cell": "slow"}, {"cell": "fast"}), cells=(cell,))
        words = (
            f"durable after {statistics.median(slow):.3g} s on the slow, {statistics.median(fast):.3g} s on the fast"
        )
        yield judge(all_claims.LATER, later, LARGER, words)
        finding = middle(beyond, SECONDS, [cell])
        words = f"{finding.ours:.3g} s of copying after the end of training, {cell['target']}"
        yield judge(all_claims.DRAIN, finding, POSITIVE, words)


def _sides(buffered: Cell) -> tuple[str, str]:
    """Return the names of the fast and of the slow storage of a burst buffer."""
    facts = buffered["series_key"].facts
    return facts["checkpoint.fast.name"].casefold(), facts["checkpoint.slow.name"].casefold()
