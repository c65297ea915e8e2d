"""Define the kinds of comparison that claims use. A comparison is a callable that takes a set of cells."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from analysis.claims.cell_sets import Cell, CellSet, Values, neighbouring_pairs
from analysis.claims.claim import Finding
from analysis.statistics.ratio import ratio_of_medians
from analysis.text import join_values

SHARE, TIMES, MB_PER_S, MB, SECONDS, CALLS = "share", "times", "MB/s", "MB", "s", "calls"
ENDS = ("least", "most")
"""The argument of `pairs_along` for the smallest and the largest value of an axis that all lines of cells have."""

Steps = Mapping[str, Finding]
"""A mapping from a step's name to its finding. A step is the ratio of a pair of cells, or a ratio of two ratios."""
Choice = Callable[[Steps], Steps]
Pairs = Callable[[CellSet], Iterable[tuple[Cell, Cell]]]
Where = Callable[[Cell], bool]


def median_finding(values: Sequence[float], unit: str, cells: Iterable[Cell], words: Mapping[str, Any]) -> Finding:
    """Return a finding with the median of a list of values, and with the minimum and the maximum as interval."""
    return Finding(statistics.median(values), min(values), max(values), unit, tuple(cells), words)


def ratio_finding(values: Values, above: Cell, below: Cell) -> Finding:
    """Return the median of cell `above` divided by the median of cell `below`, with its 95 % interval.

    `values` has the values of a metric in the runs of each cell. All values must be greater than 0.
    """
    of_medians = ratio_of_medians(values[below["cell"]], values[above["cell"]])
    return Finding(of_medians.value, of_medians.low, of_medians.high, TIMES, (below, above))


def ratio_of_ratios(above: Finding, below: Finding) -> Finding:
    """Return the ratio of two ratios, with an interval from the opposite ends of the two ratios' intervals."""
    ends = above.ours / below.ours, above.low / below.high, above.high / below.low
    return Finding(*ends, TIMES, (*above.cells, *below.cells))


def step_with_all_cells(name: str, steps: Steps) -> Steps:
    """Return the named step with the cells of all steps, because the step was chosen by comparing all steps."""
    cells = {cell["cell"]: cell for each in steps.values() for cell in each.cells}
    return {name: replace(steps[name], cells=tuple(cells.values()))}


def weakest_step(steps: Steps) -> Steps:
    """Return the step whose interval has the lowest lower end, as a mapping with one item.

    Return an empty mapping if there are no steps.
    """
    return step_with_all_cells(min(steps, key=lambda name: steps[name].low), steps) if steps else {}


def lower_median_step(steps: Steps) -> Steps:
    """Return the lower median of several steps, because more than half of the steps reach its value or exceed it.

    Return an empty mapping for fewer than two steps.
    """
    names = sorted(steps, key=lambda name: steps[name].ours)
    return step_with_all_cells(names[(len(names) - 1) // 2], steps) if len(names) > 1 else {}


def nearest_step(number: float) -> Choice:
    """Return a function that chooses the step whose value is nearest to a number."""
    return lambda steps: dict(sorted(steps.items(), key=lambda item: abs(item[1].ours - number))[:1])


def pairs_along(axis: str, *values: Any, per: Sequence[str] = ("storage",), where: Where = lambda _: True) -> Pairs:
    """Return a function that makes pairs of cells along an axis, which is a setting such as `threads`.

    Cells are paired only within a line, which consists of the cells with equal settings `per`. With `values`, the cells
    at successive `values` of the axis are paired. `values` may also be `ENDS`. Without `values`, each cell is paired
    with the cell that has the next larger value. Only cells for which `where` returns true are paired.
    """

    def pairs(group: CellSet) -> list[tuple[Cell, Cell]]:
        lines: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in filter(where, group.cells):
            lines.setdefault(tuple(cell[name] for name in per), []).append(cell)
        if not values:
            return [pair for line in lines.values() for pair in neighbouring_pairs(line, axis)]
        at = [{cell[axis]: cell for cell in line} for line in lines.values()]
        common = set.intersection(*(set(line) for line in at)) if len(at) > 1 else set()
        chain = values if values != ENDS else (min(common), max(common)) if len(common) > 1 else ()
        whole = [line for line in at if set(chain) <= set(line)]
        return [pair for line in whole for pair in pairwise(line[value] for value in chain)]

    return pairs


@dataclass(frozen=True)
class CellRatio:
    """A comparison by the ratio of a metric in two cells: the second cell of a pair divided by the first cell.

    Attributes
    ----------
    metric
        A metric of the runs. `a/b` is the metric `a` divided by the metric `b`, run by run.
    pairs
        A function that returns the pairs of cells of a set.
    falls
        Whether the claim says that the metric falls. The ratio is then the first cell divided by the second cell.
    share
        Whether the value of a finding is the ratio minus 1.
    choose
        A function that chooses the step from which the verdict follows. If None, each step has its own verdict.
    name
        The format of a step's name, with the cells `first` and `second`.
    entry
        The format of a step in the words of a finding.
    rate
        The format of a cell's median in the words of a finding.
    """

    metric: str
    pairs: Pairs
    inverted: bool = False
    share: bool = False
    choose: Choice | None = weakest_step
    name: str = "{first[storage]}"
    entry: str = "{name} {ours:.2f}"
    rate: str = "{cell[storage]} {median:.4g}"

    def __call__(self, group: CellSet) -> Iterator[Finding]:
        """Yield the findings from which the verdicts on a set of cells follow."""
        steps = self.steps(group)
        for name, chosen in (self.choose or dict)(steps).items():
            words = self.words(group, steps if self.choose else {name: chosen})
            yield replace(chosen, words=words | self.ends(steps[name]) | {"which": name})

    def steps(self, group: CellSet) -> dict[str, Finding]:
        """Return a mapping from a step's name to its finding, with one step per pair of cells."""
        values, steps = group.values(self.metric), {}
        measured = [cell for cell in group.cells if cell["cell"] in values]
        for first, second in self.pairs(replace(group, cells=measured)):
            step = ratio_finding(values, first, second) if self.inverted else ratio_finding(values, second, first)
            if self.share:
                step = replace(step, ours=step.ours - 1, low=step.low - 1, high=step.high - 1, unit=SHARE)
            steps[self.name.format(first=first, second=second)] = step
        return steps

    def words(self, group: CellSet, steps: Steps) -> dict[str, Any]:
        """Return the words of a finding: the steps, the number of steps, and the median of each compared cell."""
        entries = (self.entry.format(name=name, ours=step.ours, **self.ends(step)) for name, step in steps.items())
        cells = [cell for step in steps.values() for cell in self.ends(step).values()]
        values = group.values(self.metric)
        rates = (self.rate.format(cell=cell, median=statistics.median(values[cell["cell"]])) for cell in cells)
        nearer = ", the nearer counts" if len(steps) > 1 else ""
        return {"steps": join_values(entries), "nearer": nearer, "n": len(steps), "rates": join_values(rates)}

    def ends(self, step: Finding) -> dict[str, Cell]:
        """Return the first and the second cell of a step."""
        below, above = step.cells
        return {"first": above, "second": below} if self.inverted else {"first": below, "second": above}


@dataclass(frozen=True)
class RatioOfRatios:
    """A comparison by the ratio of two gains, where a gain is a ratio of two cells (`CellRatio`).

    The gain of each storage in `above` is divided by the gain of each storage in `below`. If `below` is empty, all
    other storages are used. All storages in `above` and `below` must be measured. If `after` is given, the gain of a
    line of cells is instead divided by the gain `after` of the same line. The verdict follows from the weakest ratio.
    """

    gain: CellRatio
    after: CellRatio | None = None
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    def __call__(self, group: CellSet) -> Iterator[Finding]:
        """Yield the finding from which the verdict on a set of cells follows, if the set has such a ratio."""
        gains = self.gain.steps(group)
        later = self.after.steps(group) if self.after else gains
        names = {name: gains[name].cells[0]["name"] for name in gains if name in later}
        above = {storage: name for name, storage in names.items() if storage in self.above}
        below = {storage: name for name, storage in names.items() if storage in self.below}.values()
        if self.after:
            pairs = {name: (name, name) for name in (above.values() if self.above else names)}
        else:
            others = [name for name, storage in names.items() if storage not in self.above]
            whole = {*self.above, *self.below} <= {*names.values()}
            pairs = {f"{one} {two}": (above[one], two) for one in self.above for two in below or others if whole}
        steps = {name: ratio_of_ratios(gains[one], later[two]) for name, (one, two) in pairs.items()}
        for name, chosen in weakest_step(steps).items():
            gain, last = gains[pairs[name][0]], later[pairs[name][1]]
            words = self.gain.words(group, gains) | self.gain.ends(gain) | {"gain": gain.ours, "last": last.ours}
            entries = join_values(f"{each} {step.ours:.2f}" for each, step in steps.items())
            yield replace(chosen, words=words | {"which": name, "gains": words["steps"], "steps": entries})


@dataclass(frozen=True)
class CellMetrics:
    """The metrics of the runs of one cell: `metrics[name]` returns the median, or 0 if the runs have no value."""

    group: CellSet
    cell: Cell

    def __getitem__(self, metric: str) -> float:
        """Return the median of a metric over the runs, or 0 if the runs have no value."""
        return statistics.median(self.values(metric, zeros=True) or [0.0])

    def values(self, metric: str, *, zeros: bool = False) -> Sequence[float]:
        """Return the values of a metric in the runs. Values of 0 or less are left out if `zeros` is false."""
        return self.group.values(metric, zeros=zeros).get(self.cell["cell"], ())


@dataclass(frozen=True)
class CellQuantity:
    """A quantity of a single cell: the median of some values, with their minimum and maximum.

    `of` is the name of a metric, or a function that returns the values of a cell. If `pooled` is true, the values of
    all cells together give one median.
    """

    of: str | Callable[[CellMetrics], Sequence[float]]
    unit: str
    where: Where = lambda _: True
    pooled: bool = False

    def __call__(self, group: CellSet) -> Iterator[Finding]:
        """Yield the findings from which the verdicts on a set of cells follow."""
        metrics = [CellMetrics(group, cell) for cell in group.cells if self.where(cell)]
        values_of = [(one, one.values(self.of) if isinstance(self.of, str) else self.of(one)) for one in metrics]
        measured = [(one, values) for one, values in values_of if values]
        for part in [measured] if self.pooled and measured else [[one] for one in measured]:
            values, cells = [value for _, values in part for value in values], [one.cell for one, _ in part]
            words = {
                "median": part[0][0], "cell": cells[0], "cells": len(cells), "n": len(values),
                "host": cells[0]["host"] or "an unknown host",
                "accelerators": join_values(cell["accelerator"] for cell in cells),
            }  # fmt: skip
            yield median_finding(values, self.unit, cells, words)
