"""Which cells of the mini-application share a figure, and which of them are each other's partner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from analysis import paper
from analysis.records.settings import family_key
from analysis.statistics.checkpoints import NO_TARGET
from analysis.statistics.training import CONTROL, is_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NUMBERS = ("threads", "batch_size", "prefetch")
ABSENT = "not measured"


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the mini-application that are no controls and save nothing, their numbers as integers.

    Without the settings in groups (`dataset.name`): the keys hold them, and a narrow frame is a fast one.
    """
    cells = with_or_without_checkpoints(table)
    return cells[cells["target"] == NO_TARGET] if len(cells) else cells


def with_or_without_checkpoints(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the mini-application that are no controls, those that save snapshots too."""
    if not {CONTROL, *NUMBERS} <= set(table):
        return table[:0]
    mine = is_training(table) & (table[CONTROL] == "none")
    for name in NUMBERS:
        mine &= table[name].map(lambda value: type(value) is int)
    plain = [name for name in table if "." not in str(name)]
    return table.loc[mine, plain].astype(dict.fromkeys(NUMBERS, "int64"))


def families(cells: pd.DataFrame, free: Iterable[str], held: Iterable[str] = ()) -> Mapping[str, pd.DataFrame]:
    """Return the cells by key: those that differ at most in storage, threads and the `free` settings.

    Threads that are `held` must agree too, and stand in the key.
    """
    if cells.empty:
        return {}
    names, freed = tuple(held), frozenset(free)
    values = zip(*(cells[name].tolist() for name in names), strict=True) if names else ((),) * len(cells)
    pairs = zip(cells["set_key"], values, strict=True)
    keys = [family_key(key, freed, tuple(zip(names, each, strict=True))) for key, each in pairs]
    groups = cells.groupby(pd.Series(keys, index=cells.index, dtype=object), sort=True)
    return dict(sorted(((str(key), group) for key, group in groups), key=_smallest_first))


def by_prefetch(groups: Mapping[str, pd.DataFrame]) -> Mapping[str, pd.DataFrame]:
    """Return, for each number of batches prefetched, the cells with it beside those without prefetch.

    Where none or nothing but prefetch was asked for there is no comparison and no set. The key names the number.
    """
    sets = {}
    for key, cells in groups.items():
        for ahead in sorted(set(cells["prefetch"]) - {0}):
            both = cells[cells["prefetch"].isin([0, ahead])]
            if len(set(both["prefetch"])) > 1:
                sets[family_key(key, frozenset(), (("prefetch", ahead),))] = both
    return sets


def both_told(cells: pd.DataFrame) -> dict[str, str]:
    """Return the prefetch of a figure as its caption tells it: `0 and 1`."""
    return {"prefetch": " and ".join(map(str, sorted(set(cells["prefetch"]))))}


def completed(cells: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the cells with a row for each partner that nobody asked for: `not measured`, its cell `""`.

    In the paper's order; at one place the cell with prefetch comes first.
    """
    spots = cells[["storage", "storage_name", *place]].drop_duplicates()
    ahead = cells[["prefetch"]].drop_duplicates()
    whole = spots.merge(ahead, how="cross").merge(cells, how="left", on=[*spots, "prefetch"])
    whole["status"] = whole["status"].fillna(ABSENT)
    texts = ["host", "accelerator", "cell"]
    whole[texts] = whole[texts].fillna("")
    return in_order(whole, place)


def in_order(cells: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the cells in the order of the paper: storage, place, with prefetch before without."""
    order = cells["storage_name"].map(paper.place)
    by = ["order", "storage", *place, "prefetch", "cell"]
    ascending = [name != "prefetch" for name in by]
    return cells.assign(order=order).sort_values(by, ascending=ascending).drop(columns="order").reset_index(drop=True)


def _smallest_first(family: tuple[str, pd.DataFrame]) -> tuple[int, ...]:
    """Return a sort key: numbers as numbers, for in a key 128 stands before 16."""
    return tuple(int(family[1][name].min()) for name in NUMBERS)
