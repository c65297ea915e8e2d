"""The cells and runs that verdicts rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.records.frame import rows_of
from analysis.records.settings import Settings, describe, distinguishing
from analysis.statistics.comparable import COLUMNS
from analysis.statistics.medians import by_cell, counted, values_of
from analysis.statistics.selection import trained

# The row of its medians (`EVIDENCE`).
Cell = Mapping[str, Any]

EVIDENCE = ["benchmark", "status", "storage", "threads", "prefetch", "unstable", "size", "site"]


@dataclass(frozen=True)
class Evidence:
    """All that was measured: medians as `analysis.figures.all.specs` takes them, one row per cell, and every run."""

    table: pd.DataFrame
    runs: pd.DataFrame
    _known: dict[tuple[str, bool], Mapping[str, Sequence[float]]] = field(default_factory=dict)

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The cells of the mini-application (`analysis.statistics.selection.trained`)."""
        return trained(self.table)

    def values(self, figure: str) -> Mapping[str, Sequence[float]]:
        """Return a figure of each cell's valid measured runs, those above 0."""
        if (figure, False) not in self._known:
            self._known[figure, False] = values_of(self.runs, figure) if figure in self.runs else {}
        return self._known[figure, False]

    def all_values(self, figure: str) -> Mapping[str, Sequence[float]]:
        """Return a figure of each cell's valid measured runs where 0 is one, too."""
        if (figure, True) not in self._known:
            good = counted(self.runs, [figure]).dropna(subset=[figure]) if figure in self.runs else self.runs.head(0)
            self._known[figure, True] = by_cell(good, figure) if len(good) else {}
        return self._known[figure, True]


def cells_of(rows: pd.DataFrame, more: Iterable[str] = ()) -> list[Cell]:
    """Return the done rows as cells; what a benchmark does not have is empty."""
    columns = list(dict.fromkeys([*EVIDENCE, *COLUMNS, *more]))
    done = rows[rows["status"] == "done"].reindex(columns=columns).astype({"unstable": object})
    texts = ["accelerator", "site"]
    done[texts] = done[texts].astype(object).where(done[texts].notna(), "")
    return list(rows_of(done))


def neighbours(cells: Iterable[Cell], axis: str) -> list[tuple[Cell, Cell]]:
    """Return each cell with the one of the next larger value on an axis; a value of several cells is left out.

    Of those nobody knows which one to compare, and cells of one value say nothing of the axis.
    """
    known = list(cells)
    counts = Counter(cell[axis] for cell in known)
    return list(pairwise(sorted((cell for cell in known if counts[cell[axis]] == 1), key=lambda cell: cell[axis])))


def headings(sets: Mapping[Settings, pd.DataFrame], without: Iterable[str] = ()) -> dict[Settings, str]:
    """Return in words what each set of cells, by its key, is about; settings that are shown elsewhere are left out."""
    facts = {key: {name: it for name, it in key.facts.items() if name not in set(without)} for key in sets}
    apart = distinguishing(list(facts.values()))
    return {
        key: describe(facts[key], apart, cells.get("accelerator", ()), cells["size"]) for key, cells in sets.items()
    }
