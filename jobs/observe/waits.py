"""Observer of what keeps the run's threads from working: alarms show when all stand still, looks what each one does.

There is an alarm about each 20 ms, and at about each fifth a look. Both are fewer where they take long, so that they
need no more than a hundredth of a core.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.model.request import Request
from jobs.observe.observer import Observer
from jobs.ready_run import Work
from jobs.system.alarm import Alarm
from jobs.system.device import devices_behind
from jobs.system.io_limits import limits
from jobs.system.threads import ASLEEP, HELD, IDLE_DEVICE, Threads, Wait

# Seconds until the next alarm and the next look: by chance, so that what comes at regular times is not always met, or
# always missed.
_ALARM_S, _LOOK_S = (0.01, 0.03), (0.05, 0.15)
_LEAST_REST = 200  # times what an alarm took, and a look: each of them needs half a hundredth of a core at most
_NEGLIGIBLE_S = 0.005  # by which an alarm may be late: hypervisors take as much at once
_DELAYED = (IDLE_DEVICE, ASLEEP, HELD)


class Waits(Observer):
    """What the threads of this process did at each look; last to start, so that it sees no other observer begin."""

    place = 99
    gives = ("waits",)

    def __init__(self, request: Request, work: Work) -> None:
        super().__init__(request, work)
        self._chance = random.Random()  # noqa: S311 - of its own, so that seeds of the run stay as they are
        self._kinds: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()
        self._alarms = self._looks = self._late = 0
        self._late_s = self._cpu_s = 0.0
        self._error: str | None = None
        self._over = False

    def start(self) -> None:
        """Begin to look."""
        folders = [folder for folder in self.work.folders if folder.exists()]
        devices = [device for folder in folders for device in devices_behind(folder)]
        # What emulates a storage by such a limit lets requests wait before its device has them.
        by_limits = self.work.below.emulated and limits(devices)
        self._threads = Threads(folders, seen=not by_limits)
        self._look()  # outside the clock: of those that rest, later looks read one file
        self._alarm = Alarm()
        self._thread = threading.Thread(target=self._watch, name="waits", daemon=True)
        self._thread.start()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """End it."""
        self._over = True
        while self._thread.is_alive():  # it may have set its alarm anew since
            self._alarm.ring()
            self._thread.join(0.001)
        self._alarm.close()

    def metrics(self) -> Mapping[str, Any]:
        """Return ``waits``.

        It has ``alarms``, those that were ``late`` because the process stood still, the seconds ``late_s`` of all of
        these, ``looks``, ``threads`` (how many were met in each state of `jobs.system.threads`), ``functions`` (of the
        kernel, in which those waited that were kept from working), ``cpu_s`` of alarms and looks, and ``error``, None
        where all could be seen.
        """
        return {
            "waits": {
                "alarms": self._alarms,
                "late": self._late,
                "late_s": self._late_s,
                "looks": self._looks,
                "threads": dict(self._kinds),
                "functions": dict(self._functions),
                "cpu_s": self._cpu_s,
                "error": self._error,
            }
        }

    def _watch(self) -> None:
        pause_s, look_at_s = self._pause_s(_ALARM_S), time.perf_counter() + self._pause_s(_LOOK_S)
        while True:
            began_s = time.thread_time()
            try:
                late_s = self._alarm.wait(pause_s)
            except OSError as error:  # this kernel does not tell for how long a thread was ready to run
                self._error = f"{error}"
                break
            if self._over:
                break
            self._alarms += 1
            if late_s > _NEGLIGIBLE_S:
                self._late += 1
                self._late_s += late_s
            rang_s = time.thread_time()
            pause_s = self._pause_s(_ALARM_S, rang_s - began_s)
            if time.perf_counter() >= look_at_s:
                self._count(self._look())
                look_at_s = time.perf_counter() + self._pause_s(_LOOK_S, time.thread_time() - rang_s)
        self._cpu_s = time.thread_time()

    def _look(self) -> list[Wait]:
        """Return what the threads do; nothing where that was not told once."""
        if self._error is None:
            try:
                return [*self._threads.look()]
            except (OSError, ValueError, LookupError) as error:
                self._error = f"{error}"
        return []

    def _count(self, waits: Iterable[Wait]) -> None:
        self._looks += 1
        self._kinds.update(wait.kind for wait in waits)
        self._functions.update(wait.function for wait in waits if wait.kind in _DELAYED)

    def _pause_s(self, bounds: tuple[float, float], took_s: float = 0.0) -> float:
        return max(self._chance.uniform(*bounds), _LEAST_REST * took_s)


OBSERVER = Waits
