"""Cells of NERSC's workloads: the parts of their wall time, and what differs in the number of nodes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from analysis import nersc_numbers
from analysis.records.settings import Settings, family_key
from analysis.statistics.medians import counted
from analysis.statistics.selection import families
from analysis.statistics.training import CONTROL

NODES, SHUFFLE, SYNC = "nodes", "benchmark.shuffle", "sync"
# Of the wall time, in the order of a stack: reading, and what else is waited for before a batch is in hand; all of it
# where others read meanwhile, as in CDB.
PARTS = ("read_s", "unpack_s", "compute_s", "validate_s", "sync_s", "checkpoint_s", "rest_s")
_LOADS = tuple(f"{phase}_{source}_{what}" for phase in ("train", "validation")
               for source in ("cold", "warm") for what in ("loads", "read_s"))  # fmt: skip
FIGURES = (*PARTS, "io_share", "loads", "private_caches", *_LOADS)
FREE = frozenset({NODES, SYNC, SHUFFLE})


def workloads(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of NERSC's workloads with `nodes`, shuffle and control as words, and the medians of `FIGURES`.

    All are NaN where a cell has no valid run; without such cells the frame has no rows.
    """
    mine = table[table["benchmark"].isin([nersc_numbers.HEPCNN, nersc_numbers.CLIMATE])]
    if mine.empty:
        return mine
    known = {
        name: mine.get(name, pd.Series(None, mine.index, dtype=object)) for name in (NODES, SHUFFLE, SYNC, CONTROL)
    }
    nodes = pd.to_numeric(known[NODES]).fillna(1).astype("int64")
    words = {SHUFFLE: known[SHUFFLE].fillna(""), SYNC: known[SYNC].fillna(""), CONTROL: known[CONTROL].fillna("none")}
    good = _of_runs(runs[runs["cell"].isin(mine["cell"])])
    medians = good.groupby("cell")[list(FIGURES)].median()
    mine = mine.drop(columns=[name for name in FIGURES if name in mine])
    return mine.assign(**{NODES: nodes, **words}).join(medians, on="cell")


def _of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of each run that counts, NaN where it has none."""
    names = ["wall_s", "load_s", "read_s", "compute_s", "validate_s", "sync_s", "checkpoint_s"]
    good = counted(runs.reindex(columns=[*runs, *({*names, *FIGURES} - set(runs))]), [*names, *{*FIGURES} - {*names}])
    read = good["read_s"].fillna(0.0)
    good = good.assign(
        read_s=read,
        unpack_s=(good["load_s"] - read).clip(lower=0),
        io_share=good["read_s"].fillna(good["load_s"]) / good["wall_s"],
        **{name: good[name].fillna(0.0) for name in ("validate_s", "sync_s", "checkpoint_s")},
    )
    return good.assign(rest_s=(good["wall_s"] - good[list(PARTS[:-1])].sum(axis=1)).clip(lower=0))


def by_nodes(cells: pd.DataFrame, free: Iterable[str] = ()) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells that are no controls and differ at most in storage, nodes, shuffling and what is `free`."""
    plain = cells[cells[CONTROL] == "none"] if len(cells) else cells
    return families(plain, FREE | {*free})


def by_control(cells: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells that differ at most in storage and control, where there are several controls."""
    sets = families(cells, {CONTROL}, [NODES]) if len(cells) else {}
    return {family_key(key, frozenset()): rows for key, rows in sets.items() if len(set(rows[CONTROL])) > 1}
