"""Which cells share the figures of checkpoints: their targets, beside the same training without any."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from analysis import paper
from analysis.records.frame import rows_of
from analysis.records.settings import facts_of, family_key
from analysis.statistics.checkpoints import NO_TARGET, of_checkpoint
from analysis.statistics.selection import families, with_or_without_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analysis.records.settings import Facts

# Of the settings of a target, what says how it is saved to and not where.
HOW = ("checkpoint.every", "checkpoint.keep")
MODE = ("checkpoint.mode", "checkpoint.in_flight")


def saving_sets(table: pd.DataFrame, apart: Iterable[str]) -> Mapping[str, pd.DataFrame]:
    """Return by key the cells that differ in nothing but their target: those that save, and the one that does not.

    Parameters
    ----------
    apart
        Settings of how a target is saved to (`HOW`, `MODE`) in which cells of one set do not differ.
    """
    cells = with_or_without_checkpoints(table)
    if cells.empty or (cells["target"] == NO_TARGET).all():
        return {}
    asked, facts = tuple(apart), {key: facts_of(key) for key in cells["set_key"]}
    free = frozenset[str]().union(*map(of_checkpoint, facts.values()))
    sets = {}
    for key, family in families(cells, free, ["storage", "threads"]).items():
        saves = family["target"] != NO_TARGET
        how = family["set_key"].map(lambda each: json.dumps({name: facts[each].get(name) for name in asked}))
        for words, group in family[saves].groupby(how[saves], sort=True):
            held = tuple(facts_of(str(words)).items())
            sets[family_key(key, frozenset(), held)] = in_papers_order(pd.concat([family[~saves], group]))
    return sets


def in_papers_order(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with no checkpoint first, then by target as in the paper, in the foreground first."""
    order = [
        (row["target_name"] != NO_TARGET, paper.place(row["target_name"]), row["mode"].startswith("async"))
        for row in rows_of(cells)
    ]
    place = pd.Series(order, index=cells.index, dtype=object)
    return cells.assign(order=place).sort_values(["order", "target", "mode", "cell"]).drop(columns="order")


def told_of(facts: Facts) -> str:
    """Return how the cells of a set are saved in words."""
    words = [f"A snapshot every {facts['checkpoint.every']} iterations, the newest {facts['checkpoint.keep']} kept"]
    words += [f"mode {facts['checkpoint.mode']}"] if facts.get("checkpoint.mode") else []
    return f"{', '.join(words)}; images on {facts['storage']}."
