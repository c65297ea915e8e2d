"""A comparison in words: what each pair is called, the table for a terminal, the table for a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from analysis import paper
from analysis.compare.comparison_verdict import FASTER, SLOWER, VERDICTS
from analysis.compare.pairs import Cell, Pair
from analysis.output.terminal import of_columns
from analysis.records.frame import Row, rows_of
from analysis.records.settings import Facts, distinguishing, is_storage
from analysis.statistics.medians import RATE, READ, WRITTEN
from analysis.text.plain import DASH, NONE, TIMES, code, escaped, line, number, typed

# Shown elsewhere in the row, or of no help to a reader.
UNNAMED = frozenset({"benchmark", "benchmark.name", "benchmark_version", "data", "dataset.path"})
NUMBERS = ("batch_size", "prefetch", "threads")
FIGURES = {RATE: "images/s", READ: "MB/s read", WRITTEN: "MB/s written", "wall_s": "runtime s"}
STYLE = {FASTER: "green", SLOWER: "red"}
HEADINGS = ("cell", "A", "B", "B / A", "95 % interval", "verdict", "why")
INTERVAL = "95 % percentile interval of the bootstrap"
METHOD = (
    f"A and B: median of the valid measured runs (their number). B / A: ratio of the medians with the {INTERVAL}."
    " No change: the interval holds 1, or the ratio is within the tolerance of the site, the limit of the records'"
    " check `spread`."
)


def labelled(pairs: Sequence[Pair]) -> list[tuple[str, Pair]]:
    """Return the pairs in order, each with what it is called.

    A label is the storage and the settings that distinguish the pair, as they are typed. The order is by
    benchmark, storage (the paper's first), then words, then numbers.
    """
    known: dict[str, list[Mapping[str, Any]]] = {}
    for pair in pairs:
        known.setdefault(_one(pair).row["benchmark"], []).append(_one(pair).facts)
    apart = {benchmark: _differing(facts) for benchmark, facts in known.items()}

    def place(pair: Pair) -> tuple[Any, ...]:
        row, facts = _one(pair).row, _one(pair).facts
        words = _typed(facts, [name for name in apart[row["benchmark"]] if name not in NUMBERS])
        numbers = [facts[name] if isinstance(facts.get(name), int) else math.inf for name in NUMBERS]
        return (row["benchmark"], paper.place(row["storage_name"]), words, numbers, row["cell"])

    return [(_label(pair, apart[_one(pair).row["benchmark"]]), pair) for pair in sorted(pairs, key=place)]


def terminal(table: pd.DataFrame) -> Iterator[Text | Table]:
    """Yield the comparison for a terminal, benchmark by benchmark, and how many there are of each verdict."""
    for heading, rows in sections(table):
        yield Text(heading, style="bold")
        shown = of_columns(*((name, "right" if name in HEADINGS[1:5] else "left") for name in HEADINGS))
        for row in rows_of(rows):
            shown.add_row(*(Text(text) for text in texts(row)), style=STYLE.get(row["verdict"]))
        yield shown
        yield Text("")
    yield Text(counts(table))


def markdown(table: pd.DataFrame, sides: Sequence[str]) -> str:
    """Return the comparison as Markdown; `sides` say what A and B are."""
    lines = ["# Comparison", "", *(f"- {escaped(side)}" for side in sides), "", f"{counts(table)}. {METHOD}", ""]
    for heading, rows in sections(table):
        lines += [f"## {escaped(heading)}", "", line([*HEADINGS, "cell of A", "cell of B"])]
        lines += [line(["---", *["---:"] * 4, *["---"] * 4])]
        for row in rows_of(rows):
            ids = [code(row[name]) if isinstance(row[name], str) else NONE for name in ("cell_a", "cell_b")]
            lines.append(line([*map(escaped, texts(row)), *ids]))
        lines.append("")
    return "\n".join(lines)


def sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading and the rows of each benchmark."""
    for (benchmark, figure), rows in table.groupby(["benchmark", "figure"], sort=False):
        yield f"{benchmark}: {FIGURES.get(str(figure), figure)}", rows


def texts(row: Row) -> list[str]:
    """Return what stands under `HEADINGS` for a pair."""
    ratio, interval = NONE, NONE
    if not math.isnan(row["ratio"]):
        ratio, interval = f"{row['ratio']:.3f}{TIMES}", f"{row['low']:.3f}{DASH}{row['high']:.3f}"
    return [row["label"], _side(row, "a"), _side(row, "b"), ratio, interval, row["verdict"], row["why"]]


def counts(table: pd.DataFrame) -> str:
    """Return how many pairs there are of each verdict, in words."""
    told = [f"{count} {verdict}" for verdict in VERDICTS if (count := int((table["verdict"] == verdict).sum()))]
    return f"{len(table)} cell{'s' * (len(table) != 1)}: {', '.join(told)}"


def _one(pair: Pair) -> Cell:
    return next(cell for cell in pair if cell is not None)


def _differing(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that a label must name: words first, and always the threads."""
    names = [name for name in distinguishing(facts) if not is_storage(name) and name not in UNNAMED]
    return [*(name for name in names if name not in NUMBERS), *(n for n in NUMBERS if n in names or n == "threads")]


def _label(pair: Pair, names: Sequence[str]) -> str:
    storages = dict.fromkeys(str(cell.row["storage"]) for cell in pair if cell)
    return " ".join([" \N{RIGHTWARDS ARROW} ".join(filter(None, storages)), *_typed(_one(pair).facts, names)])


def _typed(facts: Facts, names: Sequence[str]) -> list[str]:
    return [f"{name}={typed(facts.get(name))}" for name in names]


def _side(row: Row, side: str) -> str:
    median = row[f"median_{side}"]
    if median is None or math.isnan(median):
        return NONE
    return f"{number(median)} ({row[f'n_valid_{side}']:.0f})"
