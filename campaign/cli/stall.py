"""`python -m campaign stall --data DIR -- PROGRAM`: whether a program waits for its storage, and for how long."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from campaign import console
from campaign.cells.cell_plan import Plan
from campaign.cli import arguments, run
from campaign.config import command_line
from campaign.config.collect import collect
from campaign.console import counted
from campaign.errors import UsageError
from campaign.stall import found_data, stall_answer
from campaign.stall.program_grid import Program
from campaign.stall.stall_answer import Outcome
from jobs.judging.stopping import FEWEST_RUNS
from jobs.model.record import Record

_ABOUT = "Run a program with its data cold and warm, in turn, and say what waiting for the storage costs."
_RUNS, _MOST = 5, 20
_LONGEST_NAME = 60


def main(argv: list[str]) -> int:
    """Measure and print; exit code 0 where all runs count, 1 where some do not, or, with --cold, one was not cold."""
    before = argv[: argv.index("--")] if "--" in argv else argv
    options, own = _parsed(before)
    words = argv[len(before) + 1 :]
    if not words:
        raise UsageError("stall: no program", "python -m campaign stall --data DIR -- PROGRAM ARGUMENTS")
    if odd := [word for word in own if "=" not in word]:
        raise UsageError(f"'{odd[0]}' is neither an option nor KEY=VALUE", "the program and its words follow behind --")
    program = _with_data(Program(words, Path.cwd(), None, options.begins, cold=options.cold), options, own)
    runs = options.runs
    while True:
        plan, code = _campaign(program.grid(runs, own), sure=options.yes, dry_run=options.dry_run)
        if options.dry_run:
            return code
        if options.cold:
            return _say_whether_cold(_name(words), plan, as_json=options.json)
        found = _found(plan, _name(words))
        if code or not (more := _more_runs(found, runs, options.within, options.most)):
            break
        runs += more
        console.say(f"{counted(more, 'more pair')} of runs, for the share is not known well enough: {runs} in all")
    _print(found, plan, as_json=options.json)
    return code


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.Parser(
        prog="python -m campaign stall",
        usage="python -m campaign stall [OPTION ...] [KEY=VALUE ...] -- PROGRAM [ARGUMENT ...]",
        description=_ABOUT,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--data", type=Path, action="append", default=[], help="folder or file that the program reads; may be repeated")
    add("--cold", action="store_true", help="cold runs alone: say whether each was, exit code 1 where one was not")
    add("--runs", type=_count, default=_RUNS, help=f"measured runs of each kind (default: {_RUNS})")
    add("--within", type=_share, help="add runs until the share is known within so much to both sides, 3%% say")
    add(
        "--most",
        type=_count,
        default=_MOST,
        help=f"measured runs of each kind at most, with --within (default: {_MOST})",
    )
    add(
        "--from",
        dest="begins",
        metavar="REGEX",
        help="the first line that the program prints in the part that is timed",
    )
    add("--yes", action="store_true", help="take the data that were found, and spend node-hours, without a question")
    add("--json", action="store_true", help="machine-readable, on stdout")
    add("--dry-run", action="store_true", help="print the plan and start nothing")
    add("words", nargs="*", metavar="KEY=VALUE", help="words of the campaign, cluster=slurm or benchmark.metric=… say")
    options = parser.parse_intermixed_args(argv)
    return options, options.words


def _count(text: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not 1 or more")


def _share(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(%?)", text)
    try:
        value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: 3% or 0.03")
    return value


def _with_data(program: Program, options: argparse.Namespace, own: Sequence[str]) -> Program:
    """Return a program with the data that are named, or else found in a first run."""
    paths = [path.expanduser().resolve() for path in options.data]
    if len(paths) == 1:
        return replace(program, data=paths[0])
    (point, *_) = collect(program.grid(options.runs, own)) or ({},)
    if not paths and point["cluster"]["name"] == "slurm":
        raise UsageError("stall: which files does the program read?", "on Slurm --data DIR names them")
    if not paths and options.dry_run:
        raise UsageError("stall: which files does the program read?", "--data DIR, for --dry-run starts nothing")
    files = (
        found_data.named(paths) if paths else found_data.find(point, float(point["run_timeout_s"]), sure=options.yes)
    )
    campaign_dir = Path(point["campaign_dir"]).expanduser().resolve()
    data, listed = found_data.listed(files, campaign_dir.with_name(f"{campaign_dir.name}.files"))
    return replace(program, data=data, listed=listed)


def _campaign(asked: Sequence[str], *, sure: bool, dry_run: bool) -> tuple[Plan, int]:
    """Run the campaign of these words; returns its plan and the exit code."""
    flags = [*(["--yes"] if sure else []), *(["--dry-run"] if dry_run else [])]
    split = command_line.split([*flags, *asked])
    points = collect(asked)
    plan = run.planned(points or ())
    return plan, run.carry_out(plan, asked, split, shown=lambda _: None)


def _name(argv: Sequence[str]) -> str:
    name = shlex.join(argv)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _reader(plan: Plan) -> Callable[[str], Record | None]:
    return lambda cell: plan.verdicts.read(plan.folder.record(cell))[0]


def _found(plan: Plan, name: str) -> list[Outcome]:
    return stall_answer.couples([entry.cell for entry in plan.entries], _reader(plan), name)


def _more_runs(found: Sequence[Outcome], runs: int, within: float | None, most: int) -> int:
    """Return how many pairs are to be added: for those that do not count, or as many as there are; 0 for none."""
    pairs = min((each.whole.pairs if each.whole else 0 for each in found), default=0)
    lacking = max(0, min(runs, FEWEST_RUNS) - pairs)
    wide = within is not None and not all(each.deciding and each.deciding.is_within(within) for each in found)
    return max(0, min(lacking or (runs if wide else 0), most - runs))


def _say_whether_cold(name: str, plan: Plan, *, as_json: bool) -> int:
    records = [recorded for entry in plan.entries if (recorded := _reader(plan)(entry.cell.id))]
    runs = [each for recorded in records for each in stall_answer.cold_runs(recorded)]
    cold = bool(runs) and all(each.cold for each in runs)
    if as_json:
        print(json.dumps({"cold": cold, "runs": [asdict(each) for each in runs]}, indent=1))
    for line in () if as_json else stall_answer.cold_lines(name, runs):
        console.show(line)
    return int(not cold)


def _print(found: Sequence[Outcome], plan: Plan, *, as_json: bool) -> None:
    if as_json:
        told = {"campaign_dir": str(plan.folder.root), "programs": [each.as_json() for each in found]}
        print(json.dumps(told, indent=1))
        return
    for each in found:
        for line in stall_answer.lines(each):
            console.show(line)
    console.say(f"report: {plan.folder.root / 'report.html'}")
