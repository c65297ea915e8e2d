"""Figure 6: the runtime of the mini-application over threads, and its excess where nothing is prefetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.kit.figure import Plate, caption, how_many, settled, statistic, stems, told_apart
from analysis.figures.runtime import runtime_over_threads
from analysis.records.settings import facts_of, family_key
from analysis.statistics.selection import both_told, by_prefetch, completed, families, trained

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

TITLE = "Fig. 6. Mini-application: runtime, and the excess without prefetch"
PLACE = ["storage", "storage_name", "threads"]
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
COLUMNS = [
    "storage", "storage_name", "threads", "prefetch", *RUNTIME, "excess_s", "n_valid", "unstable",
    "status", "host", "accelerator", "cell",
]  # fmt: skip


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return a plate per set of settings in which a runtime with prefetch was measured, and asked for without."""
    sets = {key: (cells, bars(cells)) for key, cells in worthy(by_prefetch(families(trained(table), {"prefetch"})))}
    sets = {key: both for key, both in sets.items() if both[1]["runtime_s"].notna().any()}
    names, apart = stems("fig6", list(sets)), told_apart(sets)
    made = []
    for key, (cells, frame) in sets.items():
        shown = cells[cells["cell"].isin(frame["cell"][frame["runtime_s"].notna()])]
        words = caption(facts_of(key) | both_told(cells), apart, shown, f"{statistic(shown)} {how_many(shown)}")
        made.append(Plate(names[key], TITLE, words, frame, runtime_over_threads))
    return made


def worthy(sets: Mapping[str, pd.DataFrame]) -> list[tuple[str, pd.DataFrame]]:
    """Return of sets that differ in the batch size alone those of several thread counts; without them, a lone one.

    The cells of Fig. 7 are a set of one thread count for each batch size, which Fig. 7 shows together.
    """
    alike: dict[str, list[tuple[str, pd.DataFrame]]] = {}
    for key, cells in sets.items():
        alike.setdefault(family_key(key, frozenset({"batch_size"})), []).append((key, cells))
    chosen = []
    for each in alike.values():
        several = [(key, cells) for key, cells in each if len(set(cells["threads"])) > 1]
        chosen += several or each * (len(each) == 1)
    return chosen


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn: at each place the runtime with prefetch, then without, whose excess stands on top.

    Seconds; a cell without a bar keeps its row, without numbers. Where there is no runtime with prefetch, there
    is nothing for an excess to stand on.
    """
    frame = completed(settled(cells, [*PLACE, "prefetch"], "wall_s"), ["threads"])
    frame = frame.astype({"n_valid": "Int64"}).rename(columns={old: new for new, old in RUNTIME.items()})
    numbers = [*RUNTIME, "n_valid", "unstable"]
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    base = frame[frame["prefetch"] > 0].set_index(PLACE)["runtime_s"].dropna()
    below = frame[PLACE].join(base.rename("below"), on=PLACE)["below"]
    frame["excess_s"] = (frame["runtime_s"] - below).where(frame["prefetch"] == 0)
    alone = (frame["prefetch"] == 0) & below.isna() & (frame["status"] == "done")
    frame["status"] = frame["status"].mask(alone, "without partner")
    frame[numbers] = frame[numbers].mask(alone)
    return frame[COLUMNS]
