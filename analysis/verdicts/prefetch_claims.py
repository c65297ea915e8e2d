"""What the paper claims of prefetch in its mini-application: the runtimes of Fig 6."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.records.settings import describe, distinguishing, family_key
from analysis.statistics.selection import families, in_order, settled, unsaved
from analysis.text.plain import listed
from analysis.verdicts import all_claims, reading_claims
from analysis.verdicts.claim_judge import DIFFERS, HOLDS, NOT_COMPARABLE, NOT_MEASURED, SHARE, Finding, Verdict, judge
from analysis.verdicts.evidence import Cell, Evidence, cells_of
from analysis.verdicts.tolerance import alike

OF_TRAINING = ("wall_s", "wall_s_min", "wall_s_max", "load_s", "load_s_min", "load_s_max", "batch_size")


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on each set of cells that differ in storage, threads and prefetch alone."""
    mine = unsaved(found.trained)
    if mine.empty:
        return
    mine = in_order(settled(mine, ["set_key", "storage", "threads"], "wall_s"), ["threads"])
    known = {cell["cell"]: cell for cell in cells_of(mine, OF_TRAINING)}
    groups = families(mine, {"prefetch"})
    apart = distinguishing([key.facts for key in groups])
    # Fig. 7's cells are sets of one thread count each: where others can be compared, these need not say they cannot.
    several = {key for key, group in groups.items() if min(group["storage"].nunique(), group["threads"].nunique()) > 1}
    for key, group in groups.items():
        for ahead in sorted(set(group["prefetch"]) - {0}) or [1]:
            facts = family_key(key, frozenset(), (("prefetch", ahead),)).facts
            about = describe(facts, apart, group["accelerator"], group["size"])
            comparable = key in several or not several
            asked = group[group["prefetch"].isin([0, ahead])]
            cells = [known[cell] for cell in asked["cell"] if cell in known]
            told = _of_set(found, cells, len(asked[["storage", "threads"]].drop_duplicates()), comparable=comparable)
            yield from (replace(verdict, about=about) for verdict in told)


def _of_set(found: Evidence, cells: Sequence[Cell], places_asked: int, *, comparable: bool) -> Iterator[Verdict]:
    if comparable:
        yield equal_runtime([cell for cell in cells if cell["prefetch"]])
    places: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        places.setdefault((cell["storage"], cell["threads"]), []).append(cell)
    pairs = [(both[0], both[1]) for both in places.values() if len(both) > 1]
    told = [excess(*pair) for pair in pairs]
    yield all_pairs(told, places_asked)
    yield from told
    yield from reading_claims.threads_on_hdd(found, [cell for cell in cells if not cell["prefetch"]])
    yield from reading_claims.each_second(found, pairs)
    yield from reading_claims.steps(found, cells)


def equal_runtime(cells: Sequence[Cell]) -> Verdict:
    """Test whether the cells with prefetch have one runtime: (max - min) / median of their medians.

    The interval is what the cells' own ranges allow: from the gap between them to the whole that they cover.
    """
    for axis, word in (("storage", "storages"), ("threads", "thread counts")):
        if len({cell[axis] for cell in cells}) < 2:  # noqa: PLR2004 - nothing is equal to itself alone
            why = f"fewer than two {word} are done with prefetch: there is nothing to compare"
            return Verdict(all_claims.EQUAL, NOT_MEASURED, why, tuple(cells))
    times, lows, highs = ([cell[f"wall_s{end}"] for cell in cells] for end in ("", "_min", "_max"))
    middle = statistics.median(times)
    apart, covered = max(0.0, max(lows) - min(highs)), max(highs) - min(lows)
    finding = Finding((max(times) - min(times)) / middle, apart / middle, covered / middle, SHARE, tuple(cells))
    storages, threads = (listed(cell[name] for cell in cells) for name in ("storage", "threads"))
    return judge(all_claims.EQUAL, finding, alike(cells), f"{len(cells)} cells: {storages}; threads {threads}")


def excess(ahead: Cell, none: Cell) -> Verdict:
    """Test whether the runtime that is added without prefetch is the time spent waiting for input.

    (excess - load_s) / runtime without prefetch; its ends take each run's figures at their worst.
    """
    pair = f"{ahead['storage']}, threads {ahead['threads']}"
    added, runtime = none["wall_s"] - ahead["wall_s"], none["wall_s"]
    low = none["wall_s_min"] - ahead["wall_s_max"] - none["load_s_max"]
    high = none["wall_s_max"] - ahead["wall_s_min"] - none["load_s_min"]
    words = f"excess {added:.3g} s, waiting for input {none['load_s']:.3g} s, runtime {runtime:.3g} s"
    finding = Finding((added - none["load_s"]) / runtime, low / runtime, high / runtime, SHARE, (ahead, none))
    return replace(judge(all_claims.EXCESS, finding, alike(finding.cells), words), pair=pair)


def all_pairs(pairs: Sequence[Verdict], asked: int) -> Verdict:
    """Return the verdict on all pairs: it holds if each holds, and differs if one does; ours is the worst pair's."""
    if not pairs:
        return Verdict(all_claims.EXCESS, NOT_MEASURED, "no storage and thread count is done with prefetch and without")
    told = [pair.verdict for pair in pairs]
    verdict = next(each for each in (DIFFERS, NOT_COMPARABLE, HOLDS) if each in told)
    why = [f"{each}: {told.count(each)} of {len(told)} pairs" for each in dict.fromkeys(told)]
    why += [f"{asked - len(pairs)} of {asked} pairs not done"] if asked > len(pairs) else []
    worst = max((pair for pair in pairs if pair.verdict == verdict), key=_off)
    why += [f"worst: {worst.pair} ({worst.why})"]
    cells = tuple(cell for pair in pairs for cell in pair.cells)
    return Verdict(all_claims.EXCESS, verdict, "; ".join(why), cells, finding=worst.finding, held=worst.held)


def _off(pair: Verdict) -> float:
    return abs(pair.finding.ours) if pair.finding else 0.0
