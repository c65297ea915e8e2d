"""Profile a run, if the settings of the cell require a profile: POSIX calls, or TensorFlow's own profiler."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jobs import steps
from jobs.errors import JobError
from jobs.lazy_imports import tf
from jobs.model.work import RunRequest
from jobs.observe.observer import Observer
from jobs.ready_run import ReadyRun
from jobs.system import files

if TYPE_CHECKING:
    from jobs.events.posix_window import Window
    from jobs.profiler import Profile

_LARGEST_BYTES = 1 << 31  # largest trace of TensorFlow, because protobuf limits the size of one message


class PosixObserver(Observer, steps.Watcher):
    """Profiles the POSIX and STDIO calls on the data set and the snapshots; counts the bytes read from all files."""

    place = 90
    gives = ("profile",)

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        super().__init__(request, work)
        self._profile: Profile | None = None
        profile = request["settings"].get("profile", {})
        mode, self._every = profile.get("posix", "none"), profile.get("every")
        self._file = Path(file) if mode != "none" and (file := request.get("profile")) else None
        if self._file and not work.calls:
            from jobs.profiler import Profile  # noqa: PLC0415 - most runs need no profiler

            self._profile = Profile(mode, only=[*work.folders, *self.snapshot_folders])

    def start(self) -> None:
        """Open the window of the profile before the clock starts, so that the calls of this process are recorded."""
        if self._profile:
            self._profile.start()
            if self._every:
                steps.watch_steps(self)

    def end(self, number: int) -> None:
        """Begin a new part of the window if `profile.every` steps have passed."""
        if self._profile and self._every and number % self._every == 0:
            self._profile.mark()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Close the window of the profile."""
        steps.unwatch_steps(self)
        if self._profile:
            self._profile.stop()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``profile``: the totals of `jobs.profiler.report.window_metrics`, and the name of the ``file``.

        ``file`` is None if the file could not be written; then ``error`` has the reason.
        """
        if self._file is None:
            return {}
        from jobs.events import posix_window  # noqa: PLC0415 - most runs need no profiler
        from jobs.profiler import detach, report  # noqa: PLC0415

        if self._profile:
            detach()
        window = self._profile.window if self._profile else cast("Callable[[], Window]", self.work.calls)()
        file, error = files.resolve_user_path(self._file), None
        try:
            posix_window.write_window(file, window)
        except OSError as fault:
            error = str(fault)
        return {"profile": {"file": None if error else file.name, "error": error, **report.window_metrics(window)}}


class TensorFlowObserver(Observer, steps.Watcher):
    """Runs TensorFlow's profiler during a range of steps.

    If the range begins with step 1, the profiler starts before the clock.
    """

    place = 85
    gives = ("tensorflow",)

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        super().__init__(request, work)
        window, file = request["settings"].get("profile", {}).get("tensorflow", steps.NONE), request.get("tensorflow")
        self._file = Path(file) if file and window != steps.NONE else None
        self._first, self._last = steps.step_window(window if self._file else steps.ALL)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._open = False
        self._mark: Any = None
        self._error: str | None = None
        self._times = {"start_s": 0.0, "stop_s": 0.0}

    def start(self) -> None:
        """Watch the steps, and start the profiler now if the range begins with step 1."""
        if self._file:
            steps.watch_steps(self)
            if self._first == 1:
                self._start()

    def begin(self, number: int) -> None:
        """Start the profiler before the first step of the range, and begin the mark of each step."""
        if number == self._first and not self._open:
            self._start()
        if self._open:
            self._mark = tf.profiler.experimental.Trace(steps.MARK, step_num=number, _r=1)

    def end(self, number: int) -> None:
        """End the mark of a step, and stop the profiler after the last step of the range."""
        if self._mark:
            self._mark.__exit__(None, None, None)
            self._mark = None
        if self._open and number == self._last:
            self._stop()

    def part(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that marks a part of a step in TensorFlow's trace."""
        return tf.profiler.experimental.Trace(f"campaign {name}") if self._open else nullcontext()

    def stop(self, *, failed: bool) -> None:
        """Stop the profiler if the profiler still runs."""
        if self._file:
            steps.unwatch_steps(self)
            if self._open:
                self._stop(save=not failed)

    def _start(self) -> None:
        start = time.perf_counter()
        self._folder = tempfile.TemporaryDirectory(prefix="tfio-trace-")
        try:
            tf.profiler.experimental.start(self._folder.name)
            self._open = True
        except tf.errors.OpError as error:  # another TensorFlow profiler is running
            self._error = error.message
        self._times["start_s"] = time.perf_counter() - start

    def _stop(self, *, save: bool = True) -> None:
        start = time.perf_counter()
        self._open = False
        try:
            tf.profiler.experimental.stop(save=save)
        except tf.errors.OpError as error:
            self._error = error.message
        self._times["stop_s"] = time.perf_counter() - start

    def metrics(self) -> Mapping[str, Any]:
        """Return ``tensorflow``: the metrics of `jobs.events.step_times.record_metrics`, and the ``file`` of the table.

        ``file`` is None if there is no table; then ``error`` has the reason. ``start_s`` and ``stop_s`` are the times
        to start and stop the profiler. These times are part of ``other_s``, unless the profiler starts before the first
        step or stops after the last step of the run.
        """
        if not self._file:
            return {}
        from jobs.events import step_times, tensorflow_trace  # noqa: PLC0415 - most runs need no profiler

        times: Mapping[str, Any] = {}
        error = self._error or (None if self._folder else f"the run had no step {self._first}")
        try:
            if self._folder and not error:
                runtime = tensorflow_trace.read_trace(_only_trace(Path(self._folder.name)), _LARGEST_BYTES)
                tensorflow_trace.write_table(self._file, runtime)
                times = step_times.record_metrics(runtime)
        except (OSError, JobError) as fault:
            error = str(fault)
        finally:
            if self._folder:
                self._folder.cleanup()
        return {"tensorflow": {"file": None if error else self._file.name, "error": error, **self._times, **times}}


def _only_trace(folder: Path) -> Path:
    """Return the path of TensorFlow's trace below a folder; raise JobError if there is not exactly one trace."""
    traces = [folder / name for name in files.folder_tree(folder) if name.endswith(".xplane.pb")]
    if len(traces) != 1:
        raise JobError(f"TensorFlow's profiler left {len(traces)} traces instead of one")
    return traces[0]


OBSERVERS = (PosixObserver, TensorFlowObserver)
