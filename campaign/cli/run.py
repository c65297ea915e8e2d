"""Run a campaign for a command line without a verb: collect the grid, plan the cells, run them, write the report."""

from __future__ import annotations

import datetime as dt
import secrets
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells import cell_plan
from campaign.cells import folder as folders
from campaign.cells.cell import Cell, distinguishing_settings
from campaign.cells.cell_plan import Plan, PlannedCell
from campaign.cells.folder import sign_request
from campaign.cli import arguments
from campaign.cli.analyse import write_report
from campaign.cluster.placement import choose_cluster, plan_data
from campaign.config import command_line
from campaign.config.collect import collect_points, make_cells
from campaign.console import count_noun
from campaign.errors import EnvironmentFaultError, NotQuietError, SchedulerError, UsageError
from campaign.storage import datasets, emulation, roots
from campaign.worker.batch import CampaignCall
from campaign.worker.session import WorkerStoppedError
from jobs.model.codes import ExitCode
from jobs.model.conduct import Conduct, Point
from jobs.model.record import Manifest, RecordedCall, terms_of_conduct
from jobs.parser import nearest_hint
from jobs.system.clock import utc_now
from jobs.system.files import resolve_links, write_json

_RECORDS = "*/record.json"
_SHOWN = 5  # a hint lists at most so many ids of cells


def main(argv: Sequence[str]) -> int:
    """Run the campaign that the arguments describe; return the exit code."""
    split = command_line.parse_command_line(argv)
    points = collect_points(argv)
    if points is None:
        return 0
    return run_plan(restrict_plan(plan_points(points, to_run=not split.dry_run), split.only), argv, split)


def plan_points(points: Sequence[Point], *, to_run: bool = True) -> Plan:
    """Return the plan of a campaign with these points, without writing to disk; `to_run`: see `make_cells`."""
    cells, conduct = make_cells(points, to_run=to_run)
    return cell_plan.make_plan(
        cells, conduct, folders.CampaignFolder(folders.resolve_campaign_folder(conduct["campaign_dir"]))
    )


def restrict_plan(planned: Plan, only: Sequence[str]) -> Plan:
    """Return the plan with only the cells that `only` names, or the whole plan if `only` is empty.

    Raises UsageError if a name matches no cell of the plan.
    """
    ids = [entry.cell.id for entry in planned.entries]
    ids_kept = set(ids) if not only else set()
    for words in only:
        matches = arguments.matching_ids(ids, words)
        if not matches:
            raise UsageError(f"--only {words}: no cell of this grid has such an id", nearest_hint(words, ids[:_SHOWN]))
        ids_kept.update(matches)
    return replace(planned, entries=tuple(entry for entry in planned.entries if entry.cell.id in ids_kept))


def may_start(*, sure: bool) -> bool:
    """Ask the user whether to start at the printed cost, and return the answer.

    Returns True without a question if `sure` is set or if there is no terminal.
    """
    if sure or console.ask_for_yes("start?") is not False:
        return True
    console.say("nothing was started")
    return False


def plan_as_json(*plans: Plan) -> dict[str, Any]:
    """Return the cells of the plans as ``--json`` prints them, each with its state and its number of missing runs."""
    entries = [entry for plan in plans for entry in plan.entries]
    cells = {
        entry.cell.id: {"status": entry.state, "missing": entry.missing, "at_most": entry.at_most} for entry in entries
    }
    counts = Counter(cell["status"] for cell in cells.values())
    return {"campaign_dir": str(plans[0].folder.root), "counts": counts, "cells": cells}


def run_plan(  # noqa: PLR0913 - each verb prints its results differently
    planned: Plan,
    argv: Sequence[str],
    split: command_line.CommandLine,
    shown: Callable[[Plan], None] | None = None,
    as_json: Callable[[Plan], Any] = plan_as_json,
    *,
    command: Sequence[str] = (),
    reports: bool = True,
) -> int:
    """Run a planned campaign and write its report; return the exit code.

    `argv` are the arguments that the campaign folder records. If a verb made `argv`, `command` is the verb with the
    arguments that the user typed, and ``status`` names this command. `shown` prints the result in place of the report's
    summary; `as_json` returns the result for ``--json``. With `reports=False` no report is written, because the caller
    will run more cells.
    """
    conduct, cells = planned.conduct, [entry.cell for entry in planned.entries]
    cluster = choose_cluster(cells, conduct, quiet=not reports)
    for line in notices_before_run(cells, split):
        if reports:
            console.say(line)
    if missing_root := roots.missing_root(cells):
        console.say(f"note: the campaign would not start here: {missing_root.message}; hint: {missing_root.hint}")
    if split.dry_run:
        with redirect_stdout(sys.stderr) if split.as_json else nullcontext():
            todo = _preview_plan(planned, _make_request(planned.folder, conduct, argv), cluster)
            _require_possible(todo, cluster)
        if split.as_json:
            console.show_json(plan_as_json(planned))
        return 0
    is_new = not planned.folder.root.exists()
    folder, campaign = folders.open_or_create(planned.folder.root)
    request = replace(_make_request(folder, conduct, argv, after=campaign["requests"]), command=command)
    with (
        _explain_missing_folder(folder),
        folders.remove_if_refused(folder, is_new=is_new),
        folders.lock_folder(folder),
        console.interrupt_on_kill(),
    ):
        try:
            _record_request(request, campaign, cells)
            shown = (lambda _: None) if split.as_json else shown
            code = _run_and_report(
                planned, request, campaign, cluster, sure=split.assume_yes, shown=shown, reports=reports
            )
        except (KeyboardInterrupt, WorkerStoppedError):
            _say_how_to_come_back(conduct, cluster, folder)
            return ExitCode.INTERRUPTED
    if split.as_json:
        console.show_json(as_json(planned.refresh()))
    return code


@contextmanager
def _explain_missing_folder(folder: folders.CampaignFolder) -> Iterator[None]:
    """Raise EnvironmentFaultError if the code inside misses a file because the campaign folder is gone."""
    try:
        yield
    except FileNotFoundError as error:
        if folder.root.exists():
            raise
        end = f"`python -m campaign cancel {shlex.quote(f'campaign_dir={folder.root}')}` ends its jobs"
        raise EnvironmentFaultError(
            f"the campaign folder {folder.root} is gone: it was moved or removed",
            f"move the folder back, then run the same command again; or {end}, and the same command with the new "
            "campaign_dir=… measures the missing runs",
        ) from error


def notices_before_run(cells: Sequence[Cell], split: command_line.CommandLine) -> list[str]:
    """Return the notes that the user must read before these cells run: on settings, emulated storages, open ports.

    Raises EnvironmentFaultError from `emulation_notices`.
    """
    return [*(f"note: {each}" for each in split.notes), *emulation.emulation_notices(cells), *_ring_warnings(cells)]


def _ring_warnings(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a warning if the nodes will open ports to which anybody may connect without a password."""
    if any(cell.settings.get("sync") == "ring" for cell in cells):
        yield (
            "note: site.trusted_network=true: TensorFlow servers add up the gradients; they listen on all network "
            "addresses of each node without a password, so whoever reaches a server can run operations as you"
        )


def _make_request(
    folder: folders.CampaignFolder, conduct: Conduct, argv: Sequence[str], after: Sequence[RecordedCall] = ()
) -> CampaignCall:
    """Return a new request with a random token and a time that is later than the times of all earlier requests."""
    last = max((str(request.get("utc", "")) for request in after), default="")
    first = after[0].get("token", "") if after else ""
    return CampaignCall(folder, conduct, secrets.token_hex(4), _time_after(last), argv, first_token=first)


def _time_after(last: str) -> str:
    """Return the present UTC time, or one millisecond after `last` if this clock is behind the clock of `last`.

    So two requests never have the same time, even if the clocks of two login nodes differ.
    """
    now = utc_now()
    if now > last:
        return now
    moment = dt.datetime.fromisoformat(last.removesuffix("Z")) + dt.timedelta(milliseconds=1)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _record_request(request: CampaignCall, campaign: Manifest, cells: Sequence[Cell]) -> None:
    """Add the request to ``campaign.json``."""
    entry: RecordedCall = {
        "token": request.token,
        "utc": request.utc,
        "words": list(request.words),
        "order_seed": request.conduct["order_seed"],
        "cells": [cell.id for cell in cells],
        "terms": terms_of_conduct(request.conduct),
    }
    if request.command:
        entry["command"] = list(request.command)
    campaign["requests"].append(sign_request(request.folder.root, entry))
    write_json(request.folder.marker, campaign)


def _run_and_report(  # noqa: PLR0913 - as `run_plan`
    planned: Plan,
    request: CampaignCall,
    campaign: Manifest,
    cluster: str,
    *,
    sure: bool,
    shown: Callable[[Plan], None] | None = None,
    reports: bool = True,
) -> int:
    """Run the missing cells, then report; return exit code 0 if every requested cell is done, else 1."""
    try:
        alone = _run_with_retries(planned, request, campaign, cluster, sure=sure)
    except (SchedulerError, NotQuietError):
        if any(request.folder.records.glob(_RECORDS)):
            _report(planned.refresh(), shown)  # the report also has the cells that ended before the error
        raise
    if alone:
        console.say(f"the jobs continue without this process: python -m campaign status --watch {request.folder.root}")
        return 0
    after = planned.refresh()  # the exit code depends only on the records on disk
    if reports:
        _report(after, shown)
    unfinished = [entry for entry in after.entries if entry.state != "done"]
    if not (unfinished and reports):
        return int(bool(unfinished))
    when = " when nothing else keeps the machine busy" if any(entry.disturbed for entry in unfinished) else ""
    console.say(
        f"not every cell is done (`python -m campaign status{_folder_word(request.folder.root)}` says why); "
        f"the same command{when} measures the missing runs; to measure one cell:"
    )
    console.say_first([f"  {command_line.command_to_continue(request.words, entry.cell.id)}" for entry in unfinished])
    return 1


def _folder_word(folder: Path) -> str:
    """Return the campaign folder as an argument for a shell command; empty for the default folder."""
    return "" if folder == resolve_links("results") else f" {shlex.quote(str(folder))}"


def _report(planned: Plan, shown: Callable[[Plan], None] | None) -> None:
    """Write the report and print its summary; if `shown` is given, call it to print in place of the summary."""
    if not any(planned.folder.records.glob(_RECORDS)):
        console.say("no report was written: no cell has started")
        return
    if write_report(planned.folder.root, quiet=shown is not None) > 1:
        raise EnvironmentFaultError(
            "the report could not be made", "fix the error printed above, then run: python -m campaign report"
        )
    if shown:
        shown(planned)


def _run_with_retries(planned: Plan, request: CampaignCall, campaign: Manifest, cluster: str, *, sure: bool) -> bool:
    """Run the missing cells; then retry, at most `retries` times, the cells that failed for a reason outside the run.

    Such a reason is a lost worker, or other programs that disturbed the runs. Returns whether jobs continue without
    this process.
    """
    from campaign.cluster import local, survey  # noqa: PLC0415 - --help starts faster without these modules

    retries = int(request.conduct["retries"])
    for attempt in range(retries + 1):
        try:
            alone = _run_missing(planned, request, cluster, sure=sure or attempt > 0)
        except (local.WorkerLostError, NotQuietError):
            if attempt == retries:
                raise
            alone = False
        if alone or attempt == retries:
            return alone
        conduct: Conduct = {**request.conduct, "redo": False}
        cells, lines = survey.cells_to_retry(
            cell_plan.make_plan([entry.cell for entry in planned.entries], conduct, request.folder)
        )
        for line in lines:
            console.say(line)
        if not cells:
            break
        console.say(
            f"{count_noun(len(cells), 'cell')} failed for a reason outside the run: retry {attempt + 1} of {retries}"
        )
        planned = cell_plan.make_plan(cells, conduct, request.folder)
        following = _make_request(request.folder, conduct, request.words, after=campaign["requests"])
        request = replace(following, attempt=attempt + 1)
        _record_request(request, campaign, cells)
    return False


def _run_missing(planned: Plan, request: CampaignCall, cluster: str, *, sure: bool) -> bool:
    """Run the missing cells here or on the cluster; return whether jobs continue without this process."""
    from campaign.cluster import local, slurm  # noqa: PLC0415 - --help starts faster without these modules

    if cluster == "slurm":
        return slurm.run_campaign_on_slurm(planned, request, sure=sure)
    slurm.refuse_while_jobs_live(request.folder)
    local.wait_for_worker(request.folder)
    planned = planned.refresh()
    if planned.to_do:
        local.run_campaign_here(planned.to_do, request)
    else:
        console.say(f"nothing to run: {planned.done} of {len(planned.entries)} cells are done")
    return False


def _preview_plan(planned: Plan, request: CampaignCall, cluster: str) -> list[PlannedCell]:
    """Print the plan and, for Slurm, the cost and the batch scripts; return the cells that would run."""
    width = max(len(entry.cell.id) for entry in planned.entries)
    differences = distinguishing_settings([entry.cell for entry in planned.entries])
    for entry in planned.entries:
        to_go = str(entry.missing) if entry.at_most == entry.missing else f"{entry.missing} to {entry.at_most}"
        line = f"{entry.cell.id:{width}}  {entry.state:8}  {to_go} measured runs to go"
        console.show("  ".join(filter(None, [line, differences.get(entry.cell.id)])))
    todo = planned.to_do
    if cluster == "slurm":
        from campaign.cluster import slurm  # noqa: PLC0415 - --help starts faster without this module

        todo = slurm.preview_submission(planned, request)
    else:
        for line in plan_data(todo, None).lines:
            console.say(line)
    console.say(
        f"{count_noun(len(planned.entries), 'cell')}, {len(todo)} to run, "
        f"{cell_plan.format_number_of_runs(todo, request.conduct)} with warm-ups; nothing started"
    )
    return todo


def _require_possible(todo: Sequence[PlannedCell], cluster: str) -> None:
    """Raise the errors that the campaign would raise for wrong settings; print a note if this machine lacks something.

    Such a note is no error, because a dry run may be made on another machine than the campaign.
    """
    from campaign.cluster import local  # noqa: PLC0415 - --help starts faster without this module

    todo = [entry for entry in todo if not roots.missing_root([entry.cell])]
    try:
        if cluster == "slurm":
            datasets.require_possible([entry for entry in todo if entry.cell.access["shared"]])
        else:
            local.require_possible(todo)
    except EnvironmentFaultError as error:
        console.say(f"note: the campaign would not start here: {error.message}; hint: {error.hint}")


def _say_how_to_come_back(conduct: Conduct, cluster: str, folder: folders.CampaignFolder) -> None:
    again = "the same command without redo=true" if conduct["redo"] else "the same command"
    if cluster == "slurm":
        where = conduct["campaign_dir"]
        console.say(
            f"detached; submitted jobs continue. To see them: python -m campaign status --watch {where}, or {again}; "
            f"to end them: python -m campaign cancel {where}"
        )
    elif folder.is_worker_running():
        end = folder.cancel_command
        console.say(f"the worker of the earlier command continues; {again} waits for it; to end it: {end}")
    else:
        console.say(f"stopped; what was measured is kept, and {again} continues from here")
