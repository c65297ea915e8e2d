"""Run the verb `stage`: choose files to read from a faster storage, copy these files, and check the gain."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from campaign import console
from campaign.cells.folder import open_existing
from campaign.cells.verdicts import Verdicts
from campaign.cli import arguments
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from jobs.parser import nearest_hint, put_verb_first
from jobs.system.files import resolve_links

if TYPE_CHECKING:
    from campaign.staging.apply_copies import GainOutcome
    from campaign.staging.observed_runs import ObservedRuns
    from campaign.staging.staging_plan import StagingPlan

_VERBS = ("plan", "apply", "check", "undo")
_UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]?B|)", re.IGNORECASE)


def main(argv: list[str]) -> int:
    """Run `stage plan`, `apply`, `check` or `undo`; return its exit code.

    `stage plan` returns 0 even if staging cannot help, because the plan itself says so.
    """
    options = _parse_arguments(argv)
    with console.interrupt_on_kill():
        return int(options.act(options))


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = arguments.CampaignParser(
        prog="python -m campaign stage", description="Copy some files to a faster storage, and measure the gain."
    )
    verbs = parser.add_subparsers(required=True, metavar="|".join(_VERBS))
    plan = verbs.add_parser("plan", help="choose the files to copy by a profile, and predict the gain")
    plan.add_argument("profile", type=_read_path, nargs="?", default=Path("results"), metavar="RESULTS|PROFILE",
                      help="a campaign with profiled cells (profile.posix=…), a profile or a Darshan log")  # fmt: skip
    plan.add_argument("--fast", type=_read_path, required=True, metavar="ROOT", help="a folder on the faster storage")
    plan.add_argument(
        "--capacity", type=_read_size, metavar="10GB", help="the largest amount to copy (default: the free space)"
    )
    plan.add_argument("--only", metavar="CELL", help="the profiled cell to use, if the campaign has several")
    plan.add_argument("--data", type=Path, metavar="FOLDER", help="with PROFILE: folder of the files to choose from")
    plan.add_argument(
        "--out", type=_read_path, metavar="DIR", help="folder for the plan and the maps (default: RESULTS/staging)"
    )
    plan.add_argument("--json", action="store_true", help="print the plan without its files as JSON on stdout")
    plan.set_defaults(act=_make_plan)
    apply = verbs.add_parser("apply", help="copy the planned files, and write a map from each file to its copy")
    apply.add_argument("--rule", action="append", choices=("advised", "smallest", "largest", "all"),
                       help="the rule that chose the files (default: advised); may be repeated")  # fmt: skip
    apply.add_argument("--yes", action="store_true", help="do not ask before copying")
    apply.set_defaults(act=_apply_plan)
    check = verbs.add_parser("check", help="compare the predicted gain with the measured gain")
    check.add_argument("--profile", type=_read_path, action="append", metavar="FILE",
                       help="if the plan is from a PROFILE: a profile of the program with the copies; may be"
                            " repeated")  # fmt: skip
    check.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    check.set_defaults(act=_check_plan)
    undo = verbs.add_parser("undo", help="remove the copies and the maps")
    undo.set_defaults(act=_undo_plan)
    for verb in (apply, check, undo):
        arguments.add_folder(verb, "the folder of the campaign or of the plan (default: results)")
    return parser.parse_args(put_verb_first(argv, _VERBS, ()))


def _read_path(text: str) -> Path:
    return resolve_links(text.removeprefix("campaign_dir="))


def _read_size(text: str) -> int:
    """Return the number of bytes of a text like ``10GB``; 1 GB is 10^9 bytes."""
    if not (size := _SIZE.fullmatch(text)):
        raise argparse.ArgumentTypeError(f"{text} is no size: write for example 10GB")
    return int(float(size[1]) * _UNITS[size[2].upper()])


def _make_plan(options: argparse.Namespace) -> int:
    from campaign.staging import staging_plan as plans  # noqa: PLC0415 - --help starts faster without numpy

    root = options.fast
    if not root.is_dir():
        raise EnvironmentFaultError(f"there is no folder {root}", "mount the fast storage, or name another --fast")
    observed, out = _observe(options)
    made = plans.make_plan(
        observed, root, shutil.disk_usage(root).free if options.capacity is None else options.capacity
    )
    plans.save_plan(out, made)
    if options.json:
        rules = {name: {**rule, "files": len(rule["files"])} for name, rule in made["rules"].items()}
        without_files = {key: value for key, value in made.items() if key != "listed"}
        console.show_json({**without_files, "rules": rules})
    else:
        _print_plan(made)
    if not made["why_not"]:
        console.say(f"to copy the files: python -m campaign stage apply {out}")
    return 0


def _observe(options: argparse.Namespace) -> tuple[ObservedRuns, Path]:
    """Return the profiled runs of a campaign or of a single profile, and the folder for the plan."""
    from campaign.staging import observed_runs  # noqa: PLC0415

    if options.profile.is_file():
        if options.data is None:
            why = f"the profile {options.profile} does not say which of its files may be copied"
            raise UsageError(why, "name their folder: --data FOLDER")
        out = options.out or resolve_links("staging")
        return observed_runs.observe_profile(options.profile, options.data), out
    if options.data is not None:
        raise UsageError("--data is only for a single profile", "leave it out: a campaign records where its data are")
    folder, campaign = open_existing(options.profile)
    cells = observed_runs.profiled_records(Verdicts(folder, requests=campaign["requests"]))
    ids = arguments.matching_ids(list(cells), options.only) if options.only else list(cells)
    if not cells:
        raise UsageError(
            f"{folder.root} has no valid profiled run of a cell that reads no copies",
            "measure a cell with profile.posix=counters",
        )
    if len(ids) != 1:
        what = f"{len(ids)} profiled cells match '{options.only}'" if options.only else f"{len(cells)} profiled cells"
        raise UsageError(what, f"--only CELL: {nearest_hint(options.only or '', cells)}")
    return observed_runs.observe_cell(folder, cells[ids[0]]), options.out or folder.staging


def _print_plan(plan: StagingPlan) -> None:
    slow, fast = (
        f"{each['seek_s'] * 1e3:.3g} ms a file and {each['byte_s'] * 1e9:.3g} ms a MB"
        for each in (plan["slow"], plan["fast"])
    )
    console.show(
        f"{plan['origin']}: {plan['runs']} profiled runs, {plan['files']:,} files, {plan['bytes'] / 1e6:,.1f} MB"
    )
    how = f"{plan['calls_at_once']:.1f} calls at once, waiting {plan['waiting']:.0%} of the time"
    console.show(f"  read at {plan['mb_per_s']:.1f} MB/s, {how}")
    console.show(f"  {plan['source']} costs {slow}")
    console.show(f"  {plan['root']} costs {fast}")
    for line in _lines_on_memory(plan):
        console.show(f"  {line}")
    if plan["left_out"]:
        console.show(f"  {plan['left_out']:,} files are not copied, because they are links or were removed")
    rows = [("rule", "files", "", "MB", "", "bandwidth, predicted", "95 %")]
    for name, rule in plan["rules"].items():
        number, gain = len(rule["files"]), rule["gain"]
        amounts = (
            f"{number:,}",
            f"{number / plan['files']:.1%}",
            f"{rule['bytes'] / 1e6:,.1f}",
            f"{rule['bytes'] / plan['bytes']:.1%}",
        )
        bounds = (f"{gain['gain']:+.1%}", f"{gain['low']:+.1%} to {gain['high']:+.1%}") if number else ("nothing", "")
        rows.append((name, *amounts, *bounds))
    console.show_table(rows, range(1, len(rows[0])))
    if plan["why_not"]:
        console.show(f"staging cannot help: {plan['why_not']}; the rule advised copies no file")


def _lines_on_memory(plan: StagingPlan) -> Iterator[str]:
    """Yield lines on how many bytes of a single profile came from memory: the certain part and the inferred part."""
    from_memory = plan["from_memory"]
    if from_memory and from_memory["files"]:
        sure_mb = from_memory["sure_bytes"] / 1e6
        yield f"certain, by the kernel's count: at least {sure_mb:,.1f} MB more came from memory"
        yield (
            f"inferred: these are {from_memory['files']:,.0f} files ({from_memory['bytes'] / 1e6:,.1f} MB), which are"
            " left out, because reading them took least time for their size; all other files took at least"
            f" {from_memory['apart']:.1f} times as long"
        )
    elif not from_memory and Path(plan["origin"]).is_absolute():
        yield "how many bytes came from memory is not known: the plan assumes that all came from the storage"


def _folder_of_plan(campaign_dir: Path) -> Path:
    folder = resolve_links(campaign_dir)
    return folder / "staging" if (folder / "staging" / "plan.json").is_file() else folder


def _apply_plan(options: argparse.Namespace) -> int:
    from campaign.staging import apply_copies  # noqa: PLC0415 - --help starts faster without numpy

    rules = list(dict.fromkeys(options.rule or ["advised"]))
    what = apply_copies.copy_request(_folder_of_plan(options.campaign_dir), rules)
    console.say(str(what))
    # Somebody else may have written the plan in a copied folder, and CAMPAIGN_YES=1 agrees only to costs.
    if not (options.yes or not what.missing_files or console.ask_for_yes("copy these files?", by_variable=False)):
        raise CampaignError("nothing was copied", "answer yes, or give --yes if there is no terminal to ask on")
    with console.progress() as show:
        maps = apply_copies.apply_plan(what, show)
    for rule, path in maps.items():
        console.show(f"{rule}: {path}")
    measured = f"staging=none,{','.join(maps)}"
    console.say(f"to measure the gain: {measured}; in your own script: jobs.data.staged_paths(paths, MAP)")
    return 0


def _check_plan(options: argparse.Namespace) -> int:
    from campaign.staging import apply_copies, staging_plan  # noqa: PLC0415

    folder = _folder_of_plan(options.campaign_dir)
    made = staging_plan.load_plan(folder)
    if options.profile:
        outcomes = apply_copies.outcomes_of_profiles(folder, made, options.profile)
    elif Path(made["origin"]).is_absolute():
        cure = f"profile the program with the copies, then: stage check {folder} --profile AFTER"
        raise UsageError(f"the plan was made from the profile {made['origin']}, not from cells of a campaign", cure)
    else:
        campaign_folder, campaign = open_existing(options.campaign_dir)
        outcomes = apply_copies.outcomes_of_cells(Verdicts(campaign_folder, requests=campaign["requests"]), made)
    if options.json:
        rules = {rule: {**asdict(each), "holds": each.holds} for rule, each in outcomes.items()}
        console.show_json({"folder": str(folder), "rules": rules})
    else:
        _print_outcomes(outcomes)
        if not options.profile:
            console.show("the gains are of the MB/s in the profiled windows, as the plan predicts them; the campaign's")
            console.show("table has the MB/s of the runs, which differ because a window and its run differ in length")
    return 0 if all(each.holds for each in outcomes.values()) else 1


def _print_outcomes(outcomes: Mapping[str, GainOutcome]) -> None:
    rows = [("rule", "predicted", "95 %", "measured", "min to max of the runs", "prediction")]
    for rule, each in outcomes.items():
        gain, runs = each.predicted, f"{each.low:+.1%} to {each.high:+.1%}"
        bounds = f"{gain['low']:+.1%} to {gain['high']:+.1%}"
        rows.append(
            (rule, f"{gain['gain']:+.1%}", bounds, f"{each.measured:+.1%}", runs, "holds" if each.holds else "FAILED")
        )
    console.show_table(rows, range(1, len(rows[0])))


def _undo_plan(options: argparse.Namespace) -> int:
    from campaign.staging import apply_copies  # noqa: PLC0415

    removed, left = apply_copies.undo_plan(_folder_of_plan(options.campaign_dir))
    console.show(f"{console.count_noun(removed, 'copy')} removed")
    for path in left[:10]:
        console.say(f"not removed: {path}, because this file has no unchanged original")
    return 1 if left else 0
