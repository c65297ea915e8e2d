"""Run `reproduce`: the baselines, then every recipe of a paper, as one campaign, then the report."""

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
A whole paper as one campaign: the baselines of the storages (Table I), then every recipe of the paper in conf/paper on
each storage that the site has, then tables, figures, verdicts and report.html. paper=chien2018 is the default,
tfdarshan the one of the profiler; its cells with staged files are measured once `stage apply` has made the copies. What
is recorded is not measured again: the same command goes on after an interruption. The cost is printed first, and on a
terminal it asks; --yes and CAMPAIGN_YES=1 do not ask. storage=hdd,ssd reads from these alone; other words that name a
storage or a checkpoint target take the place of the recipes' own. A word that only some benchmarks know is meant for
those.

--dry-run prints the cells and their state, on Slurm also what sbatch would get, and starts nothing. --json gives, in
place of the summary, the state of each cell and the verdicts on the claims.
Exit codes: those of `python -m campaign`."""
_SITE = ("site=", "site.")
_RECIPE = re.compile(r"[+~]+paper=")
_PAPER = "paper="


def main(argv: Sequence[str]) -> int:
    """Collect every recipe, print the cost, and run them as one campaign; return the exit code."""
    parser = arguments.make_parser("reproduce", _ABOUT, _USAGE, json=False, open_ended=True)
    papers, rest = _take_papers(arguments.take_options(parser, argv, command_line.FLAGS)[1])
    split = replace(command_line.parse_command_line(rest), of_recipes=True)
    if any(_RECIPE.match(word) for word in split.overrides):
        raise UsageError("reproduce takes every recipe", "for some of them: python -m campaign +paper=fig4,fig5")
    if split.hydra_flags:
        raise UsageError(
            f"reproduce has no single configuration for {split.hydra_flags[0]}",
            "--dry-run lists its cells; of one recipe: python -m campaign +paper=fig4 --cfg job",
        )
    planned = run.restrict_plan(run.plan_points(_compose_recipes(split, papers)), split.only)
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
        raise UsageError(f"paper={unknown[0]} is none that has recipes", f"paper={'|'.join([*every, 'all'])}")
    return choices[named[-1]] if named else every[:1], [word for word in argv if not word.startswith(_PAPER)]


def _compose_recipes(split: CommandLine, papers: Sequence[str]) -> list[Point]:
    """Return the points of every recipe on the storages of the site, and print what the site lacks."""
    site = _site_storages([*split.config_dir_flags, *(word for word in split.overrides if word.startswith(_SITE))])
    own, here = recipes.take_storage_choice(split.overrides, site)
    paper_recipes = recipes.list_recipes(papers)
    points: list[Point] = []
    for word in own:
        if not any(recipe.accepted_overrides([word]) for recipe in paper_recipes):
            raise UsageError(f"no recipe knows '{word}'", "python -m campaign help keys lists the keys")
    for recipe in paper_recipes:
        accepted = recipe.accepted_overrides(own)
        if missing := recipes.missing_targets(recipe, accepted, here):
            console.say(f"{recipe.name}: without {', '.join(missing)}, which the site does not have")
        points += _compose_recipe(
            recipe.name, [*split.config_dir_flags, *accepted, *recipes.recipe_overrides(recipe, accepted, here)]
        )
    points = _drop_missing_copies(points)
    return [*points, *_small_read_baselines(points)]


def _drop_missing_copies(points: Sequence[Point]) -> list[Point]:
    """Return the points without those that read staged copies which are not made, and print how many."""
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
            f"without {count_noun(number, 'cell')} of staging={rule}: `stage plan`, `stage apply` make the copies"
        )
    return remaining


def _compose_recipe(recipe: str, hydra_words: Sequence[str]) -> list[Point]:
    """Return the points of a recipe; an error names the recipe."""
    try:
        points = collect_points(hydra_words) or []
        if points:
            make_cells(points)
    except UsageError as error:
        raise UsageError(f"{recipe}: {error.message}", error.hint) from error
    return points


def _small_read_baselines(points: Sequence[Point]) -> list[Point]:
    """Return baselines of each storage with the sizes and the readers of the recipes."""
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
    """Return the names of the site's storages, without those of emulated nodes: the paper has one node."""
    points = collect_points(site_words) or []
    return [
        name
        for point in points[:1]
        for name, storage in point["site"]["storages"].items()
        if storage["root"] is not None and storage["node_root"] is None
    ]


def _ask_for_consent(planned: Plan, *, sure: bool) -> bool:
    """Print how much is to run; on this machine also how long, and ask: on Slurm the submission asks."""
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
