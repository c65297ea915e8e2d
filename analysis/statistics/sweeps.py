"""Which settings the cells of a benchmark were swept over, for benchmarks that the paper does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from analysis import paper
from analysis.records.settings import Settings, distinguishing, is_storage

# Never swept: what was read, and where it lies.
FOUND = ("data", "dataset.path")


def is_plain(frame: pd.DataFrame) -> pd.Series[bool]:
    """Say which rows are of benchmarks that the paper does not have."""
    return ~frame["benchmark"].isin(paper.BENCHMARKS)


def plain_sets(table: pd.DataFrame) -> Iterator[tuple[Settings, pd.DataFrame]]:
    """Yield the cells of each such benchmark and version, with the settings that all of them share."""
    for _, cells in table[is_plain(table)].groupby(["benchmark", "benchmark_version"], sort=True):
        every = [key.facts for key in dict.fromkeys(cells["set_key"])]
        shared = {name: it for name, it in every[0].items() if all(name in one and one[name] == it for one in every)}
        threads = set(cells["threads"]) if "threads" in cells else set()
        yield Settings.of({**shared, **({"threads": threads.pop()} if len(threads) == 1 else {})}), cells


def swept(cells: pd.DataFrame) -> list[str]:
    """Return the names of the columns of the settings that cells differ in, but for the storage's."""
    names = distinguishing([key.facts for key in dict.fromkeys(cells["series_key"])])
    names = [name for name in names if not is_storage(name) and name not in FOUND]
    names += ["threads"] if "threads" in cells and len(set(cells["threads"])) > 1 else []
    return [name if name in cells else f"settings.{name}" for name in names if not name.endswith(".emulated")]


def held(cells: pd.DataFrame, name: str, others: Sequence[str]) -> pd.DataFrame:
    """Return the cells at the values of all other swept settings at which most values of one were measured."""
    if not others:
        return cells
    done = cells[cells["status"] == "done"]
    places = pd.Series(list(zip(*(cells[other] for other in others), strict=True)), index=cells.index)
    many = (done if len(done) else cells).groupby(places)[name].nunique(dropna=False)
    chosen: pd.DataFrame = cells[places == many.index[int(many.to_numpy().argmax())]]
    return chosen


def orderly(value: Any) -> tuple[bool, float, str]:
    """Return a sort key of any setting: numbers by their size, then everything else as text."""
    number = is_number(value)
    return not number, float(value) if number else 0.0, str(value)


def is_number(value: Any) -> bool:
    """Say whether a setting is a number, which True is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
