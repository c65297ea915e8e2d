"""Write the table files: runs, medians and verdicts as CSV, and medians and verdicts as Markdown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import paper, spreadsheet
from analysis.claims.judge_claim import BY_MODEL, kind_of_verdict
from analysis.figures.kit import save
from analysis.output.columns import DISTURBED, OF_TRAINING, Column, mark_of_number, shown_rows, table_columns
from analysis.output.text_table import Code, TextTable
from analysis.records.frame import KEYS, OF_COMPARISON, Row, group_rows, rows_of
from analysis.records.settings import (
    EMULATED,
    MODELLED,
    Facts,
    describe_settings,
    distinguishing_names,
    reduced_set_key,
    without_emulation_remarks,
)
from analysis.statistics import medians
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.comparable import COLUMNS, lines_on_looser_checks
from analysis.statistics.selection import plain_sets, setting_sort_key, swept_names
from analysis.statistics.training import BELOW, NO_TARGET, checkpoint_settings, is_training
from analysis.text import (
    DAGGER,
    MINUS,
    NONE,
    PLUS_MINUS,
    code,
    escape_markdown,
    number,
    one_line,
    percentage,
    ratio_text,
)

NOT_MEASURED_HERE = "Not measured here"
OVER = (
    f"Median over the valid measured runs (n) {PLUS_MINUS} the largest distance of a run; {DAGGER} unstable."
    " Min and max are in tables/medians.csv."
)
BETWEEN = (
    f"between: position of the runtime between the cell's two controls, (runtime {MINUS} no_io) / no_compute. At 0 %"
    " the run is as fast as without input (control=no_io). At 100 % the runtime is the sum of the time without input"
    " and the time of the input alone (control=no_compute)."
)
OF_BASELINE = (
    "of baseline: MB/s as a share of the baseline's MB/s, which was measured with the same storage and host. The"
    " baseline has as many readers as the cell, which read blocks of the dataset's mean file size at random offsets"
    " (random_read). If there is no such baseline, one reader that reads a file from end to end is used (read)."
)
# This pattern finds the emulated storages in a label, for example both storages in
# `burst buffer, ssd (emulated) to hdd (emulated)`.
MARKED = re.compile(f"(?:^|, | to )([^,()]+)({re.escape(EMULATED)}|{re.escape(MODELLED)})")
VERDICT_HEADINGS = ("claim", "kind", "source", "published", "ours", "interval", "tolerance", "verdict", "why")


def write_tables(table: pd.DataFrame, runs: pd.DataFrame, tested: pd.DataFrame, folder: Path) -> list[Path]:
    """Write `runs.csv`, `medians.csv`, `medians.md`, `verdicts.csv` and `verdicts.md`; return their paths."""
    cells, every_run = without_internal_columns(table, runs)
    return [
        save.write_file(folder / "medians.md", medians_markdown(table, runs).encode(errors="backslashreplace")),
        save.write_file(folder / "medians.csv", spreadsheet.csv_parts(cells)),
        save.write_file(folder / "runs.csv", spreadsheet.csv_parts(every_run)),
        save.write_file(folder / "verdicts.md", verdicts_markdown(tested).encode(errors="backslashreplace")),
        save.write_file(folder / "verdicts.csv", spreadsheet.csv_parts(tested)),
    ]


def without_internal_columns(table: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frames of medians and runs without the columns that only the analysis itself needs."""
    inner = {*KEYS, *OF_COMPARISON, *BELOW, "no_scaling", "scaling_unstable", "disturbed"} - {"storage"}
    return table.drop(columns=inner.intersection(table)), runs.drop(columns="cause")


def table_sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading and the sorted rows for each set of cells that belongs into one table.

    Training cells are in one table if they differ only in prefetch, batch size, control, checkpoints and storage. All
    baselines of one set of settings are in one table, whatever their access pattern. All cells of a benchmark that is
    not in the paper are in one table.
    """
    table = _sorted(table, [ACCESS, "threads", *OF_TRAINING, "target", "mode"])  # each set of rows has this order
    groups = group_rows(table, _section_keys(table))
    known = {key: key.facts for key in groups}
    benchmarks = {facts["benchmark"] for facts in known.values()}
    apart = {
        name: distinguishing_names([facts for facts in known.values() if facts["benchmark"] == name])
        for name in benchmarks
    }
    for key in sorted(groups, key=lambda each: known[each].get("benchmark.preprocess") is False):  # Fig 4 before Fig 5
        facts, rows = known[key], groups[key]
        alike = [name for name in OF_TRAINING if name in rows and len(set(rows[name])) == 1]
        told = {**facts, **{name: rows[name].iloc[0] for name in alike}}
        about = describe_settings(
            told, _more(facts, apart[facts["benchmark"]]), rows.get("accelerator", ()), rows["size"]
        )
        heading = f"{facts['benchmark']}: {about}" if about else str(facts["benchmark"])
        rows, emulated = _unmarked(rows)
        yield (
            "; ".join([heading, *emulated]),
            rows if facts["benchmark"] in paper.BENCHMARKS else _sorted(rows, swept_names(rows)),
        )


def _unmarked(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows without emulation remarks in the names of storages and targets, and the remarks as phrases.

    If an emulated and a real storage have the same name, return the rows unchanged and no phrases.
    """
    named = [name for name in ("storage", "target") if name in rows]
    labels = list(dict.fromkeys(label for name in named for label in rows[name]))
    if len({without_emulation_remarks(label) for label in labels}) < len(labels):
        return rows, []
    marked = dict.fromkeys(part for label in labels for part in MARKED.findall(label))
    kinds = {"emulated": EMULATED, "emulated by a model": MODELLED}
    told = {kind: [name for name, remark in marked if remark == mark] for kind, mark in kinds.items()}
    words = [f"{', '.join(names)} {kind}" for kind, names in told.items() if names]
    return rows.assign(**{name: rows[name].map(without_emulation_remarks) for name in named}), words


def _sorted(rows: pd.DataFrame, places: Sequence[str]) -> pd.DataFrame:
    order = [name for name in ("storage", *places, "cell") if name in rows]
    return rows.sort_values(order, key=_sortable)


def _section_keys(table: pd.DataFrame) -> pd.Series[Any]:
    free = {key: frozenset(OF_TRAINING) | checkpoint_settings(key.facts) for key in set(table["set_key"])}
    free |= {key: _of_access(key.facts) for key in set(table["set_key"][is_baseline(table)])}
    partners = table["set_key"].map(lambda key: reduced_set_key(key, free[key]))
    keys = partners.where(is_training(table) | is_baseline(table), table["set_key"])
    for shared, cells in plain_sets(table):
        keys[cells.index] = shared
    return keys


def _of_access(facts: Facts) -> frozenset[str]:
    """Return the settings in which baselines of one table may differ: the access pattern, and settings of the dataset.

    Only baselines with random reads have settings of a dataset.
    """
    return frozenset({ACCESS, "data", "seed", *(name for name in facts if name.startswith("dataset."))})


def medians_markdown(table: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return the medians as Markdown: one table per set of cells, then the cells and runs that do not count."""
    lines = ["# Medians", "", OVER, ""]
    for heading, rows in table_sections(table):
        shown = table_columns(rows, whole=True)
        texts = [[*(_cell(each, row) for each in shown), Code(row["cell"])] for row in shown_rows(rows)]
        headings, left = [*(each.heading for each in shown), "cell"], [*(each.left for each in shown), True]
        lines += [f"## {escape_markdown(heading)}", "", TextTable(headings, texts, left).markdown()]
        lines += ["", *(f"{escape_markdown(reason)}\n" for reason in missing_ratio_sentences(rows))]
    if table["disturbed"].notna().any():
        lines += [DISTURBED, ""]
    for told in lines_on_looser_checks(rows_of(table, COLUMNS)):
        lines += [escape_markdown(told), ""]
    if has_controls(table):
        lines += [BETWEEN, ""]
    if has_baselines(table):
        lines += [OF_BASELINE, ""]
    if complaints := not_counted(table, runs):
        lines += ["## Not counted", "", *(f"- {code(cell)}: {escape_markdown(text)}" for cell, text in complaints), ""]
    return "\n".join(lines)


def missing_ratio_sentences(rows: pd.DataFrame) -> list[str]:
    """Return one sentence per reason why cells have no ratio to one thread, with the storages of these cells."""
    storages: dict[str, dict[str, None]] = {}
    for row in rows_of(rows, ("storage", "threads", "no_scaling")):
        if row["no_scaling"] and row.get("threads") != 1:
            storages.setdefault(row["no_scaling"], {})[row["storage"]] = None
    return [f"no ratio of {', '.join(names)}: {reason}" for reason, names in storages.items()]


def verdicts_markdown(tested: pd.DataFrame) -> str:
    """Return the verdicts as Markdown, with one table per set of cells.

    In a table, the rows of pairs follow the row of their claim. Claims that were not measured are in the last table.
    """
    about_all = (
        "This page lists each claim that the text of a paper states as a number or as an order. A claim of kind"
        " *device* is about a device of the paper. A claim of kind *shape* can be tested on any machine."
    )
    lines = ["# Verdicts", "", about_all, ""]
    for about, rows in tested.groupby("about", sort=False):
        texts = []
        for row in rows_of(rows):
            claim = f"{row['claim']}: {row['pair']}" if row["pair"] else f"**{row['claim']}**"
            facts = [
                claim,
                row["kind"],
                row["source"],
                row["published"],
                *evidence_text(row),
                verdict_in_words(row),
                reason_of_verdict(row),
            ]
            texts.append([*map(str, facts)])
        table = TextTable(VERDICT_HEADINGS, texts, [True] * len(VERDICT_HEADINGS))
        lines += [f"## {escape_markdown(str(about)) or NOT_MEASURED_HERE}", "", table.markdown(), ""]
    return "\n".join(lines)


def evidence_text(row: Row) -> tuple[str, str, str]:
    """Return three texts: the measured value, its interval, and the tolerance with its source.

    Return three dashes if the claim was not measured.
    """
    if row["ours"] is None or math.isnan(row["ours"]):
        return NONE, NONE, NONE
    low, high = (_in_unit(each, row["unit"]) for each in json.loads(row["interval"]))
    known = row["tolerance"] is not None and not math.isnan(row["tolerance"])
    tolerance = ", ".join([*([percentage(row["tolerance"], 1)] if known else []), row["tolerance_from"]])
    return _in_unit(row["ours"], row["unit"]), f"{low} to {high}", tolerance


def verdict_in_words(row: Row) -> str:
    """Return a verdict in words, with the emulated storages on which the measurements were made."""
    kind, told = kind_of_verdict(row["emulated"]), row["emulated"]
    return f"{row['verdict']} ({told if kind == BY_MODEL else f'{kind} {told}'})" if kind else str(row["verdict"])


def reason_of_verdict(row: Row) -> str:
    """Return the reason for a verdict. If the claim was not measured, also return the command that measures it."""
    return f"{row['why']}; measured by `{row['measure']}`" if row["verdict"] == "not measured" else str(row["why"])


def _in_unit(value: float, unit: str) -> str:
    if unit in ("share", "times"):
        return percentage(value, 1) if unit == "share" else ratio_text(value)
    return f"{number(value)} {unit}"


def has_controls(table: pd.DataFrame) -> bool:
    """Return whether some cell has both control cells (`no_io`, `no_compute`), with which its runtime is compared."""
    return "between" in table and bool(table["between"].notna().any())


def has_baselines(table: pd.DataFrame) -> bool:
    """Return whether some cell is compared with a baseline of its storage."""
    return "percent_of_baseline" in table and bool(table["percent_of_baseline"].notna().any())


def not_counted(table: pd.DataFrame, runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Return pairs `(cell, "status: reason")`: first the cells that are not done, then the runs that do not count.

    Runs that have the same cause as their cell get no pair of their own, because the text of the cell has their number
    (`0 of 5 measured runs valid, 5 needed; quiet: …`).
    """
    left = table[table["status"] != "done"]
    causes = dict(zip(left["cell"], left["cause"], strict=True))
    counts: dict[str, list[str]] = {}
    told = []
    for row in rows_of(medians.runs_not_counted(runs)):
        what = "warm-up" if row["role"] == "warmup" else str(row["role"])
        some = f"{row['count']} {what} run{'s' if row['count'] > 1 else ''} {row['status']}"
        cell, reason = str(row["cell"]), one_line(row["reason"])
        if row["cause"] and row["cause"] == causes.get(cell):
            counts.setdefault(cell, []).append(some)
        else:
            told.append((cell, f"{some}: {reason or 'no reason recorded'}"))
    cells = []
    for cell, status, reason in zip(left["cell"], left["status"], left["reason"], strict=True):
        text = ": ".join(filter(None, [f"cell {status}", one_line(reason or "")]))
        cells.append((cell, f"{text} ({', '.join(counts[cell])})" if cell in counts else text))
    return cells + told


def _cell(column: Column, row: Row) -> str:
    return " ".join(filter(None, [column.text(row), mark_of_number(column, row)]))


def _more(facts: Facts, apart: Sequence[str]) -> list[str]:
    """Return additional settings for a heading: settings of the pipeline, and settings that distinguish the sets."""
    always = ("benchmark.preprocess", "benchmark.file_mb", "benchmark.transfer_mib")
    return list(dict.fromkeys([*(name for name in always if name in facts), *apart]))


def _sortable(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return sort keys for a column: storages in the paper's order, numbers by size, and missing values last."""
    if column.name == "storage":
        return column.map(paper.storage_sort_key)
    if column.name == "target":
        return column.map(lambda name: (name not in ("", NO_TARGET), paper.storage_sort_key(name)))
    if column.name == "mode":
        return column.map(lambda name: name.startswith("async"))
    return column if column.name == "cell" else column.map(setting_sort_key)
