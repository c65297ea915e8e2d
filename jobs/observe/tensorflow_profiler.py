"""Observer of TensorFlow itself: its profiler over a window of steps, where the cell asks for it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from jobs import steps
from jobs.lazy_imports import tf
from jobs.model.request import Request
from jobs.observe.observer import Observer
from jobs.ready_run import Work


class Runtime(Observer, steps.Watcher):
    """TensorFlow's profiler between two steps; where the first one is 1, from before the clock."""

    place = 85
    gives = ("tensorflow",)

    def __init__(self, request: Request, work: Work) -> None:
        super().__init__(request, work)
        asked, file = request["settings"].get("profile", {}).get("tensorflow", steps.NONE), request.get("tensorflow")
        self._file = Path(file) if file and asked != steps.NONE else None
        self._first, self._last = steps.window(asked if self._file else steps.ALL)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._open = False
        self._mark: Any = None
        self._error: str | None = None
        self._times = {"start_s": 0.0, "stop_s": 0.0}

    def start(self) -> None:
        """Watch the steps; the profiler starts with the first one of the window, or now."""
        if self._file:
            steps.watch(self)
            if self._first == 1:
                self._start()

    def begin(self, number: int) -> None:
        """Start the profiler before its first step, and mark each one."""
        if number == self._first and not self._open:
            self._start()
        if self._open:
            self._mark = tf.profiler.experimental.Trace(steps.MARK, step_num=number, _r=1)

    def end(self, number: int) -> None:
        """End the mark, and the profiler behind its last step."""
        if self._mark:
            self._mark.__exit__(None, None, None)
            self._mark = None
        if self._open and number == self._last:
            self._stop()

    def part(self, name: str) -> AbstractContextManager[Any]:
        """Mark a part of a step."""
        return tf.profiler.experimental.Trace(f"campaign {name}") if self._open else nullcontext()

    def stop(self, *, failed: bool) -> None:
        """End the profiler if it is still there."""
        if self._file:
            steps.unwatch(self)
            if self._open:
                self._stop(save=not failed)

    def _start(self) -> None:
        began = time.perf_counter()
        self._folder = tempfile.TemporaryDirectory(prefix="tfio-trace-")
        try:
            tf.profiler.experimental.start(self._folder.name)
            self._open = True
        except tf.errors.OpError as error:  # another profiler of TensorFlow is at work
            self._error = error.message
        self._times["start_s"] = time.perf_counter() - began

    def _stop(self, *, save: bool = True) -> None:
        began = time.perf_counter()
        self._open = False
        try:
            tf.profiler.experimental.stop(save=save)
        except tf.errors.OpError as error:
            self._error = error.message
        self._times["stop_s"] = time.perf_counter() - began

    def metrics(self) -> Mapping[str, Any]:
        """Return ``tensorflow``: what `jobs.profiler.tensorflow_table.figures` says, and the ``file`` of the table.

        ``file`` is None where there is none; then ``error`` says why. ``start_s`` and ``stop_s`` are the profiler's,
        part of ``other_s`` unless the window begins with the first step, or ends behind the last one.
        """
        if not self._file:
            return {}
        from jobs.profiler import ProfilerError, tensorflow_table  # noqa: PLC0415 - seldom asked for

        found: Mapping[str, Any] = {}
        error = self._error or (None if self._folder else f"the run had no step {self._first}")
        try:
            if self._folder and not error:
                table = tensorflow_table.converted(Path(self._folder.name))
                tensorflow_table.write(self._file, table)
                found = tensorflow_table.figures(table)
        except (OSError, ProfilerError) as fault:
            error = str(fault)
        finally:
            if self._folder:
                self._folder.cleanup()
        return {"tensorflow": {"file": None if error else self._file.name, "error": error, **self._times, **found}}


OBSERVER = Runtime
