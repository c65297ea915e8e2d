"""From two folders of records to tables, a figure and a summary: the order of the steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.text import Text

from analysis.compare import comparison_tables
from analysis.compare.comparison_chart import specs
from analysis.compare.comparison_verdict import SLOWER, TOLD, judged
from analysis.compare.pairs import cells, pairs
from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.output import terminal
from analysis.output.notes import forget, say, warn
from analysis.records import read_records
from analysis.records.frame import cells_frame, runs_frame
from analysis.records.read_records import Found
from analysis.statistics.medians import medians
from analysis.text import spreadsheet

EXIT_SLOWER = 1
EXIT_UNTOLD = 2


@dataclass(frozen=True)
class Side:
    """One of the two campaigns: where it lies, its medians and every run."""

    folder: Path
    table: pd.DataFrame
    runs: pd.DataFrame

    def told(self, name: str) -> str:
        """Say in a line which campaign this is."""
        hosts, versions = (", ".join(sorted(set(self.table[each]) - {""})) for each in ("host", "tensorflow"))
        where = f"on {hosts or 'an unknown host'}{f', TensorFlow {versions}' if versions else ''}"
        return f"{name}: {self.folder}, {len(self.table)} cell{'s' * (len(self.table) != 1)} {where}"


def compare(before: Path, after: Path, known_as: Mapping[str, str], out: Path, *, quiet: bool = False) -> int:
    """Write the tables and figures of a comparison and print it; return the exit code.

    Raises AnalysisError: there are no two campaigns, or no cell that both have.
    """
    save.must_be_own(out)
    found = read_records.read(before), read_records.read(after)
    if found[0].home.resolve() == found[1].home.resolve():
        message = f"{before} and {after} are the same campaign"
        raise AnalysisError(message, "name two folders: one from before and one from after the change")
    ours, theirs = _side(before, found[0]), _side(after, found[1])
    table = comparison(ours, theirs, known_as)
    sides = [ours.told("A"), theirs.told("B")]
    better = {
        figure: way
        for each in (ours, theirs)
        for figure, way in zip(each.table["figure"], each.table["better"], strict=True)
    }
    drawn = specs(table, sides, better)
    written = [path for each in drawn for path in save.save(each.drawn(), each.frame, out, each.stem)]
    forget(out, written)
    written.append(
        save.write(out / "comparison.md", comparison_tables.markdown(table, sides).encode(errors="backslashreplace"))
    )
    written.append(save.write(out / "comparison.csv", spreadsheet.parts(table)))
    if not quiet:
        _note(table)
        terminal.put(Text("\n".join([*sides, ""])), *comparison_tables.terminal(table), Text(""))
    terminal.put_paths(written)
    if (table["verdict"] == SLOWER).any():
        return EXIT_SLOWER
    if not table["verdict"].isin(TOLD).any():
        say("error: no pair of cells can be compared; the table says why of each")
        return EXIT_UNTOLD
    return EXIT_UNTOLD if any(each.skipped for each in found) else 0


def comparison(ours: Side, theirs: Side, known_as: Mapping[str, str]) -> pd.DataFrame:
    """Return a row per pair of cells (`analysis.compare.comparison_verdict.COLUMNS`).

    Raises AnalysisError: no cell of the one is a cell of the other, or `known_as` names a storage that is not there.
    """
    _must_know(known_as, ours, "A")
    _must_know(known_as.values(), theirs, "B")
    matched = pairs(cells(ours.table, known_as), cells(theirs.table))
    if not any(before and after for before, after in matched):
        message = f"no cell in common: {ours.told('A')}; {theirs.told('B')}"
        hint = "cells match by equal settings; a storage of another name needs --match A_STORAGE:B_STORAGE"
        raise AnalysisError(message, hint)
    return judged(comparison_tables.labelled(matched), (ours.runs, theirs.runs))


def _note(table: pd.DataFrame) -> None:
    """Say how cells that found no partner on either side may find each other."""
    lonely = [sorted(set(table[f"storage_{side}"][table[f"cell_{other}"].isna()])) for side, other in ("ab", "ba")]
    if all(lonely):
        ours, theirs = map(", ".join, lonely)
        say(f"note: cells of A on {ours} and of B on {theirs} have no partner; --match names a storage's other name")


def _side(folder: Path, found: Found) -> Side:
    warn(found, folder)
    runs = runs_frame(found.records)
    return Side(folder, medians(cells_frame(found.records), runs), runs)


def _must_know(names: Iterable[str], side: Side, which: str) -> None:
    known = dict.fromkeys(side.table["storage_name"])
    for name in names:
        if name not in known:
            message = f"--match: {which} has no storage '{name}'"
            raise AnalysisError(message, f"{which} has {', '.join(known)}")
