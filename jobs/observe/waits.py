"""Observe how long the threads of a run wait: late alarms show that the process stood still, and looks sample states.

An alarm comes about every 20 ms. A look reads the state of each thread, at about every fifth alarm. Alarms and looks
become rarer if they take long, so that together they need at most 1 % of a CPU core.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.model.work import RunRequest
from jobs.observe.observer import Observer
from jobs.ready_run import ReadyRun
from jobs.system.cgroup import io_limits
from jobs.system.clock import Alarm
from jobs.system.device import devices_behind
from jobs.system.threads import ASLEEP, IDLE_DEVICE, STOPPED_BY_OTHER, Threads, ThreadState

# Smallest and largest seconds until the next alarm and until the next look. The seconds are random, because with fixed
# seconds a regular event could be seen always or never.
_ALARM_S, _LOOK_S = (0.01, 0.03), (0.05, 0.15)
# Shortest pause after an alarm or a look, in multiples of its duration, so that it needs at most 0.5 % of a CPU core.
_MIN_PAUSE_FACTOR = 200
_NEGLIGIBLE_S = 0.005  # largest delay of an alarm that does not count, because hypervisors cause such delays
_DELAYED = (IDLE_DEVICE, ASLEEP, STOPPED_BY_OTHER)


class ThreadWaitsObserver(Observer):
    """Observes the states of the threads of this process.

    This observer starts last, so that it does not count the work of other observers at their start.
    """

    place = 99
    gives = ("waits",)

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        super().__init__(request, work)
        self._chance = random.Random()  # noqa: S311 - a separate generator does not change the run's seeds
        self._kinds: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()
        self._counts: dict[str, Any] = {"alarms": 0, "late": 0, "late_s": 0.0, "looks": 0, "cpu_s": 0.0, "error": None}
        self._is_over = False

    def start(self) -> None:
        """Start the thread that records the states."""
        folders = [folder for folder in self.work.folders if folder.exists()]
        devices = [device for folder in folders for device in devices_behind(folder)]
        # Under a limit on I/O, requests wait before the device gets them, so the device looks idle.
        self._threads = Threads(folders, seen=not io_limits(devices))
        self._look()  # the first look is slow, so it is made before the clock starts
        self._alarm = Alarm()
        self._thread = threading.Thread(target=self._watch, name="waits", daemon=True)
        self._thread.start()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """End the thread that records the states."""
        self._is_over = True
        while self._thread.is_alive():  # repeat, because the thread may have set its alarm again
            self._alarm.ring()
            self._thread.join(0.001)
        self._alarm.close()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``waits``: the counts of alarms, looks and thread states.

        The keys are:

        - ``alarms``, ``looks``: number of alarms and of looks;
        - ``late``: number of alarms that came late because the process stood still;
        - ``late_s``: sum of the delays of late alarms, in seconds;
        - ``threads``: for each state of `jobs.system.threads`, how often a look found a thread in this state;
        - ``functions``: for each kernel function, how often a look found a delayed thread in this function;
        - ``cpu_s``: CPU seconds of all alarms and looks;
        - ``error``: None if all states could be read.
        """
        return {"waits": {**self._counts, "threads": dict(self._kinds), "functions": dict(self._functions)}}

    def _watch(self) -> None:
        pause_s, look_at_s = self._pause_s(_ALARM_S), time.perf_counter() + self._pause_s(_LOOK_S)
        while True:
            start_s = time.thread_time()
            try:
                late_s = self._alarm.wait(pause_s)
            except OSError as error:  # this kernel does not show how long a thread was ready to run
                self._counts["error"] = f"{error}"
                break
            if self._is_over:
                break
            self._counts["alarms"] += 1
            if late_s > _NEGLIGIBLE_S:
                self._counts["late"] += 1
                self._counts["late_s"] += late_s
            alarm_s = time.thread_time()
            pause_s = self._pause_s(_ALARM_S, alarm_s - start_s)
            if time.perf_counter() >= look_at_s:
                self._count(self._look())
                look_at_s = time.perf_counter() + self._pause_s(_LOOK_S, time.thread_time() - alarm_s)
        self._counts["cpu_s"] = time.thread_time()

    def _look(self) -> list[ThreadState]:
        """Return the state of each thread, or an empty list if the kernel does not show the states."""
        if self._counts["error"] is None:
            try:
                return [*self._threads.list_waits()]
            except (OSError, ValueError, LookupError) as error:
                self._counts["error"] = f"{error}"
        return []

    def _count(self, waits: Iterable[ThreadState]) -> None:
        self._counts["looks"] += 1
        self._kinds.update(wait.kind for wait in waits)
        self._functions.update(wait.function for wait in waits if wait.kind in _DELAYED)

    def _pause_s(self, bounds: tuple[float, float], duration_s: float = 0.0) -> float:
        return max(self._chance.uniform(*bounds), _MIN_PAUSE_FACTOR * duration_s)


OBSERVERS = (ThreadWaitsObserver,)
