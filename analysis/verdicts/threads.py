"""What the paper claims of its micro-benchmark: its scaling with threads, and its bandwidth; Figs 4 and 5."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from analysis import paper
from analysis.records.frame import rows_of
from analysis.statistics.baselines import ACCESS, fastest
from analysis.statistics.baselines import key as baseline_key
from analysis.statistics.selection import families, settled
from analysis.text.plain import listed
from analysis.verdicts import claims
from analysis.verdicts.devices import FIGURES, baselines
from analysis.verdicts.evidence import cells_of, headings
from analysis.verdicts.judge import Finding, Verdict, judge, over, ratio, weakest
from analysis.verdicts.tolerance import Held, as_printed, larger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.verdicts.evidence import Cell, Evidence

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
    sets = families(table[(table["benchmark"] == paper.MICRO) & (table["cache"] == "cold") & counts], {PREPROCESS})
    for key, about in headings(sets, {PREPROCESS}).items():
        curves: dict[bool, dict[str, dict[int, Cell]]] = {True: {}, False: {}}
        for cell in cells_of(settled(sets[key], ["storage", "threads", PREPROCESS], RATE), [PREPROCESS, MB]):
            curves[bool(cell[PREPROCESS])].setdefault(cell["storage"], {})[cell["threads"]] = cell
        told = [*_doubling(found, curves[True]), *_lustre(found, curves[True]), *_flat(found, curves[True])]
        told += [*_bandwidth(found, curves[True]), *_preprocessing(found, curves), *_published(found, curves)]
        yield from (replace(verdict, about=about) for verdict in told)


def _doubling(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test what a second thread gives: almost twice as much on most storages, more on fast ones than on hdd."""
    gains = {name: _gain(found, curve, 1, 2) for name, curve in curves.items() if {1, 2} <= set(curve)}
    words = f"two threads over one: {_told(gains)}"
    if len(gains) > 1:
        # More than half of the storages reach the lower of the middle two.
        usual = sorted(gains.values(), key=lambda gain: gain.ours)[(len(gains) - 1) // 2]
        used = [curves[name][threads] for name in gains for threads in (1, 2)]
        held = Held(ALMOST_TWICE, float("inf"), None, OF_THE_WORD)
        yield judge(claims.DOUBLED, usual, held, words, used)
    known = _by_name(curves, gains)
    if {HDD, SSD, OPTANE} <= set(known):
        steps = [(over(gains[known[name]], gains[known[HDD]]), name) for name in (SSD, OPTANE)]
        used = [curves[known[name]][threads] for name in (HDD, SSD, OPTANE) for threads in (1, 2)]
        yield judge(claims.FAST_DOUBLE, weakest(steps)[0], larger(), words, used)


def _flat(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test whether on hdd threads 4 to 8 gain less than 1 to 2."""
    known = _by_name(curves, [name for name, curve in curves.items() if {1, 2, 4, 8} <= set(curve)])
    if HDD in known:
        curve = curves[known[HDD]]
        first, last = _gain(found, curve, 1, 2), _gain(found, curve, 4, 8)
        used = [curve[threads] for threads in (1, 2, 4, 8)]
        words = f"one to two threads {first.ours:.2f}, four to eight {last.ours:.2f}"
        yield judge(claims.FLAT, over(first, last), larger(), words, used)


def _lustre(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test whether eight threads gain most on lustre."""
    gains = {name: _gain(found, curve, 1, 8) for name, curve in curves.items() if {1, 8} <= set(curve)}
    known = _by_name(curves, gains)
    others = [name for name in gains if name != known.get(LUSTRE)]
    if LUSTRE in known and others:
        steps = [(over(gains[known[LUSTRE]], gains[name]), name) for name in others]
        used = [curves[name][threads] for name in gains for threads in (1, 8)]
        words = f"eight threads over one: {_told(gains)}"
        yield judge(claims.LUSTRE_BEST, weakest(steps)[0], larger(), words, used)


def _bandwidth(found: Evidence, curves: Mapping[str, Curve]) -> Iterator[Verdict]:
    """Test of each storage with a baseline of its own whether that is above the pipeline's best."""
    figure = FIGURES["read"]
    known = fastest(rows_of(found.table)) if ACCESS in found.table else {}
    plain = {cell["cell"]: cell for rows in baselines(found.table, "read").values() for cell in cells_of(rows)}
    best = [max(curve.values(), key=lambda cell: cell[MB]) for curve in curves.values()]
    pairs = [(plain[known[own]["cell"]], cell) for cell in best if (own := baseline_key(cell, "read")) in known]
    if pairs:
        steps = [(ratio(found.values(figure), base, cell), cell["storage"]) for base, cell in pairs]
        least, where = weakest(steps)
        used = [cell for pair in pairs for cell in pair]
        words = f"baseline over the best of the pipeline, least on {where}; {len(pairs)} storages"
        yield judge(claims.BELOW_IOR, least, larger(), words, used)


def _preprocessing(found: Evidence, curves: Mapping[bool, Mapping[str, Curve]]) -> Iterator[Verdict]:
    """Test whether the best of each storage is larger where files are read alone."""
    best = {
        kind: {name: max(of.values(), key=lambda cell: cell[MB]) for name, of in curves[kind].items()}
        for kind in curves
    }
    both = [name for name in best[True] if name in best[False]]
    if both:
        steps = [(ratio(found.values(MB), best[False][name], best[True][name]), name) for name in both]
        least, where = weakest(steps)
        used = [best[kind][name] for name in both for kind in best]
        words = f"read only over with preprocessing, the best of each, least on {where}; {len(both)} storages"
        yield judge(claims.PREPROCESSING, least, larger(), words, used)


def _published(found: Evidence, curves: Mapping[bool, Mapping[str, Curve]]) -> Iterator[Verdict]:
    """Test the published ratios; the text does not say of which pipeline they are, so the nearer one counts."""
    for (storage, threads), claim in claims.SCALING.items():
        ours = [
            (_gain(found, curve, 1, threads), kind, (curve[1], curve[threads]))
            for kind, by_storage in curves.items()
            for curve in by_storage.values()
            if {1, threads} <= set(curve) and curve[1]["storage_name"].casefold() == storage
        ]
        if ours:
            nearest, _, used = min(ours, key=lambda each: abs(each[0].ours - claim.value))
            told = [f"{PIPELINES[kind]} {gain.ours:.2f}" for gain, kind, _ in ours]
            told += ["the nearer counts"] if len(ours) > 1 else []
            words = f"{used[0]['storage']}, {threads} threads over one: {listed(told)}"
            yield judge(claim, nearest, as_printed(claim, used), words, used)


def _gain(found: Evidence, curve: Curve, few: int, many: int) -> Finding:
    return ratio(found.values(RATE), curve[many], curve[few])


def _by_name(curves: Mapping[str, Curve], among: Iterable[str]) -> dict[str, str]:
    """Return the label of each of some storages by its name in the paper."""
    return {next(iter(curves[label].values()))["storage_name"].casefold(): label for label in among}


def _told(gains: Mapping[str, Finding]) -> str:
    return listed(f"{name} {gain.ours:.2f}" for name, gain in gains.items())
