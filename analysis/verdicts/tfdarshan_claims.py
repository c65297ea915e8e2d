"""What the paper of tf-Darshan claims of its profiles, and of what they found: Figs 3 to 12."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from analysis import paper
from analysis.records.settings import describe
from analysis.statistics.selection import families, settled
from analysis.text.plain import listed
from analysis.traces.profile_parts import AGREEMENT, EVERY
from analysis.verdicts.all_claims import ANY_SITE, CELLS, EACH, Claim
from analysis.verdicts.claim_judge import SHARE, TIMES, Verdict, emulated, judge, middle, ratio
from analysis.verdicts.evidence import Cell, Evidence, cells_of, headings
from analysis.verdicts.tolerance import LARGER, OF_THE_SITE, POSITIVE, Held, alike, as_printed, at_least, below
from analysis.verdicts.tolerance import site_tolerance as tolerance_of

POSIX, STAGING, TARGET, CONTROL = "profile.posix", "staging", "checkpoint.name", "benchmark.control"
DATASETS = {"alexnet": "imagenet_subset", paper.MALWARE: "malware"}  # of the trainings that the claims are about
SMALL_FILES = ("smallest", "advised")  # rules that choose them; others say nothing of these
OF_STAGING = frozenset({STAGING, "staging.emulated"})
PROFILE = frozenset({POSIX, EVERY})
BANDWIDTH, FWRITES = "posix_read_mb_per_s", "posix_stream_writes"
HDD, LUSTRE = "hdd", "lustre"
BINS = 10
NO_READ, LARGE = 0, 4  # Darshan's bins to 100 B, and from 100 KiB to 1 MiB


def _claim(text: str, source: str, recipes: str, number: str = "", compares: str = EACH) -> Claim:
    """Return a claim; `source` is the figure and, behind a colon, what it has published."""
    figure, _, published = source.partition(": ")
    measure = f"python -m campaign +paper={recipes} {ANY_SITE}"
    source = f"{paper.TF_DARSHAN}, {figure}"
    return Claim(text, source, published, measure, number, emulable=bool(number), compares=compares)


_FIG7, _FIG9 = "tfdarshan_fig7", "tfdarshan_fig9"
WINDOWS = _claim(
    "the MB/s of each window are those of the system's trace", "Figs 3, 4: they agree",
    "tfdarshan_fig3,tfdarshan_fig4",
)  # fmt: skip
OVERHEAD = _claim(
    "seeing every call makes a run at most 20 % longer", "Fig 5: 10 to 20 %, by hand 0.6 to 7 %",
    "tfdarshan_fig5,tfdarshan_fig5_malware", compares=CELLS,
)  # fmt: skip
STREAMS = _claim(
    "checkpoints are written by fwrite, and each call is seen",
    f"Fig 6: {10 * paper.FWRITES:,} in ten checkpoints",
    "tfdarshan_fig6",
)
TWICE = _claim("ImageNet: two reads for each open", "Fig 7: 128 K opens, 256 K reads", _FIG7)
NOTHING = _claim("ImageNet: half of the reads return less than 100 B", "Fig 7: 50 %", _FIG7)
NEITHER = _claim("ImageNet: half of the reads are neither sequential nor consecutive", "Fig 7: 50 %", _FIG7)
WAITS = {
    "alexnet": _claim("ImageNet: a training waits for its input most of its time", "Fig 7: 96 %", _FIG7),
    paper.MALWARE: _claim("Malware: a training waits for its input most of its time", "Fig 9: 99 %", _FIG9),
}
SCALES = _claim("lustre: 28 threads read ImageNet 8 times as fast as one", "Fig 7: 8 times", _FIG7, "8", CELLS)
WHOLE = _claim("Malware: most reads return between 100 KiB and 1 MiB", "Fig 9: most", _FIG9)
FOLLOWS = _claim("Malware: most reads follow the one before", "Fig 9: most", _FIG9)
FEWER = _claim(
    "hdd: 16 threads read Malware slower than one", "Fig 11: 77 MB/s after 94", _FIG9, compares=CELLS
)  # fmt: skip
STAGED = _claim(
    "hdd: Malware's small files, 8 % of its bytes, on a faster storage: 19 % more MB/s", "Fig 12: 1.19 times",
    "tfdarshan_fig12", str(paper.STAGING_GAIN), CELLS,
)  # fmt: skip
CLAIMS = (
    WINDOWS, OVERHEAD, STREAMS, TWICE, NOTHING, NEITHER, WAITS["alexnet"], SCALES, WAITS[paper.MALWARE], WHOLE, FOLLOWS,
    FEWER, STAGED,
)  # fmt: skip
MOST = Held(math.nextafter(0.5, 1), math.inf, None, "of the word 'most': more than half")


def profiled(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the cells whose calls were seen."""
    return table[table[POSIX].notna()] if {POSIX, "threads"} <= set(table) else table[:0]


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on the cells that were profiled, by sets that differ in storage, threads and staging alone."""
    yield from _costs(found)
    sets = families(profiled(found.table), OF_STAGING)
    for key, about in headings(sets).items():
        rows = cells_of(settled(sets[key], ["cell"], "wall_s"), [STAGING])
        known = [
            {**cell, STAGING: cell[STAGING] if isinstance(cell[STAGING], str) else ""}
            for cell in rows if cell["cell"] in found.values("posix_reads")
        ]  # fmt: skip
        name = key.facts.get("benchmark")
        told = [*_windows(found, known), *_streams(found, known)]
        ours = name in WAITS and key.facts.get("dataset.name") == DATASETS[str(name)]
        if ours and all(key.facts.get(each, "none") == "none" for each in (TARGET, CONTROL)):
            told += [*_order(found, known, str(name)), *_bandwidths(found, known, str(name))]
        yield from (replace(verdict, about=f"tf-Darshan: {about}") for verdict in told)


def _costs(found: Evidence) -> Iterator[Verdict]:
    """Test of each profiled cell, beside the one of equal settings that is not, how much longer it ran."""
    for plain, traced in unlike_in_profile(found.table):
        times = ratio(found.values("wall_s"), traced, plain)
        finding = replace(times, ours=times.ours - 1, low=times.low - 1, high=times.high - 1, unit=SHARE)
        facts = traced["series_key"].facts
        about = f"{traced['benchmark']}, {describe({**facts, 'threads': traced['threads']})}"
        verdict = judge(OVERHEAD, finding, below(paper.OVERHEAD[1]), f"profile.posix=trace, {traced['storage']}")
        yield replace(verdict, about=f"tf-Darshan: {about}")


def unlike_in_profile(table: pd.DataFrame) -> list[tuple[Cell, Cell]]:
    """Return each done cell whose every call was seen behind the one of else equal settings that was not profiled."""
    if profiled(table).empty:
        return []
    pairs = []
    for rows in families(table[table["threads"].notna()], PROFILE, ["storage", "threads"]).values():
        undivided = rows[EVERY].isna() if EVERY in rows else rows[POSIX].notna()
        plain, traced = (cells_of(rows[rows[POSIX].isna()]), cells_of(rows[(rows[POSIX] == "trace") & undivided]))
        pairs += [(plain[0], traced[0])] if len(plain) == len(traced) == 1 else []
    return pairs


def _windows(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    for cell in cells:
        if values := found.values(AGREEMENT).get(cell["cell"]):
            finding = middle([value - 1 for value in values], SHARE, [cell])
            words = f"of each of {len(values)} runs the middle window, over the trace, less one; {cell['storage']}"
            yield judge(WINDOWS, finding, alike([cell]), words)


def _streams(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    for cell in cells:
        calls = found.values(FWRITES).get(cell["cell"])
        saved = found.values("checkpoints_asked").get(cell["cell"])
        if calls and saved:
            words = f"{statistics.median(calls) / saved[0]:g} in each of {saved[0]:g} checkpoints"
            yield judge(STREAMS, middle(calls, "calls", [cell]), POSITIVE, words)


def _order(found: Evidence, cells: Sequence[Cell], benchmark: str) -> Iterator[Verdict]:
    """Test sizes and order of the reads, and the waiting, of the cell with fewest threads that reads no copies."""
    own = [cell for cell in cells if not cell[STAGING]]
    if not own:
        return
    cell = min(own, key=lambda each: (each["storage"], each["threads"]))
    where = f"{cell['storage']}, threads {cell['threads']}"
    opens, reads, sequential, consecutive, *bins = (
        _median(found, f"posix_{name}", cell)
        for name in ("opens", "reads", "sequential", "consecutive", *(f"read_size_{place}" for place in range(BINS)))
    )
    if not (opens and sum(bins)):
        return
    shares = [count / sum(bins) for count in bins]
    of_images = (
        (TWICE, reads / opens, TIMES, 2),
        (NOTHING, shares[NO_READ], SHARE, 0.5),
        (NEITHER, 1 - sequential, SHARE, 0.5),
    )
    of_malware = (WHOLE, shares[LARGE], SHARE, None), (FOLLOWS, consecutive, SHARE, None)
    for claim, ours, unit, near in of_malware if benchmark == paper.MALWARE else of_images:
        held = MOST if near is None else _near(near, cell)
        yield judge(claim, middle([ours], unit, [cell]), held, f"{reads:,.0f} reads, {opens:,.0f} opens; {where}")
    waits = _median(found, "load_s", cell) / _median(found, "wall_s", cell)
    played = "accelerator" in emulated(cell["series_key"].facts)
    why_not = "the step of an emulated accelerator is as long as it was told to be" if played else ""
    yield judge(WAITS[benchmark], middle([waits], SHARE, [cell]), MOST, where, why_not=why_not)


def _bandwidths(found: Evidence, cells: Sequence[Cell], benchmark: str) -> Iterator[Verdict]:
    """Test what more threads, and staged files, do to the bandwidth of the paper's storage."""
    rates = found.values(BANDWIDTH)
    storage = HDD if benchmark == paper.MALWARE else LUSTRE
    at = {(cell["threads"], cell[STAGING]): cell for cell in cells if cell["storage_name"].casefold() == storage}

    def between(claim: Claim, above: tuple[int, str], under: tuple[int, str], held: Held | None) -> Iterator[Verdict]:
        if above in at and under in at:
            pair = at[under], at[above]
            told = listed(f"{statistics.median(rates[cell['cell']]):.3g}" for cell in pair)
            yield judge(claim, ratio(rates, pair[1], pair[0]), held or as_printed(claim, pair), f"{told} MB/s")

    if benchmark != paper.MALWARE:
        yield from between(SCALES, (28, ""), (1, ""), None)
        return
    yield from between(FEWER, (1, ""), (16, ""), LARGER)
    for (threads, rule), cell in at.items():
        if rule in SMALL_FILES:
            yield from between(STAGED, (threads, rule), (threads, ""), at_least(STAGED, [cell]))


def _near(value: float, cell: Cell) -> Held:
    """Return where a count is to lie: as near to the published one as two runs of this site to one another."""
    tolerance = tolerance_of([cell])
    return Held(value * (1 - tolerance), value * (1 + tolerance), tolerance, OF_THE_SITE)


def _median(found: Evidence, figure: str, cell: Cell) -> float:
    return statistics.median(found.all_values(figure).get(cell["cell"]) or [0.0])
