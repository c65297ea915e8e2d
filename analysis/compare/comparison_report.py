"""Run all steps of a comparison: read two campaigns, compare their cells, and write charts and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from analysis import paper, spreadsheet
from analysis.compare.comparison_chart import chart_specs
from analysis.compare.comparison_verdict import (
    DECIDED_VERDICTS,
    FASTER,
    INTERVAL,
    SLOWER,
    VERDICTS,
    MatchedCell,
    Pair,
    cells_to_match,
    judged_pairs,
    matched_pairs,
)
from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.output import terminal
from analysis.output.notes import print_to_stderr, remove_old_figures, warn_of_skipped
from analysis.output.terminal import empty_table
from analysis.output.text_table import Code, TextTable
from analysis.records import read_records
from analysis.records.frame import Row, cells_frame, json_rows, rows_of, runs_frame
from analysis.records.read_records import FoundRecords
from analysis.records.settings import Facts, distinguishing_names, is_storage
from analysis.statistics.medians import RATE, READ, WRITTEN, add_statistics
from analysis.text import DASH, NONE, TIMES, as_typed_by_user, escape_markdown, number

# Settings that a label does not name, because other columns have them or because they do not help a reader.
UNNAMED = frozenset({"benchmark", "benchmark.name", "benchmark_version", "data", "dataset.path"})
NUMBERS = ("batch_size", "prefetch", "threads")
FIGURES = {RATE: "images/s", READ: "MB/s read", WRITTEN: "MB/s written", "wall_s": "runtime s"}
STYLE = {FASTER: "green", SLOWER: "red"}
HEADINGS = ("cell", "A", "B", "B / A", "95 % interval", "verdict", "why")
CELLS = ("cell of A", "cell of B")
METHOD = (
    f"A and B: median of the valid measured runs, with the number of runs in brackets. B / A: ratio of the medians with"
    f" the {INTERVAL}. The verdict is `no change` if the interval contains 1, or if the ratio is within the tolerance,"
    " which is the limit of the check `spread` in the records."
)


def labelled_pairs(pairs: Sequence[Pair]) -> list[tuple[str, Pair]]:
    """Return the sorted pairs of cells with their labels.

    A label has the storage and the settings that distinguish the pair, written as on the command line. Pairs are sorted
    by benchmark, then by storage (the paper's storages first), then by text settings, then by number settings.
    """
    facts_of_benchmark: dict[str, list[Mapping[str, Any]]] = {}
    for pair in pairs:
        facts_of_benchmark.setdefault(_one(pair).row["benchmark"], []).append(_one(pair).facts)
    apart = {benchmark: _differing(facts) for benchmark, facts in facts_of_benchmark.items()}

    def place(pair: Pair) -> tuple[Any, ...]:
        row, facts = _one(pair).row, _one(pair).facts
        words = _typed(facts, [name for name in apart[row["benchmark"]] if name not in NUMBERS])
        numbers = [facts[name] if isinstance(facts.get(name), int) else math.inf for name in NUMBERS]
        return (row["benchmark"], paper.storage_sort_key(row["storage_name"]), words, numbers, row["cell"])

    return [(_label(pair, apart[_one(pair).row["benchmark"]]), pair) for pair in sorted(pairs, key=place)]


def terminal_tables(table: pd.DataFrame) -> Iterator[Text | Table]:
    """Yield one table per benchmark for a terminal, then the number of pairs for each verdict."""
    for heading, rows in benchmark_sections(table):
        yield Text(heading, style="bold")
        terminal_table = empty_table(*((name, "right" if name in HEADINGS[1:5] else "left") for name in HEADINGS))
        for row in rows_of(rows):
            terminal_table.add_row(*(Text(text) for text in pair_texts(row)), style=STYLE.get(row["verdict"]))
        yield terminal_table
        yield Text("")
    yield Text(verdict_counts(table))


def comparison_markdown(table: pd.DataFrame, sides: Sequence[str]) -> str:
    """Return the comparison as Markdown. `sides` has a description of campaign A and of campaign B."""
    lines = [
        "# Comparison",
        "",
        *(f"- {escape_markdown(side)}" for side in sides),
        "",
        f"{verdict_counts(table)}. {METHOD}",
        "",
    ]
    for heading, rows in benchmark_sections(table):
        cells = [
            [
                *pair_texts(row),
                *(Code(row[name]) if isinstance(row[name], str) else NONE for name in ("cell_a", "cell_b")),
            ]
            for row in rows_of(rows)
        ]
        left = [name not in HEADINGS[1:5] for name in (*HEADINGS, *CELLS)]
        lines += [f"## {escape_markdown(heading)}", "", TextTable([*HEADINGS, *CELLS], cells, left).markdown(), ""]
    return "\n".join(lines)


def benchmark_sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading and the rows of pairs for each benchmark and metric."""
    for (benchmark, figure), rows in table.groupby(["benchmark", "figure"], sort=False):
        yield f"{benchmark}: {FIGURES.get(str(figure), figure)}", rows


def pair_texts(row: Row) -> list[str]:
    """Return the texts of a pair of cells for the columns `HEADINGS`."""
    ratio, interval = NONE, NONE
    if not math.isnan(row["ratio"]):
        ratio, interval = f"{row['ratio']:.3f}{TIMES}", f"{row['low']:.3f}{DASH}{row['high']:.3f}"
    return [
        row["label"],
        _median_and_runs(row, "a"),
        _median_and_runs(row, "b"),
        ratio,
        interval,
        row["verdict"],
        row["why"],
    ]


def verdict_counts(table: pd.DataFrame) -> str:
    """Return in words the number of pairs for each verdict."""
    words = [f"{count} {verdict}" for verdict in VERDICTS if (count := int((table["verdict"] == verdict).sum()))]
    return f"{len(table)} cell{'s' * (len(table) != 1)}: {', '.join(words)}"


def _one(pair: Pair) -> MatchedCell:
    return next(cell for cell in pair if cell is not None)


def _differing(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that a label must name: first settings with text values, then settings with numbers.

    The setting `threads` is always among these settings.
    """
    names = [name for name in distinguishing_names(facts) if not is_storage(name) and name not in UNNAMED]
    return [*(name for name in names if name not in NUMBERS), *(n for n in NUMBERS if n in names or n == "threads")]


def _label(pair: Pair, names: Sequence[str]) -> str:
    storages = dict.fromkeys(str(cell.row["storage"]) for cell in pair if cell)
    return " ".join([" \N{RIGHTWARDS ARROW} ".join(filter(None, storages)), *_typed(_one(pair).facts, names)])


def _typed(facts: Facts, names: Sequence[str]) -> list[str]:
    return [f"{name}={as_typed_by_user(facts.get(name))}" for name in names]


def _median_and_runs(row: Row, side: str) -> str:
    median = row[f"median_{side}"]
    if median is None or math.isnan(median):
        return NONE
    return f"{number(median)} ({row[f'n_valid_{side}']:.0f})"


EXIT_SLOWER = 1
EXIT_NOTHING_COMPARED = 2
DEFAULT_FOLDER_NAME = "comparison"  # the default output folder inside the folder of campaign A


@dataclass(frozen=True)
class ComparedCampaign:
    """One of the two campaigns: its folder, the frame of medians (`table`) and the frame of runs."""

    folder: Path
    table: pd.DataFrame
    runs: pd.DataFrame

    def description(self, name: str) -> str:
        """Return one line with the name (A or B), folder, number of cells, hosts and versions of TensorFlow."""
        hosts, versions = (", ".join(sorted(set(self.table[each]) - {""})) for each in ("host", "tensorflow"))
        where = f"on {hosts or 'an unknown host'}{f', TensorFlow {versions}' if versions else ''}"
        return f"{name}: {self.folder}, {len(self.table)} cell{'s' * (len(self.table) != 1)} {where}"


def compare(  # noqa: PLR0913 - one parameter per option of the command line
    before: Path,
    after: Path,
    known_as: Mapping[str, str],
    out: Path | None = None,
    *,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Compare two campaigns, write tables and figures, and print the comparison; return the exit code.

    The files are written into the folder `out`, or by default into ``comparison`` in the folder of campaign A
    (`before`). Raises AnalysisError if the folders are not two readable campaigns, or if no cell has a partner.
    """
    campaigns = read_records.read_records(before), read_records.read_records(after)
    if out is None:
        save.require_own_folders(campaigns[0].home, DEFAULT_FOLDER_NAME)
    out = out or campaigns[0].home / DEFAULT_FOLDER_NAME
    save.require_own_folders(out)
    if campaigns[0].home.resolve() == campaigns[1].home.resolve():
        message = f"{before} and {after} are the same campaign"
        raise AnalysisError(message, "name the folders of two different campaigns")
    ours, theirs = _side(before, campaigns[0]), _side(after, campaigns[1])
    table = comparison(ours, theirs, known_as)
    sides = [ours.description("A"), theirs.description("B")]
    better = {
        figure: way
        for each in (ours, theirs)
        for figure, way in zip(each.table["figure"], each.table["better"], strict=True)
    }
    drawn = chart_specs(table, sides, better)
    written = [path for each in drawn for path in save.save_figure(each.drawn(), each.frame, out, each.stem)]
    remove_old_figures(out, written)
    written.append(
        save.write_file(out / "comparison.md", comparison_markdown(table, sides).encode(errors="backslashreplace"))
    )
    written.append(save.write_file(out / "comparison.csv", spreadsheet.csv_parts(table)))
    if not quiet:
        _note(table)
    if as_json:
        counted = {verdict: int((table["verdict"] == verdict).sum()) for verdict in VERDICTS}
        paths = [str(path) for path in written]
        about = {"a": str(before), "b": str(after), "counts": counted, "cells": json_rows(table), "written": paths}
        print(json.dumps(about, indent=1))
    elif not quiet:
        terminal.print_text(Text("\n".join([*sides, ""])), *terminal_tables(table), Text(""))
    if not as_json:
        terminal.print_paths(written)
    if (table["verdict"] == SLOWER).any():
        return EXIT_SLOWER
    if not table["verdict"].isin(DECIDED_VERDICTS).any():
        print_to_stderr("error: no pair of cells can be compared; the table has the reason for each pair")
        return EXIT_NOTHING_COMPARED
    return EXIT_NOTHING_COMPARED if any(each.skipped for each in campaigns) else 0


def comparison(ours: ComparedCampaign, theirs: ComparedCampaign, known_as: Mapping[str, str]) -> pd.DataFrame:
    """Return the comparison as a frame with one row per pair of cells.

    `known_as` maps the name of a storage of `ours` to its name in `theirs`. The columns are
    `analysis.compare.comparison_verdict.COLUMNS`. Raises AnalysisError if no cell has a partner, or if `known_as` names
    a storage that a campaign does not have.
    """
    _must_know(known_as, ours, "A")
    _must_know(known_as.values(), theirs, "B")
    matched = matched_pairs(cells_to_match(ours.table, known_as), cells_to_match(theirs.table))
    if not any(before and after for before, after in matched):
        message = f"no cell in common: {ours.description('A')}; {theirs.description('B')}"
        hint = "compare campaigns with equal settings; if storage names differ, use --match A_STORAGE:B_STORAGE"
        raise AnalysisError(message, hint)
    return judged_pairs(labelled_pairs(matched), (ours.runs, theirs.runs))


def _note(table: pd.DataFrame) -> None:
    """Print a note about the option `--match` if both campaigns have cells without a partner."""
    lonely = [sorted(set(table[f"storage_{side}"][table[f"cell_{other}"].isna()])) for side, other in ("ab", "ba")]
    if all(lonely):
        ours, theirs = map(", ".join, lonely)
        print_to_stderr(
            f"note: cells of A on {ours} and cells of B on {theirs} have no partner; if these are two names of one "
            "storage, use --match A_STORAGE:B_STORAGE"
        )


def _side(folder: Path, found: FoundRecords) -> ComparedCampaign:
    warn_of_skipped(found, folder)
    runs = runs_frame(found.records)
    return ComparedCampaign(folder, add_statistics(cells_frame(found.records), runs), runs)


def _must_know(names: Iterable[str], side: ComparedCampaign, which: str) -> None:
    storages = dict.fromkeys(side.table["storage_name"])
    for name in names:
        if name not in storages:
            message = f"--match: {which} has no storage '{name}'"
            raise AnalysisError(message, f"name a storage that {which} has: {', '.join(storages)}")
