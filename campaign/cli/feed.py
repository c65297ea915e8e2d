"""`python -m campaign feed storage=… accelerator=…`: how many accelerators a storage feeds."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cli import arguments, run
from campaign.cli.analyse import write_report
from campaign.config.collect import collect_points
from campaign.config.command_line import CommandLine
from campaign.console import counted
from campaign.errors import CampaignError, UsageError
from campaign.feed.feed_answer import Answer, find_answer, lines_of_answer
from campaign.feed.probes import Setup, StoppedError, Target, no_runs_error
from campaign.storage.made_data import to_make
from jobs.benchmarks import baseline
from jobs.judging import stopping
from jobs.model.codes import ExitCode
from jobs.model.conduct import Point
from jobs.model.declared import declared

_ABOUT = """Find how many accelerators a storage feeds: they are emulated, read what their definition says, and each
must compute for the share of the time that it says. The largest number that passes in every run and the next one are
run five times, cold and proved; the same with batches from memory, and with data in memory, say whether the client is
the limit. conf/accelerator has the definitions; one of your own: accelerator=own accelerator.sample_bytes=…
accelerator.batch=… accelerator.step_s=…"""
_RUNS, _MOST, _BASELINE_RUNS, _FILE_MB = 5, 1024, 3, 400
_SET_HERE = ("benchmark", "dataset", "cache", "benchmark.source", "benchmark.accelerators", "runs", "warmup_runs",
             "min_valid_runs", "redo", "detach", "until_spread")  # fmt: skip
_OF_FEED = ("accelerator", "dataset", "benchmark", "threads", "prefetch", "iterations", "nodes", "batch_size", "seed")


def main(argv: Sequence[str]) -> int:
    """Search and print; exit code 0 if every search came to its end."""
    options, words = _parsed(argv)
    split = CommandLine(tuple(words), dry_run=options.dry_run, assume_yes=True)
    points = collect_points(_words_of_feed(words)) or []
    targets = [_target(point, words, split) for point in points]
    code = 0
    if not options.dry_run:
        code = _measure_baselines(targets, words, split, options.most)
    if code == ExitCode.INTERRUPTED:
        return code
    for target in targets:
        console.say(_describe_costs(target, options.runs))
    if options.dry_run:
        if options.json:
            print(json.dumps([Answer(target, 0, None).as_json() for target in targets], indent=1))
        return 0
    _require_room(targets)
    if not options.yes and console.ask_for_yes("start?") is False:
        console.say("nothing was started")
        return 1
    return _search(targets, options)


def _search(targets: Sequence[Target], options: argparse.Namespace) -> int:
    """Search for each target, print the answers, and report all cells."""
    answers: list[Answer] = []
    faults: list[CampaignError] = []
    for target in targets:
        try:
            answers.append(find_answer(target, options.runs, options.most))
        except StoppedError as stopped:
            return stopped.code
        except CampaignError as error:
            faults.append(error)
            console.print_error(error.message, error.hint)
    if options.json:
        print(json.dumps([answer.as_json() for answer in answers], indent=1))
    for line in itertools.chain.from_iterable(() if options.json else map(lines_of_answer, answers)):
        console.show(line)
    _report(targets)
    return int(bool(faults))


def _report(targets: Sequence[Target]) -> None:
    """Write the report of all probes that are done."""
    done = [
        (target, setup)
        for target in targets
        for setup, outcome in target.outcomes.items()
        if outcome.runs and not outcome.late
    ]
    if not done:
        return
    entries = [target.plans[setup].entries[0] for target, setup in done]
    plan = done[0][0].plans[done[0][1]]
    console.say(f"{counted(len(entries), 'probe')} recorded; report: {plan.folder.root / 'report.html'}")
    write_report(plan.folder.root, quiet=True)


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.Parser(
        prog="python -m campaign feed",
        usage="python -m campaign feed storage=PATH|NAME accelerator=NAME[,NAME...] [OPTION ...] [KEY=VALUE ...]",
        description=_ABOUT,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--runs",
        type=int,
        choices=range(1, 101),
        metavar="N",
        default=_RUNS,
        help="runs at the edge (5)",
    )
    add("--most", type=int, choices=range(1, 4097), metavar="N", default=_MOST, help="accelerators per node at most")
    add("--yes", action="store_true", help="start without a question")
    add("--json", action="store_true", help="machine-readable, on stdout")
    add("--dry-run", action="store_true", help="say what one accelerator needs and start nothing")
    add(
        "words",
        nargs="*",
        metavar="KEY=VALUE",
        help="words of the campaign: nodes=2 benchmark.engine=tf",
    )
    options = parser.parse_intermixed_args(argv)
    keys = {word.partition("=")[0].lstrip("+") for word in options.words}
    if odd := [word for word in options.words if "=" not in word]:
        raise UsageError(
            f"'{odd[0]}' is neither an option nor KEY=VALUE", "storage=/scratch/me accelerator=unet3d_h100"
        )
    if clash := keys.intersection(_SET_HERE):
        raise UsageError(f"{min(clash)}=…: `feed` itself sets that", "leave it out; --runs N sets the runs at the edge")
    if lacks := [key for key in ("storage", "accelerator") if not any(key == each.partition(".")[0] for each in keys)]:
        raise UsageError(f"feed: no {lacks[0]} is named", "feed storage=/scratch/me accelerator=unet3d_h100")
    return options, options.words


def _words_of_feed(words: Sequence[str]) -> list[str]:
    own = [word for word in words if not _is_of_baseline(word)]
    campaign_dir = [] if any(word.startswith("campaign_dir=") for word in words) else ["campaign_dir=feed"]
    return ["benchmark=feed", "dataset=samples", *campaign_dir, *own]


def _is_of_baseline(word: str) -> bool:
    key = word.partition("=")[0]
    return key.startswith("benchmark.") and key.partition(".")[2] in {*declared(baseline.Keys)} - {"engine", "name"}


def _words_of_baseline(words: Sequence[str]) -> list[str]:
    own = [word for word in words if _is_of_baseline(word) or word.partition("=")[0].partition(".")[0] not in _OF_FEED]
    keys = {word.partition("=")[0] for word in own}
    usual = {"campaign_dir": "feed", "benchmark.file_mb": _FILE_MB}
    more = [f"{key}={value}" for key, value in usual.items() if key not in keys]
    return ["benchmark=baseline", *more, *own, f"runs={_BASELINE_RUNS}", "warmup_runs=0", "min_valid_runs=1"]


def _target(point: Point, words: Sequence[str], split: CommandLine) -> Target:
    if "sample_bytes" not in point["accelerator"]:
        name = point["accelerator"]["name"]
        raise UsageError(f"accelerator={name} has no definition of what it reads", "accelerator=unet3d_h100, or =own")
    target = Target(point, _words_of_feed(words), split)
    target.size_data(1, _root(target))
    run.plan_points([target.point])  # refuses what cannot be
    return target


def _root(target: Target) -> Path:
    return Path(target.point["storage"]["root"]).expanduser().resolve()


def _measure_baselines(targets: Sequence[Target], words: Sequence[str], split: CommandLine, most: int) -> int:
    """Measure the storages alone, and size the data by what they give."""
    of_baseline = _words_of_baseline(words)
    plan = run.plan_points(collect_points(of_baseline) or [])
    code = run.run_plan(plan, of_baseline, split, reports=False) if plan.to_do else 0
    if code == ExitCode.INTERRUPTED:
        return code
    plan = plan.refresh()
    rates: dict[str, float] = {}
    for entry in plan.entries:
        record, _ = plan.verdicts.read(plan.folder.record(entry.cell.id))
        values: list[Any] = stopping.measured(record, "valid") if record else []
        if not values:
            raise no_runs_error(plan, entry)
        rates[entry.cell.settings["storage"]["name"]] = statistics.median(each["read_mb_per_s"] for each in values)
    for target in targets:
        target.baseline_mb_per_s = rates[target.point["storage"]["name"]]
        number = int(target.baseline_mb_per_s * target.point["nodes"] / target.demand_mb_per_s)
        target.size_data(min(most, 2 * max(1, number)), _root(target))
    return code


def _describe_costs(target: Target, runs: int) -> str:
    """Return what an accelerator needs, and the bytes and runs of the search."""
    own, data, demand = target.point["accelerator"], target.point["dataset"], target.demand_mb_per_s
    made = sum(thing.bytes for thing in to_make(target.plan(Setup(1), 1).to_do))
    words = (
        f"{target.name} on {target.point['storage']['name']}:",
        f"{own['batch']} samples of {own['sample_bytes']:,} bytes in {own['step_s']:g} s, {demand:.4g} MB/s at 100 %,",
        f"{own['minimum'] * demand:.4g} at its minimum of {own['minimum']:.0%};",
        f"{counted(data['files'], 'file')}, {target.data_bytes / 1e9:.2g} GB, {made / 1e9:.2g} GB to be made;",
        f"about {10 + 2 * runs} runs of {target.steps * own['step_s']:.0f} s or more",
    )
    return " ".join(words)


def _require_room(targets: Sequence[Target]) -> None:
    for target in targets:
        if target.most_accelerators() < 1:
            raise UsageError(
                f"{target.name}: the free space of {target.point['storage']['name']} is not enough for"
                f" {target.steps} steps of one accelerator",
                "iterations=… takes fewer steps; or free some space",
            )
