"""Cells, made from the points (composed configurations) of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from campaign import console
from campaign.cells.cell import Cell, make_cell
from campaign.config import rules
from campaign.errors import RefusalsError, UsageError, refuse
from jobs.model.conduct import Conduct, Point
from jobs.model.settings import EVERY, flat


def cells_of(points: Sequence[Point]) -> tuple[list[Cell], Conduct]:
    """Check the points; return each cell once, in order, and the settings of the campaign's conduct."""
    if not points:
        raise UsageError("the grid has no points", "a glob() that matches nothing? name the values one by one")
    cells: dict[str, Cell] = {}
    refusals = rules.refusals(points[0])
    conduct = _conduct(points[0])
    values_of = _FlatPoints()
    for point in console.counting(points, "checking cells"):
        try:
            refusals += (refused := rules.refusals(point, values_of(point)))
            if refused:
                continue
            if _conduct(point) != conduct:
                raise _swept_conduct(conduct, _conduct(point))
            cell = make_cell(point)
        except UsageError as error:
            if refusals:  # of the points before
                raise RefusalsError([*refusals, (error.message, error.hint)]) from error
            raise
        cells.setdefault(cell.id, cell)
    refuse(refusals)
    if conduct["profile"]["compare"] and all(
        point["profile"]["posix"] == point["profile"]["tensorflow"] == "none" for point in points
    ):
        raise UsageError(
            "profile.compare=true without a profile: there is nothing to compare",
            "profile.posix=trace or profile.tensorflow=5-15, say; each of its runs then has one without beside it",
        )
    return list(cells.values()), conduct


class _FlatPoints:
    """Points by dotted keys; a node that a point shares with the one before is walked once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, dict[str, Any]]] = {}

    def __call__(self, point: Point) -> dict[str, Any]:
        """Return the settings of a point by dotted keys."""
        values: dict[str, Any] = {}
        for key, node in point.items():
            if not isinstance(node, dict):
                values[key] = node
                continue
            if key not in self._last or self._last[key][0] is not node:
                self._last[key] = node, dict(flat(node, f"{key}."))
            values |= self._last[key][1]
        return values


def _conduct(point: Point) -> Conduct:
    conduct = {key: value for key, value in point.items() if key not in EVERY}
    return cast("Conduct", {**conduct, "profile": {"compare": point["profile"]["compare"]}})


def _swept_conduct(one: Conduct, other: Conduct) -> UsageError:
    before, after = dict(flat(one)), dict(flat(other))
    key = next(key for key in (*before, *after) if before.get(key) != after.get(key))
    return UsageError(
        f"{key} has several values ({before.get(key)}, {after.get(key)}): it says how the campaign is run, not what",
        f"give {key} one value, or start one campaign for each",
    )
