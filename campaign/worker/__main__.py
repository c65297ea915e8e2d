"""The worker: walks a list of cells, the same code on a workstation and in a Slurm job.

It imports no TensorFlow: runs are forked from a template process (`campaign.worker.runner`). By hand::

    python -m campaign.worker WORK_LIST.json
"""

from __future__ import annotations

import errno
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
from campaign.storage.roots import seen_by
from campaign.worker import session, together
from campaign.worker.batch import Fault, read_file
from campaign.worker.disturbance import Disturbance
from campaign.worker.followers import follow, rank_here
from campaign.worker.leader import Leader, RankLostError
from campaign.worker.runner import Template
from campaign.worker.signals import WorkerStoppedError, stoppable
from jobs.benchmarks import registry
from jobs.errors import NoGpuError
from jobs.judging import paired
from jobs.model.codes import REFUSALS, End, RunEnd, Wait, sentence
from jobs.model.record import Record
from jobs.model.request import Request, TraceRequest
from jobs.model.results import Run
from jobs.model.work import ListedItem, WorkItem, WorkList
from jobs.observe.machine_facts import place
from jobs.system.clock import utc_now
from jobs.system.durable import keep_trying
from jobs.system.files import write_json
from jobs.terminal import open_streams

_PROBE, _PROBE_TIMEOUT_S = "jobs.benchmarks.accelerator:probe", 120.0
_GIVE_UP_AFTER = 2  # runs that failed one after the other; a hang costs run_timeout_s each
_STOPPED_EXIT = 128 + signal.SIGTERM


@dataclass
class Worker:
    """One worker at work."""

    folder: CampaignFolder
    work: WorkList
    template: Template  # where runs are forked from
    # What Slurm says of its job; asked for before each run until there is an answer.
    job: Mapping[str, str] = field(default_factory=dict)
    leader: Leader | None = None  # of the other ranks, in a job on several nodes
    _pair: int | None = None  # of measured runs of cells that take turns

    def walk(self) -> bool:
        """Run every cell of the list, one after the other; returns whether each of them is done."""
        self.template.start()  # before the first run begins: its stamp is not that of an import
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
                raise EnvironmentFaultError(sentence(answer["end"]), NoGpuError().hint)

    def run_cells(self, items: Sequence[ListedItem]) -> bool:
        """Finish cells whose runs take turns, there and back; returns whether all of them are done."""
        self._pair = session.next_pair(self.folder, items) if len(items) > 1 else None
        cells, outcomes = [self._runs_of(item) for item in items], []
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

    def _runs_of(self, item: ListedItem) -> Generator[None, None, bool]:
        """Finish one cell, or leave it to a worker that has started it since; returns whether it is done.

        Yields after each run.
        """
        known = session.verdict(self.folder, self.work, item["id"])
        if known is not None:
            return known
        try:
            ready = session.with_dataset(self.folder, item)
            if self.leader and item["dataset"] is None and not item["access"]["shared"]:
                self.leader.gather()
                self.leader.make_data(item, ready["dataset"])
            return (yield from self._session(ready))
        except UsageError as error:  # of this cell: the others of the list may be well
            return self._refuse(item, {"code": RunEnd.NO_DATA, "words": f"{error.message}; {error.hint}"})
        except session.TakenOverError as error:
            with suppress(OSError):  # who read the log may be gone
                print(f"{item['id']}: {error}", file=sys.stderr, flush=True)
            if error.same_list:
                raise
            return True

    def _session(self, item: WorkItem) -> Generator[None, None, bool]:
        """Run the warm-ups and the missing runs of one cell; the record is whole on disk after each."""
        recorded, owed = session.begin(self.folder, self.work, item)
        verdicts, failures = Verdicts(self.folder, recorded["terms"]), 0
        report = partial(self._save_waiting, recorded)
        disturbance = Disturbance(self.work["conduct"], Path(item["dataset"]["path"]), report)
        try:
            for turn in session.turns(recorded, owed, verdicts):
                run = self._judged(verdicts, recorded, self._run(recorded, turn, item))
                failures = failures + 1 if run["status"] == "failed" else 0
                if failures >= _GIVE_UP_AFTER or run.get("cause") in REFUSALS or not disturbance.let_go_on(run):
                    break
                if self._pair is not None:  # its next run, which would save it, comes after those of other cells
                    self._save(recorded)
                yield
        except NotQuietError:  # of this cell's runs, or of another one's with which it takes turns
            self._settle(recorded)
            raise
        return self._settle(recorded)

    @staticmethod
    def _judged(verdicts: Verdicts, recorded: Record, run: Run) -> Run:
        """Return a run with its verdict; one that cannot be judged has failed: its benchmark left metrics out."""
        try:
            return verdicts.judged(recorded)["runs"][-1]
        except record.DamagedRecordError as error:
            words = f"the record {error.__cause__}"
            run["status"], run["end"] = "failed", {"code": RunEnd.ODD_METRICS, "words": words}
            return run

    def _refuse(self, item: ListedItem, end: End) -> bool:
        recorded, _ = session.begin(self.folder, self.work, item)
        run = record.begin_run(recorded, "measured", self.work["token"])
        run |= {"status": "failed", "end": end}
        run |= place()
        return self._settle(recorded)

    def _settle(self, recorded: Record) -> bool:
        recorded["provenance"]["finished_utc"] = utc_now()
        recorded["status"], recorded["waits_for"] = "ended", None
        self._save(recorded)
        return Verdicts(self.folder, recorded["terms"]).judged(recorded)["status"] == "done"

    def _run(self, recorded: Record, turn: session.Turn, item: WorkItem) -> Run:
        """Do one run while the storage is held; it begins, and is recorded, when it is."""
        lock = Path(item["dataset"]["lock"])
        if any(run.get("token") == self.work["token"] for run in recorded["runs"]):
            self._save(recorded)  # for the run before is in it; else there is nothing that would be lost
        if self.work["cluster"] == "slurm":
            self.job = self.job or job.described()
        how = locks.how(item["access"], slurm=self.work["cluster"] == "slurm")
        report = partial(self._save_waiting, recorded)
        devices = locks.device_locks(checkpoint_targets.places(item)) if how == "lock" else []
        also = [*checkpoint_targets.locks(item, self.folder), *devices]
        with locks.held(how, lock, self.job, also, report) as proof:
            run = record.begin_run(recorded, turn.role, self.work["token"], turn.added, self._pair_of(turn))
            run["exclusive"] = proof
            run |= place()
            self._save(recorded)
            if refusal := self._refusal(run, item, proof):
                run |= {"status": "failed", "end": refusal}
            else:
                with self._others_held(how, lock, item):
                    self._execute(recorded, run, item)
        return run

    def _pair_of(self, turn: session.Turn) -> int | None:
        """Return the number of the pair that a run belongs to: of two runs of one cell, or of cells in turn."""
        return turn.pair if turn.role != "measured" or turn.pair is not None else self._pair

    def _others_held(self, how: str, lock: Path, item: WorkItem) -> AbstractContextManager[None]:
        """Hold the storages of the other nodes of the job, where each has its own."""
        if self.leader is None:
            return nullcontext()
        self.leader.gather()
        return nullcontext() if how != "lock" or item["access"]["shared"] else self.leader.holding(lock)

    def _refusal(self, run: Run, item: WorkItem, proof: locks.Proof) -> End | None:
        """Return why a run must not begin; None where it may."""
        threads, conduct = item["settings"].get("threads", 1), self.work["conduct"]
        if self.work["cluster"] == "slurm" and not conduct["cluster"]["oversubscribe"] and run["cpus"] < threads:
            return {"code": RunEnd.TOO_FEW_CPUS, "threads": threads, "cpus": run["cpus"]}  # of the allocation
        if why := checkpoint_targets.moved(item):
            return {"code": RunEnd.STORAGE_MOVED, "words": why}
        if why := emulation.unbounded(checkpoint_targets.places(item)):
            return {"code": RunEnd.NOT_EMULATED, "words": why}
        why = locks.doubt(proof, item["access"])
        return {"code": RunEnd.NOT_EXCLUSIVE, "words": why} if why else None

    def _execute(self, recorded: Record, run: Run, item: WorkItem) -> None:
        """Let the template do the run, and put its figures into `run`."""
        log = self.folder.cell(item["id"]) / f"run-{run['run']}.log"
        run["log"] = log.name
        request = self._request(run, item)
        try:
            with baseline_files.tidied(item):
                figures = self._figures(request, log)
        except (WorkerStoppedError, RankLostError) as stop:
            run["status"], run["end"] = "failed", _cut_by(stop)
            with suppress(session.TakenOverError):
                self._save(recorded)
            raise
        run |= figures
        if not log.exists():  # a full disk
            run["log"] = None

    def _figures(self, request: Request, log: Path) -> Run:
        conduct, nodes = self.work["conduct"], request["settings"].get("nodes", 1)
        if nodes == 1:
            if self.work["cluster"] != "slurm":
                request["dataset"] = seen_by(request["dataset"], request["settings"]["storage"], 0)
            ending_s = registry.of(request["settings"]).ending_s
            return self.template.run(request, log, conduct["run_timeout_s"] + ending_s)
        return together.run(self.leader or together.Here(self.template, nodes), request, log, conduct)

    def _request(self, begun: Run, item: WorkItem) -> Request:
        conduct, cell, data = self.work["conduct"], self.folder.cell(item["id"]), item["dataset"]
        run = begun["run"]
        seen = begun["role"] != paired.UNPROFILED
        trace, interval_s = conduct["trace"], conduct["trace"]["interval_s"]
        traced: TraceRequest | None = None
        if interval_s is not None:
            traced = {"file": str(cell / f"trace-{run}.csv"), "interval_s": interval_s, "tail_s": trace["tail_s"]}
        return {
            "settings": item["settings"],
            "dataset": data["path"],
            "manifest": data.get("manifest"),
            "listed_ns": data.get("listed_ns"),
            "staged": data.get("staged", {}).get("map"),
            "disk": data.get("disk"),
            "trace": traced,
            "profile": str(cell / f"profile-{run}.npz") if seen else None,
            "tensorflow": str(cell / f"tensorflow-{run}.npz") if seen else None,
            "timelog": str(cell / f"timelog-{run}.timelog"),
            "steps": str(cell / f"run-{run}.npz"),
            "checkpoint": checkpoint_targets.request(item, conduct, self.work["campaign_id"]),
            "baseline": baseline_files.request(item, cell / f"engine-{run}.txt"),
            "limit_s": conduct["run_timeout_s"],
        }

    def _save_waiting(self, recorded: Record, wait: Wait) -> None:
        recorded["waits_for"] = wait
        self._save(recorded)

    def _save(self, recorded: Record) -> None:
        session.make_sure_it_is_ours(self.folder, recorded)
        path, check = self.folder.record(recorded["cell"]["id"]), partial(session.refuse_removed, self.folder)
        record.write(path, recorded, session.patience_of(self.work), check)


def main(work_list: str) -> int:
    """Do the work list at this path; exit code 0 where every cell of it is done, else 1.

    An error of the whole worker (no TensorFlow, no space for a record) is left in ``<work list>.error.json`` for the
    front process, and raised.
    """
    path = Path(work_list)
    work = read_file(path.resolve(), WorkList)
    if work["cluster"] == "slurm" and rank_here():
        return follow(path.resolve(), work)
    folder = CampaignFolder(Path(work["campaign_dir"]))
    benchmarks = [registry.benchmarks()[item["benchmark"]] for item in work["cells"]]
    imports = dict.fromkeys(name for each in benchmarks for name in each.imports)
    template = Template(path.with_suffix(".template.log"), ("jobs.run", *imports))
    fault = path.with_suffix(".error.json")
    leader = _leader(path.resolve(), work, template)
    alone = nullcontext() if work["cluster"] == "slurm" else folder.worker_lock()
    with alone, stoppable(slurm=work["cluster"] == "slurm"):
        try:
            keep_trying(
                lambda: fault.unlink(missing_ok=True), session.patience_of(work)
            )  # of the time before a requeue
            if work["cluster"] == "slurm" and job.begun_too_often(work["conduct"]["cluster"], fault):
                return 1
            _make_data(folder, work)
            return 0 if not work["cells"] or Worker(folder, work, template, leader=leader).walk() else 1
        except session.TakenOverError:
            return 1  # and no fault: its file is the other's, too
        except RankLostError as lost:
            job.go_back(work["conduct"]["cluster"], fault, str(lost))
            return _STOPPED_EXIT
        except WorkerStoppedError as stop:
            if work["cluster"] != "slurm":
                raise
            if stop.time_is_up:
                job.go_back(work["conduct"]["cluster"], fault)
            return _STOPPED_EXIT
        except (CampaignError, OSError) as error:
            with suppress(OSError):  # its folder is gone, or full
                write_json(fault, _as_error(error))
            raise
        finally:
            if leader:
                leader.close()
            template.close()


def _make_data(folder: CampaignFolder, work: WorkList) -> None:
    """Make the data of cells that later jobs run."""
    with console.progress() as progress:
        for item in work.get("to_make", ()):
            session.with_dataset(folder, item, progress)


def _cut_by(stop: WorkerStoppedError | RankLostError) -> End:
    if isinstance(stop, RankLostError):
        return {"code": RunEnd.RANK_LOST, "words": str(stop)}
    return {"code": RunEnd.TIME_IS_UP if stop.time_is_up else RunEnd.STOPPED}


def _leader(path: Path, work: WorkList, template: Template) -> Leader | None:
    """Return what leads the other ranks of a job; None for a job on one node, whose cells all have one rank."""
    nodes = work["cells"][0]["settings"].get("nodes", 1) if work["cluster"] == "slurm" and work["cells"] else 1
    return Leader(template, path, nodes, work["conduct"]["ranks_timeout_s"]) if nodes > 1 else None


def _as_error(error: CampaignError | OSError) -> Fault:
    if isinstance(error, NotQuietError):
        return {"message": error.message, "hint": error.hint, "not_quiet": True}
    if isinstance(error, CampaignError):
        return {"message": error.message, "hint": error.hint}
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = (
        "make room, then repeat the same command"
        if full
        else "fix it; `python -m campaign doctor` checks what a node sees"
    )
    return {"message": f"the worker cannot go on: {error}", "hint": hint}


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1]))
