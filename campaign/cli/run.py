"""The main verb, of a command line without a verb: collect the grid, plan, run, report."""

from __future__ import annotations

import datetime as dt
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from campaign import console
from campaign.cells import cell_plan, requests
from campaign.cells import folder as folders
from campaign.cells.cell import Cell, told_apart
from campaign.cells.cell_plan import Entry, Plan
from campaign.cli import arguments
from campaign.cli.analyse import write_report
from campaign.cluster.choice import chosen
from campaign.config import command_line
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.console import counted
from campaign.errors import EnvironmentFaultError, NotQuietError, SchedulerError, UsageError, nearest
from campaign.storage import emulation
from campaign.worker.signals import WorkerStoppedError
from campaign.worker.work_list import Request
from jobs.model.codes import ExitCode
from jobs.model.conduct import Conduct, Point
from jobs.model.record import Asked, Manifest
from jobs.model.terms import terms_of
from jobs.system.clock import utc_now
from jobs.system.files import write_json

_RECORDS = "*/record.json"
_SHOWN = 5  # ids of cells, in a hint


def main(argv: Sequence[str]) -> int:
    """Run the campaign that the words describe; returns the exit code."""
    split = command_line.split(argv)
    points = collect(argv)
    return 0 if points is None else carry_out(restricted(planned(points), split.only), argv, split)


def planned(points: Sequence[Point]) -> Plan:
    """Plan the campaign of these points; nothing is written."""
    cells, conduct = cells_of(points)
    return cell_plan.make(cells, conduct, folders.CampaignFolder(Path(conduct["campaign_dir"]).expanduser().resolve()))


def restricted(planned: Plan, only: Sequence[str]) -> Plan:
    """Leave of a plan the cells that are named; all where none is."""
    ids = [entry.cell.id for entry in planned.entries]
    kept = set(ids) if not only else set()
    for words in only:
        found = arguments.matching(ids, words)
        if not found:
            raise UsageError(f"--only {words}: no cell of this grid", nearest(words, ids[:_SHOWN]))
        kept.update(found)
    return replace(planned, entries=tuple(entry for entry in planned.entries if entry.cell.id in kept))


def carry_out(
    planned: Plan, argv: Sequence[str], split: command_line.Words, shown: Callable[[Plan], None] | None = None
) -> int:
    """Run a campaign that was asked for with the words `argv`; returns the exit code.

    `shown` prints what came of it, in place of the summary of the report.
    """
    conduct, cells = planned.conduct, [entry.cell for entry in planned.entries]
    cluster = chosen(cells, conduct)
    for line in (*(f"note: {each}" for each in split.notes), *emulation.notices(cells), *_ring(cells)):
        console.say(line)
    if split.dry_run:
        todo = _preview(planned, _request(planned.folder, conduct, argv), cluster)
        _refuse_what_cannot_be(todo, cluster)
        return 0
    is_new = not planned.folder.root.exists()
    folder, campaign = folders.opened(planned.folder.root)
    request = _request(folder, conduct, argv, after=campaign["requests"])
    with folders.removed_if_refused(folder, is_new=is_new), folders.occupied(folder), console.polite_end():
        try:
            _write_down(request, campaign, cells)
            return _follow(planned, request, campaign, cluster, sure=split.sure, shown=shown)
        except (KeyboardInterrupt, WorkerStoppedError):
            _say_how_to_come_back(conduct, cluster)
            return ExitCode.INTERRUPTED


def _ring(cells: Sequence[Cell]) -> Iterator[str]:
    """Say that nodes open ports that ask for no secret, where they do."""
    if any(cell.settings.get("sync") == "ring" for cell in cells):
        yield (
            "note: site.trusted_network=true: gradients are added up by TensorFlow's servers, which listen on all "
            "addresses of each node and ask for no secret; whoever reaches one runs operations as you"
        )


def _request(
    folder: folders.CampaignFolder, conduct: Conduct, argv: Sequence[str], after: Sequence[Asked] = ()
) -> Request:
    last = max((str(request.get("utc", "")) for request in after), default="")
    first = after[0].get("token", "") if after else ""
    return Request(folder, conduct, secrets.token_hex(4), _later_than(last), argv, first=first)


def _later_than(last: str) -> str:
    """Return the time or, where clocks of login nodes differ, a moment after `last`: it distinguishes requests."""
    now = utc_now()
    if now > last:
        return now
    moment = dt.datetime.fromisoformat(last.removesuffix("Z")) + dt.timedelta(milliseconds=1)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _write_down(request: Request, campaign: Manifest, cells: Sequence[Cell]) -> None:
    """Add the request to ``campaign.json``."""
    asked: Asked = {
        "token": request.token,
        "utc": request.utc,
        "words": list(request.words),
        "order_seed": request.conduct["order_seed"],
        "cells": [cell.id for cell in cells],
        "terms": terms_of(request.conduct),
    }
    campaign["requests"].append(requests.marked(request.folder.root, asked))
    write_json(request.folder.marker, campaign)


def _follow(  # noqa: PLR0913 - as `carry_out`
    planned: Plan,
    request: Request,
    campaign: Manifest,
    cluster: str,
    *,
    sure: bool,
    shown: Callable[[Plan], None] | None = None,
) -> int:
    """Do what is missing, then report; exit code 0 where every cell asked for is done, else 1."""
    try:
        alone = _work_with_retries(planned, request, campaign, cluster, sure=sure)
    except (SchedulerError, NotQuietError):
        if any(request.folder.records.glob(_RECORDS)):
            _report_on(planned.refreshed(), shown)  # of what the jobs before did, or came to
        raise
    if alone:
        console.say(f"the jobs continue without this process: python -m campaign watch {request.folder.root}")
        return 0
    after = planned.refreshed()  # by the records on disk, whatever was meant to happen
    _report_on(after, shown)
    lacking = [entry for entry in after.entries if entry.state != "done"]
    if not lacking:
        return 0
    allowing = next((entry.disturbed for entry in lacking if entry.disturbed), "")
    when = f" when nothing else keeps the machine busy, or with {allowing}," if allowing else ""
    console.say(
        f"not every cell is done (`python -m campaign status{_named(request.folder.root)}` says why); "
        f"the same command{when} runs again what is missing; one cell alone:"
    )
    console.say_first([f"  {command_line.again(request.words, entry.cell.id)}" for entry in lacking])
    return 1


def _named(folder: Path) -> str:
    """Return the campaign folder as a word of a command; empty for the default one."""
    return "" if folder == Path("results").resolve() else f" {shlex.quote(str(folder))}"


def _report_on(planned: Plan, shown: Callable[[Plan], None] | None) -> None:
    """Write the report, and print its summary or what `shown` makes of the plan, as the records are now."""
    if not any(planned.folder.records.glob(_RECORDS)):
        console.say("nothing to report: no cell was begun")
        return
    if write_report(planned.folder.root, quiet=shown is not None) > 1:
        raise EnvironmentFaultError(
            "the report could not be made", "fix what it names, then: python -m campaign report"
        )
    if shown:
        shown(planned)


def _work_with_retries(planned: Plan, request: Request, campaign: Manifest, cluster: str, *, sure: bool) -> bool:
    """Run what is missing, and `retries` times more what lacks runs for a reason that is not its own."""
    from campaign.cluster import local, retry  # noqa: PLC0415 - numpy is not on the way to --help

    retries = int(request.conduct["retries"])
    for attempt in range(retries + 1):
        try:
            alone = _work(planned, request, cluster, sure=sure or attempt > 0)
        except (local.WorkerLostError, NotQuietError):
            if attempt == retries:
                raise
            alone = False
        if alone or attempt == retries:
            return alone
        conduct: Conduct = {**request.conduct, "redo": False}
        cells, lines = retry.chosen(cell_plan.make([entry.cell for entry in planned.entries], conduct, request.folder))
        for line in lines:
            console.say(line)
        if not cells:
            break
        console.say(f"{counted(len(cells), 'cell')} failed for no reason of their own: try {attempt + 1} of {retries}")
        planned = cell_plan.make(cells, conduct, request.folder)
        following = _request(request.folder, conduct, request.words, after=campaign["requests"])
        request = replace(following, attempt=attempt + 1)
        _write_down(request, campaign, cells)
    return False


def _work(planned: Plan, request: Request, cluster: str, *, sure: bool) -> bool:
    """Run what is missing, here or on the cluster; returns whether jobs continue without this process."""
    from campaign.cluster import local, slurm  # noqa: PLC0415 - numpy is not on the way to --help

    if cluster == "slurm":
        return slurm.work(planned, request, sure=sure)
    slurm.refuse_beside_jobs(request.folder)
    local.wait_for_worker(request.folder)
    planned = planned.refreshed()
    if planned.to_do:
        local.work(planned.to_do, request)
    else:
        console.say(f"nothing to run: {planned.done} of {len(planned.entries)} cells are done")
    return False


def _preview(planned: Plan, request: Request, cluster: str) -> list[Entry]:
    """Print the plan and, for Slurm, the price and the scripts; returns what would be run."""
    width = max(len(entry.cell.id) for entry in planned.entries)
    apart = told_apart([entry.cell for entry in planned.entries])
    for entry in planned.entries:
        to_go = str(entry.missing) if entry.at_most == entry.missing else f"{entry.missing} to {entry.at_most}"
        said = f"{entry.cell.id:{width}}  {entry.state:8}  {to_go} measured runs to go"
        console.show("  ".join(filter(None, [said, apart.get(entry.cell.id)])))
    todo = planned.to_do
    if cluster == "slurm":
        from campaign.cluster import slurm  # noqa: PLC0415 - numpy is not on the way to --help

        todo = slurm.preview(planned, request)
    else:
        from campaign.cluster import making  # noqa: PLC0415 - as above

        for line in making.making(todo, None).lines:
            console.say(line)
    console.say(
        f"{counted(len(planned.entries), 'cell')}, {len(todo)} to run, "
        f"{cell_plan.runs_in_words(todo, request.conduct)} with warm-ups; nothing started"
    )
    return todo


def _refuse_what_cannot_be(todo: Sequence[Entry], cluster: str) -> None:
    """Refuse wrong words as the campaign itself would; what this machine lacks is said: the plan may be for another."""
    from campaign.cluster import local  # noqa: PLC0415 - numpy is not on the way to --help
    from campaign.storage import datasets  # noqa: PLC0415

    try:
        if cluster == "slurm":
            datasets.require_possible([entry for entry in todo if entry.cell.access["shared"]])
        else:
            local.require_possible(todo)
    except EnvironmentFaultError as error:
        console.say(f"note: it would not start here: {error.message}\nhint: {error.hint}")


def _say_how_to_come_back(conduct: Conduct, cluster: str) -> None:
    again = "the same command without redo=true" if conduct["redo"] else "the same command"
    if cluster == "slurm":
        where = conduct["campaign_dir"]
        console.say(
            f"detached; submitted jobs continue. Come back: python -m campaign watch {where}, or {again}; "
            f"end them: python -m campaign cancel {where}"
        )
    else:
        console.say(f"stopped; what was measured is kept, and {again} continues from here")
