"""Observer of control groups: whether a quota held the run back from the processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.observe.observer import Observer
from jobs.system import cgroup

if TYPE_CHECKING:
    from collections.abc import Mapping


class Processors(Observer):
    """The quota of this process, and the time for which it was used up."""

    place = 20

    def start(self) -> None:
        """Look up the quota, and how often it was used up before."""
        self._quota, self._before = cgroup.quota(), cgroup.throttled()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Look again."""
        self._after = cgroup.throttled()

    def figures(self) -> Mapping[str, Any]:
        """Return ``quota_cores``, None for no quota, and of a quota ``throttled_periods`` and ``throttled_s``."""
        if self._before is None or self._after is None:
            return {"quota_cores": self._quota}
        return {
            "quota_cores": self._quota,
            "throttled_periods": self._after.periods - self._before.periods,
            "throttled_s": self._after.seconds - self._before.seconds,
        }


OBSERVER = Processors
