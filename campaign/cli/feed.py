"""Run the verb `feed`: find how many accelerators a storage can supply with data."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence

from campaign import console
from campaign.cells import folder as folders
from campaign.cli import arguments, run
from campaign.cli.analyse import write_report
from campaign.cluster.placement import choose_cluster
from campaign.config.collect import collect_points
from campaign.config.command_line import CommandLine
from campaign.console import count_noun, interrupt_on_kill
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.feed.feed_answer import Answer, find_answer, lines_of_answer
from campaign.feed.probes import Target, no_runs_error, read_outcome, run_cells
from campaign.storage.made_data import missing_data
from campaign.storage.roots import storage_root
from jobs.benchmarks import baseline
from jobs.judging.fed_accelerators import FeedLimit, Setup
from jobs.model.conduct import Point
from jobs.model.declared import declared_settings
from jobs.model.settings import flat_items

_ABOUT = """Find how many accelerators a storage can supply with data. The accelerators are emulated: they read samples
as their definition says, and each must compute for at least the share of the time that its definition demands. The
largest number that passes in every run, and the next number, are run five times, with a page cache that is proved cold.
Runs with batches from memory, and with the data in memory, show whether the client is the limit. The definitions are in
conf/accelerator. To define your own: accelerator=own accelerator.sample_bytes=… accelerator.batch=…
accelerator.step_s=…"""
_USAGE = "storage=PATH|NAME accelerator=NAME[,NAME...] [OPTION ...] [KEY=VALUE ...]"
_RUNS, _MOST, _BASELINE_RUNS, _FILE_MB = 5, 1024, 3, 400
_EXAMPLE = "storage=/scratch/me accelerator=unet3d_h100"
_SET_HERE = ("benchmark", "dataset", "cache", "benchmark.source", "benchmark.accelerators", "runs", "warmup_runs",
             "min_valid_runs", "redo", "detach", "until_spread")  # fmt: skip
_OF_FEED = ("accelerator", "dataset", "benchmark", "threads", "prefetch", "iterations", "nodes", "batch_size", "seed")
_NAMED = ("storage=", "accelerator=")  # settings that every answer names, even if they have only one value


def main(argv: Sequence[str]) -> int:
    """Search on each storage for each accelerator, and print the answers; return 0 if every search finished."""
    options, words = _parsed(argv)
    command = ["feed", *argv]
    targets = [_target(point, words, command) for point in collect_points(_words_of_feed(words)) or []]
    plan = run.plan_points([target.point for target in targets])
    cells = [entry.cell for entry in plan.entries]
    choose_cluster(cells, plan.conduct)
    for line in run.notices_before_run(cells, CommandLine(tuple(words))):
        console.say(line)
    if options.dry_run:
        for target in targets:
            _require_writable(target)
            console.say(_describe_costs(target, options.runs))
        size = [word for word in _words_of_baseline(words) if word.startswith("benchmark.file_mb=")]
        console.say(f"before that, each storage is measured alone with a file of {size[-1].partition('=')[2]} MB")
        if options.json:
            console.show_json([Answer(target, FeedLimit(0)).as_json() for target in targets])
        return 0
    is_new = not plan.folder.root.exists()
    folder, _ = folders.open_or_create(plan.folder.root)
    with folders.remove_if_refused(folder, is_new=is_new), folders.lock_folder(folder, "feed"), interrupt_on_kill():
        return _search(targets, options, words)


def _require_writable(target: Target) -> None:
    """Raise EnvironmentFaultError if data must be made on the storage, but this user cannot make files there."""
    storage = target.point["storage"]
    if "://" in (storage.get("root") or "://") or not missing_data(target.plan(Setup(1), 1).to_do):
        return
    root = storage_root(storage, make=False)
    if root.exists() and not (os.access(root, os.W_OK | os.X_OK) and shutil.disk_usage(root).total):
        why = f"{root} is not writable for you, or has no space for files, and data must be made there"
        raise EnvironmentFaultError(why, "name a folder on the same storage where you may write: storage=PATH")


def _search(targets: Sequence[Target], options: argparse.Namespace, words: Sequence[str]) -> int:
    """Measure each storage alone, search for each target, print the answers, and write the report."""
    _measure_baselines(targets, words, options.most)
    for target in targets:
        console.say(_describe_costs(target, options.runs))
        if target.most_accelerators() < 1:
            raise UsageError(
                f"{target.name}: the free space of {target.storage} is too small for the data of"
                f" {target.steps} steps of one accelerator",
                "set fewer steps with iterations=…, or free some space",
            )
    if not run.may_start(sure=options.yes):
        return 1
    answers: list[Answer] = []
    code = 0
    for target in targets:
        try:
            answers.append(find_answer(target, options.runs, options.most))
        except CampaignError as error:
            code = error.exit_code
            console.print_error(error.message, error.hint)
        else:
            for line in () if options.json else lines_of_answer(answers[-1]):
                console.show(line, flush=True)
    if options.json:
        console.show_json([answer.as_json() for answer in answers])
    if probes := [plan for target in targets for plan in target.plans.values()]:
        root = probes[0].folder.root
        console.say(f"{count_noun(len(probes), 'probe')}; report: {root / 'report.html'}")
        write_report(root, quiet=True)
    return code


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.make_parser("feed", _ABOUT, _USAGE, json=True)
    add = parser.add_argument
    add("--runs", type=arguments.whole_number(100), metavar="N", default=_RUNS, help="runs of the largest number (5)")
    add("--most", type=arguments.whole_number(4096), metavar="N", default=_MOST, help="accelerators per node at most")
    add("--yes", action="store_true", help="start without a question")
    add("--dry-run", action="store_true", help="print what one accelerator needs, and start nothing")
    add("words", nargs="*", metavar="KEY=VALUE", help="settings of the campaign: nodes=2 benchmark.engine=tf")
    options = parser.parse_intermixed_args(argv)
    keys = {word.partition("=")[0].lstrip("+") for word in options.words}
    if odd := [word for word in options.words if "=" not in word]:
        raise UsageError(f"'{odd[0]}' is neither an option nor KEY=VALUE", _EXAMPLE)
    if clash := keys.intersection(_SET_HERE):
        cure = "leave it out; --runs N sets the runs of the largest number of accelerators"
        raise UsageError(f"{min(clash)}=…: `feed` itself sets that", cure)
    if lacks := [key for key in ("storage", "accelerator") if not any(key == each.partition(".")[0] for each in keys)]:
        raise UsageError(f"feed: no {lacks[0]} is named", f"feed {_EXAMPLE}")
    return options, options.words if "campaign_dir" in keys else ["campaign_dir=feed", *options.words]


def _words_of_feed(words: Sequence[str]) -> list[str]:
    return ["benchmark=feed", "dataset=samples", *(word for word in words if not _is_of_baseline(word))]


def _is_of_baseline(word: str) -> bool:
    key = word.partition("=")[0]
    return key.startswith("benchmark.") and key.partition(".")[2] in {*declared_settings(baseline.Keys)} - {
        "engine",
        "name",
    }


def _words_of_baseline(words: Sequence[str]) -> list[str]:
    own = [word for word in words if _is_of_baseline(word) or word.partition("=")[0].partition(".")[0] not in _OF_FEED]
    size = [] if any(word.startswith("benchmark.file_mb=") for word in own) else [f"benchmark.file_mb={_FILE_MB}"]
    return ["benchmark=baseline", *size, *own, f"runs={_BASELINE_RUNS}", "warmup_runs=0", "min_valid_runs=1"]


def _target(point: Point, words: Sequence[str], command: Sequence[str]) -> Target:
    if "sample_bytes" not in point["accelerator"]:
        name = point["accelerator"]["name"]
        cure = "choose one that reads samples, as accelerator=unet3d_h100, or define your own with accelerator=own"
        raise UsageError(f"accelerator={name} has no definition of what it reads", cure)
    run.plan_points([point])  # raises UsageError for impossible settings
    words_here = {word: override_of_point(point, word) for word in _words_of_feed(words)}
    swept = [here for word, here in words_here.items() if here != word and not word.startswith(_NAMED)]
    target = Target(point, [*words_here.values()], " ".join(swept), command)
    target.size_data(1)
    return target


def override_of_point(point: Point, word: str) -> str:
    """Replace the list of values in an override ``key=a,b`` by the value that this point has.

    A probe is one cell, so its command must name one value.
    """
    key, _, values = word.partition("=")
    settings = dict(flat_items(point))
    chosen = {str(settings.get(name)) for name in (key, f"{key}.name", f"{key}.root")}
    return f"{key}={next((value for value in values.split(',') if value in chosen), values)}"


def _measure_baselines(targets: Sequence[Target], words: Sequence[str], most: int) -> None:
    """Measure the bandwidth of each storage alone, and choose the size of the data by this bandwidth."""
    of_baseline = _words_of_baseline(words)
    plan = run.plan_points(collect_points(of_baseline) or [])
    plan = run_cells(plan, of_baseline, targets[0].command) if plan.to_do else plan
    rates: dict[str, float] = {}
    for entry in plan.entries:
        baseline_runs = read_outcome(plan, entry)
        if not baseline_runs.runs:
            raise no_runs_error(plan, entry)
        rates[entry.cell.settings["storage"]["name"]] = baseline_runs.median("read_mb_per_s")
    for target in targets:
        target.baseline_mb_per_s = rates[target.storage]
        sharing = sum(each.storage == target.storage for each in targets)
        target.size_data(
            min(most, 2 * max(1, target.accelerators_by_bandwidth)), plan.folder.root / "feed.json", sharing
        )


def _describe_costs(target: Target, runs: int) -> str:
    """Describe in one line the MB/s that an accelerator needs, and the data and the runs that the search needs."""
    own, data, demand = target.accelerator, target.point["dataset"], target.demand_mb_per_s
    run_s = target.steps * own["step_s"]
    made = sum(thing.bytes for thing in missing_data(target.plan(Setup(1), 1).to_do))
    words = (
        f"{target.name} on {target.storage}:",
        f"{own['batch']} samples of {own['sample_bytes']:,} bytes in {own['step_s']:g} s, {demand:.4g} MB/s at 100 %,",
        f"{own['minimum'] * demand:.4g} at its minimum of {own['minimum']:.0%};",
        f"at least {count_noun(data['files'], 'file')}, {target.data_bytes / 1e9:.2g} GB,",
        f"{made / 1e9:.2g} GB to be made, and more for more accelerators;",
        f"about {10 + 2 * runs} runs of at least {run_s:.{0 if run_s >= 1 else 2}f} s",
    )
    return " ".join(words)
