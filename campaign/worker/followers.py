"""The ranks of a Slurm job: the first one's worker leads, the others follow it, each on a node of its own.

`srun` starts the same command on each node. The first leaves a file beside its work list that says where it listens;
the others find it there, show the secret that it holds, and do what they are told until the first one has gone::

    {"do": "run", "request", "log", "timeout_s"}  ->  {"run", "ended_s"}
    {"do": "lock", "path"}, {"do": "unlock"}      ->  {}
    {"do": "data", "item"}                        ->  {"data"} or {"error", "hint"}
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, TypedDict

from campaign.cells.contract import WorkList
from campaign.cells.folder import CampaignFolder
from campaign.errors import CampaignError
from campaign.slurm import job
from campaign.storage import locks
from campaign.worker import session
from campaign.worker.runner import Template
from jobs.figures import Run
from jobs.ranks.rank import boot
from jobs.ranks.wire import ClosedError, Line
from jobs.system import versioned

_LOOK_S = WATCH_S = 0.2  # between two looks at a file, or at whether a run is over
HELLO_S = 10.0  # for a word that needs no work


class Meeting(TypedDict):
    """Where the first rank listens, in which start of which job; port 0: it has gone again."""

    job: str
    restarts: int
    address: str
    port: int
    secret: str


def rank_here() -> int:
    """Return the rank of this process in its Slurm step."""
    return int(os.environ.get("SLURM_PROCID", "0"))


def file_of(work_list: Path) -> Path:
    """Return the file beside a work list that says where its first rank is."""
    return work_list.with_suffix(".ranks.json")


def this_start() -> dict[str, Any]:
    """Return what tells this start of the job from others."""
    return {"job": os.environ.get("SLURM_JOB_ID", ""), "restarts": job.restarts()}


def follow(path: Path, work: WorkList) -> int:
    """Serve the first rank of this job until it has gone, or for as long as ranks wait for it to come; returns 0."""
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the first rank writes down what they mean, and goes
    serve(path, work, rank_here(), Template(path.with_suffix(f".rank{rank_here()}.template.log")))
    return 0


def serve(path: Path, work: WorkList, rank: int, template: Template) -> None:
    """Do as `follow`, with the signals as they are."""
    try:
        template.start()
        where = _found(file_of(path), work["conduct"]["ranks_timeout_s"])
        if not where["port"]:  # it has gone already
            return
        hello = {"secret": where["secret"], "rank": rank, "boot": boot(), "address": job.node_address()}
        with closing(Line.to(where["address"], where["port"], HELLO_S)) as line, ExitStack() as held:
            line.send({**hello, "node": os.environ.get("SLURMD_NODENAME", "")})
            while True:
                line.send(_done(line.receive(), line, template, work, held))
    except ClosedError:
        return
    finally:
        template.close()


def _found(file: Path, timeout_s: float) -> Meeting:
    """Wait until the first rank has said where it is, in this start of the job: one of an earlier start has gone."""
    deadline, this = time.monotonic() + timeout_s, this_start()
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            os.scandir(file.parent).close()  # an NFS client looks for new files only so
            found = versioned.read_as(file, Meeting)
            if (found["job"], found["restarts"]) == (this["job"], this["restarts"]):
                return found
        time.sleep(_LOOK_S)
    raise ClosedError("the first rank was not found")


def _done(said: dict[str, Any], line: Line, template: Template, work: WorkList, held: ExitStack) -> dict[str, Any]:
    if said["do"] == "run":
        began = time.perf_counter()
        return {"run": _run(said, line, template), "ended_s": time.perf_counter() - began}
    if said["do"] == "lock":
        held.enter_context(locks.locked(Path(said["path"])))
    elif said["do"] == "unlock":
        held.close()
    elif said["do"] == "data":
        try:
            return {"data": session.with_dataset(CampaignFolder(Path(work["campaign_dir"])), said["item"])["dataset"]}
        except CampaignError as error:
            return {"error": error.message, "hint": error.hint}
    return {}


def _run(said: dict[str, Any], line: Line, template: Template) -> Run:
    """Run a request, unless the first rank says stop meanwhile, or goes."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_S):
            if select.select([line], [], [], 0)[0]:
                template.stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    run = template.run(said["request"], Path(said["log"]), said["timeout_s"])
    over.set()
    watcher.join()
    if template.was_stopped:
        line.receive(HELLO_S)  # the word that stopped it
    return run
