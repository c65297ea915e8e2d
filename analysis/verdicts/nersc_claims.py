"""What NERSC's slides claim of HEPCNNB and CDB (2018), each with what was in memory beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analysis import nersc_numbers
from analysis.statistics.node_counts import NODES, SHUFFLE, SYNC, by_nodes, workloads
from analysis.verdicts.all_claims import ANY_SITE, SIZES, Claim
from analysis.verdicts.claim_judge import NOT_MEASURED, TIMES, Finding, Verdict, judge, of_all, over, ratio, weakest
from analysis.verdicts.evidence import Cell, Evidence, cells_of, headings, neighbours
from analysis.verdicts.tolerance import LARGER, Held

LOADS = ("train_cold", "train_warm", "validation_cold", "validation_warm")
COLUMNS = (NODES, SHUFFLE, SYNC, "private_caches", "loads", "read_s", *(f"{name}_loads" for name in LOADS),
           *(f"{name}_read_s" for name in LOADS))  # fmt: skip
SHARED = "these nodes share a page cache: what one has read, no other reads from the storage"
AS_MANY = "iterations is set: an epoch trains on as many files of any data set; with iterations=null on all"
NEAR = 0.10
"""How far our own prediction may be off."""


def _claim(text: str, where: str, published: str, recipe: str) -> Claim:
    measure = f"python -m campaign +paper={recipe} {ANY_SITE}"
    return Claim(text, f"{nersc_numbers.SOURCE}, {where}", published, measure)


RECIPES = {nersc_numbers.HEPCNN: "hepcnn", nersc_numbers.CLIMATE: "cdb"}
_HEP = "slides on HEPCNNB"
MORE = _claim("HEPCNNB: I/O takes longer with global shuffling", _HEP, "2.4 times at 64 nodes, none at 1,024", "hepcnn")
BY_MEMORY = _claim(
    "HEPCNNB: that is what loads from the storage in place of memory cost (ours)", "workbooks of HEPCNNB, recomputed",
    "predicted / read: {:g} to {:g}".format(*nersc_numbers.PREDICTED), "hepcnn",
)  # fmt: skip
SHARE = {
    name: _claim(f"{title}: the share of I/O grows with the nodes", f"slides on {title}", published, RECIPES[name])
    for name, title, published in (
        (nersc_numbers.HEPCNN, "HEPCNNB", "does not: 3.6 to 2.9 % at 64 to 512 nodes"),
        (nersc_numbers.CLIMATE, "CDB", "8.7 to 15 %"),
    )
}  # fmt: skip
TRAINING = {
    name: _claim(
        f"{title}: training gains more from more nodes than I/O", f"slides on {title}", "training > I/O", RECIPES[name]
    )
    for name, title in ((nersc_numbers.HEPCNN, "HEPCNNB"), (nersc_numbers.CLIMATE, "CDB"))
}
EPOCHS = "benchmark.epochs"
WITH_EPOCHS = _claim(
    "HEPCNNB: with global shuffling the share of I/O grows with the epochs", _HEP,
    "the bottleneck can become more severe", "hepcnn benchmark.epochs=2,5,10",
)  # fmt: skip
FILES = "dataset.files"
WITH_DATA = replace(_claim(
    "CDB: the share of I/O is larger with a larger data set", "slides on CDB",
    "8.7 % of 3.5 TB, 3.6 % of HEPCNNB's 0.5 TB at 64 nodes",
    f"cdb +size=lab benchmark.control=none iterations=null {FILES}=65,129,257",
), compares=SIZES)  # fmt: skip
GROWN = ((nersc_numbers.HEPCNN, EPOCHS, WITH_EPOCHS), (nersc_numbers.CLIMATE, FILES, WITH_DATA))
CLAIMS = (MORE, BY_MEMORY, *(claim for _, _, claim in GROWN), *SHARE.values(), *TRAINING.values())


def claims(table: pd.DataFrame) -> Sequence[Claim]:
    """Return the claims on what is in a table; none where nothing of NERSC's was measured."""
    known = set(table["benchmark"])
    of = {claim: name for both in (SHARE, TRAINING) for name, claim in both.items()} | {
        WITH_DATA: nersc_numbers.CLIMATE
    }
    return [claim for claim in CLAIMS if of.get(claim, nersc_numbers.HEPCNN) in known]


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on each set of cells that differ in storage, nodes and shuffling alone."""
    cells = workloads(found.table, found.runs)
    if cells.empty:
        return
    sets = by_nodes(cells)
    for key, about in headings(sets).items():
        for where, known in _lines(cells_of(sets[key], COLUMNS)):
            told = [*_shuffled(found, known), *_scaled(found, known, str(key.facts["benchmark"]))]
            yield from (replace(verdict, about=f"NERSC: {about}, {where}") for verdict in told)
    for name, setting, claim in GROWN:
        sets = by_nodes(cells[cells["benchmark"] == name], {setting, "data"})
        for key, about in headings(sets).items():
            for nodes, rows in sets[key].groupby(NODES, sort=False):
                for where, known in _lines(cells_of(rows, (*COLUMNS, setting))):
                    for verdict in _grown(found, known, setting, claim):
                        yield replace(verdict, about=f"NERSC: {about}, {where}, {nodes} nodes")


def _lines(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the cells that have storage, threads and the way in which ranks meet in common, and these in words.

    One node meets nobody: it belongs to each way.
    """
    meetings = list(dict.fromkeys(cell[SYNC] for cell in cells if cell[NODES] > 1)) or [""]
    lines: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        for sync in [cell[SYNC]] if cell[NODES] > 1 else meetings:
            lines.setdefault((cell["storage"], f"threads {cell['threads']}", sync), []).append(cell)
    varies = [len(set(values)) > 1 for values in zip(*lines, strict=True)]
    for (storage, *others), line in lines.items():
        words = [word for word, told in zip(others, varies[1:], strict=True) if told]
        yield ", ".join([storage, *words]), line


def _shuffled(found: Evidence, cells: Sequence[Cell]) -> Iterator[Verdict]:
    """Compare global shuffling with local on as many nodes, by the seconds that a rank reads."""
    at = {
        (cell[NODES], cell[SHUFFLE]): cell for cell in cells if cell[SHUFFLE] and cell["cell"] in found.values("read_s")
    }
    numbers = sorted({nodes for nodes, _ in at if nodes > 1})
    both = [(at.get((nodes, "local")), at.get((nodes, "global"))) for nodes in numbers]
    pairs = [(local, everywhere) for local, everywhere in both if local and everywhere]
    if not pairs:
        why = "no number of nodes above 1 is done with local and with global shuffling"
        yield from [Verdict(MORE, NOT_MEASURED, why)] if at else []
        return
    why = SHARED if any(everywhere["private_caches"] != 1 for _, everywhere in pairs) else ""
    longer = {f"{local[NODES]} nodes": ratio(found.values("read_s"), many, local) for local, many in pairs}
    told = [f"{each} {one.ours:.2f} times" for each, one in longer.items()]
    told += [
        f"not in memory at {local[NODES]}: {_cold(local)} locally, {_cold(many)} globally" for local, many in pairs
    ]
    yield judge(MORE, weakest(longer)[0], LARGER, "; ".join(told), why_not=why)
    foreseen = [each for pair in pairs if (each := _foreseen(*pair))]
    if foreseen:
        worst = of_all(max(foreseen, key=lambda each: abs(each.ours - 1)), foreseen)
        words = ", ".join(f"{each.cells[0][NODES]} nodes {each.ours:.2f}" for each in foreseen)
        held = Held(1 - NEAR, 1 + NEAR, NEAR, "ours")
        yield judge(BY_MEMORY, worst, held, f"predicted / read: {words}", why_not=why)


def _cold(cell: Cell) -> str:
    cold = sum(cell[f"{name}_loads"] for name in LOADS if name.endswith("cold"))
    known = sum(cell[f"{name}_loads"] for name in LOADS) == cell["loads"]
    return f"{cold:g} of {cell['loads']:g} files" if known else "unknown"


def _foreseen(local: Cell, everywhere: Cell) -> Finding | None:
    """Return the seconds that a rank should read by the medians of local shuffling, over those that it read.

    None where local shuffling had no such load, or where the loads came from is unknown.
    """
    loads = {name: float(everywhere[f"{name}_loads"]) for name in LOADS if everywhere[f"{name}_loads"]}
    seconds = sum(count * float(local[f"{name}_read_s"]) for name, count in loads.items())
    share = seconds / float(everywhere[NODES]) / float(everywhere["read_s"])
    return None if math.isnan(share) or not loads else Finding(share, share, share, TIMES, (local, everywhere))


def _scaled(found: Evidence, cells: Sequence[Cell], name: str) -> Iterator[Verdict]:
    """Compare more nodes with fewer, of cells that are shuffled alike."""
    for shuffle in dict.fromkeys(cell[SHUFFLE] for cell in cells):
        pairs = neighbours((cell for cell in cells if cell[SHUFFLE] == shuffle), NODES)
        yield from _steps(found, pairs, name, shuffle)


def _grown(found: Evidence, cells: Sequence[Cell], setting: str, claim: Claim) -> Iterator[Verdict]:
    """Compare more of a setting with less, of cells on as many nodes; HEPCNNB's with global shuffling."""
    of_hep, unit = setting == EPOCHS, setting.partition(".")[2]
    shares = _shares(found.values("read_s" if of_hep else "load_s"), found.values("wall_s"))
    known = [cell for cell in cells if cell["cell"] in shares and cell[SHUFFLE] in ("global", "")]
    pairs = neighbours((cell for cell in known if isinstance(cell[setting], int)), setting)
    steps = {f"{few[setting]} to {many[setting]} {unit}": ratio(shares, many, few) for few, many in pairs}
    if steps:
        alike = [pairs[0][0], *(many for _, many in pairs)]
        why = SHARED if of_hep and any(cell["private_caches"] != 1 for cell in alike) else ""
        why = why or next((AS_MANY for cell in alike if cell["series_key"].facts.get("iterations") is not None), "")
        told = ", ".join(f"{each} {one.ours:.2f}" for each, one in steps.items())
        told += "".join(f"; not in memory with {cell[setting]}: {_cold(cell)}" for cell in alike if of_hep)
        yield judge(claim, weakest(steps)[0], LARGER, f"times: {told}", why_not=why)


def _shares(seconds: Mapping[str, Sequence[float]], walls: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return of each cell which share of its wall time these seconds are, run by run."""
    return {
        cell: [one / whole for one, whole in zip(values, walls[cell], strict=True)]
        for cell, values in seconds.items()
        if len(values) == len(walls.get(cell, ()))
    }


def _steps(found: Evidence, pairs: Sequence[tuple[Cell, Cell]], name: str, shuffle: str) -> Iterator[Verdict]:
    read = "read_s" if name == nersc_numbers.HEPCNN else "load_s"
    times = {figure: found.values(figure) for figure in (read, "wall_s", "compute_s")}
    shares = _shares(times[read], times["wall_s"])
    grown, gained = {}, {}
    for few, many in pairs:
        step, both = f"{few[NODES]} to {many[NODES]} nodes", {few["cell"], many["cell"]}
        if both <= shares.keys():
            grown[step] = ratio(shares, many, few)
        if both <= times["compute_s"].keys() and both <= times[read].keys():
            gained[step] = over(ratio(times["compute_s"], few, many), ratio(times[read], few, many))
    for claim, steps in ((SHARE[name], grown), (TRAINING[name], gained)):
        if steps:
            finding, step = weakest(steps)
            told = ", ".join(f"{each} {one.ours:.2f}" for each, one in steps.items())
            words = f"{f'shuffle {shuffle}: ' if shuffle else ''}weakest from {step}; times: {told}"
            yield replace(
                judge(claim, finding, LARGER, words), pair=f"shuffle {shuffle}" if shuffle == "global" else ""
            )
