"""A figure before it is drawn, and the words that stand under every one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pandas as pd
from matplotlib.figure import Figure

from analysis.records.frame import rows_of
from analysis.records.settings import Settings, describe, distinguishing, suffixes
from analysis.statistics import comparable
from analysis.statistics.selection import saved_how
from analysis.statistics.sweeps import orderly
from analysis.text.plain import DASH

# More than this nobody reads: figures of one kind, one for each set of settings, and values along one axis.
MOST_SETS = 12
MOST_VALUES = {"storage": 12, "threads": 32, "batch_size": 24, "prefetch": 6, "target": 16}


@dataclass(frozen=True, eq=False)
class FigureSpec:
    """One figure before it is drawn: its file name, its words, its numbers, and the function that draws them.

    The function takes the numbers (a row without figures shows its status, where it has a place), and the words above
    and below.
    """

    stem: str
    title: str
    caption: str
    frame: pd.DataFrame
    function: Callable[[pd.DataFrame, str, str], Figure]

    @property
    def left_out(self) -> pd.DataFrame:
        """The cells that belong here and are not drawn, each with its status."""
        return self.frame[(self.frame["status"] != "done") & (self.frame["cell"] != "")]

    def drawn(self) -> Figure:
        """Draw the figure."""
        return self.function(self.frame, self.title, self.caption)


def figures(  # noqa: PLR0913, PLR0917 - what a figure is made of
    stem: str,
    title: str,
    function: Callable[[pd.DataFrame, str, str], Figure],
    sets: Mapping[Settings, pd.DataFrame],
    drawn: Callable[[pd.DataFrame], pd.DataFrame],
    what: Callable[[Settings, pd.DataFrame, pd.DataFrame], str],
    *,
    always: Sequence[str] = (),
    hidden: Sequence[str] = (),
    worth: Callable[[pd.DataFrame], bool] = lambda frame: bool((frame["status"] == "done").any()),
    sizes: bool = False,
) -> list[FigureSpec]:
    """Return a figure for each set of cells that is worth it, for those with most cells done where there are many.

    Parameters
    ----------
    stem
        Name of the files of a lone set; of several each has what distinguishes it behind.
    sets
        The cells by their settings.
    drawn
        Returns what is drawn of the cells of a set, with their `status`.
    what
        Returns the caption's statistic from the settings, the cells that are shown, and what is drawn.
    always, hidden
        Settings that a caption names in any case, or not even where they distinguish sets.
    worth
        Says of what is drawn whether it makes a figure; without a cell that is done nothing does.
    sizes
        Whether the cells are to be of data sets of several sizes.
    """
    many = {key: number for key, cells in sets.items() if (number := int((cells["status"] == "done").sum()))}
    first = sorted(many, key=lambda key: -many[key]) if len(many) > MOST_SETS else list(many)
    clear = ((key, *legible(sets[key])) for key in first)
    known = ((key, cells, left, drawn(cells)) for key, cells, left in clear)
    chosen = list(islice((each for each in known if worth(each[-1])), MOST_SETS))
    keys = [key for key, *_ in chosen]
    names = suffixes(keys) if keys else {}
    apart = [*always, *(name for name in distinguishing([key.facts for key in keys]) if name not in hidden)]
    of_all = [f"{MOST_SETS} of {len(many)} sets of settings, a figure each"] * (len(chosen) == MOST_SETS < len(many))
    made = []
    for key, cells, left, frame in chosen:
        done = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        shown = cells if done.empty else done
        ahead = sorted(set(cells["prefetch"].dropna())) if "prefetch" in cells else ()
        facts = {**key.facts, **({"prefetch": " and ".join(map(str, ahead))} if ahead else {})}
        words = caption(
            facts, dict.fromkeys(apart), shown, f"{what(key, shown, frame)}{cut([*left, *of_all])}", sizes=sizes
        )
        made.append(FigureSpec("-".join(filter(None, (stem, names[key]))), title, words, frame, function))
    return made


def legible(cells: pd.DataFrame, axes: Iterable[str] = tuple(MOST_VALUES)) -> tuple[pd.DataFrame, list[str]]:
    """Return the cells at as many values of each axis as can be read, evenly spaced; and how many these are."""
    told = []
    for name in axes:
        values, most = sorted(set(cells[name]), key=orderly) if name in cells else [], MOST_VALUES[name]
        if len(values) > most:
            kept = {values[place * (len(values) - 1) // (most - 1)] for place in range(most)}
            cells = cells[cells[name].isin(kept)]
            told.append(f"{most} of {len(values)} values of {name}")
    return cells, told


def cut(told: Sequence[str]) -> str:
    """Return the sentence of a caption that says what alone is drawn, and where the rest is; empty for nothing."""
    return f" Drawn are {' and '.join(told)}; the medians of all are in tables/medians.csv." if told else ""


def caption(
    facts: Mapping[str, object], apart: Iterable[str], shown: pd.DataFrame, what: str, *, sizes: bool = False
) -> str:
    """Return what the reader must know: the statistic (`what`), the settings, the hosts and the software.

    And what keeps the cells from being compared, where they are unlike each other (of several `sizes` data sets are) or
    were judged by looser checks than their site's.
    """
    hosts, versions = _listed(shown["host"]), _listed(shown["tensorflow"])
    where = f"Host{'s' * (',' in hosts)} {hosts}" if hosts else "Host unknown"
    software = f"; TensorFlow {versions}" if versions else ""
    ran_on = shown.get("accelerator", ())
    cells = rows_of(shown.reindex(columns=comparable.COLUMNS))
    unlike = comparable.unlike(cells, across=True, sizes=sizes)
    warning = f" Not comparable ({unlike})." if unlike else ""
    warning += f" Some cells are {loose}." if (loose := comparable.looser(cells)) else ""
    return f"{what} {_capital(describe(facts, apart, ran_on, shown['size']))}. {where}{software}.{warning}"


def statistic(shown: pd.DataFrame, mark: str = "bar") -> str:
    """Return the statistic in words, with the number of runs and what min-max means for it."""
    few, many = int(shown["n_valid"].min()), int(shown["n_valid"].max())
    if many == 1:
        return f"A single valid run per {mark} (n = 1)."
    count = f"n = {few}" if few == many else f"n = {few}{DASH}{many}, see {mark}s"
    # Rounded down: what is claimed must hold.
    sure = math.floor(10_000 * float(shown["coverage"].min())) / 100
    return f"Median of valid runs ({count}); whiskers min{DASH}max hold the true median with p ≥ {sure:g} %."


def runs_told(mark: str = "bar") -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    """Return what tells the statistic and the number of runs of a figure."""
    return lambda _, shown, _frame: f"{statistic(shown, mark)} {how_many(shown)}"


def checkpoints_told(key: Settings, shown: pd.DataFrame, _frame: pd.DataFrame) -> str:
    """Return the statistic of a figure of checkpoints, and how these are made."""
    return (
        f"{statistic(shown)} Of a run, the median of its checkpoints. {how_many(shown)} {saved_how(key.facts, shown)}"
    )


def how_many(shown: pd.DataFrame) -> str:
    """Return the number of runs behind a whole figure."""
    runs, cells = int(shown["n_valid"].sum()), len(shown)
    return f"{runs} run{'s' * (runs > 1)} of {cells} cell{'s' * (cells > 1)}."


def _listed(values: pd.Series[str]) -> str:
    return ", ".join(sorted(set(values) - {""}))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
