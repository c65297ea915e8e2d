"""A figure before it is drawn (`FigureSpec`), and the text of its caption."""

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
from analysis.statistics.medians import counted_runs, values_by_cell
from analysis.statistics.selection import saving_in_words, setting_sort_key
from analysis.text import DAGGER, DASH
from jobs.judging.intervals import interval_of_median

# Limits of what a reader can take in: figures of one kind (one per set of settings), and values along one axis.
MOST_SETS = 12
MOST_VALUES = {"storage": 12, "threads": 32, "batch_size": 24, "prefetch": 6, "target": 16}
# From so many runs on a whisker is the interval of the median: of fewer runs it would be their minimum and maximum.
RUNS_OF_INTERVAL = 6
# {column of a chart: metric of a run}
RENAMED = {"runtime_s_": "wall_s", "checkpoint_s_": "snapshot_blocked_s"}


@dataclass(frozen=True, eq=False)
class FigureSpec:
    """One figure before it is drawn: its file name, its words, its numbers, and the function that draws them.

    The function takes the table (a row without numbers shows its status, if it has a place), the title and the caption.
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
        """Draw the figure."""
        return self.function(self.frame, self.title, self.caption)


def figure_specs(  # noqa: PLR0913, PLR0917 - what a figure is made of
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
    """Return one figure per set of cells that is worth a figure; of more than `MOST_SETS` those with most done cells.

    Parameters
    ----------
    stem
        Name of the figure's files; with several sets, a suffix of the settings that distinguish them follows.
    sets
        The cells of each set of settings.
    drawn
        Returns the chart's table from the cells of a set, with their `status`.
    what
        Returns the caption's first sentences from the settings, the shown cells and the chart's table.
    always, hidden
        Settings that a caption names always; settings that it never names, even if they distinguish sets.
    worth
        Says whether a chart's table is worth a figure; a set without a done cell gives none.
    sizes
        Whether the cells may have data sets of several sizes.
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
    """Return the cells at `MOST_VALUES` evenly spaced values per axis at most, and words on each axis that was cut."""
    cuts = []
    for name in axes:
        values, most = sorted(set(cells[name]), key=setting_sort_key) if name in cells else [], MOST_VALUES[name]
        if len(values) > most:
            drawn = {values[place * (len(values) - 1) // (most - 1)] for place in range(most)}
            cells = cells[cells[name].isin(drawn)]
            cuts.append(f"{most} of {len(values)} values of {name}")
    return cells, cuts


def sentence_on_cut(cuts: Sequence[str]) -> str:
    """Return the caption's sentence on the part that is drawn and the place of the rest; empty if all is drawn."""
    return f" Drawn are {' and '.join(cuts)}; the medians of all are in tables/medians.csv." if cuts else ""


def caption(
    facts: Mapping[str, object], apart: Iterable[str], shown: pd.DataFrame, what: str, *, sizes: bool = False
) -> str:
    """Return the caption: the statistic (`what`), the settings, the hosts and the software.

    It also says why the cells cannot be compared, if they differ (`sizes`: data sets of several sizes are allowed), or
    that some were judged by looser checks than their site's.
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
    """Return the caption's sentences on the statistic: the number of runs, the meaning of whiskers and dagger.

    `what` names the unstable metric if it is not the one that is drawn.
    """
    few, many = int(shown["n_valid"].min()), int(shown["n_valid"].max())
    if many == 1:
        return f"A single valid run per {mark} (n = 1)."
    count = f"n = {few}" if few == many else f"n = {few}{DASH}{many}, see {mark}s"
    ends, many_runs = f"min{DASH}max", "the interval of the median"
    if many >= RUNS_OF_INTERVAL:
        ends = f"({many_runs})" if few >= RUNS_OF_INTERVAL else f"({ends}; from {RUNS_OF_INTERVAL} runs on {many_runs})"
    # Rounded down: what is claimed must hold.
    sure = math.floor(10_000 * min(map(_confidence, {*shown["n_valid"]} - {1}))) / 100
    words = f"Median of valid runs ({count}); whiskers {ends} hold the true median with p ≥ {sure:g} %."
    words += " A single run has none." if few == 1 else ""
    unstable = shown["unstable"].eq(other=True).any()
    return f"{words} {DAGGER} unstable: {what}min{DASH}max wider than checks.spread_max." if unstable else words


def _confidence(n: int) -> float:
    """Return the probability that the whisker of n independent runs holds the true median."""
    whisker = interval_of_median(range(n)) if n >= RUNS_OF_INTERVAL else None
    return whisker.confidence if whisker else 1 - 2.0 ** (1 - n)


def add_intervals(spec: FigureSpec, table: pd.DataFrame, runs: pd.DataFrame) -> FigureSpec:
    """Return the spec with the interval of the median (`_low`, `_high`) of each `_min`, where cells have enough runs.

    A column that is no metric of a run is named in `RENAMED`, or else is the figure of merit of its cell.
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
        values = {each: values_by_cell(counted_runs(runs, [each]).dropna(), each) for each in {*metrics} & {*runs}}
        intervals = [interval_of_median(values[each].get(cell, ())) if each in values else None
                 for cell, each in zip(cells, metrics, strict=True)]  # fmt: skip
        ends = {f"{name}{end}": [getattr(it, end) if it else math.nan for it in intervals] for end in ("low", "high")}
        frame = frame.assign(**ends)
    return replace(spec, frame=frame)


def caption_of_runs(mark: str = "bar") -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    """Return a function that returns the caption's sentences on the statistic and the number of runs."""
    return lambda _, shown, _frame: f"{sentences_on_statistic(shown, mark)} {sentence_on_counts(shown)}"


def caption_of_checkpoints(key: Settings, shown: pd.DataFrame, _frame: pd.DataFrame) -> str:
    """Return the caption's sentences on the statistic of a figure of checkpoints and on how they were saved."""
    words = sentences_on_statistic(shown, what="runtime's ")
    counts, saving = sentence_on_counts(shown), saving_in_words(key.facts, shown)
    return f"{words} Of a run, the median of its checkpoints. {counts} {saving}"


def sentence_on_counts(shown: pd.DataFrame) -> str:
    """Return the caption's sentence on the number of runs and cells of a whole figure."""
    runs, cells = int(shown["n_valid"].sum()), len(shown)
    return f"{runs} run{'s' * (runs > 1)} of {cells} cell{'s' * (cells > 1)}."


def _listed(values: pd.Series[str]) -> str:
    return ", ".join(sorted(set(values) - {""}))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
