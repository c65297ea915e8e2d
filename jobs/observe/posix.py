"""Observer of every POSIX call of a run, where its cell asks for it (`jobs.profiler`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import steps
from jobs.observe.observer import Observer

if TYPE_CHECKING:
    from jobs.model.request import Request
    from jobs.profiler import Profile
    from jobs.ready_run import Work


class Profiled(Observer, steps.Watcher):
    """The POSIX and STDIO calls on the data set and on what holds the snapshots; the bytes of all files."""

    place = 90
    gives = ("profile",)

    def __init__(self, request: Request, work: Work) -> None:
        super().__init__(request, work)
        self._profile: Profile | None = None
        asked = request["settings"].get("profile", {})
        mode, self._every = asked.get("posix", "none"), asked.get("every")
        if mode != "none" and (file := request.get("profile")):
            from jobs.profiler import Profile  # noqa: PLC0415 - seldom asked for

            folders = [*work.folders, *(work.checkpoints.folders if work.checkpoints else ())]
            self._profile, self._file = Profile(mode, only=folders), Path(file)

    def start(self) -> None:
        """Open the window; the calls of this process are redirected now, outside the clock."""
        if self._profile:
            self._profile.start()
            if self._every:
                steps.watch(self)

    def end(self, number: int) -> None:
        """Begin a part of the window after every so many steps."""
        if self._profile and self._every and number % self._every == 0:
            self._profile.mark()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """End it."""
        steps.unwatch(self)
        if self._profile:
            self._profile.stop()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``profile``: what `jobs.profiler.report.figures` says, and ``file``, its name.

        ``file`` is None where it could not be written; then ``error`` says why.
        """
        if self._profile is None:
            return {}
        from jobs.profiler import detach, report  # noqa: PLC0415

        detach()
        file, error = self._file, None
        try:
            self._profile.save(file)
        except OSError as fault:
            error = str(fault)
        return {
            "profile": {"file": None if error else file.name, "error": error, **report.figures(self._profile.window)}
        }


OBSERVER = Profiled
