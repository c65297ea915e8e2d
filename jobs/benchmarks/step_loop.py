"""The step loop of all benchmarks: it measures the wall time, divides it into parts, and notifies the profilers.

Each moment of the wall time counts for exactly one action: the innermost action that is running (`TimeSpent`). Time
without an action counts as ``other``, so the sum of all parts is the wall time. The actions are also the parts of steps
for profilers (`jobs.steps`), and the events of the time log.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

from jobs import ranks, steps
from jobs.checkpoints.saver import Saver
from jobs.events.time_log import ACTIONS, UNKNOWN, Event, File, TimeLog
from jobs.model.settings import Settings
from jobs.model.work import RunRequest
from jobs.system import files

_Result = TypeVar("_Result")
_PARTS = {
    "startup_s": ("startup",),
    "load_s": ("next", "load", "read", "shuffle"),
    "compute_s": ("compute",),
    "validate_s": ("validate",),
    "sync_s": ("communicate", "barrier"),
    "checkpoint_s": ("checkpoint",),
    "other_s": ("other",),
}
"""For each part of the wall time, the actions whose seconds are summed."""


class TimeSpent:
    """A counter of the seconds that one thread spends on each action; nested time counts only for the inner action.

    Actions are also logged as events of the time log, and announced to profilers as parts of steps. Only actions of
    `jobs.events.time_log.ACTIONS` are logged, and only without `logged=False`. If the disk is full, the time log ends,
    but the run continues.
    """

    def __init__(self, log: TimeLog | None = None) -> None:
        self.log = log
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner_s = 0.0
        self._action = ""
        self._part = ExitStack()

    @contextmanager
    def during(
        self, action: str, file: File | None = None, at: int | None = None, *, logged: bool = True
    ) -> Iterator[Event | None]:
        """Count the duration of the ``with`` block for `action`, and log the block as an event.

        The event in the time log has the file `file`, and the phase, epoch and step of the place `at`.
        """
        event = self.event(action, file, at) if logged and action in ACTIONS else nullcontext()
        outer_s, self._inner_s = self._inner_s, 0.0
        outer_action = self._action
        start = time.perf_counter()
        self._begin_part(action)
        try:
            with event as logged_event:
                yield logged_event
        finally:
            self._begin_part(outer_action)
            elapsed_s = time.perf_counter() - start
            self.seconds[action] += elapsed_s - self._inner_s
            self._inner_s = outer_s + elapsed_s

    def part_s(self, part: str) -> float:
        """Return the seconds that a part of the wall time, such as ``load_s``, has until now."""
        return sum(self.seconds.get(action, 0.0) for action in _PARTS[part])

    def set_place(self, phase: str, epoch: int, step: int = UNKNOWN) -> None:
        """Set the phase, epoch and step of the next events of the time log.

        This method also writes pending events to the file, but at most every 0.5 s.
        """
        self._write(lambda log: log.at(phase, epoch, step))

    def log_name(self) -> str | None:
        """Write all pending events, and return the file name of the time log, or None without a time log."""
        self._write(lambda log: log.flush())
        return Path(str(self.log.beside["path"])).name if self.log else None

    def event(
        self, action: str, file: File | None = None, at: int | None = None
    ) -> AbstractContextManager[Event | None]:
        """Return a context manager that logs its block as an event of the time log, but counts no time."""
        return self._write(lambda log: log.event(action, file, at=at)) or nullcontext()

    def _write(self, write: Callable[[TimeLog], _Result]) -> _Result | None:
        try:
            return write(self.log) if self.log else None
        except OSError:
            self.log = None
            return None

    def _begin_part(self, action: str) -> None:
        """End the current part of the step for the profilers, and begin the part of `action`, if it is not empty."""
        self._part.close()
        self._action = action
        if action:
            self._part.enter_context(steps.step_part(action))


class StepLoop:
    """The run of one rank, step by step.

    A benchmark overrides the methods of this class, and counts their time with the counter `spent`.
    """

    wall_parts: tuple[str, ...] = ("load_s", "compute_s", "checkpoint_s", "other_s")
    """The names of the parts of the wall time; ``sync_s`` is added if the ranks meet after each step."""

    def __init__(self, settings: Settings, number: int, spent: TimeSpent | None = None) -> None:
        """Prepare a loop of at most `number` steps."""
        self.settings, self.number, self.here, self.spent = settings, number, ranks.this_rank(), spent or TimeSpent()
        self.saver: Saver | None = None
        self.losses: list[float | None] = []
        self.per_step: dict[str, list[float]] = {"load_s": [], "compute_s": []}
        self._finish_s = 0.0

    def prepare(self) -> None:
        """Do the work that comes before the clock starts, when observers are already running."""

    def begin(self) -> None:
        """Do the work that comes before the first step, while the clock is running."""

    def place(self, _number: int) -> tuple[str, int]:
        """Return the phase and the epoch of a step for the time log; steps and epochs count from 0."""
        return "train", 0

    def next_batch(self) -> Any:
        """Return the next batch, or None after the last batch; the waiting time counts as ``next``."""
        raise NotImplementedError

    def step(self, batch: Any) -> float | None:
        """Run a step on a batch, and return the loss, or None if no network is trained."""
        raise NotImplementedError

    def after(self, number: int) -> None:
        """Do the work that comes after step `number` and after its snapshot."""

    def finish(self) -> None:
        """Do the work that comes after the last step, while the clock is running."""

    def settle(self) -> None:
        """Do the work that comes after the clock has stopped, when observers are still running."""

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run all steps and return the metrics of the run; the clocks of all ranks start together.

        The context `watched` is entered before the clock starts and before the first access to the storage. The
        context is left after the clock has stopped and after the last access to the storage.
        """
        with watched:
            self.prepare()
            with self._logged_barrier():
                start = self.here.start()
            with self.spent.during("other"):
                self.begin()
                for number in steps.marked_steps(range(self.number)):
                    if not self._step(number):
                        break
                self.finish()
                if self.saver:
                    self._end_saving(self.saver)
            wall_s = time.perf_counter() - start
            self.settle()
            with self._logged_barrier():
                self.here.end()  # waits for all ranks, so that the observers of each rank see the work of all ranks
        return self.metrics(wall_s)

    def meet(self, tensors: Sequence[Any] = ()) -> Sequence[Any]:
        """Meet the other ranks by the method of the setting ``sync``.

        Return the tensors summed over all ranks if the method sums tensors, else unchanged.
        """
        if self.here.sync == "none":
            return tensors
        with self.spent.during("communicate" if self.here.adds_up else "barrier"):
            return self.here.meet(tensors)

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics of a run: the wall time and its parts, and the seconds and the loss of each step."""
        parts, seconds = [*self.wall_parts], self.spent.seconds
        if self.here.sync != "none" and "sync_s" not in parts:
            parts.append("sync_s")
        part_names = [
            part for part, actions in _PARTS.items() if part in parts or not seconds.keys().isdisjoint(actions)
        ]
        return {
            "wall_s": wall_s,
            "wall_parts": parts,
            **{part: self.spent.part_s(part) for part in part_names},
            **{f"step_{part}": seconds_per_step for part, seconds_per_step in self.per_step.items()},
            "step_loss": self.losses,
            "timelog": self.spent.log_name(),
        }

    def saving_metrics(self) -> dict[str, Any]:
        """Return the number of requested snapshots, and the seconds of waiting for snapshots after the last step."""
        metrics = {"checkpoints_asked": self.number // self.settings["checkpoint"]["every"]} if self.saver else {}
        return {"checkpoint_finish_s": self._finish_s, **metrics}

    def _step(self, number: int) -> bool:
        """Run step `number` and return True, or return False if no batch is left."""
        self.spent.set_place(*self.place(number), number)
        before = {part: self.spent.part_s(part) for part in self.per_step}
        with self.spent.during("next"):
            batch = self.next_batch()
        self._append_time("load_s", before)
        if batch is None:
            return False
        loss = self.step(batch)
        self._append_time("compute_s", before)
        self.losses += [] if loss is None else [loss if math.isfinite(loss) else None]
        if self.saver:
            with self.spent.during("checkpoint"):
                self.saver.after(number + 1)
        self.after(number)
        return True

    def _append_time(self, part: str, before: dict[str, float]) -> None:
        self.per_step[part].append(self.spent.part_s(part) - before[part])

    def _end_saving(self, saver: Saver) -> None:
        before = self.spent.part_s("checkpoint_s")
        with self.spent.during("checkpoint"):
            saver.finish()
        self._finish_s = self.spent.part_s("checkpoint_s") - before

    def _logged_barrier(self) -> AbstractContextManager[Any]:
        """Return a context that logs a barrier of all ranks, by which the clocks of several nodes can be compared.

        The barrier is not part of the wall time.
        """
        return self.spent.event("barrier") if self.here.size > 1 else nullcontext()


@contextmanager
def open_time_spent(request: RunRequest) -> Iterator[TimeSpent]:
    """Yield the time counter of this rank, with a time log if the request names a file for it.

    Time logs of an earlier run that was killed are removed, because no record names these logs.
    """
    if not (file := request.get("timelog")):
        yield TimeSpent()
        return
    own_rank, first_path, log = ranks.this_rank(), Path(file), None
    path = ranks.file_of_rank(first_path, own_rank.rank)
    with suppress(OSError):
        old_logs = [
            name for name in files.names_in_folder(path.parent) if fnmatchcase(name, f"{escape(path.name)}.*.timelog")
        ]
        for name in (path.name, *old_logs):
            files.remove(path.parent / name, missing_ok=True)
        log = TimeLog(path, rank=own_rank.rank, ranks=own_rank.size, run=first_path.stem)
    try:
        yield TimeSpent(log)
    finally:
        if log:
            with suppress(OSError):
                log.close()
