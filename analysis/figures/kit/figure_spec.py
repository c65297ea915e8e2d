"""Describe a figure before it is drawn (`FigureSpec`), and write the caption of the figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pandas as pd
from matplotlib.figure import Figure

from analysis.records.frame import rows_of
from analysis.records.settings import Settings, describe_settings, distinguishing_names, file_name_suffixes
from analysis.statistics import comparable
from analysis.statistics.medians import valid_measured_runs, values_by_cell
from analysis.statistics.selection import saving_in_words, setting_sort_key
from analysis.text import DAGGER, DASH
from jobs.judging.intervals import interval_of_median

# A report has at most `MOST_SETS` figures of one kind, one figure per set of settings, and an axis has at most
# `MOST_VALUES` values, because a reader cannot survey more.
MOST_SETS = 12
MOST_VALUES = {"storage": 12, "threads": 32, "batch_size": 24, "prefetch": 6, "target": 16}
# If a cell has at least this number of runs, its whisker is the interval of the median. With fewer runs, the interval
# would be the range from minimum to maximum.
RUNS_OF_INTERVAL = 6
# The metric of a run for each column of a chart that has another name than the metric.
RENAMED = {"runtime_s_": "wall_s", "checkpoint_s_": "snapshot_blocked_s"}


@dataclass(frozen=True, eq=False)
class FigureSpec:
    """One figure before it is drawn: its file stem, title, caption, table of numbers, and the function that draws it.

    `function` takes the table, the title and the caption. For a row without numbers, the function writes the status of
    the cell in the figure, if the figure has a place for this cell.
    """

    stem: str
    title: str
    caption: str
    frame: pd.DataFrame
    function: Callable[[pd.DataFrame, str, str], Figure]

    @property
    def left_out(self) -> pd.DataFrame:
        """The rows of the cells that belong to this figure but are not drawn, with their status."""
        return self.frame[(self.frame["status"] != "done") & (self.frame["cell"] != "")]

    def drawn(self) -> Figure:
        """Return the drawn figure."""
        return self.function(self.frame, self.title, self.caption)


def figure_specs(  # noqa: PLR0913, PLR0917 - all parameters are needed to describe a figure
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
    """Return one figure per set of cells.

    A set without a done cell gets no figure. If there are more than `MOST_SETS` sets, the sets with most done cells get
    a figure.

    Parameters
    ----------
    stem
        The name of the figure's files. If there are several sets, a suffix with the distinguishing settings follows.
    title
        The title of all figures.
    function
        The function that draws a figure from the table, the title and the caption.
    sets
        The cells of each set of settings.
    drawn
        A function that returns the table of the chart from the cells of a set. The table has a column `status`.
    what
        A function that returns the first sentences of the caption from the settings, the shown cells and the table.
    always
        Settings that a caption always names.
    hidden
        Settings that a caption never names, even if the settings distinguish sets.
    worth
        A function that returns whether a figure is made from the table of a chart.
    sizes
        Whether the cells of a set may have datasets of several sizes.
    """
    done_cells = {key: number for key, cells in sets.items() if (number := int((cells["status"] == "done").sum()))}
    most_done = (
        sorted(done_cells, key=lambda key: -done_cells[key]) if len(done_cells) > MOST_SETS else list(done_cells)
    )
    legible_sets = ((key, *thin_out_axes(sets[key])) for key in most_done)
    candidates = ((key, cells, cuts, drawn(cells)) for key, cells, cuts in legible_sets)
    chosen = list(islice((each for each in candidates if worth(each[-1])), MOST_SETS))
    keys = [key for key, *_ in chosen]
    names = file_name_suffixes(keys) if keys else {}
    apart = [*always, *(name for name in distinguishing_names([key.facts for key in keys]) if name not in hidden)]
    of_all = [f"{MOST_SETS} of {len(done_cells)} sets of settings, a figure each"] * (
        len(chosen) == MOST_SETS < len(done_cells)
    )
    charts = []
    for key, cells, cuts, frame in chosen:
        done = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        shown = cells if done.empty else done
        ahead = sorted(set(cells["prefetch"].dropna())) if "prefetch" in cells else ()
        facts = {**key.facts, **({"prefetch": " and ".join(map(str, ahead))} if ahead else {})}
        text = caption(
            facts,
            dict.fromkeys(apart),
            shown,
            f"{what(key, shown, frame)}{sentence_on_cut([*cuts, *of_all])}",
            sizes=sizes,
        )
        charts.append(FigureSpec("-".join(filter(None, (stem, names[key]))), title, text, frame, function))
    return charts


def thin_out_axes(cells: pd.DataFrame, axes: Iterable[str] = tuple(MOST_VALUES)) -> tuple[pd.DataFrame, list[str]]:
    """Return the cells at no more than `MOST_VALUES` evenly chosen values of each axis.

    Also return a phrase for each axis on which values were left out.
    """
    cuts = []
    for name in axes:
        values, most = sorted(set(cells[name]), key=setting_sort_key) if name in cells else [], MOST_VALUES[name]
        if len(values) > most:
            drawn = {values[place * (len(values) - 1) // (most - 1)] for place in range(most)}
            cells = cells[cells[name].isin(drawn)]
            cuts.append(f"{most} of {len(values)} values of {name}")
    return cells, cuts


def sentence_on_cut(cuts: Sequence[str]) -> str:
    """Return a sentence for the caption that tells what was left out of the figure, or `""` if all cells are drawn."""
    return f" Drawn are {' and '.join(cuts)}; the medians of all are in tables/medians.csv." if cuts else ""


def caption(
    facts: Mapping[str, object], apart: Iterable[str], shown: pd.DataFrame, what: str, *, sizes: bool = False
) -> str:
    """Return the caption of a figure: the sentences `what`, the settings, the hosts and the software.

    The caption also has a warning if the cells cannot be compared, or if cells were judged by looser checks than the
    checks of the site. If `sizes` is true, cells may have datasets of several sizes.
    """
    hosts, versions = _listed(shown["host"]), _listed(shown["tensorflow"])
    where = f"Host{'s' * (',' in hosts)} {hosts}" if hosts else "Host unknown"
    software = f"; TensorFlow {versions}" if versions else ""
    ran_on = shown.get("accelerator", ())
    cells = rows_of(shown.reindex(columns=comparable.COLUMNS))
    unlike = comparable.forbidding_differences(cells, across=True, sizes=sizes)
    warning = f" Not comparable ({unlike})." if unlike else ""
    warning += f" Some cells are {loose}." if (loose := comparable.sentence_on_looser_checks(cells)) else ""
    return f"{what} {_capital(describe_settings(facts, apart, ran_on, shown['size']))}. {where}{software}.{warning}"


def sentences_on_statistic(shown: pd.DataFrame, mark: str = "bar", what: str = "") -> str:
    """Return sentences for the caption on the number of runs and on the meaning of bars, whiskers and daggers.

    `mark` is the word for what shows a median (bar or point). If the figure does not draw the metric whose spread makes
    a cell unstable, `what` names this metric.
    """
    few, many = int(shown["n_valid"].min()), int(shown["n_valid"].max())
    if many == 1:
        return f"A single valid run per {mark} (n = 1)."
    count = f"n = {few}" if few == many else f"n = {few}{DASH}{many}, see {mark}s"
    ends, many_runs = f"min{DASH}max", "the interval of the median"
    if many >= RUNS_OF_INTERVAL:
        ends = f"({many_runs})" if few >= RUNS_OF_INTERVAL else f"({ends}; from {RUNS_OF_INTERVAL} runs on {many_runs})"
    # The probability is rounded down, so that the caption does not claim more than is true.
    sure = math.floor(10_000 * min(map(_confidence, {*shown["n_valid"]} - {1}))) / 100
    words = f"Median of valid runs ({count}); whiskers {ends} hold the true median with p ≥ {sure:g} %."
    words += " A single run has none." if few == 1 else ""
    unstable = shown["unstable"].eq(other=True).any()
    return f"{words} {DAGGER} unstable: {what}min{DASH}max wider than checks.spread_max." if unstable else words


def _confidence(n: int) -> float:
    """Return the probability that the whisker of n independent runs contains the true median."""
    whisker = interval_of_median(range(n)) if n >= RUNS_OF_INTERVAL else None
    return whisker.confidence if whisker else 1 - 2.0 ** (1 - n)


def add_intervals(spec: FigureSpec, table: pd.DataFrame, runs: pd.DataFrame) -> FigureSpec:
    """Return the spec with the interval of the median in its table, for cells that have enough runs.

    For each column `<name>_min`, the columns `<name>_low` and `<name>_high` are added. A column that has no metric's
    name is renamed by `RENAMED`. A column that is not in `RENAMED` either has the main metric of its cell.
    """
    frame = spec.frame
    names = [name.removesuffix("min") for name in map(str, frame) if name == "min" or name.endswith("_min")]
    with_enough_runs = (frame["status"] == "done") & (
        frame.get("n_valid", pd.Series(0, frame.index)) >= RUNS_OF_INTERVAL
    )
    if not names or not with_enough_runs.any():
        return spec
    cells = frame["cell"].where(with_enough_runs.fillna(value=False))
    merits = dict(zip(table["cell"], table["figure"], strict=True))
    for name in names:
        metric = RENAMED.get(name, name).removesuffix("_")
        metrics = [metric if metric in runs else merits.get(cell, "") for cell in cells]
        values = {
            each: values_by_cell(valid_measured_runs(runs, [each]).dropna(), each) for each in {*metrics} & {*runs}
        }
        intervals = [interval_of_median(values[each].get(cell, ())) if each in values else None
                 for cell, each in zip(cells, metrics, strict=True)]  # fmt: skip
        ends = {f"{name}{end}": [getattr(it, end) if it else math.nan for it in intervals] for end in ("low", "high")}
        frame = frame.assign(**ends)
    return replace(spec, frame=frame)


def caption_of_runs(mark: str = "bar") -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    """Return a function that returns sentences for the caption on the statistic and on the number of runs and cells."""
    return lambda _, shown, _frame: f"{sentences_on_statistic(shown, mark)} {sentence_on_counts(shown)}"


def caption_of_checkpoints(key: Settings, shown: pd.DataFrame, _frame: pd.DataFrame) -> str:
    """Return sentences for the caption of a figure about checkpoints: the statistic, and how checkpoints were saved."""
    words = sentences_on_statistic(shown, what="runtime's ")
    counts, saving = sentence_on_counts(shown), saving_in_words(key.facts, shown)
    return f"{words} Of a run, the median of its checkpoints. {counts} {saving}"


def sentence_on_counts(shown: pd.DataFrame) -> str:
    """Return a sentence for the caption with the number of runs and cells in the whole figure."""
    runs, cells = int(shown["n_valid"].sum()), len(shown)
    return f"{runs} run{'s' * (runs > 1)} of {cells} cell{'s' * (cells > 1)}."


def _listed(values: pd.Series[str]) -> str:
    return ", ".join(sorted(set(values) - {""}))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
