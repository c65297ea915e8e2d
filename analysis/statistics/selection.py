"""Which cells of the mini-application share a figure, and which of them are each other's partner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pandas as pd

from analysis import paper
from analysis.records.frame import grouped, rows_of
from analysis.records.settings import Facts, Settings, family_key
from analysis.statistics.saving_costs import NO_TARGET, beside_data, of_checkpoint
from analysis.statistics.training import CONTROL
from analysis.text.plain import listed

NUMBERS = ("threads", "batch_size", "prefetch")
ABSENT = "not measured"
# Of the settings of a target, what says how it is saved to and not where.
HOW = ("checkpoint.every", "checkpoint.keep")
MODE = ("checkpoint.mode", "checkpoint.in_flight")
BATCH_PLACE = ["storage", "batch_size", "prefetch"]


def trained(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the mini-application that are no controls, their numbers as integers.

    Without the settings in groups (`dataset.name`): the keys hold them, and a narrow frame is a fast one.
    """
    if not {CONTROL, *NUMBERS} <= set(table):
        return table[:0]
    mine = (table["benchmark"] == paper.APPLICATION) & (table[CONTROL] == "none")
    for name in NUMBERS:
        mine &= table[name].map(lambda value: type(value) is int)
    plain = [name for name in table if "." not in str(name)]
    return table.loc[mine, plain].astype(dict.fromkeys(NUMBERS, "int64"))


def unsaved(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the trained cells that save no snapshots."""
    return cells[cells["target"] == NO_TARGET] if len(cells) else cells


def families(cells: pd.DataFrame, free: Iterable[str], held: Iterable[str] = ()) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells by key: those that differ at most in storage, threads and the `free` settings.

    Threads that are `held` must agree too, and stand in the key.
    """
    if cells.empty:
        return {}
    names, freed = tuple(held), frozenset(free)
    values = zip(*(cells[name].tolist() for name in names), strict=True) if names else ((),) * len(cells)
    pairs = zip(cells["set_key"], values, strict=True)
    keys = [family_key(key, freed, tuple(zip(names, each, strict=True))) for key, each in pairs]
    groups = grouped(cells, pd.Series(keys, index=cells.index, dtype=object))
    return dict(sorted(groups.items(), key=_smallest_first))


def by_prefetch(groups: Mapping[Settings, pd.DataFrame]) -> Mapping[Settings, pd.DataFrame]:
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


def completed(cells: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the cells with a row for each partner that was not asked for: `not measured`, its cell `""`.

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
    by = ["order", "storage", *place, *(["prefetch"] if "prefetch" in cells else []), "cell"]
    ascending = [name != "prefetch" for name in by]
    return cells.assign(order=order).sort_values(by, ascending=ascending).drop(columns="order").reset_index(drop=True)


def _smallest_first(family: tuple[Settings, pd.DataFrame]) -> tuple[int, ...]:
    """Return a sort key: numbers as numbers, for in a key 128 stands before 16."""
    return tuple(int(family[1][name].min()) for name in NUMBERS if name in family[1] and family[1][name].notna().all())


def saving_sets(cells: pd.DataFrame, apart: Iterable[str]) -> Mapping[Settings, pd.DataFrame]:
    """Return by key the trained cells that differ in their target alone: those that save, and the one that does not.

    Nor do cells of one set differ in the settings `apart`, of how a target is saved to (`HOW`, `MODE`).
    """
    if cells.empty or (cells["target"] == NO_TARGET).all():
        return {}
    asked = tuple(apart)
    free = frozenset[str]().union(*(of_checkpoint(key.facts) for key in set(cells["set_key"])))
    sets = {}
    for key, family in families(cells, free, ["storage", "threads"]).items():
        saves = family["target"] != NO_TARGET
        how = family["set_key"].map(lambda each: json.dumps({name: each.facts.get(name) for name in asked}))
        for words, group in family[saves].groupby(how[saves], sort=True):
            held = tuple(json.loads(str(words)).items())
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


def saved_how(facts: Facts, cells: pd.DataFrame) -> str:
    """Return how the cells of a set are saved in words, and which of them on the device that they read from."""
    words = [f"A snapshot every {facts['checkpoint.every']} iterations, the newest {facts['checkpoint.keep']} kept"]
    words += [f"mode {facts['checkpoint.mode']}"] if facts.get("checkpoint.mode") else []
    shared = sorted({f"{row['target']} on {device}" for row in rows_of(cells) if (device := beside_data(row))})
    beside = f" Data and snapshots of {listed(shared)} share the device." if shared else ""
    return f"{', '.join(words)}; images on {facts['storage']}.{beside}"


def settled(cells: pd.DataFrame, place: list[str], figure: str) -> pd.DataFrame:
    """Return the cells with a status that says why one is not drawn: it is `done` just where it is.

    Two cells at one place are both `ambiguous`; one that is done and lacks the figure is `without figures`.
    """
    twins = cells.duplicated(place, keep=False)
    without = (cells["status"] == "done") & cells[figure].isna()
    return cells.assign(status=cells["status"].mask(without, "without figures").mask(twins, "ambiguous"))


def of_done(frame: pd.DataFrame, numbers: Iterable[str]) -> pd.DataFrame:
    """Return the frame with these numbers, `n_valid` and `unstable` of the cells that are done alone."""
    names = [*numbers, "n_valid", "unstable"]
    frame = frame.astype({"n_valid": "Int64"})
    frame[names] = frame[names].where(frame["status"] == "done")
    return frame


def batch_sets(cells: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells that differ at most in storage, batch size and prefetch.

    The number of batches may follow the batch size (an epoch each); where one batch size has several numbers of
    batches, each number is a set of its own.
    """
    sets: dict[Settings, pd.DataFrame] = {}
    for key, group in families(cells, {"prefetch", "batch_size", "iterations"}, ["threads"]).items():
        alike = families(group, {"prefetch", "batch_size"}, ["threads"])
        sets |= alike if group.duplicated(BATCH_PLACE).any() or len(alike) == 1 else {key: group}
    return sets
