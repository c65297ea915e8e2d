"""Run the verb `stall --data DIR -- PROGRAM`: measure how long a program waits for its storage."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells import folder
from campaign.cells.cell_plan import Plan
from campaign.cli import arguments, run
from campaign.config import command_line
from campaign.config.collect import collect_points
from campaign.console import count_noun
from campaign.errors import UsageError
from campaign.stall import stall_answer
from campaign.stall.measured_program import (
    MeasuredProgram,
    files_below,
    find_data,
    require_unchanged_program,
    write_list,
)
from campaign.stall.stall_answer import ColdWarmComparison
from campaign.storage.roots import require_not_in_memory
from jobs.judging import intervals, stopping
from jobs.model.record import Record
from jobs.system.files import resolve_links

_ABOUT = (
    "Run a program alternately with its data on the storage only (cold) and in the page cache (warm), and print how"
    " much time the program loses by waiting for the storage."
)
_RUNS, _MOST = 5, 20  # default and largest number of cold runs, and of warm runs
_LONGEST_NAME = 60
_OWN_KEYS = {
    "runs": "--runs N sets the number of cold and of warm runs",
    "cache": "stall measures cold and warm runs; --cold measures only cold runs",
}
"""The settings that a flag of `stall` sets, each with this flag."""


def main(argv: list[str]) -> int:
    """Measure the program and print the result; return 0 if all runs are valid, else 1.

    With ``--cold``, return 0 if all runs were cold, else 1.
    """
    before = argv[: argv.index("--")] if "--" in argv else argv
    options, overrides = _parsed(before)
    options.command = ["stall", *argv]
    words = argv[len(before) + 1 :]
    if not words:
        raise UsageError("stall: no program is named", "python -m campaign stall --data DIR -- PROGRAM ARGUMENTS")
    program = _with_data(
        MeasuredProgram(words, Path.cwd(), None, options.begins, cold=options.cold), options, overrides
    )
    plan, outcomes, code = _measured(program, options, overrides)
    counts = options.dry_run or any(stopping.measured_runs(recorded, "valid") for recorded in _records(plan))
    profiled, failed = (
        _campaign(program.profiling_arguments(overrides), options) if options.profile and counts else (None, 0)
    )
    if options.dry_run:
        if options.json:
            console.show_json(run.plan_as_json(plan, *([profiled] if profiled else [])))
        return code or failed
    if options.cold:
        cold = [run for recorded in _records(plan) for run in stall_answer.cold_runs(recorded)]
        code = int(not cold or not all(run["cold"] for run in cold))
        lines = stall_answer.cold_lines(_name(words), cold)
        answer: dict[str, Any] = {"cold": not code, "runs": cold}
    else:
        lines = [line for outcome in outcomes for line in stall_answer.lines_of_outcome(outcome, options.within)]
        answer = {"programs": [outcome.as_json() for outcome in outcomes]}
    answer["campaign_dir"] = str(plan.folder.root)
    if profiled:
        answer["calls"] = [calls for recorded in _records(profiled) for calls in stall_answer.totals_of_calls(recorded)]
        costs = [outcome.costs for outcome in outcomes]
        waits = options.cold or any(costs) or (None if None in costs else False)
        for recorded in _records(profiled):
            name = stall_answer.name_of_swept(recorded["cell"]["settings"]) if len(profiled.entries) > 1 else ""
            lines += stall_answer.lines_on_calls(recorded, plan.folder.root, name=name, waits=waits)
    if options.json:
        console.show_json(answer)
    for line in () if options.json else lines:
        console.show(line)
    console.say(f"report: {plan.folder.root / 'report.html'}")
    return code or failed


def _measured(
    program: MeasuredProgram, options: argparse.Namespace, overrides: Sequence[str]
) -> tuple[Plan, list[ColdWarmComparison], int]:
    """Run the campaign, and add runs until the lost share of the time is known within ``--within``.

    Returns the plan, the comparisons of cold and warm runs, and the exit code.
    """
    runs = options.runs
    while True:
        plan, code = _campaign(program.campaign_arguments(runs, overrides), options)
        if options.dry_run or options.cold:
            return plan, [], code
        outcomes = stall_answer.compare_cells(
            [entry.cell for entry in plan.entries], plan.verdicts, _name(program.argv)
        )
        if code or not (more := _more_runs(outcomes, runs, options.within, options.most)):
            return plan, outcomes, code
        runs += more
        pairs = f"{count_noun(more, 'more pair')} of a cold and a warm run, {runs} pairs in all"
        console.say(f"{pairs}: the share of the lost time is not known well enough")


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.CampaignParser(
        prog="python -m campaign stall",
        usage="python -m campaign stall [OPTION ...] [KEY=VALUE ...] -- PROGRAM [ARGUMENT ...]",
        description=_ABOUT,
    )
    add = parser.add_argument
    add(
        "--data",
        metavar="PATH",
        type=_place,
        action="append",
        default=[],
        help="folder or file that the program reads; may be repeated",
    )
    add("--cold", action="store_true", help="measure only cold runs; exit code 1 if a run was not cold")
    add(
        "--runs",
        metavar="N",
        type=arguments.whole_number(),
        default=_RUNS,
        help=f"number of cold and of warm runs (default: {_RUNS})",
    )
    add(
        "--within",
        metavar="SHARE",
        type=_share,
        help="add runs until the lost share of the time is known to plus or minus SHARE, for example 3%%",
    )
    add(
        "--most",
        metavar="N",
        type=arguments.whole_number(),
        help=f"largest number of cold and of warm runs, including added runs (default: {_MOST})",
    )
    add("--from", dest="begins", metavar="REGEX", help="start the timed part at the first output line that matches")
    add("--profile", action="store_true", help="count the program's POSIX calls in one more cold run")
    add("--yes", action="store_true", help="do not ask whether the found data are right, nor before using node-hours")
    add("--json", action="store_true", help="print the result as JSON on stdout")
    add("--dry-run", action="store_true", help="print the plan and start nothing")
    add("words", nargs="*", metavar="KEY=VALUE", help="settings of the campaign: cluster=slurm, benchmark.metric=…")
    options = parser.parse_intermixed_args(argv)
    if options.cold and (options.within or options.most):
        parser.error("--cold measures only cold runs; --within and --most need cold and warm runs")
    if options.most and options.most < options.runs:
        parser.error(f"--most {options.most} is less than --runs {options.runs}")
    if odd := [word for word in options.words if "=" not in word]:
        raise UsageError(f"'{odd[0]}' is neither a flag nor KEY=VALUE", "write the program and its arguments behind --")
    for key, cure in _OWN_KEYS.items():
        if any(word.startswith(f"{key}=") for word in options.words):
            raise UsageError(f"{key}=…: stall itself sets that", cure)
    options.most = options.most or max(_MOST, options.runs)
    return options, options.words


def _place(text: str) -> Path:
    if text.strip():
        return resolve_links(text)
    raise argparse.ArgumentTypeError("an empty text names no folder and no file")


def _share(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(%?)", text)
    try:
        value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: write for example 3% or 0.03")
    return value


def _with_data(program: MeasuredProgram, options: argparse.Namespace, overrides: Sequence[str]) -> MeasuredProgram:
    """Return the program with its data: the data that the user names, or else the data found in a first run."""
    paths = options.data
    (point, *_) = collect_points(program.campaign_arguments(options.runs, overrides)) or ({},)
    campaign_dir = folder.resolve_campaign_folder(point["campaign_dir"])
    if around := next((path for path in paths if campaign_dir.is_relative_to(path)), None):
        raise UsageError(
            f"the campaign folder {campaign_dir} would lie in the data {around}",
            "choose another campaign folder: campaign_dir=…",
        )
    for path in paths:
        require_not_in_memory(path)
    if len(paths) == 1:
        return replace(program, data=paths[0])
    if not paths and (options.dry_run or point["cluster"]["name"] == "slurm"):
        why = "with --dry-run" if options.dry_run else "on Slurm"
        cure = f"name its data with --data DIR: {why}, stall does not run the program first to find them"
        raise UsageError("stall: which files does the program read?", cure)
    if paths and any("{data}" in word for word in program.argv):
        cure = "write the paths into the program's arguments in place of {data}"
        raise UsageError("{data} in the program's arguments stands for one --data, and several are named", cure)
    limit_s = float(point["run_timeout_s"])
    data_files = files_below(paths) if paths else find_data(point, limit_s, sure=options.yes)
    require_not_in_memory(data_files[0])
    data, listed = write_list(data_files, campaign_dir.with_name(f"{campaign_dir.name}.files"))
    return replace(program, data=data, list_file=listed)


def _campaign(words: Sequence[str], options: argparse.Namespace) -> tuple[Plan, int]:
    """Run the campaign that the arguments describe; return its plan and its exit code."""
    flags = [flag for flag, given in (("--yes", options.yes), ("--dry-run", options.dry_run)) if given]
    plan = run.plan_points(collect_points(words) or ())
    for recorded in () if plan.conduct["redo"] else _records(plan):
        require_unchanged_program(recorded)
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        split = command_line.parse_command_line([*flags, *words])
        return plan, run.run_plan(plan, words, split, lambda _: None, command=options.command)


def _name(argv: Sequence[str]) -> str:
    name = shlex.join(argv)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _records(plan: Plan) -> list[Record]:
    """Return the judged records of the plan's cells; skip cells that have no usable record."""
    read = (plan.verdicts.read(plan.folder.record(entry.cell.id))[0] for entry in plan.entries)
    return [recorded for recorded in read if recorded]


def _more_runs(outcomes: Sequence[ColdWarmComparison], runs: int, within: float | None, most: int) -> int:
    """Return the number of pairs of cold and warm runs to add, at most until `most` pairs.

    Each invalid pair is replaced. If enough pairs are valid, but the share is not known within `within`, the number of
    pairs is doubled. Otherwise the result is 0.
    """
    pairs = min((outcome.whole.pairs if outcome.whole else 0 for outcome in outcomes), default=0)
    lacking = max(0, min(runs, intervals.FEWEST_RUNS) - pairs)
    wide = within is not None and not all(
        outcome.decisive_difference and outcome.decisive_difference.is_within(within) for outcome in outcomes
    )
    return max(0, min(lacking or (runs if wide else 0), most - runs))
