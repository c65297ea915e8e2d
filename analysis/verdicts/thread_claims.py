"""What the paper claims of its micro-benchmark: its scaling with threads, and its bandwidth; Figs 4 and 5."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from analysis import paper
from analysis.records.frame import rows_of
from analysis.records.settings import Settings
from analysis.statistics.baselines import ACCESS, OF_A_BASELINE, fastest
from analysis.statistics.baselines import key as baseline_key
from analysis.statistics.selection import families, settled
from analysis.text.plain import listed
from analysis.verdicts import all_claims
from analysis.verdicts.claim_judge import Finding, Verdict, judge, of_all, over, ratio, weakest
from analysis.verdicts.device_claims import FIGURES, baselines
from analysis.verdicts.evidence import Cell, Evidence, cells_of, headings
from analysis.verdicts.tolerance import LARGER, Held, as_printed

# The cells of one storage by their number of threads.
Curve = Mapping[int, Cell]

PREPROCESS, RATE, MB = "benchmark.preprocess", "images_per_s", "read_mb_per_s"
HDD, SSD, OPTANE, LUSTRE = "hdd", "ssd", "optane", "lustre"
PIPELINES = {True: "Fig 4", False: "Fig 5"}
# Nearer to two than to one.
ALMOST_TWICE, OF_THE_WORD = 1.5, "of the words: 'almost', nearer to two than to one; 'most', more than half"


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on each set of cold cells that differ in storage, threads and pipeline alone."""
    table = found.table
    if not {PREPROCESS, "threads", "cache"} <= set(table):
        return
    counts = table["threads"].map(lambda threads: type(threads) is int)
    mine = table[(table["benchmark"] == paper.MICRO) & (table["cache"] == "cold") & counts]
    sets = families(mine, {PREPROCESS})
    # All sets at once: a frame for each would take most of the time where there are many.
    mine = mine.assign(set=mine["cell"].map({cell: key for key, rows in sets.items() for cell in rows["cell"]}))
    of_sets: dict[Settings, list[Cell]] = {key: [] for key in sets}
    for cell in cells_of(settled(mine, ["set", "storage", "threads", PREPROCESS], RATE), [PREPROCESS, MB, "set"]):
        of_sets[cell["set"]].append(cell)
    known = fastest(rows_of(table, OF_A_BASELINE)) if ACCESS in table else {}
    plain = {cell["cell"]: cell for rows in baselines(table, "read").values() for cell in cells_of(rows)}
    peaks = {key: plain[peak["cell"]] for key, peak in known.items() if peak["cell"] in plain}
    for key, about in headings(sets, {PREPROCESS}).items():
        curves: dict[bool, dict[str, dict[int, Cell]]] = {True: {}, False: {}}
        for cell in of_sets[key]:
            curves[bool(cell[PREPROCESS])].setdefault(cell["storage"], {})[cell["threads"]] = cell
        told = [*_doubling(found, curves[True]), *_lustre(found, curves[True]), *_flat(found, curves[True])]
        told += [*_bandwidth(found, curves[True], peaks), *_preprocessing(found, curves), *_published(found, curves)]
        yield from (replace(verdict, about=about) for verdict in told)


def _doubling(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test what a second thread gives: almost twice as much on most storages, more on fast ones than on hdd."""
    gains = _gains(found, curves, 1, 2)
    words = f"two threads over one: {_told(gains)}"
    if len(gains) > 1:
        # More than half of the storages reach the lower of the middle two.
        usual = sorted(gains.values(), key=lambda gain: gain.ours)[(len(gains) - 1) // 2]
        held = Held(ALMOST_TWICE, math.inf, None, OF_THE_WORD)
        yield judge(all_claims.DOUBLED, of_all(usual, gains.values()), held, words)
    known = _by_name(curves, gains)
    if {HDD, SSD, OPTANE} <= set(known):
        steps = {name: over(gains[known[name]], gains[known[HDD]]) for name in (SSD, OPTANE)}
        yield judge(all_claims.FAST_DOUBLE, weakest(steps)[0], LARGER, words)


def _flat(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test whether on hdd threads 4 to 8 gain less than 1 to 2."""
    first, last = _gains(found, curves, 1, 2), _gains(found, curves, 4, 8)
    hdd = _by_name(curves, first.keys() & last).get(HDD)
    if hdd is not None:
        words = f"one to two threads {first[hdd].ours:.2f}, four to eight {last[hdd].ours:.2f}"
        yield judge(all_claims.FLAT, over(first[hdd], last[hdd]), LARGER, words)


def _lustre(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test whether eight threads gain most on lustre."""
    gains = _gains(found, curves, 1, 8)
    lustre = _by_name(curves, gains).get(LUSTRE)
    steps = {name: over(gains[lustre], gain) for name, gain in gains.items() if name != lustre} if lustre else {}
    if steps:
        yield judge(all_claims.LUSTRE_BEST, weakest(steps)[0], LARGER, f"eight threads over one: {_told(gains)}")


def _bandwidth(found: Evidence, curves: Mapping[str, Curve], peaks: Mapping[str, Cell]) -> Iterator[Verdict]:
    """Test of each storage with a baseline of its own (`peaks`) whether that is above the pipeline's best."""
    steps = {
        name: ratio(found.values(FIGURES["read"]), peaks[own], cell)
        for name, cell in _best(curves).items()
        if (own := baseline_key(cell, "read")) in peaks
    }
    if steps:
        least, where = weakest(steps)
        words = f"baseline over the best of the pipeline, least on {where}; {len(steps)} storages"
        yield judge(all_claims.BELOW_IOR, least, LARGER, words)


def _preprocessing(found: Evidence, curves: Mapping[bool, Mapping[str, Curve]]) -> Iterator[Verdict]:
    """Test whether the best of each storage is larger where files are read alone."""
    whole, alone = _best(curves[True]), _best(curves[False])
    steps = {name: ratio(found.values(MB), alone[name], whole[name]) for name in whole if name in alone}
    if steps:
        least, where = weakest(steps)
        words = f"read only over with preprocessing, the best of each, least on {where}; {len(steps)} storages"
        yield judge(all_claims.PREPROCESSING, least, LARGER, words)


def _published(found: Evidence, curves: Mapping[bool, Mapping[str, Curve]]) -> Iterator[Verdict]:
    """Test the published ratios; the text does not say of which pipeline they are, so the nearer one counts."""
    for (storage, threads), claim in all_claims.SCALING.items():
        ours = {
            (kind, name): gain
            for kind, by_storage in curves.items()
            for name, gain in _gains(found, by_storage, 1, threads).items()
            if gain.cells[0]["storage_name"].casefold() == storage
        }
        if ours:
            _, name = nearest = min(ours, key=lambda each: abs(ours[each].ours - claim.value))
            told = [f"{PIPELINES[kind]} {gain.ours:.2f}" for (kind, _), gain in ours.items()]
            told += ["the nearer counts"] if len(ours) > 1 else []
            words = f"{name}, {threads} threads over one: {listed(told)}"
            yield judge(claim, ours[nearest], as_printed(claim, ours[nearest].cells), words)


def _gains(found: Evidence, curves: Mapping[str, Curve], few: int, many: int) -> dict[str, Finding]:
    """Return by storage what many threads give over few, of those that were measured with both."""
    rates = found.values(RATE)
    return {name: ratio(rates, of[many], of[few]) for name, of in curves.items() if {few, many} <= set(of)}


def _best(curves: Mapping[str, Curve]) -> dict[str, Cell]:
    return {name: max(curve.values(), key=lambda cell: cell[MB]) for name, curve in curves.items()}


def _by_name(curves: Mapping[str, Curve], among: Iterable[str]) -> dict[str, str]:
    """Return the label of each of some storages by its name in the paper."""
    return {next(iter(curves[label].values()))["storage_name"].casefold(): label for label in among}


def _told(gains: Mapping[str, Finding]) -> str:
    return listed(f"{name} {gain.ours:.2f}" for name, gain in gains.items())
