"""What the paper claims of its devices: Table I, and how much its runs vary."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from analysis import paper
from analysis.records.frame import grouped
from analysis.records.settings import Settings, describe, distinguishing
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.comparable import FEWEST_RUNS
from analysis.statistics.selection import settled
from analysis.statistics.training import CONTROL
from analysis.text.plain import listed
from analysis.verdicts import all_claims
from analysis.verdicts.claim_judge import MB_PER_S, SHARE, Verdict, by_model, judge, middle, ratio, weakest
from analysis.verdicts.evidence import Cell, Evidence, cells_of
from analysis.verdicts.tolerance import LARGER, as_printed, below

FIGURES = {"read": "read_mb_per_s", "write": "write_mb_per_s"}
RATES = {"read": all_claims.READ, "write": all_claims.WRITTEN}
# What varies, by benchmark (Sections IV.A and IV.B).
VARIES = {paper.MICRO: "images_per_s", paper.APPLICATION: "wall_s"}


def verdicts(found: Evidence) -> Iterator[Verdict]:
    """Yield the verdicts on Table I, set by set, then those on how much runs vary."""
    for access, figure in FIGURES.items():
        sets = baselines(found.table, access)
        apart = distinguishing([key.facts for key in sets])
        for key, rows in sets.items():
            about = describe(key.facts, apart, (), rows["size"])
            cells = [cell for cell in cells_of(rows) if cell["cell"] in found.values(figure)]
            told = [*_rates(cells, found, access), *_order(cells, found, access)]
            yield from (replace(verdict, about=about) for verdict in told)
    yield from _spreads(found)


def baselines(table: pd.DataFrame, access: str) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells of the storages' own baseline of one access, by what they agree in; of reads the cold ones."""
    if ACCESS not in table:
        return {}
    rows = table[is_baseline(table) & (table[ACCESS] == access)]
    rows = rows[rows["cache"] == "cold"] if access != "write" else rows
    return {key: settled(group, ["storage"], "cell") for key, group in grouped(rows, rows["set_key"]).items()}


def _rates(cells: list[Cell], found: Evidence, access: str) -> Iterator[Verdict]:
    """Test each storage of the paper against its rate in Table I."""
    for cell in cells:
        claim = RATES[access].get(cell["storage_name"].casefold())
        if claim is not None:
            rates = found.values(FIGURES[access])[cell["cell"]]
            words = f"{cell['storage']} on {cell['host'] or 'an unknown host'}, {len(rates)} runs"
            finding = middle(rates, MB_PER_S, [cell])
            yield judge(claim, finding, as_printed(claim, [cell]), words, why_not=_small_file(cell))


def _small_file(cell: Cell) -> str:
    """Return that the file is smaller than the paper's: it does not show what a device does over a long time."""
    file_mb = cell["series_key"].facts.get("benchmark.file_mb") or paper.FILE_MB
    small = file_mb < paper.FILE_MB and not by_model([cell])
    return f"the file has {file_mb:,} MB, and the paper's {paper.FILE_MB:,}" if small else ""


def _order(cells: list[Cell], found: Evidence, access: str) -> Iterator[Verdict]:
    """Test whether each storage of Table I is faster than the one before it."""
    claim, figure = all_claims.ORDER[access], FIGURES[access]
    by_name = {cell["storage_name"].casefold(): cell for cell in cells}
    if all(name in by_name for name in RATES[access]):
        used = [by_name[name] for name in RATES[access]]
        steps = {fast["storage"]: ratio(found.values(figure), fast, slow) for slow, fast in pairwise(used)}
        rates = {cell["storage"]: statistics.median(found.values(figure)[cell["cell"]]) for cell in used}
        words = f"MB/s: {listed(f'{name} {rate:.4g}' for name, rate in rates.items())}"
        yield judge(claim, weakest(steps)[0], LARGER, words)


def _spreads(found: Evidence) -> Iterator[Verdict]:
    """Test how far runs are from their cell's median, at most; on a machine that is not the paper's, ours is shown."""
    for (benchmark, machine), claim in all_claims.SPREAD.items():
        table = found.table
        rows = table[(table["benchmark"] == benchmark) & (table["n_valid"] >= FEWEST_RUNS)]
        rows = rows[rows[CONTROL].fillna("none") == "none"] if CONTROL in rows else rows
        values = found.values(VARIES[benchmark])
        cells = [cell for cell in cells_of(rows) if cell["cell"] in values]
        cells = [cell for cell in cells if cell["site"] == machine] or cells
        if cells:
            vary = {cell["cell"]: _deviation(values[cell["cell"]]) for cell in cells}
            most = max(vary, key=lambda cell: vary[cell])
            words = f"{len(cells)} cells; the widest is {most}"
            verdict = judge(claim, middle([vary[most]], SHARE, cells), below(claim.value), words)
            yield replace(verdict, about=f"every cell of {benchmark}")


def _deviation(values: Sequence[float]) -> float:
    """Return how far the farthest run is from the median, as a share of it."""
    middle = statistics.median(values)
    return max(abs(each - middle) for each in values) / middle
