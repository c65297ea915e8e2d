"""Select the sets of cells that are drawn in one chart, and find the settings that were swept in a set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from analysis import paper
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import Facts, Settings, distinguishing_names, is_storage, reduced_set_key
from analysis.statistics.medians import valid_measured_runs
from analysis.statistics.training import CONTROL, NO_TARGET, checkpoint_settings, device_shared_with_data
from analysis.text import join_values

NUMBERS = ("threads", "batch_size", "prefetch")
ABSENT = "not measured"
# The checkpoint settings that determine how snapshots are saved, but not the storage of the snapshots.
HOW = ("checkpoint.every", "checkpoint.keep")
MODE = ("checkpoint.mode", "checkpoint.in_flight")
BATCH_PLACE = ["storage", "batch_size", "prefetch"]


def training_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the paper's mini-application that are not controls, with integers in the columns `NUMBERS`.

    Columns of grouped settings (`dataset.name`) are left out to save time. The keys of the cells have these settings.
    """
    if not {CONTROL, *NUMBERS} <= set(table):
        return table[:0]
    mine = (table["benchmark"] == paper.APPLICATION) & (table[CONTROL] == "none")
    for name in NUMBERS:
        mine &= table[name].map(lambda value: type(value) is int)
    plain = [name for name in table if "." not in str(name)]
    return table.loc[mine, plain].astype(dict.fromkeys(NUMBERS, "int64"))


def cells_without_snapshots(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the training cells that save no snapshots."""
    return cells[cells["target"] == NO_TARGET] if len(cells) else cells


def sets_of_settings(
    cells: pd.DataFrame, free: Iterable[str], held: Iterable[str] = ()
) -> Mapping[Settings, pd.DataFrame]:
    """Return sets of cells that differ only in storage, threads and the `free` settings.

    The cells of a set also have equal values in the columns `held`. Returns a mapping from the common settings of a
    set (with the columns `held`) to the cells of the set.
    """
    if cells.empty:
        return {}
    names, freed = tuple(held), frozenset(free)
    values = zip(*(cells[name].tolist() for name in names), strict=True) if names else ((),) * len(cells)
    pairs = zip(cells["set_key"], values, strict=True)
    keys = [reduced_set_key(key, freed, tuple(zip(names, each, strict=True))) for key, each in pairs]
    groups = group_rows(cells, pd.Series(keys, index=cells.index, dtype=object))
    return dict(sorted(groups.items(), key=_smallest_first))


def sets_by_prefetch(groups: Mapping[Settings, pd.DataFrame]) -> Mapping[Settings, pd.DataFrame]:
    """Return one set per number of prefetched batches: the cells with this number, and the cells without prefetch.

    Only sets with both kinds of cells are returned. The key of a set contains the number of prefetched batches.
    """
    sets = {}
    for key, cells in groups.items():
        for ahead in sorted(set(cells["prefetch"]) - {0}):
            both = cells[cells["prefetch"].isin([0, ahead])]
            if len(set(both["prefetch"])) > 1:
                sets[reduced_set_key(key, frozenset(), (("prefetch", ahead),))] = both
    return sets


def add_missing_partners(cells: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the cells in the paper's order, with an added row for each cell that is missing in a pair.

    A pair is a cell with prefetch and a cell without prefetch that have otherwise equal settings. An added row has the
    status `not measured` and the cell id `""`. The cell with prefetch comes first in a pair.
    """
    spots = cells[["storage", "storage_name", *place]].drop_duplicates()
    ahead = cells[["prefetch"]].drop_duplicates()
    whole = spots.merge(ahead, how="cross").merge(cells, how="left", on=[*spots, "prefetch"])
    whole["status"] = whole["status"].fillna(ABSENT)
    texts = ["host", "accelerator", "cell"]
    whole[texts] = whole[texts].fillna("")
    return sort_as_in_paper(whole, place)


def sort_as_in_paper(cells: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the cells in the paper's order: by storage, then by the columns `place`, then with prefetch first."""
    order = cells["storage_name"].map(paper.storage_sort_key)
    by = ["order", "storage", *place, *(["prefetch"] if "prefetch" in cells else []), "cell"]
    ascending = [name != "prefetch" for name in by]
    return cells.assign(order=order).sort_values(by, ascending=ascending).drop(columns="order").reset_index(drop=True)


def _smallest_first(family: tuple[Settings, pd.DataFrame]) -> tuple[int, ...]:
    """Return a sort key of numbers for a set of cells, because 128 would come before 16 if settings were texts."""
    return tuple(int(family[1][name].min()) for name in NUMBERS if name in family[1] and family[1][name].notna().all())


def saving_sets(cells: pd.DataFrame, apart: Iterable[str]) -> Mapping[Settings, pd.DataFrame]:
    """Return sets of training cells that differ only in the checkpoint target.

    Cells that save no snapshots are part of a set too. The cells of a set that save snapshots have equal values of the
    settings `apart`, which determine how snapshots are saved (`HOW`, `MODE`).
    """
    if cells.empty or (cells["target"] == NO_TARGET).all():
        return {}
    columns = tuple(apart)
    free = frozenset[str]().union(*(checkpoint_settings(key.facts) for key in set(cells["set_key"])))
    sets = {}
    for key, family in sets_of_settings(cells, free, ["storage", "threads"]).items():
        saves = family["target"] != NO_TARGET
        how = family["set_key"].map(lambda each: json.dumps({name: each.facts.get(name) for name in columns}))
        for words, group in family[saves].groupby(how[saves], sort=True):
            held = tuple(json.loads(str(words)).items())
            sets[reduced_set_key(key, frozenset(), held)] = sort_targets_as_in_paper(pd.concat([family[~saves], group]))
    return sets


def sort_targets_as_in_paper(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells in the paper's order: first cells without checkpoints, then cells by checkpoint target.

    For each target, cells that save in the foreground (`sync`) come before cells that save in the background (`async`).
    """
    order = [
        (row["target_name"] != NO_TARGET, paper.storage_sort_key(row["target_name"]), row["mode"].startswith("async"))
        for row in rows_of(cells)
    ]
    places = pd.Series(order, index=cells.index, dtype=object)
    return cells.assign(order=places).sort_values(["order", "target", "mode", "cell"]).drop(columns="order")


def saving_in_words(facts: Facts, cells: pd.DataFrame) -> str:
    """Return in words how the cells of a set save snapshots, and which cells save on the device of the dataset."""
    words = [f"A snapshot every {facts['checkpoint.every']} iterations, the newest {facts['checkpoint.keep']} kept"]
    words += [f"mode {facts['checkpoint.mode']}"] if facts.get("checkpoint.mode") else []
    shared = sorted(
        {f"{row['target']} on {device}" for row in rows_of(cells) if (device := device_shared_with_data(row))}
    )
    beside = f" Data and snapshots of {join_values(shared)} share the device." if shared else ""
    return f"{', '.join(words)}; images on {facts['storage']}.{beside}"


def with_status_of_drawing(cells: pd.DataFrame, place: list[str], figure: str) -> pd.DataFrame:
    """Return the cells with a changed column `status`, which is `done` only if a cell can be drawn.

    Cells with equal values in all columns named by `place` get the status `ambiguous`: a chart can draw only one cell
    at one place. A done cell without the metric `figure` gets the status `without figures`.
    """
    twins = cells.duplicated(place, keep=False)
    without = (cells["status"] == "done") & cells[figure].isna()
    return cells.assign(status=cells["status"].mask(without, "without figures").mask(twins, "ambiguous"))


def numbers_of_done_cells(frame: pd.DataFrame, numbers: Iterable[str]) -> pd.DataFrame:
    """Return the frame, in which cells that are not done have missing values in some columns.

    These are the columns `numbers`, `n_valid` and `unstable`.
    """
    names = [*numbers, "n_valid", "unstable"]
    frame = frame.astype({"n_valid": "Int64"})
    frame[names] = frame[names].where(frame["status"] == "done")
    return frame


def batch_sets(cells: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return sets of cells that differ only in storage, batch size and prefetch.

    Cells with different batch sizes may also differ in the number of batches, because the number of batches in one
    epoch depends on the batch size. If cells of one batch size have several numbers of batches, there is one set per
    number of batches.
    """
    sets: dict[Settings, pd.DataFrame] = {}
    for key, group in sets_of_settings(cells, {"prefetch", "batch_size", "iterations"}, ["threads"]).items():
        alike = sets_of_settings(group, {"prefetch", "batch_size"}, ["threads"])
        sets |= alike if group.duplicated(BATCH_PLACE).any() or len(alike) == 1 else {key: group}
    return sets


# Settings that never count as swept: the identity and the path of the dataset.
NEVER_SWEPT = ("data", "dataset.path")


def is_plain(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the rows of benchmarks that are not in the paper."""
    return ~frame["benchmark"].isin(paper.BENCHMARKS)


def plain_sets(table: pd.DataFrame) -> Iterator[tuple[Settings, pd.DataFrame]]:
    """Yield the cells of each benchmark that is not in the paper, with the common settings of these cells.

    Cells of different versions of a benchmark are in separate sets.
    """
    for _, cells in table[is_plain(table)].groupby(["benchmark", "benchmark_version"], sort=True):
        every = [key.facts for key in dict.fromkeys(cells["set_key"])]
        shared = {name: it for name, it in every[0].items() if all(name in one and one[name] == it for one in every)}
        threads = set(cells["threads"]) if "threads" in cells else set()
        yield Settings.of({**shared, **({"threads": threads.pop()} if len(threads) == 1 else {})}), cells


def swept_names(cells: pd.DataFrame) -> list[str]:
    """Return the column names of the settings that differ between cells, except settings of the storage."""
    names = distinguishing_names([key.facts for key in dict.fromkeys(cells["series_key"])])
    names = [name for name in names if not is_storage(name) and name not in NEVER_SWEPT]
    names += ["threads"] if "threads" in cells and len(set(cells["threads"])) > 1 else []
    return [name if name in cells else f"settings.{name}" for name in names if not name.endswith(".emulated")]


def cells_of_commonest_values(cells: pd.DataFrame, name: str, others: Sequence[str]) -> pd.DataFrame:
    """Return the cells that have one common combination of values of the settings `others`.

    The combination with the largest number of measured values of the setting `name` is chosen.
    """
    if not others:
        return cells
    done = cells[cells["status"] == "done"]
    places = pd.Series(list(zip(*(cells[other] for other in others), strict=True)), index=cells.index)
    many = (done if len(done) else cells).groupby(places)[name].nunique(dropna=False)
    chosen: pd.DataFrame = cells[places == many.index[int(many.to_numpy().argmax())]]
    return chosen


@lru_cache(1 << 12, typed=True)
def setting_sort_key(value: Any) -> tuple[bool, float, str]:
    """Return a sort key for the value of a setting: numbers come first by size, then all other values as texts."""
    number = is_number(value)
    return not number, float(value) if number else 0.0, str(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a number, where True and False do not count as numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


HEPCNN, CLIMATE = "hepcnn", "climate"
NODES, SHUFFLE, SYNC = "nodes", "benchmark.shuffle", "sync"
# The parts of the wall time, from the bottom to the top of a stacked bar. `unpack_s` is the time spent waiting for a
# batch, without the time spent reading. If other threads read, as in CDB, `unpack_s` is the whole waiting time.
WALL_PARTS = ("read_s", "unpack_s", "compute_s", "validate_s", "sync_s", "checkpoint_s", "rest_s")
_LOADS = tuple(f"{phase}_{source}_{what}" for phase in ("train", "validation")
               for source in ("cold", "warm") for what in ("loads", "read_s"))  # fmt: skip
WORKLOAD_FIGURES = (*WALL_PARTS, "io_share", "loads", "private_caches", *_LOADS)
FREE_OF_NODES = frozenset({NODES, SYNC, SHUFFLE})


def workloads(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of NERSC's benchmarks with columns for nodes, shuffling, synchronization, control and metrics.

    The metrics (`WORKLOAD_FIGURES`) are medians over the valid measured runs, or NaN for a cell without such a run. If
    no such benchmark was measured, the frame has no rows.
    """
    mine = table[table["benchmark"].isin([HEPCNN, CLIMATE])]
    if mine.empty:
        return mine
    known = {
        name: mine.get(name, pd.Series(None, mine.index, dtype=object)) for name in (NODES, SHUFFLE, SYNC, CONTROL)
    }
    nodes = pd.to_numeric(known[NODES]).fillna(1).astype("int64")
    words = {SHUFFLE: known[SHUFFLE].fillna(""), SYNC: known[SYNC].fillna(""), CONTROL: known[CONTROL].fillna("none")}
    good = _of_runs(runs[runs["cell"].isin(mine["cell"])])
    medians = good.groupby("cell")[list(WORKLOAD_FIGURES)].median()
    mine = mine.drop(columns=[name for name in WORKLOAD_FIGURES if name in mine])
    return mine.assign(**{NODES: nodes, **words}).join(medians, on="cell")


def _of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of each valid measured run. A metric that a run does not have is NaN."""
    names = ["wall_s", "load_s", "read_s", "compute_s", "validate_s", "sync_s", "checkpoint_s"]
    good = valid_measured_runs(
        runs.reindex(columns=[*runs, *({*names, *WORKLOAD_FIGURES} - set(runs))]),
        [*names, *{*WORKLOAD_FIGURES} - {*names}],
    )
    read = good["read_s"].fillna(0.0)
    good = good.assign(
        read_s=read,
        unpack_s=(good["load_s"] - read).clip(lower=0),
        io_share=good["read_s"].fillna(good["load_s"]) / good["wall_s"],
        **{name: good[name].fillna(0.0) for name in ("validate_s", "sync_s", "checkpoint_s")},
    )
    return good.assign(rest_s=(good["wall_s"] - good[list(WALL_PARTS[:-1])].sum(axis=1)).clip(lower=0))


def sets_by_nodes(cells: pd.DataFrame, free: Iterable[str] = ()) -> Mapping[Settings, pd.DataFrame]:
    """Return sets of cells that differ only in storage, nodes, synchronization, shuffling and the `free` settings.

    Controls are left out.
    """
    plain = cells[cells[CONTROL] == "none"] if len(cells) else cells
    return sets_of_settings(plain, FREE_OF_NODES | {*free})


def sets_by_control(cells: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return sets of cells that differ only in storage and in `benchmark.control`.

    Only sets with several values of `benchmark.control` are returned.
    """
    sets = sets_of_settings(cells, {CONTROL}, [NODES]) if len(cells) else {}
    return {reduced_set_key(key, frozenset()): rows for key, rows in sets.items() if len(set(rows[CONTROL])) > 1}
