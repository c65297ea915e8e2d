"""What a worker does where others disturb its runs: it says so, waits until they are quiet, and ends in time.

Runs that others disturb do not count (`jobs.checks.quiet`); without this, a machine that is never quiet would have all
of them measured and thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from campaign.errors import NotQuietError
from jobs import checks
from jobs.checks import Limits
from jobs.judging import disturbed
from jobs.model.codes import Wait, Waiting
from jobs.model.conduct import Conduct
from jobs.model.results import Check, Run
from jobs.observe import counters
from jobs.system.device import device_of
from jobs.system.layers import layers

SPOILED_RUNS = 2  # the first may be a moment's; a second one in succession is a neighbour's that stays
_LOOK_S, _SAY_S = 1.0, 5.0  # of one look at the counters, and between two words about it


class Disturbance:
    """Watches over the runs of one cell; `folder` is where its data lie, `report` is told what is waited for."""

    def __init__(self, conduct: Conduct, folder: Path, report: Callable[[Wait], None]) -> None:
        self._limits, self._patience_s = conduct["checks"], conduct["wait_quiet_s"]
        self._folder, self._report = folder, report
        self._failed: list[Check] = []  # of the last runs, as many as were disturbed in succession
        self._has_waited = False

    def let_go_on(self, run: Run) -> bool:
        """Return whether another run may count after this one; waits where others disturbed several in succession.

        They cannot where the machine is quiet but for the runs: what is done for a run by others is not told from
        others' own.

        Raises
        ------
        NotQuietError
            The machine did not become quiet.
        """
        failed = disturbed.failed_checks([run])
        self._failed = [*self._failed, *failed] if failed else []
        if self._patience_s is None or len(self._failed) < SPOILED_RUNS:
            return True
        if self._has_waited:
            return False
        self._wait(self._patience_s)
        self._failed, self._has_waited = [], True
        return True

    def _wait(self, patience_s: float) -> None:
        allowing = disturbed.allowing(self._failed, self._limits)
        spoiled = f"{len(self._failed)} runs in succession were disturbed, {self._failed[-1]['message']}"
        began = report_at = time.monotonic()
        while (now := look(self._folder, self._limits))["passed"] is False:
            waited_s = time.monotonic() - began
            if waited_s >= patience_s:
                raise NotQuietError(
                    f"{spoiled}; the machine did not become quiet in {patience_s:g} s",
                    f"the same command when it is quiet, {allowing} to let such runs count here, or wait_quiet_s=…"
                    " to wait longer",
                )
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + _SAY_S
                wait: Wait = {"code": Waiting.QUIET, "seconds": patience_s, "words": spoiled, "allowing": allowing}
                self._report({**wait, "now": f"{now['message']}, {waited_s:.0f} s so far"})


def look(folder: Path, limits: dict[str, float]) -> Check:
    """Return the check `quiet` of a second in which nothing of ours runs."""
    there = folder.is_dir()
    device, lowest = (device_of(folder), layers(folder).lowest) if there else (None, None)
    before = counters.reading(device, lowest)
    time.sleep(_LOOK_S)
    after = counters.reading(device, lowest)
    idle = {**counters.between(before, after), "device_use": counters.device_use(before, after)}
    return checks.quiet(cast("Run", idle), Limits(**limits))
