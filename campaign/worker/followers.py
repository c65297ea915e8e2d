"""The ranks of a Slurm job: the first one's worker leads, the others follow it, each on a node of its own.

`srun` starts the same command on each node. The first leaves a file beside its work list that says where it listens;
the others find it there. Each side proves to the other that it knows the secret in that file (`jobs.ranks.channel`),
then the others do what they are told until the first one has gone::

    {"rank", "node", "address", "boot"}               the other one's first message
    {"do": "run", "request", "log", "timeout_s"}  ->  {"run", "ended_s"}
    {"do": "stop"}, for a run under way               no answer but the run's
    {"do": "lock", "path"}, {"do": "unlock"}      ->  {}
    {"do": "data", "item"}                        ->  {"data"} or {"error", "hint"}

The file is there until all have come, or the first one ends; where that was killed, another one removes it. No request
carries the secret of the hub where its ranks meet: who has the job's can work it out.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from campaign.cells.folder import CampaignFolder
from campaign.errors import CampaignError
from campaign.slurm import job
from campaign.storage import locks
from campaign.worker import session
from campaign.worker.runner import Template
from jobs.model import reading
from jobs.model.codes import RunEnd
from jobs.model.request import Request
from jobs.model.results import Run
from jobs.model.work import WorkList
from jobs.ranks.channel import Channel, ClosedError, StrangerError, connect, derived
from jobs.ranks.rank import boot

_LOOK_S = 0.2  # between two looks at a file, or at whether a run is over
HELLO_S = 10.0  # for a word that needs no work
HUB = "hub"  # what the second secret is for


class Meeting(TypedDict):
    """Where the first rank listens, in which start of which job."""

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
        hello = {"rank": rank, "boot": boot(), "address": job.node_address()}
        with (
            closing(connect(where["address"], where["port"], where["secret"], HELLO_S)) as channel,
            ExitStack() as held,
        ):
            channel.send({**hello, "node": os.environ.get("SLURMD_NODENAME", "")})
            follower = _Follower(channel, template, work, derived(where["secret"], HUB), held)
            with suppress(ClosedError):
                while True:
                    order = channel.receive().value
                    if order["do"] != "stop":  # of a run that has ended meanwhile
                        channel.send(follower.done(order))
            remove(file_of(path))  # where the first rank was killed
    except (ClosedError, TimeoutError) as error:
        if isinstance(error, StrangerError):  # who listened there has gone
            remove(file_of(path))
        with suppress(OSError):  # who read the log may be gone
            print(f"rank {rank} ends: {error}", file=sys.stderr, flush=True)
    finally:
        template.close()


def remove(file: Path) -> None:
    """Remove the file that says where the first rank is, unless a later start of the job has put its own there."""
    with suppress(OSError, ValueError):
        if _is_of_this_start(reading.read(file, Meeting)):
            file.unlink()


def _found(file: Path, timeout_s: float) -> Meeting:
    """Wait until the first rank has said where it is, in this start of the job: one of an earlier start has gone."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            os.scandir(file.parent).close()  # an NFS client looks for new files only so
            found = reading.read(file, Meeting)
            if _is_of_this_start(found):
                return found
        time.sleep(_LOOK_S)
    raise ClosedError("the first rank was not found")


def _is_of_this_start(meeting: Meeting) -> bool:
    return this_start().items() <= meeting.items()


@dataclass(frozen=True)
class _Follower:
    """What another rank than the first one does for it; `held` are the locks that it holds."""

    channel: Channel
    template: Template
    work: WorkList
    hub_secret: str
    held: ExitStack

    def done(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what the first rank says; returns the answer."""
        if order["do"] == "run":
            began = time.perf_counter()
            return {"run": self._run(order), "ended_s": time.perf_counter() - began}
        if order["do"] == "lock":
            self.held.enter_context(locks.locked(Path(order["path"])))
        elif order["do"] == "unlock":
            self.held.close()
        elif order["do"] == "data":
            try:
                return {"data": session.with_dataset(self._folder, order["item"])["dataset"]}
            except CampaignError as error:
                return {"error": error.message, "hint": error.hint}
        return {}

    @property
    def _folder(self) -> CampaignFolder:
        return CampaignFolder(Path(self.work["campaign_dir"]))

    def _run(self, order: dict[str, Any]) -> Run:
        """Run a request, unless the first rank says stop meanwhile, or goes."""
        log = Path(order["log"])
        if not log.resolve().is_relative_to(self._folder.root.resolve()):
            where = f"the log {log} is not in {self._folder.root}"
            return {"status": "failed", "end": {"code": RunEnd.LOG_ELSEWHERE, "words": where}}
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_S):
                if select.select([self.channel], [], [], 0)[0]:
                    self.template.stop()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        run = self.template.run(with_secret(order["request"], self.hub_secret), log, order["timeout_s"])
        over.set()
        watcher.join()
        if self.template.was_stopped:
            self.channel.receive(HELLO_S)  # the word that stopped it
        return run


def with_secret(request: Request, secret: str) -> Request:
    """Return a request with another secret of the hub, where it is that of a rank."""
    return {**request, "rank": {**request["rank"], "secret": secret}} if "rank" in request else request
