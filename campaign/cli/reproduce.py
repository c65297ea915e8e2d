"""`python -m campaign reproduce`: the baselines, then every recipe of a paper, as one campaign, then the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from campaign import console
from campaign.cells import cell_plan
from campaign.cells.cell_plan import Plan
from campaign.cells.folder import CampaignFolder
from campaign.cli import run
from campaign.cluster import price
from campaign.cluster.choice import chosen
from campaign.cluster.progress import Follower
from campaign.config import command_line, recipes
from campaign.config.collect import collect
from campaign.config.command_line import Words
from campaign.config.points import cells_of
from campaign.console import counted
from campaign.errors import UsageError
from jobs.benchmarks import registry
from jobs.judging import peaks
from jobs.model.conduct import Point

HELP = """\
usage: python -m campaign reproduce [paper=chien2018|tfdarshan|all] [+size=smoke|paper] [site=SITE]
                                   [KEY=VALUE[,VALUE...] ...] [--only CELL] [--dry-run] [--yes]

A whole paper as one campaign: the baselines of the storages (Table I), then every recipe of the paper in conf/paper on
each storage that the site has, then tables, figures, verdicts and report.html. paper=chien2018 is the default,
tfdarshan the one of the profiler; its cells with staged files are measured once `stage apply` has made the copies. What
is recorded is not measured again: the same command goes on after an interruption. The cost is printed first, and on a
terminal it asks; --yes and CAMPAIGN_YES=1 do not ask. storage=hdd,ssd reads from these alone; other words that name a
storage or a checkpoint target take the place of the recipes' own. A word that only some benchmarks know is meant for
those.

--dry-run prints the cells and their state, on Slurm also what sbatch would get, and starts nothing.
Exit codes: those of `python -m campaign`."""
_SITE = ("site=", "site.")
_RECIPE = re.compile(r"[+~]+paper=")
_PAPER = "paper="


def main(argv: Sequence[str]) -> int:
    """Collect every recipe, print the cost, and run them as one campaign."""
    if {"-h", "--help"}.intersection(argv):
        print(HELP)
        return 0
    papers, rest = _papers(argv)
    split = replace(command_line.split(rest), of_recipes=True)
    if any(_RECIPE.match(word) for word in split.overrides):
        raise UsageError("reproduce takes every recipe", "for some of them: python -m campaign +paper=fig4,fig5")
    if split.shown:
        raise UsageError(
            f"reproduce has no single configuration for {split.shown[0]}",
            "--dry-run lists its cells; of one recipe: python -m campaign +paper=fig4 --cfg job",
        )
    planned = run.restricted(run.planned(_points(split, papers)), split.only)
    if not split.dry_run and not _agreed(planned, sure=split.sure):
        console.say("nothing was started")
        return 1
    return run.carry_out(planned, ["reproduce", *argv], split)


def _papers(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take ``paper=`` out of the words; return the papers that it names, and the other words."""
    named = [word.removeprefix(_PAPER) for word in argv if word.startswith(_PAPER)]
    every = list(recipes.PAPERS)
    chosen = {"all": every} | {name: [name] for name in every}
    if unknown := [name for name in named if name not in chosen]:
        raise UsageError(f"paper={unknown[0]} is none that has recipes", f"paper={'|'.join([*every, 'all'])}")
    return chosen[named[-1]] if named else every[:1], [word for word in argv if not word.startswith(_PAPER)]


def _points(split: Words, papers: Sequence[str]) -> list[Point]:
    """Compose every recipe on the storages of the site, and say what it must do without."""
    site = _storages([*split.flags, *(word for word in split.overrides if word.startswith(_SITE))])
    own, here = recipes.choose(split.overrides, site)
    found = recipes.recipes(papers)
    points: list[Point] = []
    for word in own:
        if not any(recipe.takes([word]) for recipe in found):
            raise UsageError(f"no recipe knows '{word}'", "python -m campaign help keys lists the keys")
    for recipe in found:
        meant = recipe.takes(own)
        if missing := recipes.lacking(recipe, meant, here):
            console.say(f"{recipe.name}: without {', '.join(missing)}, which the site does not have")
        points += _composed(recipe.name, [*split.flags, *meant, *recipes.grid(recipe, meant, here)])
    points = _with_copies(points)
    return [*points, *_small_reads(points)]


def _with_copies(points: Sequence[Point]) -> list[Point]:
    """Leave out the points that read copies which are not made yet, and say so."""
    lacks: dict[str, int] = {}
    kept = []
    for point in points:
        rule, folder = point["staging"], CampaignFolder(Path(point["campaign_dir"]).expanduser())
        if rule == "none" or (folder.staging / f"{rule}.json").is_file():
            kept.append(point)
        else:
            lacks[rule] = lacks.get(rule, 0) + 1
    for rule, number in lacks.items():
        console.say(f"without {counted(number, 'cell')} of staging={rule}: `stage plan`, `stage apply` make the copies")
    return kept


def _composed(recipe: str, hydra_words: Sequence[str]) -> list[Point]:
    """Compose a recipe; an error says which it is of."""
    try:
        points = collect(hydra_words) or []
        if points:
            cells_of(points)
    except UsageError as error:
        raise UsageError(f"{recipe}: {error.message}", error.hint) from error
    return points


def _small_reads(points: Sequence[Point]) -> list[Point]:
    """Add to the baselines what each storage gives at the sizes and to the readers of the recipes."""
    baseline = next((point for point in points if registry.of(point).kind == peaks.KIND), None)
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
        if registry.of(point).kind != peaks.KIND
    ]


def _storages(site_words: Sequence[str]) -> list[str]:
    """Return the names of the storages that the site has, but for what emulated nodes read: the paper has one node."""
    points = collect(site_words) or []
    return [
        name
        for point in points[:1]
        for name, said in point["site"]["storages"].items()
        if said["root"] is not None and said["node_root"] is None
    ]


def _agreed(planned: Plan, *, sure: bool) -> bool:
    """Print how much is to be run; on this machine, also how long it takes, and ask: on Slurm the submission asks."""
    todo, conduct, cells = planned.to_do, planned.conduct, [entry.cell for entry in planned.entries]
    if not todo:
        console.say(f"{counted(len(cells), 'cell')}, 0 to run")
        return True
    amount = (
        f"{counted(len(cells), 'cell')}, {len(todo)} to run: {cell_plan.runs_in_words(todo, conduct)} with warm-ups"
    )
    if chosen(cells, conduct) == "slurm":
        console.say(amount)
        return True
    from campaign.cluster import making  # noqa: PLC0415 - numpy is not on the way to --help

    times = price.expected([Follower.to_be(planned.folder, todo, conduct)], price.RunTimes(planned.folder))
    console.say(f"{amount}; {times or 'how long they take is not known: nothing is recorded yet'}")
    for line in making.making(todo, None).lines:
        console.say(line)
    return sure or console.agreed("start?") is not False
