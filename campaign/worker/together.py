"""One run on several ranks: they are started, meet at a hub, and their figures become one run's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from campaign.storage.roots import seen_by
from campaign.worker.runner import Outcome, Template
from jobs.benchmarks import registry
from jobs.benchmarks.whole_run import whole
from jobs.model.codes import OUT_OF_TIME
from jobs.model.conduct import Conduct
from jobs.model.request import RankRequest, Request
from jobs.model.results import Run
from jobs.ranks.channel import new_secret
from jobs.ranks.hub import Hub


class Places(Protocol):
    """Where the ranks of a run are: on this machine, or each on a node of its own."""

    addresses: list[str]
    """Of each rank's node, for the other ranks; at the first one is the hub."""
    hub_secret: str
    """What each rank knows, and nobody else."""

    def run(self, requests: Sequence[Request], logs: Sequence[Path], timeout_s: float) -> list[Outcome]:
        """Run one request at each place."""


class Here:
    """All ranks on this machine, forked from one template."""

    def __init__(self, template: Template, size: int) -> None:
        self._template = template
        self.addresses = ["127.0.0.1"] * size
        self.hub_secret = new_secret()

    def run(self, requests: Sequence[Request], logs: Sequence[Path], timeout_s: float) -> list[Outcome]:
        """Run them side by side."""
        return self._template.run_together(requests, logs, timeout_s)


def run(places: Places, request: Request, log: Path, conduct: Conduct) -> Run:
    """Run a request on all ranks; returns one run's figures, or why it failed: a rank's own words, with its number."""
    size = len(places.addresses)
    logs = [beside(log, rank) for rank in range(size)]
    hub = Hub(size, conduct["ranks_timeout_s"], places.addresses[0], places.hub_secret)
    try:
        asked = [_of_rank(request, rank, places, hub) for rank in range(size)]
        outcomes = places.run(asked, logs, conduct["run_timeout_s"])
    finally:
        hub.close()
    if any(_failed(each.run) for each in outcomes):
        return _failure(outcomes, logs, hub.late)
    found = whole(registry.of(request["settings"]), [each.run for each in outcomes], hub.seen)
    took_s = max(each.ended_s for each in outcomes)
    return {**found, "status": "ended", "elapsed_s_with_fork": took_s}


def beside(file: Path, rank: int) -> Path:
    """Return a rank's own file; that of the first one has the run's name."""
    return file.with_stem(f"{file.stem}-rank{rank}") if rank else file


def _of_rank(request: Request, rank: int, places: Places, hub: Hub) -> Request:
    """Return the request of one rank: files of its own, and snapshots of the first one alone."""
    place: RankRequest = {
        "rank": rank,
        "size": hub.size,
        "sync": request["settings"]["sync"],
        "hub": places.addresses[0],
        "port": hub.port,
        "secret": hub.secret,
        "address": places.addresses[rank],
        "timeout_s": hub.timeout_s,
    }
    own: Request = {**request, "rank": place}
    own["dataset"] = seen_by(request["dataset"], request["settings"]["storage"], rank)
    if rank:
        own["checkpoint"] = None
    if trace := own["trace"]:
        own["trace"] = {**trace, "file": str(beside(Path(trace["file"]), rank))}
    named = cast("dict[str, Any]", own)
    for name in ("profile", "tensorflow", "steps"):
        if file := named.get(name):
            named[name] = str(beside(Path(file), rank))
    return own


def _failed(run: Run) -> bool:
    return run.get("status") == "failed"


def _failure(outcomes: Sequence[Outcome], logs: Sequence[Path], late: str) -> Run:
    """Return the failure of the rank that failed first, and by itself."""
    failed = [(each.alone, each.ended_s, rank) for rank, each in enumerate(outcomes) if _failed(each.run)]
    _, _, rank = min(failed)
    run = outcomes[rank].run
    end = run["end"]
    waited = {"late": late} if end["code"] in OUT_OF_TIME else {}
    return cast("Run", {**run, "end": {**end, "rank": rank, **waited}, "log": logs[rank].name})
