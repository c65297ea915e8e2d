"""`python -m campaign status`: what is done, what is not, and why."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress

from campaign import console
from campaign.cells import record, requests
from campaign.cells.folder import CampaignFolder, existing
from campaign.cli import arguments, watch
from campaign.cluster.states import State
from campaign.cluster.states import states as states_of
from campaign.config import command_line
from campaign.console import counted
from jobs.judging.judge import ODD_FIGURES
from jobs.model.codes import CellState
from jobs.model.record import Manifest

_ORDER = [*CellState]
_CUT = (CellState.INTERRUPTED, CellState.FAILED, CellState.INVALID)
_LACKING = (*_CUT, CellState.DAMAGED, CellState.UNFINISHED, CellState.PLANNED)
_SHOWN = 40


def watched(argv: list[str]) -> int:
    """Do as ``status --watch``: the verb ``watch``."""
    return main(["--watch", *argv], "watch")


def main(argv: list[str], verb: str = "status") -> int:
    """Print the state of each cell; exit code 0 where all are done, else 1."""
    parser = arguments.parser(verb, "Show what is done, what is not, and why.", json=True)
    parser.add_argument(
        "--watch", action="store_true", help="the live table first, until all is over; the verb `watch`"
    )
    parser.add_argument("--all", action="store_true", help=f"every cell, also beyond the first {_SHOWN}")
    parser.add_argument(
        "--buckets", action="store_true", help="ask the buckets that records name for what cut runs left there"
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, campaign = existing(options.campaign_dir)
    if options.watch:
        watch.watch(folder)
    states = states_of(folder, campaign)
    counts = Counter(state["status"] for state in states.values())
    if options.json:
        print(json.dumps({"campaign_dir": str(folder.root), "counts": counts, "cells": states}, indent=1))
    else:
        summary = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
        console.show(f"{folder.root}: {counted(len(states), 'cell')}: {summary or 'none'}")
        _print_cells(states, limit=len(states) if options.all else _SHOWN)
        if counts[CellState.RUNNING] and (hindrance := folder.hindrance()):
            console.say(f"warning: {hindrance}")
        _print_left(
            folder,
            campaign,
            [cell for cell, state in states.items() if state["status"] in _CUT],
            buckets=options.buckets,
        )
        if counts[CellState.RUNNING]:
            watch.say_to_go(folder, counts[CellState.RUNNING])
        else:
            _print_commands(folder, campaign, {cell for cell, state in states.items() if state["status"] in _LACKING})
    return 0 if counts[CellState.DONE] == len(states) else 1


def _print_left(folder: CampaignFolder, campaign: Manifest, cells: list[str], *, buckets: bool) -> None:
    """List what fills a storage and is no longer needed: snapshots, and files that baselines wrote.

    Buckets are asked where that is wanted, and of cells that this user has asked for here: a record may come from
    somebody else, and a request is signed.
    """
    if not cells:
        return
    from campaign.storage import baseline_files, checkpoint_targets  # noqa: PLC0415 - a campaign that goes well does without

    recorded, places = [], []
    for cell in cells:
        if found := record.read_or_fault(folder.record(cell))[0]:
            with suppress(*ODD_FIGURES):  # settings of another shape name no place
                places += [*checkpoint_targets.left(found), *baseline_files.left(found)]
                recorded.append(found)
    what = {True: "snapshots of a run that was cut are left in", False: "a run that was cut left"}
    console.say_first([f"{what[place.is_dir()]} {place}" for place in places])
    if places:
        console.say("the next run of their cell removes them; you may remove them too")
    saved = [each for each in recorded if any("://" in at for at in checkpoint_targets.roots(each["cell"]["settings"]))]
    own = [each for each in saved if requests.own(folder.root, campaign, each)]
    if buckets and own:
        campaign_id = checkpoint_targets.campaign_id(folder, campaign["requests"][0].get("token", ""))
        console.say_first([*checkpoint_targets.left_in_buckets(own, campaign_id)])
    elif own:
        console.say("what cut runs left in buckets: python -m campaign status --buckets")
    if buckets and len(own) < len(saved):
        console.say("buckets of cells that you did not ask for in this folder are not asked")


def _print_commands(folder: CampaignFolder, campaign: Manifest, cells: set[str]) -> None:
    """Print the user's commands that go on with these cells: the one that asked for most of them, then for the rest."""
    own = [each for each in reversed(campaign["requests"]) if requests.is_own(folder.root, each)]
    asked = [(each["words"], set(each["cells"])) for each in own]
    found = []
    while cells and asked:
        words, most = max(asked, key=lambda one: len(cells & one[1]))
        if not cells & most:
            break
        found.append(f"  {command_line.again(words)}")
        cells = cells - most
    if found:
        console.say("what is missing is run by the same command, in the folder where it was given:")
    console.say_first(found)
    if cells:
        console.say("others were not asked for by you in this folder: python -m campaign why CELL names a command")


def _print_cells(states: dict[str, State], limit: int) -> None:
    """Print a line for each cell, those that need attention first."""
    ordered = sorted(states.items(), key=lambda item: _ORDER.index(item[1]["status"]))
    for cell, state in ordered[:limit]:
        # A refusal of Slurm's has several lines.
        details = "".join(f"  {' '.join(str(state[key]).split())}" for key in ("where", "reason") if state[key])
        details += f"  emulated: {', '.join(emulated)}" if (emulated := state["emulated"]) else ""
        console.show(f"  {state['status']:11}  {state['valid']}/{state['measured']} valid  {cell}{details}")
    if len(ordered) > limit:
        console.show(f"  … and {len(ordered) - limit} more (--all)")
