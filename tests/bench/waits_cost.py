"""What it costs to see what keeps threads from working: CPU time of alarms and looks over the time of the run.

The process is one of that many threads, of which some run and the others wait for work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.observe.waits import ThreadWaitsObserver
from jobs.ready_run import ReadyRun
from tests.bench.bench import Figure

SIZES = {"smoke": {"seconds": 0.5, "threads": 4}, "full": {"seconds": 20.0, "threads": 40}}
_BUSY = 4  # one thread in so many reads a file over and over


def measure(seconds: float, threads: int) -> Iterator[Figure]:
    """Observe threads that read from memory, and threads that wait."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            Path(__file__).read_bytes()
            time.sleep(0.001)

    doing = [read if number % _BUSY == 0 else over.wait for number in range(threads)]
    each = [threading.Thread(target=action) for action in doing]
    for thread in each:
        thread.start()
    observer = ThreadWaitsObserver({}, ReadyRun(lambda _: {}, Path(__file__).parent))  # type: ignore[typeddict-item]
    observer.start()
    time.sleep(seconds)
    observer.stop(failed=False)
    over.set()
    for thread in each:
        thread.join()
    found = observer.metrics()["waits"]
    yield Figure(f"alarms and looks, {threads} threads", 100 * found["cpu_s"] / seconds, "% of a core", "at most 1")
    yield Figure(f"alarms in a second, {threads} threads", found["alarms"] / seconds, "/s")
    yield Figure(f"looks in a second, {threads} threads", found["looks"] / seconds, "/s")
