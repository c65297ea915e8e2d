"""How many runs a cell lacks: those that it was asked for and does not have, and those that ``until_spread`` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from campaign.cells import adaptive
from jobs import checks

if TYPE_CHECKING:
    from collections.abc import Mapping

    # A record, or None where there is none.
    Known = Mapping[str, Any] | None


def owed_runs(record: Known, conduct: Mapping[str, Any]) -> int:
    """Count the measured runs that were asked for and are still to be had; a done cell owes no more than it lacks.

    A cell that was found done keeps its few invalid runs unrepeated; one that was not gets each of them anew.
    """
    wanted = int(conduct["runs"]) - int(conduct["warmup_runs"])
    if record is None:
        return wanted
    counted = measured(record, None if record["status"] == "done" else "valid")
    return max(0, wanted - len(counted))


def missing_runs(record: Known, conduct: Mapping[str, Any]) -> int:
    """Count the measured runs that are still to be had, at least: those owed, else one where one is to be added."""
    return owed_runs(record, conduct) or int(record is not None and reason_to_add(record, conduct) is not None)


def most_missing_runs(record: Known, conduct: Mapping[str, Any]) -> int:
    """Count the measured runs that may be still to be had, if ``until_spread`` adds all that it may."""
    least = missing_runs(record, conduct)
    room = adaptive.most_runs(conduct) - (len(measured(record, "valid")) if record else 0)
    return max(least, room) if least else 0


def reason_to_add(record: Mapping[str, Any], conduct: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return why a cell that has all the runs it was asked for is to have another; None where it is not."""
    if not adaptive.asked(conduct):
        return None
    return adaptive.reason_to_add(rates(record), conduct)


def rates(record: Mapping[str, Any]) -> list[float]:
    """Return what each run that counts achieved: images/s, of a baseline MB/s."""
    return [rate for run in measured(record, "valid") if (rate := checks.rate(run)) is not None]


def measured(record: Mapping[str, Any], status: str | None = None) -> list[dict[str, Any]]:
    """List the measured runs (not the warm-ups), all or those of one status."""
    return [run for run in record["runs"] if run["role"] == "measured" and status in (None, run["status"])]
