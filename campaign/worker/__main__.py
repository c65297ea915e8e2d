"""Run the cells of a work list, with the same code on a workstation and in a Slurm job.

This process does not import TensorFlow. A template process imports TensorFlow, and each run is a fork of the template
process (`campaign.worker.runner`). A worker can be started by hand::

    python -m campaign.worker WORK_LIST.json
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from campaign import console
from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.errors import CampaignError, EnvironmentFaultError, NotQuietError, UsageError
from campaign.slurm import job
from campaign.storage import baseline_files, checkpoint_targets, emulation, locks
from campaign.storage.roots import path_on_rank
from campaign.worker import runner, session
from campaign.worker.batch import describe_fault, read_file
from campaign.worker.ranks import Leader, RankLostError, follow_first_rank, rank_here
from campaign.worker.runner import Template, modules_to_preload
from campaign.worker.session import Disturbance, WorkerStoppedError, raise_on_signals
from jobs.benchmarks import registry
from jobs.errors import NoGpuError
from jobs.model.codes import REFUSALS, End, RunEnd, Wait, run_end_sentence
from jobs.model.record import Record
from jobs.model.results import Run
from jobs.model.work import ListedItem, RunRequest, TraceRequest, WorkItem, WorkList
from jobs.observe.conditions import place_of_process
from jobs.system.clock import utc_now
from jobs.system.files import keep_trying, write_json
from jobs.terminal import open_streams

_PROBE, _PROBE_TIMEOUT_S = "jobs.benchmarks.accelerator:probe_accelerator", 120.0
# A cell ends after this number of consecutive failed runs, because a run that hangs takes the whole run_timeout_s.
_GIVE_UP_AFTER = 2
_STOPPED_EXIT = 128 + signal.SIGTERM


@dataclass
class Worker:
    """A worker, with its work list and the template process from which runs are forked."""

    folder: CampaignFolder
    work: WorkList
    template: Template
    # Slurm's description of the job. If Slurm did not answer, the worker asks again before each run.
    job: Mapping[str, str] = field(default_factory=dict)
    leader: Leader | None = None  # leads the other ranks of a job on several nodes; None on a single node
    _pair: int | None = None  # number of the present pair of measured runs; None if cells do not take turns

    def run_all(self) -> bool:
        """Run all cells of the work list; return whether all cells are done."""
        self.template.start()  # otherwise the start time of the first run would include the import of TensorFlow
        self._require_accelerator()
        cells = self.work["cells"]
        groups = [cells] if self.work["conduct"]["in_turn"] else [[item] for item in cells]
        outcomes = [self.run_cells(group) for group in groups]
        return all(outcomes)

    def _require_accelerator(self) -> None:
        if any(item["settings"].get("accelerator", {}).get("name") == "gpu" for item in self.work["cells"]):
            log = self.folder.workers / f"{self.work['token']}.accelerator.log"
            answer = self.template.run({"name": "gpu"}, log, _PROBE_TIMEOUT_S, _PROBE)
            if answer.get("status") == "failed":
                raise EnvironmentFaultError(run_end_sentence(answer["end"]), NoGpuError().hint)

    def run_cells(self, items: Sequence[ListedItem]) -> bool:
        """Run the cells in turns until all cells are finished; return whether all cells are done.

        In each turn, every cell does one run. The order of the cells is reversed after each turn (a b b a).
        """
        self._pair = session.next_pair_number(self.folder, items) if len(items) > 1 else None
        cells, outcomes = [self._run_cell(item) for item in items], []
        while cells:
            for cell in tuple(cells):
                try:
                    next(cell)
                except StopIteration as end:
                    cells.remove(cell)
                    outcomes.append(end.value)
                except BaseException as error:
                    for other in cells:
                        with suppress(type(error)):
                            other.throw(error)
                    raise
            cells.reverse()
            self._pair = None if self._pair is None else self._pair + 1
        return all(outcomes)

    def _run_cell(self, item: ListedItem) -> Generator[None, None, bool]:
        """Run one cell and yield after each run; return whether the cell is done.

        Also return True if another worker has taken the cell over.
        """
        verdict = session.verdict_if_over(self.folder, self.work, item["id"])
        if verdict is not None:
            return verdict
        try:
            item_with_data = session.make_missing_data(self.folder, item)
            if self.leader and item["dataset"] is None and not item["access"]["shared"]:
                self.leader.wait_for_ranks()
                self.leader.make_data(item, item_with_data["dataset"])
            return (yield from self._run_session(item_with_data))
        except UsageError as error:  # only this cell cannot run; the worker continues with the next cell
            return self._refuse(item, {"code": RunEnd.NO_DATA, "words": f"{error.message}; {error.hint}"})
        except session.TakenOverError as error:
            with suppress(OSError):  # the process that reads stderr may have ended
                print(f"{item['id']}: {error}", file=sys.stderr, flush=True)
            if error.same_list:
                raise
            return True

    def _run_session(self, item: WorkItem) -> Generator[None, None, bool]:
        """Do the warm-up runs and the missing runs of one cell; yield after each run.

        At the end, return whether the cell is done.
        """
        recorded, missing = session.begin_session(self.folder, self.work, item)
        verdicts, failures = Verdicts(self.folder, recorded["terms"]), 0
        report = partial(self._save_waiting, recorded)
        disturbance = Disturbance(self.work["conduct"], Path(item["dataset"]["path"]), report)
        try:
            for next_run in session.next_runs(recorded, missing, verdicts):
                run = self._judge_last_run(verdicts, recorded, self._run_once(recorded, next_run, item))
                failures = failures + 1 if run["status"] == "failed" else 0
                if failures >= _GIVE_UP_AFTER or run.get("cause") in REFUSALS or not disturbance.may_continue(run):
                    break
                # Normally the next run of the cell saves the record. If cells take turns, other cells run before that.
                if self._pair is not None:
                    self._save_record(recorded)
                yield
        except NotQuietError:  # raised for this cell, or for another cell that takes turns with this cell
            self._end_session(recorded)
            raise
        return self._end_session(recorded)

    @staticmethod
    def _judge_last_run(verdicts: Verdicts, recorded: Record, run: Run) -> Run:
        """Return the last run with its verdict; if its benchmark left out metrics, mark the run as failed."""
        try:
            return verdicts.judge(recorded)["runs"][-1]
        except record.DamagedRecordError as error:
            words = f"the record {error.__cause__}"
            run["status"], run["end"] = "failed", {"code": RunEnd.ODD_METRICS, "words": words}
            return run

    def _refuse(self, item: ListedItem, end: End) -> bool:
        """Record one failed run with the reason why the cell cannot run; return whether the cell is done."""
        recorded, _ = session.begin_session(self.folder, self.work, item)
        run = record.begin_run(recorded, "measured", self.work["token"])
        run |= {"status": "failed", "end": end}
        run |= place_of_process()
        return self._end_session(recorded)

    def _end_session(self, recorded: Record) -> bool:
        """Write the end of a session into the record; return whether the cell is done."""
        recorded["provenance"]["finished_utc"] = utc_now()
        recorded["status"], recorded["waits_for"] = "ended", None
        self._save_record(recorded)
        return Verdicts(self.folder, recorded["terms"]).judge(recorded)["status"] == "done"

    def _run_once(self, recorded: Record, next_run: session.NextRun, item: WorkItem) -> Run:
        """Wait for the locks of the storages, record that the run begins, and do the run."""
        lock = Path(item["dataset"]["lock"])
        if any(run.get("token") == self.work["token"] for run in recorded["runs"]):
            self._save_record(recorded)  # the end of the previous run is not on disk yet
        if self.work["cluster"] == "slurm":
            self.job = self.job or job.describe_job()
        method = locks.lock_method(item["access"], slurm=self.work["cluster"] == "slurm")
        report = partial(self._save_waiting, recorded)
        devices = locks.device_locks(checkpoint_targets.used_paths(item)) if method == "lock" else []
        other_locks = [*checkpoint_targets.target_locks(item, self.folder), *devices]
        with locks.hold_storage(method, lock, self.job, other_locks, report) as proof:
            pair = self._pair if next_run.role == "measured" else None
            run = record.begin_run(recorded, next_run.role, self.work["token"], next_run.added, pair)
            run["exclusive"] = proof
            run |= place_of_process()
            self._save_record(recorded)
            if refusal := self._refusal(run, item, proof):
                run |= {"status": "failed", "end": refusal}
            else:
                with self._hold_other_nodes(method, lock, item):
                    self._execute(recorded, run, item)
        return run

    def _hold_other_nodes(self, method: str, lock: Path, item: WorkItem) -> AbstractContextManager[None]:
        """Return a context that locks the storages of the job's other nodes, if each node has its own storage."""
        if self.leader is None:
            return nullcontext()
        self.leader.wait_for_ranks()
        return nullcontext() if method != "lock" or item["access"]["shared"] else self.leader.hold_storages(lock)

    def _refusal(self, run: Run, item: WorkItem, proof: locks.LockProof) -> End | None:
        """Return the reason why a run must not begin, or None if the run may begin."""
        threads, conduct = item["settings"].get("threads", 1), self.work["conduct"]
        if self.work["cluster"] == "slurm" and not conduct["cluster"]["oversubscribe"] and run["cpus"] < threads:
            # `run["cpus"]` is the number of CPUs that Slurm has allocated to the job.
            return {"code": RunEnd.TOO_FEW_CPUS, "threads": threads, "cpus": run["cpus"]}
        if reason := checkpoint_targets.moved_path_sentence(item):
            return {"code": RunEnd.STORAGE_MOVED, "words": reason}
        if reason := emulation.missing_limits(checkpoint_targets.used_paths(item)):
            return {"code": RunEnd.NOT_EMULATED, "words": reason}
        reason = locks.licence_doubt(proof, item["access"])
        return {"code": RunEnd.NOT_EXCLUSIVE, "words": reason} if reason else None

    def _execute(self, recorded: Record, run: Run, item: WorkItem) -> None:
        """Execute the run in a fork of the template process, and add the metrics to `run`."""
        log = self.folder.cell(item["id"]) / f"run-{run['run']}.log"
        run["log"] = log.name
        request = self._make_request(run, item)
        try:
            with baseline_files.remove_written_file(item):
                metrics = self._run_in_template(request, log)
        except (WorkerStoppedError, RankLostError) as stop:
            run["status"], run["end"] = "failed", _end_by_stop(stop)
            with suppress(session.TakenOverError):
                self._save_record(recorded)
            raise
        run |= metrics
        if not log.exists():  # for example because the disk is full
            run["log"] = None

    def _run_in_template(self, request: RunRequest, log: Path) -> Run:
        """Execute a request on this node or on all ranks of the job, and return its metrics."""
        conduct, nodes = self.work["conduct"], request["settings"].get("nodes", 1)
        if nodes == 1:
            if self.work["cluster"] != "slurm":
                request["dataset"] = path_on_rank(request["dataset"], request["settings"]["storage"], 0)
            ending_s = registry.benchmark_of(request["settings"]).ending_s
            run = self.template.run(request, log, conduct["run_timeout_s"] + ending_s)
            if "seconds" in run.get("end", {}):  # report the time limit that the user has set, without `ending_s`
                run["end"]["seconds"] = conduct["run_timeout_s"]
            return run
        ranks = self.leader.ranks if self.leader else runner.local_ranks(self.template, nodes)
        return runner.run_on_ranks(ranks, request, log, conduct)

    def _make_request(self, run: Run, item: WorkItem) -> RunRequest:
        """Return the request for a run: the settings, the data and the paths of the output files."""
        conduct, cell, data = self.work["conduct"], self.folder.cell(item["id"]), item["dataset"]
        number = run["run"]
        trace, interval_s = conduct["trace"], conduct["trace"]["interval_s"]
        trace_request: TraceRequest | None = None
        if interval_s is not None:
            trace_request = {
                "file": str(cell / f"trace-{number}.csv"),
                "interval_s": interval_s,
                "tail_s": trace["tail_s"],
            }
        return {
            "settings": item["settings"],
            "dataset": data["path"],
            "manifest": data.get("manifest"),
            "listed_ns": data.get("listed_ns"),
            "staged": data.get("staged", {}).get("map"),
            "disk": data.get("disk"),
            "trace": trace_request,
            "profile": str(cell / f"profile-{number}.npz"),
            "tensorflow": str(cell / f"tensorflow-{number}.npz"),
            "timelog": str(cell / f"timelog-{number}.timelog"),
            "steps": str(cell / f"run-{number}.npz"),
            "checkpoint": checkpoint_targets.snapshot_request(item, conduct, self.work["campaign_id"]),
            "baseline": baseline_files.file_request(item, cell / f"engine-{number}.txt"),
            "limit_s": conduct["run_timeout_s"],
        }

    def _save_waiting(self, recorded: Record, wait: Wait) -> None:
        recorded["waits_for"] = wait
        self._save_record(recorded)

    def _save_record(self, recorded: Record) -> None:
        """Write the record; raise TakenOverError if another worker has the lease of the cell now."""
        session.require_lease(self.folder, recorded)
        path, check = self.folder.record(recorded["cell"]["id"]), partial(session.refuse_removed, self.folder)
        record.write_record(path, recorded, session.disk_patience_s(self.work), check)


def main(work_list: str) -> int:
    """Run the cells of the work list at the path `work_list`; return the exit code: 0 if all cells are done, else 1.

    An error that stops the whole worker, for example missing TensorFlow or a full disk, is raised. It is also written
    to ``<work list>.error.json``, so that the command that started the worker can report the error.
    """
    path = Path(work_list)
    work = read_file(path.resolve(), WorkList)
    if work["cluster"] == "slurm" and rank_here():
        return follow_first_rank(path.resolve(), work)
    folder = CampaignFolder(Path(work["campaign_dir"]))
    template = Template(path.with_suffix(".template.log"), modules_to_preload(work))
    fault = path.with_suffix(".error.json")
    leader = _make_leader(path.resolve(), work, template)
    alone = nullcontext() if work["cluster"] == "slurm" else folder.worker_lock()
    with alone, raise_on_signals(slurm=work["cluster"] == "slurm"):
        try:
            # The error file may exist from an earlier start of a requeued job.
            keep_trying(partial(fault.unlink, missing_ok=True), session.disk_patience_s(work))
            if work["cluster"] == "slurm" and job.was_restarted_too_often(work["conduct"]["cluster"], fault):
                return 1
            _make_data_sets(folder, work)
            return 0 if not work["cells"] or Worker(folder, work, template, leader=leader).run_all() else 1
        except session.TakenOverError:
            return 1  # no error is written, because the other worker uses the same error file
        except RankLostError as lost:
            job.requeue_or_explain(work["conduct"]["cluster"], fault, str(lost))
            return _STOPPED_EXIT
        except WorkerStoppedError as stop:
            if work["cluster"] != "slurm":
                raise
            if stop.time_is_up:
                job.requeue_or_explain(work["conduct"]["cluster"], fault)
            return _STOPPED_EXIT
        except (CampaignError, OSError) as error:
            with suppress(OSError):  # the folder was removed, or its disk is full
                write_json(fault, describe_fault(error))
            raise
        finally:
            if leader:
                leader.close()
            template.close()


def _make_data_sets(folder: CampaignFolder, work: WorkList) -> None:
    """Make the data of all cells in ``to_make``, which later jobs will run."""
    with console.progress() as progress:
        for item in work.get("to_make", ()):
            session.make_missing_data(folder, item, progress)


def _end_by_stop(stop: WorkerStoppedError | RankLostError) -> End:
    """Return how a run ended that was interrupted because its worker was stopped or a rank was lost."""
    if isinstance(stop, RankLostError):
        return {"code": RunEnd.RANK_LOST, "words": str(stop)}
    return {"code": RunEnd.TIME_IS_UP if stop.time_is_up else RunEnd.STOPPED}


def _make_leader(path: Path, work: WorkList, template: Template) -> Leader | None:
    """Return the leader of the other ranks of a job, or None for a job on a single node."""
    nodes = work["cells"][0]["settings"].get("nodes", 1) if work["cluster"] == "slurm" and work["cells"] else 1
    return Leader(template, path, nodes, work["conduct"]["ranks_timeout_s"]) if nodes > 1 else None


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1]))
