"""Which cell of one campaign is which of the other: by id, else by the settings that say what was measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.records.settings import IMPLIED, Facts, is_storage

NAMES_STORAGE = ("storage", "storage.name")
# Where something lies is not what it is: two sites mount the same kind of disk at different places, or emulate it.
PLACES = ("root", "path", "emulated")
# What makes a pair incomparable, and must be reported instead of separating it.
MEANING = frozenset({"benchmark_version", "data"})


@dataclass(frozen=True)
class Cell:
    """A cell as pairs are made of it: the row of its medians, its settings, and its names from strict to loose."""

    row: Row
    facts: Facts
    keys: tuple[str, ...]


# A cell of either campaign, or of one alone.
Pair = tuple[Cell | None, Cell | None]


def cells(table: pd.DataFrame, known_as: Mapping[str, str] | None = None) -> list[Cell]:
    """Return the cells of a table of medians; `known_as` gives storages the names they have in the other campaign."""
    return [_cell(row, known_as or {}) for row in rows_of(table.astype({"unstable": object}))]


def pairs(before: Sequence[Cell], after: Sequence[Cell]) -> list[Pair]:
    """Return each cell beside its partner, None where it has none; those without stand last.

    Equal ids are one cell. Else equal settings are, wherever storage and data lie; then, whatever the version of the
    benchmark and the data; then, whatever the storage. At each step two cells are partners if no other cell of either
    campaign answers to that description: with two candidates there is no saying which is meant.
    """
    partner: dict[int, Cell] = {}
    taken: set[int] = set()
    for step in range(len(before[0].keys) if before else 0):
        ours, theirs = _unique(before, step), _unique(after, step)
        for key in ours.keys() & theirs.keys():
            if id(ours[key]) not in partner and id(theirs[key]) not in taken:
                partner[id(ours[key])] = theirs[key]
                taken.add(id(theirs[key]))
    both = [(cell, partner[id(cell)]) for cell in before if id(cell) in partner]
    left = [(cell, None) for cell in before if id(cell) not in partner]
    return [*both, *left, *((None, cell) for cell in after if id(cell) not in taken)]


def _cell(row: Row, known_as: Mapping[str, str]) -> Cell:
    facts = row["series_key"].facts | {"threads": row.get("threads")}
    name = known_as.get(row["storage_name"])
    # Under another name it is not the cell of that id any more.
    id_key = row["cell"] if name is None else f"{row['cell']} as {name}"
    seen = facts if name is None else facts | {each: name for each in NAMES_STORAGE if each in facts}
    return Cell(row, facts, (id_key, *_looser(seen)))


def _looser(facts: Facts) -> Iterator[str]:
    """Yield the settings as text, each time with fewer of them."""
    places = {name for name in facts if name.rpartition(".")[2] in PLACES}
    storage = {name for name in facts if is_storage(name)}
    for free in ({IMPLIED} | more for more in (places, places | MEANING, places | MEANING | storage)):
        yield json.dumps({name: facts[name] for name in sorted(facts) if name not in free})


def _unique(campaign: Sequence[Cell], step: int) -> dict[str, Cell]:
    counts = Counter(cell.keys[step] for cell in campaign)
    return {cell.keys[step]: cell for cell in campaign if counts[cell.keys[step]] == 1}
