"""The worker: walks a list of cells, the same code on a workstation and in a Slurm job.

It is what submitit starts. It imports no TensorFlow: runs are forked from a template process (`campaign.forks`).
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from campaign import record
from campaign.cell import Cell
from campaign.errors import CampaignError
from campaign.folder import CampaignFolder
from campaign.forks import Template
from jobs.checks import Limits
from jobs.durable import write_json
from jobs.machine import describe
from jobs.run import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOCK_NAME = ".tfio-campaign.lock"
_GIVE_UP_AFTER = 2  # runs that failed one after the other; a hang costs run_timeout_s each


class WorkerStoppedError(BaseException):
    """The worker was told to stop (SIGTERM: Ctrl-C in front of it, scancel, preemption)."""


@dataclass
class Worker:
    """One worker at work.

    Attributes
    ----------
    folder
        The campaign folder.
    work
        The work list: ``token``, ``words``, ``conduct``, ``cells`` (each with ``id``, ``benchmark``, ``version``,
        ``settings``, ``dataset``, ``position``, ``missing``).
    template
        Where runs are forked from.
    """

    folder: CampaignFolder
    work: Mapping[str, Any]
    template: Template

    def walk(self) -> None:
        """Run every cell of the list, one after the other."""
        self.template.start()  # before the first run begins: its stamp is not that of an import
        for item in self.work["cells"]:
            self.run_cell(item)

    def run_cell(self, item: Mapping[str, Any]) -> None:
        """Run the warm-ups and the missing runs of one cell; the record is whole on disk after each."""
        recorded = self._open(item)
        conduct = self.work["conduct"]
        # A warm-up belongs to a sitting, not to a record: after a break the machine is cold in ways no check sees.
        roles = ["warmup"] * conduct["warmup_runs"] + ["measured"] * item["missing"]
        failures = 0
        for role in roles:
            run = self._run(recorded, role, item)
            failures = failures + 1 if run["status"] == "failed" else 0
            if failures >= _GIVE_UP_AFTER:
                break
        recorded["provenance"]["finished_utc"] = utc_now()
        record.settle(recorded, conduct, Limits(**conduct["checks"]))
        self._save(recorded)

    def _open(self, item: Mapping[str, Any]) -> record.Record:
        """Read the cell's record or make one; what may not be continued is set aside, never overwritten."""
        cell = Cell(item["id"], item["benchmark"], item["version"], item["settings"])
        path = self.folder.record(cell.id)
        try:
            recorded = record.read(path)
        except record.DamagedRecordError:
            _set_aside(path, "damaged")
            recorded = None
        if recorded and self.work["conduct"]["redo"]:
            _set_aside(path, "superseded")
            recorded = None
        campaign = {key: self.work[key] for key in ("token", "words")} | {
            "order_seed": self.work["conduct"]["order_seed"],
            "position": item["position"],
        }
        if recorded is None:
            recorded = record.new(cell, campaign, item["dataset"])
            recorded["provenance"] = {**describe(Path(item["dataset"]["path"])), "started_utc": utc_now()}
        record.fail_open_runs(recorded)
        recorded["status"], recorded["campaign"] = "running", campaign
        recorded.setdefault("sittings", []).append({**campaign, "started_utc": utc_now()})
        recorded["provenance"]["finished_utc"] = None
        return recorded

    def _run(self, recorded: record.Record, role: str, item: Mapping[str, Any]) -> record.Run:
        """Do one run under the storage's lock; it begins, and is recorded, when the lock is held."""
        recorded["reason"] = f"waiting for {item['dataset']['lock']}"
        self._save(recorded)  # the run before is in it too
        with _storage_lock(Path(item["dataset"]["lock"])) as waited_s:
            run = record.begin_run(recorded, role, self.work["token"])
            run["lock_wait_s"] = waited_s
            self._save(recorded)
            self._execute(recorded, run, item)
        return run

    def _execute(self, recorded: record.Record, run: record.Run, item: Mapping[str, Any]) -> None:
        """Let the template do the run, and put its figures into `run`."""
        conduct = self.work["conduct"]
        log = self.folder.cell(item["id"]) / f"run-{run['run']}.log"
        run["log"] = log.name
        request = {
            "settings": item["settings"],
            "dataset": item["dataset"]["path"],
            "manifest": item["dataset"]["manifest"],
            "limits": conduct["checks"],
        }
        try:
            figures = self.template.run(request, log, conduct["run_timeout_s"])
        except WorkerStoppedError:
            run["status"], run["reason"] = "failed", "interrupted: the campaign was stopped during this run"
            recorded["reason"] = "stopped"
            self._save(recorded)
            raise
        run |= figures

    def _save(self, recorded: record.Record) -> None:
        record.write(self.folder.record(recorded["cell"]["id"]), recorded)


def main(work_list: str) -> None:
    """Do the work list at this path; the function that submitit calls.

    An error of the whole worker (no TensorFlow, no space for a record) is left in ``<work list>.error.json`` for the
    front process, and raised.
    """
    path = Path(work_list)
    work = json.loads(path.read_text(encoding="utf-8"))
    folder = CampaignFolder(Path(work["campaign_dir"]))
    template = Template(path.with_suffix(".template.log"))
    with folder.worker_lock(), _stoppable():
        try:
            Worker(folder, work, template).walk()
        except (CampaignError, OSError) as error:
            write_json(path.with_suffix(".error.json"), _as_error(error))
            raise
        finally:
            template.close()


def _as_error(error: CampaignError | OSError) -> dict[str, Any]:
    if isinstance(error, CampaignError):
        return {"message": error.message, "hint": error.hint}
    return {"message": f"the worker cannot go on: {error}", "hint": "free space, mend the folder, then ask again"}


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the run under way is recorded as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signum: int, _frame: object) -> None:
        raise WorkerStoppedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _storage_lock(path: Path) -> Iterator[float]:
    """Hold the storage alone on this node; yields the seconds waited for it."""
    before = time.perf_counter()
    # Other users of the storage must be able to take it too.
    with FileLock(path, mode=0o666):
        yield time.perf_counter() - before


def lock_path(root: Path, fallback: Path) -> Path:
    """Say which file locks a storage: one in its root or, where that is not writable, in the campaign folder."""
    return (root if os.access(root, os.W_OK) else fallback) / _LOCK_NAME


def _set_aside(path: Path, why: str) -> None:
    """Move a record and its logs into a folder beside it: nothing is lost, and the analysis does not read it."""
    aside = Path(tempfile.mkdtemp(prefix=f"{why}-{utc_now().replace(':', '')}-", dir=path.parent))
    for file in (*path.parent.glob("run-*.log"), path):  # the record last: without it they would seem nobody's
        file.replace(aside / file.name)
