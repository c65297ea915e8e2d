"""Figure 9: the runtime of the mini-application with checkpoints per target, and what one checkpoint takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.kit.figure import Plate, caption, how_many, settled, statistic, stems, told_apart
from analysis.figures.targets import runtime_per_target
from analysis.records.settings import facts_of
from analysis.statistics.checkpoints import NO_TARGET
from analysis.statistics.selection_saving import HOW, MODE, saving_sets, told_of

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Fig. 9. Mini-application: runtime with checkpoints, and one checkpoint"
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
CHECKPOINT = {f"checkpoint_s{end}": f"snapshot_blocked_s{end}" for end in ("", "_min", "_max")}
PLACE = ["target", "target_name", "mode"]
COLUMNS = [
    *PLACE, *RUNTIME, "without_s", *CHECKPOINT, "n_valid", "unstable", "status", "host", "accelerator", "cell",
]  # fmt: skip


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return a plate per set of settings in which a training was saved."""
    sets = {key: (cells, bars(cells)) for key, cells in saving_sets(table, (*HOW, *MODE)).items()}
    sets = {key: both for key, both in sets.items() if (both[1]["status"] == "done").any()}
    names, apart = stems("fig9", list(sets)), told_apart(sets)
    made = []
    for key, (cells, frame) in sets.items():
        shown = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        what = f"{statistic(shown)} Of a run, the median of its checkpoints. {how_many(shown)} {told_of(facts_of(key))}"
        words = caption(facts_of(key), [name for name in apart if name not in (*HOW, *MODE)], shown, what)
        made.append(Plate(names[key], TITLE, words, frame, runtime_per_target))
    return made


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per target, the training without checkpoints first; seconds.

    `without_s` is its runtime; `checkpoint_s` is how long training stood still for one checkpoint.
    """
    frame = settled(cells, PLACE, "wall_s").astype({"n_valid": "Int64"})
    frame = frame.rename(columns={old: new for new, old in (RUNTIME | CHECKPOINT).items()}).reindex(columns=COLUMNS)
    numbers = [*RUNTIME, *CHECKPOINT, "n_valid", "unstable"]
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    without = frame["runtime_s"][frame["target"] == NO_TARGET]
    return frame.assign(without_s=without.iloc[0] if len(without) == 1 else None).astype({"without_s": "float64"})
