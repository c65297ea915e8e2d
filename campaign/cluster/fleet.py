"""Follow the workers of a campaign on Slurm: list the open workers, update their states, and record how workers end.

The ends of workers are recorded, because Slurm forgets ended jobs after a while.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cluster import price, progress
from campaign.cluster.cell_state import Phase, WorkerState, ended_state
from campaign.cluster.progress import Follower, WatchedWorkers, show_until_over
from campaign.slurm import client
from campaign.slurm.scheduler import Scheduler, TaskKey
from campaign.worker.batch import Batch, read_batches
from jobs.model.codes import JobEnd, Wait, Waiting, WorkerEnd, worker_sentence

# The pause between two questions to the scheduler: the pause grows while no job changes its state.
_SHORTEST_S, _LONGEST_S = 3.5, 15.0
_AT_ONCE_S = 0.2  # a healthy controller answers within this time
_TICK_S = 1.0
_SETTLE_CHECKS = 6
_LATE_S = 5.0  # a record that a node has written may become visible on this machine this late (NFS)
_CHECK_EACH_S = 1.0
_REPORT_AFTER_S = 10.0  # a shorter silence of the controller is not reported


class Fleet:
    """The open workers of some Slurm batches, with their states as the scheduler reports them."""

    def __init__(self, batches: Iterable[Batch], facts: client.SlurmConfig) -> None:
        self._batches = {str(batch.folder): batch for batch in batches if batch.cluster == "slurm"}
        # A worker is open until its batch records how the worker ended.
        self.open: set[TaskKey] = {
            (str(batch.folder), index) for batch in self._batches.values() for index in batch.open_workers()
        }
        names = sorted({self._batches[folder].job_name for folder, _ in self.open})
        dates = [self._batches[folder].submitted_utc[:10] for folder, _ in self.open]
        # Slurm's accounting uses local time and batches use UTC, so the period starts one day earlier.
        since = str(dt.date.fromisoformat(min(dates)) - dt.timedelta(days=1)) if dates else "now"
        self._scheduler = Scheduler(facts, names, since)
        self._next_s = 0.0
        self._pause_s = _SHORTEST_S
        self._question: threading.Thread | None = None
        self._question_error: Exception | None = None
        self.states: dict[TaskKey, WorkerState] = dict.fromkeys(sorted(self.open), WorkerState(Phase.UNKNOWN))

    @property
    def silent_since(self) -> float | None:
        """Return the monotonic time of the first unanswered question to the controller, or None if it answers."""
        return self._scheduler.silent_since or self._scheduler.asking_since

    @property
    def silent_s(self) -> float:
        """Return for how many seconds the controller has not answered; 0 if the controller answers."""
        return time.monotonic() - self.silent_since if self.silent_since is not None else 0.0

    def batch(self, key: TaskKey) -> Batch:
        """Return the batch of a worker."""
        return self._batches[key[0]]

    def refresh(self) -> Mapping[TaskKey, WorkerState]:
        """Return the state of every worker; ask the scheduler first if the pause since the last question is over."""
        if self._is_question_due:
            self._scheduler.refresh(self.open)
            self._take_answer()
        return self.states

    def refresh_without_waiting(self) -> Mapping[TaskKey, WorkerState]:
        """Return the state of every worker without waiting for a slow scheduler; a later call takes a late answer."""
        if self._is_question_due and self._question is None:
            self._scheduler.ask = partial(client.ask_slurm, patient=True)
            self._question = threading.Thread(target=self._ask_scheduler, args=(frozenset(self.open),), daemon=True)
            self._question.start()
            self._question.join(_AT_ONCE_S)
        if self._question and not self._question.is_alive():
            self._question = None
            if self._question_error:
                raise self._question_error
            self._take_answer()
        return self.states

    def _ask_scheduler(self, expected: Collection[TaskKey]) -> None:
        """Ask the scheduler in a thread, and store an error so that the main thread can raise the error."""
        try:
            self._scheduler.refresh(expected)
        except Exception as error:  # noqa: BLE001 - the main thread raises the error
            self._question_error = error

    def refresh_until_explained(self) -> None:
        """Ask the scheduler at most 6 times, until Slurm has reported how all jobs ended that squeue does not list."""
        for _ in range(_SETTLE_CHECKS):
            self.refresh()
            if not any(self._scheduler.is_unexplained(key) for key in self.open):
                return
            time.sleep(max(0.0, self._next_s - time.monotonic()))

    def close_finished(self, keys: Collection[TaskKey]) -> None:
        """Mark workers as ended, because their records show that all their cells are finished."""
        for key in self.open.intersection(keys):
            self.open.discard(key)
            self.states[key] = WorkerState(Phase.ENDED, None, self.states[key].node_or_job, {"code": JobEnd.COMPLETED})

    @property
    def _is_question_due(self) -> bool:
        """Return whether a worker is open and the pause since the last question to the scheduler is over."""
        return bool(self.open) and time.monotonic() >= self._next_s

    def _take_answer(self) -> None:
        """Update the workers from the scheduler's answer, and choose the time of the next question."""
        old_states = dict(self.states)
        self._update_workers()
        changed = old_states != self.states or any(self._scheduler.is_unexplained(key) for key in self.open)
        self._pause_s = _SHORTEST_S if changed else min(1.5 * self._pause_s, _LONGEST_S)
        self._next_s = time.monotonic() + self._pause_s

    def _update_workers(self) -> None:
        """Set the state of each open worker from the scheduler's report about the worker's task."""
        for key in list(self.open):
            task = self._scheduler.task(key)
            if task is None:
                continue
            if task.live:
                wait: Wait | None = {"code": Waiting.SUSPENDED} if task.suspended else None
                if task.queued and task.waits_for:
                    wait = {"code": Waiting.SCHEDULER, "words": task.waits_for}
                phase = Phase.QUEUED if task.queued else Phase.RUNNING
                self.states[key] = WorkerState(phase, wait, task.node or task.job_id)
            else:
                self.open.discard(key)
                self.states[key] = ended_state(self.batch(key), key[1], task.end(), self.states[key].node_or_job)


def open_fleet(folder: CampaignFolder, facts: client.SlurmConfig | None = None) -> Fleet:
    """Return the fleet with all open workers of a campaign."""
    return Fleet(read_batches(folder), facts or client.read_slurm_config())


def follow_fleet(folder: CampaignFolder, fleet: Fleet, tick_s: float = _TICK_S) -> None:
    """Show the progress of all open workers every `tick_s` seconds until all workers have ended.

    The progress comes from the records, so the display continues while the controller does not answer.
    """
    clock_s = time.time() - time.monotonic()
    watched = WatchedWorkers({key: Follower.of_worker(folder, fleet.batch(key), key[1]) for key in sorted(fleet.open)})

    def states() -> Mapping[TaskKey, WorkerState]:
        fleet.close_finished(watched.finished_workers())
        return fleet.refresh_without_waiting()

    def hindrance() -> str:
        if fleet.silent_since is not None and fleet.silent_s >= _REPORT_AFTER_S:
            since = time.strftime("%H:%M:%S", time.localtime(clock_s + fleet.silent_since))
            return f"Slurm's controller has not answered since {since}; progress is still read from the records"
        return folder.write_hindrance()

    with progress.open_display(price.RemainingTime(folder), hindrance) as show:
        show_until_over(watched, states, show, tick_s)


def record_ends(folder: CampaignFolder, fleet: Fleet) -> list[str]:
    """Write into the batches how workers ended; return one line per reason for which cells are unfinished.

    This function changes no record, because only workers write records.
    """
    # Sentences that differ only in numbers, such as the job ids in their paths, are one reason for each node.
    reasons: dict[tuple[str, str], tuple[str, list[str]]] = {}
    deadline = time.monotonic() + _LATE_S
    for batch, ends in _ends_by_batch(fleet):
        for index, end in ends.items():
            # After a completed job, NFS may still show an old version of a record, so the records are read again.
            is_complete = end["code"] == JobEnd.COMPLETED
            unfinished = _unfinished_cells(folder, batch, index, deadline if is_complete else 0.0)
            if not batch.cells[index] and not is_complete:
                unfinished = ["the data were not made"]
            if unfinished:
                sentence = worker_sentence(end)
                key = (end.get("node", ""), re.sub(r"\d+", "", sentence))
                reasons.setdefault(key, (sentence, []))[1].extend(unfinished)
        batch.save_ends(ends)
    return [
        f"{cells[0]}{f' and {len(cells) - 1} more' if len(cells) > 1 else ''}: {reason}"
        for reason, cells in reasons.values()
    ]


def _unfinished_cells(folder: CampaignFolder, batch: Batch, index: int, deadline: float) -> list[str]:
    """Return the cells that a worker left unfinished.

    NFS may show records late, so unfinished records are read again until `deadline`.
    """
    while True:
        unfinished = [cell for cell in batch.cells[index] if not is_cell_over(folder, cell, batch.token)]
        if not unfinished or time.monotonic() >= deadline:
            return unfinished
        time.sleep(_CHECK_EACH_S)


def _ends_by_batch(fleet: Fleet) -> list[tuple[Batch, dict[int, WorkerEnd]]]:
    """Return each batch with a dictionary from the index of an ended worker to its end."""
    ends: dict[str, tuple[Batch, dict[int, WorkerEnd]]] = {}
    for key, worker in fleet.states.items():
        if worker.end:
            ends.setdefault(key[0], (fleet.batch(key), {}))[1][key[1]] = worker.end
    return list(ends.values())


def is_cell_over(folder: CampaignFolder, cell: str, token: str) -> bool:
    """Return whether the submission with the token `token` has finished a cell."""
    recorded, _ = record.read_or_fault(folder.record(cell))
    return recorded is not None and recorded["campaign"].get("token") == token and recorded["status"] != "running"


def follow_local_worker(follower: Follower, state: Callable[[], WorkerState], tick_s: float) -> None:
    """Show the progress of a worker on this machine until the worker has ended."""
    with progress.open_display(price.RemainingTime(follower.folder)) as show:
        show_until_over(WatchedWorkers({0: follower}), lambda: {0: state()}, show, tick_s)
