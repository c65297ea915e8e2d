"""Run the verb `status`: show which cells are done, which are not, and why; `--watch` follows the running jobs."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections import Counter
from contextlib import suppress

from campaign import console
from campaign.cells import record
from campaign.cells.folder import CampaignFolder, is_own_request, last_own_request, lock_folder, open_existing
from campaign.cli import arguments
from campaign.cluster import fleet, price
from campaign.cluster.cell_state import Phase, WorkerState, ended_state
from campaign.cluster.progress import Follower
from campaign.cluster.survey import StateOfCell
from campaign.cluster.survey import cell_states as states_of
from campaign.config import command_line
from campaign.console import count_noun
from campaign.errors import CampaignError
from campaign.worker import batch as batches
from jobs.model.codes import CellState, JobEnd
from jobs.model.record import ODD_FIGURES, Manifest

_TICK_S = 1.0
_SHORTEST_TICK_S, _LONGEST_TICK_S = 0.1, 3600.0


def watch_campaign(folder: CampaignFolder, tick_s: float) -> None:
    """Show a live table of the jobs, and draw it again every `tick_s` seconds, until every job has ended or Ctrl-C."""
    workers = fleet.open_fleet(folder)
    workers.refresh_until_explained()
    try:
        if workers.open:
            if not any(worker.phase == Phase.RUNNING and worker.wait for worker in workers.states.values()):
                report_remaining_time(folder, sum(worker.phase == Phase.RUNNING for worker in workers.states.values()))
            fleet.follow_fleet(folder, workers, tick_s)
        elif folder.is_worker_running():
            report_remaining_time(folder, at_once=1)
            last = batches.read_batches(folder)[-1]  # batch of the worker, which another shell has started

            def state() -> WorkerState:
                at_work = folder.is_worker_running()
                return WorkerState(Phase.RUNNING) if at_work else ended_state(last, 0, {"code": JobEnd.GONE})

            fleet.follow_local_worker(Follower.of_worker(folder, last, 0), state, tick_s)
    except KeyboardInterrupt:
        come_back = f"python -m campaign status --watch {folder.root}"
        console.say(f"the watch has ended; the jobs continue. To watch them again: {come_back}")
        raise
    _record_ends(folder, workers)


def report_remaining_time(folder: CampaignFolder, at_once: int) -> None:
    """Print how long the unfinished workers will take, estimated from earlier runs.

    `at_once` is the number of workers that run at the same time.
    """
    made = batches.read_batches(folder)
    on_slurm = [batch for batch in made if batch.cluster == "slurm"]
    here = [] if folder.is_worker_running() is False else made[-1:]  # a machine runs at most one worker
    open_ones = [(batch, index) for batch in (on_slurm or here) for index in batch.open_workers()]
    text = price.describe_remaining_runs(folder, [Follower.of_worker(folder, *worker) for worker in open_ones], at_once)
    if text:
        console.say(text)


def _record_ends(folder: CampaignFolder, workers: fleet.Fleet) -> None:
    """Record how the jobs ended, because Slurm forgets it.

    If a campaign process has locked the folder, that process records the ends.
    """
    if all(worker.phase != Phase.ENDED for worker in workers.states.values()):
        return
    with suppress(CampaignError, OSError), lock_folder(folder):
        fleet.record_ends(folder, workers)


_ORDER = [*CellState]
_CUT_STATES = (CellState.INTERRUPTED, CellState.FAILED, CellState.INVALID)
_UNFINISHED_STATES = (*_CUT_STATES, CellState.DAMAGED, CellState.UNFINISHED, CellState.PLANNED)
_SHOWN = 40


def main(argv: list[str]) -> int:
    """Print the state of each cell; return exit code 0 if all cells are done, else 1."""
    parser = arguments.make_parser("status", "Show which cells are done, which are not, and why.", json=True)
    about = f"first show a live table, drawn again every SECONDS (default {_TICK_S:g}), until all jobs have ended"
    parser.add_argument("--watch", metavar="SECONDS", nargs="?", type=_tick, help=about)
    parser.add_argument("--all", action="store_true", help=f"print all cells, not only the first {_SHOWN}")
    parser.add_argument(
        "--buckets", action="store_true", help="search the buckets in the records for objects of interrupted runs"
    )
    arguments.add_folder(parser)
    options = parser.parse_args(_watch_words(argv))
    folder, campaign = open_existing(options.campaign_dir)
    if options.watch:
        watch_campaign(folder, options.watch)
    states = states_of(folder, campaign)
    counts = Counter(state["status"] for state in states.values())
    if options.json:
        console.show_json({"campaign_dir": str(folder.root), "counts": counts, "cells": states})
    else:
        summary = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
        console.show(f"{folder.root}: {count_noun(len(states), 'cell')}: {summary or 'none'}")
        _print_cells(states, limit=len(states) if options.all else _SHOWN)
        if counts[CellState.RUNNING] and (hindrance := folder.write_hindrance()):
            console.say(f"warning: {hindrance}")
        _print_leftovers(
            folder,
            campaign,
            [cell for cell, state in states.items() if state["status"] in _CUT_STATES],
            buckets=options.buckets,
        )
        if counts[CellState.RUNNING]:
            if all(state["where"] is not None for state in states.values() if state["status"] == CellState.RUNNING):
                report_remaining_time(folder, counts[CellState.RUNNING])
        else:
            _print_commands_to_continue(
                folder, campaign, {cell for cell, state in states.items() if state["status"] in _UNFINISHED_STATES}
            )
    return 0 if counts[CellState.DONE] == len(states) else 1


def _watch_words(argv: list[str]) -> list[str]:
    """Add the default number of seconds to a ``--watch`` without a number.

    Otherwise argparse would take the campaign folder behind ``--watch`` for the number.
    """
    return [
        f"--watch={_TICK_S}" if word == "--watch" and not re.fullmatch(r"\d+(\.\d+)?", after) else word
        for word, after in itertools.pairwise([*argv, ""])
    ]


def _tick(text: str) -> float:
    """Return the seconds between two drawings of the live table; raise ArgumentTypeError if they are out of range."""
    with suppress(ValueError):
        if _SHORTEST_TICK_S <= (seconds := float(text)) <= _LONGEST_TICK_S:
            return seconds
    raise argparse.ArgumentTypeError(f"{text} is not between {_SHORTEST_TICK_S:g} and {_LONGEST_TICK_S:g} seconds")


def _print_leftovers(folder: CampaignFolder, campaign: Manifest, cells: list[str], *, buckets: bool) -> None:
    """Print files of interrupted runs that nobody needs: snapshots, and files that baselines wrote.

    With `buckets`, also search buckets, but only those of cells that this user has requested in this folder. A record
    may come from somebody else and name any address, but requests are signed.
    """
    if not cells:
        return
    from campaign.storage import baseline_files, checkpoint_targets  # noqa: PLC0415 - rarely needed

    recorded, places = [], []
    for cell in cells:
        if cell_record := record.read_or_fault(folder.record(cell))[0]:
            with suppress(*ODD_FIGURES):  # skip a record whose settings cannot be read
                places += [
                    *checkpoint_targets.leftover_folders(cell_record),
                    *baseline_files.leftover_file(cell_record),
                ]
                recorded.append(cell_record)
    what = {True: "an interrupted run left snapshots in", False: "an interrupted run left the file"}
    console.say_first([f"{what[place.is_dir()]} {place}" for place in places])
    if places:
        console.say("the next run of the same cell removes these files; you may also remove them yourself")
    saved = [
        each
        for each in recorded
        if any("://" in at for at in checkpoint_targets.target_roots(each["cell"]["settings"]))
    ]
    own = [each for each in saved if last_own_request(folder.root, campaign, each)]
    if buckets and own:
        campaign_id = checkpoint_targets.campaign_id(folder, campaign["requests"][0].get("token", ""))
        console.say_first([*checkpoint_targets.leftover_objects(own, campaign_id)])
    elif own:
        console.say("to see what interrupted runs left in buckets: python -m campaign status --buckets")
    if buckets and len(own) < len(saved):
        console.say("not searched: buckets of cells that you did not request in this folder")


def _print_commands_to_continue(folder: CampaignFolder, campaign: Manifest, cells: set[str]) -> None:
    """Print the user's earlier commands that would continue these cells; first the command with most cells."""
    own = [each for each in reversed(campaign["requests"]) if is_own_request(folder.root, each)]
    requests = [(each, set(each["cells"])) for each in own]
    lines = []
    while cells and requests:
        request, most = max(requests, key=lambda one: len(cells & one[1]))
        if not cells & most:
            break
        command = request.get("command")
        same = shlex.join(["python", "-m", "campaign", *command]) if command else ""
        lines.append(f"  {same or command_line.command_to_continue(request['words'])}")
        cells = cells - most
    if lines:
        console.say("to measure the missing runs, run this in the folder where you started the campaign:")
    console.say_first(lines)
    if cells:
        what = count_noun(len(cells), "unfinished cell")
        console.say(f"{what} that you did not request in this folder: python -m campaign show CELL prints a command")


def _print_cells(states: dict[str, StateOfCell], limit: int) -> None:
    """Print a line for each cell, ordered by state, at most `limit` lines."""
    ordered = sorted(states.items(), key=lambda item: _ORDER.index(item[1]["status"]))
    for cell, state in ordered[:limit]:
        # The reason may be a message of sbatch with several lines, which are joined.
        details = "".join(f"  {' '.join(str(state[key]).split())}" for key in ("where", "reason") if state[key])
        details += f"  emulated: {', '.join(emulated)}" if (emulated := state["emulated"]) else ""
        console.show(f"  {state['status']:11}  {state['valid']}/{state['measured']} valid  {cell}{details}")
    if len(ordered) > limit:
        console.show(f"  … and {len(ordered) - limit} more (--all)")
