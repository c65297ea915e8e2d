"""Run the verb `reproduce`: measure the baselines and every recipe of a paper as one campaign, and report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells import cell_plan
from campaign.cells.cell_plan import Plan
from campaign.cells.folder import CampaignFolder
from campaign.cli import analyse, arguments, run
from campaign.cluster import price
from campaign.cluster.placement import choose_cluster, plan_data
from campaign.cluster.progress import Follower
from campaign.config import command_line, recipes
from campaign.config.collect import collect_points, make_cells
from campaign.config.command_line import CommandLine
from campaign.console import count_noun
from campaign.errors import UsageError
from jobs.benchmarks import registry
from jobs.judging import peaks
from jobs.model.conduct import Point

_USAGE = """\
[paper=chien2018|tfdarshan|all] [+size=smoke|paper] [site=SITE]
         [KEY=VALUE[,VALUE...] ...] [--only CELL] [--dry-run] [--yes] [--json]"""
_ABOUT = """\
Measure a whole paper as one campaign: the baselines of the storages (Table I), then every recipe of the paper
(conf/paper) on each storage of the site. Then write tables, figures, verdicts and report.html. The default is
paper=chien2018; paper=tfdarshan is the paper on the profiler tf-Darshan. Its cells with staged files are measured only
after `stage apply` has made the copies. Recorded cells are not measured again, so the same command continues after an
interruption. The verb prints the cost before the first run. On a terminal it then asks whether to start, except with
--yes or CAMPAIGN_YES=1.

storage=hdd,ssd reads only from these storages. Other settings of a storage or a checkpoint target replace those of the
recipes. A setting that only some benchmarks have is applied to the cells of these benchmarks.

--dry-run prints the cells and their state, on Slurm also the input of sbatch, and starts nothing. --json prints the
state of each cell and the verdicts on the claims, in place of the summary.

Exit codes: see `python -m campaign --help`."""
_SITE = ("site=", "site.")
_RECIPE = re.compile(r"[+~]+paper=")
_PAPER = "paper="


def main(argv: Sequence[str]) -> int:
    """Collect every recipe of the named papers, print the cost, and run them as one campaign; return the exit code."""
    parser = arguments.make_parser("reproduce", _ABOUT, _USAGE, json=False, open_ended=True)
    papers, rest = _take_papers(arguments.take_options(parser, argv, command_line.FLAGS)[1])
    split = replace(command_line.parse_command_line(rest), of_recipes=True)
    if any(_RECIPE.match(word) for word in split.overrides):
        cure = "to measure some recipes: python -m campaign +paper=fig4,fig5"
        raise UsageError("reproduce measures every recipe of a paper, and +paper=… names recipes", cure)
    if split.hydra_flags:
        raise UsageError(
            f"reproduce has no single configuration for {split.hydra_flags[0]}",
            "--dry-run lists its cells; the configuration of one recipe: python -m campaign +paper=fig4 --cfg job",
        )
    planned = run.restrict_plan(run.plan_points(_compose_recipes(split, papers), to_run=not split.dry_run), split.only)
    if not split.dry_run and not _ask_for_consent(planned, sure=split.assume_yes):
        return 1
    return run.run_plan(planned, ["reproduce", *argv], split, as_json=_as_json)


def _as_json(planned: Plan) -> dict[str, Any]:
    """Return the state of each cell, and the verdicts on the claims of the papers."""
    return {**run.plan_as_json(planned), "claims": analyse.read_verdicts(planned.folder.root)}


def _take_papers(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take ``paper=`` out of the arguments; return the papers that it names, and the other arguments."""
    named = [word.removeprefix(_PAPER) for word in argv if word.startswith(_PAPER)]
    every = list(recipes.PAPERS)
    choices = {"all": every} | {name: [name] for name in every}
    if unknown := [name for name in named if name not in choices]:
        raise UsageError(f"there are no recipes for paper={unknown[0]}", f"paper={'|'.join([*every, 'all'])}")
    return choices[named[-1]] if named else every[:1], [word for word in argv if not word.startswith(_PAPER)]


def _compose_recipes(split: CommandLine, papers: Sequence[str]) -> list[Point]:
    """Return the points of every recipe on the storages of the site; print which checkpoint targets the site lacks."""
    site = _site_storages([*split.config_dir_flags, *(word for word in split.overrides if word.startswith(_SITE))])
    own, here = recipes.take_storage_choice(split.overrides, site)
    paper_recipes = recipes.list_recipes(papers)
    points: list[Point] = []
    for word in own:
        if not any(recipe.accepted_overrides([word]) for recipe in paper_recipes):
            raise UsageError(f"no recipe has a setting '{word}'", "python -m campaign help keys lists all settings")
    for recipe in paper_recipes:
        accepted = recipe.accepted_overrides(own)
        if storage := recipes.replacing_storage(recipe, accepted, here):
            lack = "which the site does not have" if recipe.storage not in site else "as you chose"
            console.say(f"recipe {recipe.name}: storage={storage} in place of storage={recipe.storage}, {lack}")
        if missing := recipes.missing_targets(recipe, accepted, here):
            console.say(f"recipe {recipe.name}: left out checkpoint={','.join(missing)}, which the site does not have")
        points += _compose_recipe(
            recipe.name, [*split.config_dir_flags, *accepted, *recipes.recipe_overrides(recipe, accepted, here)]
        )
    points = _drop_missing_copies(points)
    return [*points, *_small_read_baselines(points)]


def _drop_missing_copies(points: Sequence[Point]) -> list[Point]:
    """Drop the points that read staged copies if the copies are not made yet, and print how many were dropped."""
    missing: dict[str, int] = {}
    remaining = []
    for point in points:
        rule, folder = point["staging"], CampaignFolder(Path(point["campaign_dir"]).expanduser())
        if rule == "none" or (folder.staging / f"{rule}.json").is_file():
            remaining.append(point)
        else:
            missing[rule] = missing.get(rule, 0) + 1
    for rule, number in missing.items():
        console.say(
            f"left out {count_noun(number, 'cell')} of staging={rule}: first make the copies with `stage plan` and"
            " `stage apply`"
        )
    return remaining


def _compose_recipe(recipe: str, hydra_words: Sequence[str]) -> list[Point]:
    """Return the points of a recipe. If they are refused, raise a UsageError that names the recipe."""
    try:
        points = collect_points(hydra_words) or []
        if points:
            make_cells(points, to_run=False)
    except UsageError as error:
        raise UsageError(f"{recipe}: {error.message}", error.hint) from error
    return points


def _small_read_baselines(points: Sequence[Point]) -> list[Point]:
    """Return baselines that read random blocks, with the storages, data sets and threads of the recipes' points.

    The reports compare each cell with a baseline that has the same block size and as many threads.
    """
    baseline = next((point for point in points if registry.benchmark_of(point).kind == peaks.KIND), None)
    if baseline is None:
        return []
    access = baseline["benchmark"] | {"access": "random_read"}
    return [
        {
            **baseline,
            "benchmark": access,
            "storage": point["storage"],
            "dataset": point["dataset"],
            "threads": point["threads"],
        }
        for point in points
        if registry.benchmark_of(point).kind != peaks.KIND
    ]


def _site_storages(site_words: Sequence[str]) -> list[str]:
    """Return the names of the site's storages, except the storages of emulated nodes: the papers used one node."""
    points = collect_points(site_words) or []
    return [
        name
        for point in points[:1]
        for name, storage in point["site"]["storages"].items()
        if storage["root"] is not None and storage["node_root"] is None
    ]


def _ask_for_consent(planned: Plan, *, sure: bool) -> bool:
    """Print how many runs are needed; on this machine also print the expected time, and ask the user.

    On Slurm this function does not ask, because the submission itself asks later.
    """
    todo, conduct, cells = planned.to_do, planned.conduct, [entry.cell for entry in planned.entries]
    if not todo:
        console.say(f"{count_noun(len(cells), 'cell')}, 0 to run")
        return True
    runs = cell_plan.format_number_of_runs(todo, conduct)
    amount = f"{count_noun(len(cells), 'cell')}, {len(todo)} to run: {runs} with warm-ups"
    if choose_cluster(cells, conduct) == "slurm":
        console.say(amount)
        return True
    times = price.expect_times([Follower.of_entries(planned.folder, todo, conduct)], price.RunTimes(planned.folder))
    console.say(f"{amount}; {times or 'how long they take is not known: nothing is recorded yet'}")
    for line in plan_data(todo, None).lines:
        console.say(line)
    return run.may_start(sure=sure)
