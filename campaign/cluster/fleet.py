"""The workers of a campaign on the cluster: which are open, how they are, how they ended.

The ends are written down, for Slurm forgets.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cluster import display, price
from campaign.cluster.conclude import Phase, WorkerState, ended
from campaign.cluster.progress import Follower, Watched, until_over
from campaign.slurm import client
from campaign.slurm.scheduler import Scheduler
from campaign.slurm.task import Key
from campaign.worker.batch import Batch, read_all
from jobs.model.codes import JobEnd, Waiting, WorkerEnd, worker_sentence

_SHORTEST_S, _LONGEST_S = 3.5, 15.0  # between two questions; a change makes it short again
_AT_ONCE_S = 0.2  # in which a controller that is well has answered
_TICK_S = 1.0
_SETTLE_CHECKS = 6
_LATE_S = 5.0  # in which a record may come into sight that a node has written (NFS)
_CHECK_EACH_S = 1.0
_SILENT_S = 10.0  # a shorter silence is not reported


class Fleet:
    """Open workers of some batches (those of ``cluster=slurm``), seen through the scheduler."""

    def __init__(self, batches: Iterable[Batch], facts: client.Facts) -> None:
        self._batches = {str(batch.folder): batch for batch in batches if batch.cluster == "slurm"}
        # Workers that have not ended, as far as anybody knows.
        self.open: set[Key] = {
            (str(batch.folder), index) for batch in self._batches.values() for index in batch.open_workers()
        }
        names = sorted({self._batches[folder].job_name for folder, _ in self.open})
        dates = [self._batches[folder].submitted_utc[:10] for folder, _ in self.open]
        # A day more: the accounting counts in local time, we in UTC.
        since = str(dt.date.fromisoformat(min(dates)) - dt.timedelta(days=1)) if dates else "now"
        self._scheduler = Scheduler(facts, names, since)
        self._next_s = 0.0
        self._pause_s = _SHORTEST_S
        self._asking: threading.Thread | None = None
        self._failed: Exception | None = None
        self.seen: dict[Key, WorkerState] = dict.fromkeys(sorted(self.open), WorkerState(Phase.UNKNOWN))

    @property
    def silent_since(self) -> float | None:
        """When the controller was asked first of the questions that it has not answered; None where it answers."""
        return self._scheduler.silent_since or self._scheduler.asking_since

    @property
    def silent_s(self) -> float:
        """Seconds since then, 0 where it answers."""
        return time.monotonic() - self.silent_since if self.silent_since is not None else 0.0

    def batch(self, key: Key) -> Batch:
        """Return the batch of a worker."""
        return self._batches[key[0]]

    def refresh(self) -> Mapping[Key, WorkerState]:
        """Ask the scheduler, if its time has come, and return how every worker is."""
        if self._is_time:
            self._scheduler.refresh(self.open)
            self._take()
        return self.seen

    def glance(self) -> Mapping[Key, WorkerState]:
        """As `refresh`, but an answer that is late is not waited for: a later call takes it."""
        if self._is_time and self._asking is None:
            self._scheduler.ask = partial(client.ask, patient=True)
            self._asking = threading.Thread(target=self._ask, args=(frozenset(self.open),), daemon=True)
            self._asking.start()
            self._asking.join(_AT_ONCE_S)
        if self._asking and not self._asking.is_alive():
            self._asking = None
            if self._failed:
                raise self._failed
            self._take()
        return self.seen

    def _ask(self, expected: Collection[Key]) -> None:
        try:
            self._scheduler.refresh(expected)
        except Exception as error:  # noqa: BLE001 - raised by who waits
            self._failed = error

    def settle(self) -> None:
        """Ask until no end is unexplained, so that nothing waits for a job that died earlier."""
        for _ in range(_SETTLE_CHECKS):
            self.refresh()
            if not any(self._scheduler.doubtful(key) for key in self.open):
                return
            time.sleep(max(0.0, self._next_s - time.monotonic()))

    def close(self, keys: Collection[Key]) -> None:
        """Take as ended the workers whose records say that all their cells are over."""
        for key in self.open.intersection(keys):
            self.open.discard(key)
            self.seen[key] = WorkerState(Phase.ENDED, None, self.seen[key].where, {"code": JobEnd.COMPLETED})

    @property
    def _is_time(self) -> bool:
        return bool(self.open) and time.monotonic() >= self._next_s

    def _take(self) -> None:
        """Take what the scheduler has answered, and decide when it is asked again."""
        before = dict(self.seen)
        self._update()
        changed = before != self.seen or any(self._scheduler.doubtful(key) for key in self.open)
        self._pause_s = _SHORTEST_S if changed else min(1.5 * self._pause_s, _LONGEST_S)
        self._next_s = time.monotonic() + self._pause_s

    def _update(self) -> None:
        for key in list(self.open):
            task = self._scheduler.task(key)
            if task is None:
                continue
            if task.live:
                waits_for = task.waits_for
                self.seen[key] = WorkerState(
                    Phase.QUEUED if task.queued else Phase.RUNNING,
                    {"code": Waiting.SCHEDULER, "words": waits_for} if task.queued and waits_for else None,
                    task.node or task.job_id,
                )
            else:
                self.open.discard(key)
                self.seen[key] = ended(self.batch(key), key[1], task.end(), self.seen[key].where)


def of(folder: CampaignFolder, facts: client.Facts | None = None) -> Fleet:
    """Find all open workers of a campaign."""
    return Fleet(read_all(folder), facts or client.facts())


def follow(folder: CampaignFolder, fleet: Fleet) -> None:
    """Watch all open workers to their end; what is shown goes on while the controller does not answer."""
    clock_s = time.time() - time.monotonic()
    watched = Watched({key: Follower.of(folder, fleet.batch(key), key[1]) for key in sorted(fleet.open)})

    def states() -> Mapping[Key, WorkerState]:
        fleet.close(watched.finished())
        return fleet.glance()

    def hindrance() -> str:
        if fleet.silent_since is not None and fleet.silent_s >= _SILENT_S:
            since = time.strftime("%H:%M:%S", time.localtime(clock_s + fleet.silent_since))
            return f"Slurm's controller does not answer since {since}; records are followed all the same"
        return folder.hindrance()

    with display.display(price.Eta(folder), hindrance) as show:
        until_over(watched, states, show, _TICK_S)


def settle_ends(folder: CampaignFolder, fleet: Fleet) -> list[str]:
    """Write down in their batch how workers ended that left cells behind; records are their workers' own.

    Returns a line for each such end, with the cells of all workers that ended so.
    """
    left_by: dict[str, list[str]] = {}
    deadline = time.monotonic() + _LATE_S
    for batch, ends in _by_batch(fleet):
        for index, end in ends.items():
            is_late = end["code"] == JobEnd.COMPLETED  # its worker says that all are over
            left = _left(folder, batch, index, deadline if is_late else 0.0)
            if not batch.cells[index] and not is_late:
                left = ["the data were not made"]
            if left:
                left_by.setdefault(worker_sentence(end), []).extend(left)
        batch.save_ends(ends)
    more = {why: f" and {len(cells) - 1} more" if len(cells) > 1 else "" for why, cells in left_by.items()}
    return [f"{cells[0]}{more[why]}: {why}" for why, cells in left_by.items()]


def _left(folder: CampaignFolder, batch: Batch, index: int, until: float) -> list[str]:
    """List the cells that a worker left behind; what it wrote may be seen late, so it is looked for until then."""
    while True:
        left = [cell for cell in batch.cells[index] if not is_over(folder, cell, batch.token)]
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_CHECK_EACH_S)


def _by_batch(fleet: Fleet) -> list[tuple[Batch, dict[int, WorkerEnd]]]:
    found: dict[str, tuple[Batch, dict[int, WorkerEnd]]] = {}
    for key, worker in fleet.seen.items():
        if worker.end:
            found.setdefault(key[0], (fleet.batch(key), {}))[1][key[1]] = worker.end
    return list(found.values())


def is_over(folder: CampaignFolder, cell: str, token: str) -> bool:
    """Return whether the submission of this token has brought a cell to its end."""
    recorded, _ = record.read_or_fault(folder.record(cell))
    return recorded is not None and recorded["campaign"].get("token") == token and recorded["status"] != "running"
