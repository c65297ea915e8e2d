"""Begin a worker's session on one cell: take the lease, read or make the record, and plan the runs.

Runs that other programs disturb do not count (`jobs.checks.quiet`). On a machine that is never quiet, all runs would be
useless. So `Disturbance` waits until the machine is quiet, and ends the session after a timeout.
"""

from __future__ import annotations

import errno
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts, require_usable
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.storage import emulation, provenance
from campaign.worker import batch as batches
from jobs import checks
from jobs.checks import Limits
from jobs.judging import judge, stopping
from jobs.model import reading
from jobs.model.codes import End, RunEnd, Wait, Waiting
from jobs.model.conduct import Conduct
from jobs.model.record import Data, Provenance, Record, Session, Submission, terms_of_conduct
from jobs.model.results import Check, ReasonOfAddedRun, Role, Run
from jobs.model.settings import Settings
from jobs.model.work import ListedItem, WorkItem, WorkList
from jobs.objects.address import address_of
from jobs.observe import counters
from jobs.system.clock import utc_now
from jobs.system.device import device_of
from jobs.system.files import keep_trying, write_json
from jobs.system.layers import layers_below

# The worker waits after this number of consecutive disturbed runs, because a single disturbance may be short.
_DISTURBED_RUNS = 2
_WATCH_S, _REPORT_S = 1.0, 5.0  # duration of one measurement of the counters; pause between two reports


class TakenOverError(Exception):
    """Raised if another worker has begun the same cell later than this worker, and now owns the cell's record.

    `same_list` says whether the other worker has the same work list. This happens if Slurm lost contact with this
    worker and restarted the job.
    """

    def __init__(self, *, same_list: bool) -> None:
        super().__init__("another worker has taken this cell over")
        self.same_list = same_list


class _Lease(TypedDict):
    """The part of ``lease.json`` that identifies a session."""

    id: str
    token: str


def require_lease(folder: CampaignFolder, recorded: Record) -> None:
    """Raise TakenOverError if the last session in this record, the caller's session, has lost the lease of the cell.

    The lease is a separate file. Another worker that is writing at this moment may replace the record once more, but
    it does not replace the lease.
    """
    own_session = recorded["sittings"][-1]
    try:
        lease = reading.read_json(folder.lease(recorded["cell"]["id"]), _Lease)
    except (FileNotFoundError, ValueError):
        refuse_removed(folder)
        return  # a worker never removes or damages a lease, so no other worker has taken the lease
    if lease["id"] != own_session["id"]:
        raise TakenOverError(same_list=lease["token"] == own_session["token"])


def _take_lease(folder: CampaignFolder, work: WorkList, cell_id: str, session: Session) -> None:
    """Take the lease of the cell; a worker that had the lease notices the loss before it writes its record again."""
    path = folder.lease(cell_id)

    def put() -> None:
        refuse_removed(folder)
        for parent in (folder.records, path.parent):
            parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, session)

    keep_trying(put, disk_patience_s(work))


def refuse_removed(folder: CampaignFolder) -> None:
    """Raise EnvironmentFaultError if the campaign folder was removed, but not if only its disk is unavailable.

    The working directory of a job is in the campaign folder. If the working directory was removed, its number of hard
    links is 0.
    """
    try:
        is_removed = Path().stat().st_nlink == 0
    except OSError as error:
        is_removed = error.errno in (errno.ENOENT, errno.ESTALE)
    if is_removed:
        raise EnvironmentFaultError(
            f"{folder.root} was removed while a job of its campaign ran",
            "the job ends; start the campaign again if you need the results",
        )


def disk_patience_s(work: WorkList) -> float:
    """Return how many seconds a worker waits for a full or unavailable disk before it gives up.

    The value is 0 on a workstation, where the user can repair the disk.
    """
    return float(work["conduct"]["cluster"]["save_patience_s"]) if work["cluster"] == "slurm" else 0.0


def verdict_if_over(folder: CampaignFolder, work: WorkList, cell_id: str) -> bool | None:
    """Return whether a cell is done, if this worker has nothing to do for the cell, or None if runs are missing.

    There are two such cases. If a later submission has the cell, the result is True. If this work list has finished the
    cell before its job was requeued, the result is the verdict of the record.
    """
    try:
        recorded = record.read_record(folder.record(cell_id))
        if recorded is None:
            return None
        if recorded["campaign"].get("submitted_utc", "") > work["submitted_utc"]:
            return True
        if recorded["campaign"].get("token") != work["token"] or recorded["status"] == "running":
            return None
        return Verdicts(folder, terms_of_conduct(work["conduct"])).judge(recorded)["status"] == "done"
    except record.DamagedRecordError:
        return None


def begin_session(folder: CampaignFolder, work: WorkList, item: ListedItem | WorkItem) -> tuple[Record, int]:
    """Read or make the record of a cell; return the record and the number of missing measured runs.

    A record that may not be continued is moved away, and never overwritten. The number of missing runs comes from the
    record and not from the work list, because the job of a work list may be requeued. If the item has no dataset, the
    session can only record the reason why the cell cannot run.
    """
    data: Data = item["dataset"] or {}
    storage = item["settings"]["storage"]
    path = data.get("disk") or data.get("path") or storage.get("root") or address_of(storage)
    present_provenance = provenance.node_provenance(
        item["settings"], path, item["targets"], data.get("staged", {}).get("root")
    )
    campaign = _submission_of(work, item["position"])
    session: Session = {
        **campaign,
        "id": secrets.token_hex(4),
        "started_utc": utc_now(),
        "slurm": present_provenance["slurm"],
    }
    _take_lease(folder, work, item["id"], session)
    recorded = _record_to_continue(folder.record(item["id"]), work, item, present_provenance)
    if recorded is None:
        cell = Cell(item["id"], item["benchmark"], item["version"], item["settings"], item["access"])
        recorded = record.make_record(cell, campaign, data, terms_of_conduct(work["conduct"]))
        recorded["provenance"] = {**present_provenance, "started_utc": utc_now()}
    threads = item["settings"].get("threads") if recorded["cell"]["data"] == "images" else None
    recorded["provenance"] = emulation.add_expected_rates(recorded["provenance"], data, threads)
    recorded["dataset"], recorded["terms"] = recorded["dataset"] or data, terms_of_conduct(work["conduct"])
    record.fail_open_runs(recorded, _end_of_open_runs(folder, recorded))
    verdict = Verdicts(folder, recorded["terms"]).judge(recorded)
    missing = stopping.required_runs_missing(
        verdict, recorded["terms"]
    )  # does not repeat the invalid runs of a done cell
    recorded["status"], recorded["campaign"] = "running", campaign
    recorded.setdefault("sittings", []).append(session)
    recorded["provenance"]["finished_utc"] = None
    return recorded, missing


def _end_of_open_runs(folder: CampaignFolder, recorded: Record) -> End:
    """Return the end of runs that are still marked as running, with the end of their worker if this is recorded."""
    cell, tokens = recorded["cell"]["id"], {run.get("token") for run in recorded["runs"] if run["status"] == "running"}
    ends = [
        batch.ended[index]
        for batch in (batches.read_batches(folder) if tokens else ())
        for index, cells in enumerate(batch.cells)
        if batch.token in tokens and cell in cells and index in batch.ended
    ]
    end: End = {"code": RunEnd.WORKER_ENDED}
    return {**end, "worker": ends[-1]} if ends else end


def _submission_of(work: WorkList, position: int) -> Submission:
    """Return the part of a record that identifies its submission."""
    conduct = work["conduct"]
    return {
        "token": work["token"],
        "words": work["words"],
        "submitted_utc": work["submitted_utc"],
        "order_seed": conduct["order_seed"],
        "size": conduct["size"],
        "site": conduct["site"]["name"],
        "position": position,
        "attempt": work.get("attempt", 0),
    }


class NextRun(NamedTuple):
    """The next run of a session: its role, and why it was added."""

    role: Role
    added: ReasonOfAddedRun | None = None  # the reason why ``until_spread`` adds the run; None for other runs


def next_runs(recorded: Record, missing: int, verdicts: Verdicts) -> Iterator[NextRun]:
    """Yield the runs of a session one by one; the caller must record a run before it asks for the next run.

    The total number of valid and invalid runs never exceeds the limit of the cell.
    """
    terms = recorded["terms"]

    def reason_to_add() -> ReasonOfAddedRun | None:
        return stopping.reason_to_add(verdicts.judge(recorded), terms)

    if not missing and reason_to_add() is None:
        return
    runs_at_most = stopping.max_missing_runs(verdicts.judge(recorded), terms)
    # Each session begins with warm-up runs. After a break, the machine may be slower in ways that no check finds.
    yield from [NextRun("warmup")] * terms["warmup_runs"]
    for index in range(runs_at_most):
        added = None if index < missing else reason_to_add()
        if index >= missing and added is None:
            return
        yield NextRun("measured", added)


def next_pair_number(folder: CampaignFolder, items: Iterable[ListedItem]) -> int:
    """Return the number of the next pair of runs; all cells that take turns use the same number."""
    records = [record.read_or_fault(folder.record(item["id"]))[0] for item in items]
    return 1 + max((run.get("pair", -1) for recorded in records if recorded for run in recorded["runs"]), default=-1)


def _record_to_continue(
    path: Path, work: WorkList, item: ListedItem | WorkItem, present_provenance: Provenance
) -> Record | None:
    """Return the record to continue, or None if the record is missing or was moved away."""
    try:
        recorded = record.read_record(path)
        if recorded:
            with require_usable(path):
                judge.judge_record(recorded, terms_of_conduct(work["conduct"]))
    except record.DamagedRecordError:
        _set_aside(path, "damaged", disk_patience_s(work))
        return None
    if recorded is None:
        return None
    if work["conduct"]["redo"] and recorded["campaign"]["token"] != work["token"]:
        _set_aside(path, "superseded", disk_patience_s(work))
        return None
    data = item["dataset"] or recorded["dataset"]
    if provenance.provenance_difference(recorded, data, present_provenance, shared=item["access"]["shared"]):
        _set_aside(path, "elsewhere", disk_patience_s(work))
        return None
    return recorded


def make_missing_data(folder: CampaignFolder, item: ListedItem, progress: Progress = lambda *_: None) -> WorkItem:
    """Return the item of a work list with its data set; make the data set if the item has none.

    A node makes the data on its own storage, and data that are too large to be made on a login node.
    """
    data = item["dataset"]
    if data is None:
        from campaign.storage import datasets  # noqa: PLC0415 - imports numpy, and is rarely needed

        settings: Settings = {**item["settings"], "storage": {**item["settings"]["storage"]}}
        settings["storage"] |= {"root": root} if (root := item.get("root")) else {}
        cell = Cell(item["id"], item["benchmark"], item["version"], settings, item["access"])
        data = datasets.dataset_on_this_node(cell, folder, progress)
    return {**item, "dataset": data}


def _set_aside(path: Path, reason: str, patience_s: float) -> None:
    """Move a record and the files of its runs into a subfolder that the analysis does not read.

    The name of the subfolder begins with `reason`.
    """
    prefix = f"{reason}-{utc_now().replace(':', '')}-"
    aside = Path(keep_trying(lambda: tempfile.mkdtemp(prefix=prefix, dir=path.parent), patience_s))
    patterns = ("run-*.*", "trace-*.csv", "profile-*.npz", "tensorflow-*.npz", "engine-*.txt", "timelog-*.timelog")
    run_files = [file for pattern in patterns for file in path.parent.glob(pattern)]
    for file in (*run_files, path):  # the record is moved last, because files without a record would belong to no run
        keep_trying(partial(file.replace, aside / file.name), patience_s)


class Disturbance:
    """Watches whether other programs disturb the runs of one cell, and waits until the machine is quiet.

    `folder` contains the data of the cell. `report` is called with the reason of a wait.
    """

    def __init__(self, conduct: Conduct, folder: Path, report: Callable[[Wait], None]) -> None:
        self._limits, self._patience_s = conduct["checks"], conduct["wait_quiet_s"]
        self._folder, self._report = folder, report
        self._failed: list[Check] = []  # failed checks `quiet` of the last consecutive disturbed runs
        self._has_waited = False

    def may_continue(self, run: Run) -> bool:
        """Return whether another run makes sense; after two consecutive disturbed runs, wait for a quiet machine first.

        If runs are disturbed again although the machine was quiet between the runs, return False. Then the disturbing
        processes probably work for the runs themselves, and no run would count.

        Raises
        ------
        NotQuietError
            The machine did not become quiet within ``wait_quiet_s``.
        """
        failed = judge.failed_quiet_checks([run])
        self._failed = [*self._failed, *failed] if failed else []
        if self._patience_s is None or len(self._failed) < _DISTURBED_RUNS:
            return True
        if self._has_waited:
            return False
        self._wait_until_quiet(self._patience_s)
        self._failed, self._has_waited = [], True
        return True

    def _wait_until_quiet(self, patience_s: float) -> None:
        """Wait until the machine is quiet; raise NotQuietError after `patience_s` seconds."""
        disturbance = f"{len(self._failed)} runs in succession were disturbed, {self._failed[-1]['message']}"
        began = report_at = time.monotonic()
        while (latest_check := check_quiet(self._folder, self._limits))["passed"] is False:
            waited_s = time.monotonic() - began
            if waited_s >= patience_s:
                raise NotQuietError(
                    f"{disturbance}; the machine did not become quiet in {patience_s:g} s",
                    "repeat the command when the machine is quiet, or with wait_quiet_s=… to wait longer",
                )
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + _REPORT_S
                wait: Wait = {"code": Waiting.QUIET, "seconds": patience_s, "words": disturbance}
                self._report({**wait, "now": f"{latest_check['message']}, {waited_s:.0f} s so far"})


def check_quiet(folder: Path, limits: dict[str, float]) -> Check:
    """Return the result of the check `quiet` for one second in which this worker does no run."""
    exists = folder.is_dir()
    device, lowest = (device_of(folder), layers_below(folder).lowest) if exists else (None, None)
    first_reading = counters.read_counters(device, lowest)
    time.sleep(_WATCH_S)
    second_reading = counters.read_counters(device, lowest)
    idle = {
        **counters.subtract_readings(first_reading, second_reading),
        "device_use": counters.use_of_devices(first_reading, second_reading),
    }
    return checks.quiet(cast("Run", idle), Limits(**limits))


class WorkerStoppedError(BaseException):
    """Raised if a signal ends the worker: SIGTERM (Ctrl-C, scancel, preemption) or SIGUSR2 (time limit is near)."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.time_is_up = number == signal.SIGUSR2


@contextmanager
def raise_on_signals(*, slurm: bool) -> Iterator[None]:
    """Raise WorkerStoppedError in the ``with`` block on a signal; then the present run is recorded as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        for handled in old_handlers:  # a second signal must not interrupt the recording
            signal.signal(handled, signal.SIG_IGN)
        raise WorkerStoppedError(number)

    numbers = [signal.SIGTERM, *([signal.SIGUSR2] if slurm else [])]
    old_handlers = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
