"""`python -m campaign advise CELL`: what bounds a cell, by which evidence, and the command that tests it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import console
from campaign.advice import account, advice_rules, command, evidence
from campaign.advice.evidence import Evidence, Fact
from campaign.advice.findings import VERSION, Finding, Lacking, Prediction
from campaign.cells import requests
from campaign.cells.folder import CampaignFolder, existing
from campaign.cells.verdicts import Verdicts, usable
from campaign.cli import arguments
from campaign.errors import CampaignError, UsageError
from jobs.judging.bound import Bound, help_of
from jobs.model.codes import ExitCode
from jobs.model.predictions import Tested
from jobs.model.record import Asked, Record
from jobs.system.programs import python

_ABOUT = "Say what bounds a cell, the largest part of its time first, by which evidence, and which command tests it."
_STDERR = 2


def main(argv: list[str]) -> int:
    """Advise; with ``--test`` exit code 0 where every prediction holds, else 1."""
    parser = arguments.parser("advise", _ABOUT, json=True)
    about = "a cell's id, the start of it, or the hash at its end; or a file of your own: a profile, time log or trace"
    parser.add_argument("cell", metavar="CELL|FILE", help=about)
    parser.add_argument("--test", action="store_true", help="run these commands: predicted beside measured")
    arguments.add_folder(parser)
    options = parser.parse_intermixed_args(argv)
    if (file := Path(options.cell).expanduser()).is_file():
        return _of_file(file, as_json=options.json, test=options.test)
    folder, campaign = existing(options.campaign_dir)
    verdicts = Verdicts(folder, requests=campaign["requests"])
    recorded = arguments.judged(verdicts, options.cell)
    request = requests.own(folder.root, campaign, recorded)
    with usable(folder.record(recorded["cell"]["id"])):
        known = evidence.gathered(verdicts, recorded)
        found, lacking = advice_rules.advise(known)
        findings = [_finding(folder, recorded, each, request) for each in found]
        not_decided = [_needed(folder, recorded, each, request) for each in lacking]
    tested = [each["test"] for each in findings if each["test"] and not each["by_hand"]] if options.test else []
    if tested and request is None:
        _agree(folder, [each["command"] for each in tested])
    for each in tested:
        _measure(folder, known, each)
    history = account.settle(Verdicts(folder, requests=existing(folder.root)[1]["requests"]), recorded)
    if tested:
        _campaign("report", str(folder.root))  # with what came of it
    told = {
        "cell": known.cell,
        "figure": known.figure,
        "unit": known.unit,
        "value": known[known.figure],
        "runs": len(known.rates[known.figure]),
        "valid": known.valid,
        "emulated": known.emulated,
        "bound": known.bound.as_json,
        "helps": help_of(known.bound, known.work),
        "findings": findings,
        "not_decided": not_decided,
        "tests": history,
    }
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        _print(told, known.bound)
    latest = {(each["cell"], each["tested"], each["rule"]): each["holds"] for each in history}
    return int(not all(latest[known.cell, each["cell"], each["rule"]] for each in tested))


def _of_file(file: Path, *, as_json: bool, test: bool) -> int:
    """Say what a file of the user's own tells; returns the exit code."""
    if test:
        raise UsageError("--test measures cells, and a file has none", "name a cell of a campaign, or leave it out")
    from campaign.advice import own_files  # noqa: PLC0415 - brings numpy with it

    told = own_files.read(file)
    if as_json:
        found = [{"rule": each.rule, "says": each.says, "share": each.share,
                  "evidence": [fact._asdict() for fact in each.facts]} for each in told.findings]  # fmt: skip
        known = {"file": str(file), "kind": told.kind, "bound": told.bound.as_json, "helps": told.helps}
        print(json.dumps({**known, "findings": found, "lacks": list(told.lacks)}, indent=1))
        return 0
    console.show(f"{file}: a {told.kind}, {told.holds}")
    console.show(f"bound by {told.bound}")
    if told.helps:
        console.show(f"what helps: {told.helps}")
    for place, finding in enumerate(told.findings, 1):
        console.show(f"{place} {finding.rule}, {finding.share:.0%} of its time: {finding.says}")
        _print_facts(finding.facts)
    for lack in told.lacks:
        console.show(f"it lacks: {lack}")
    return 0


def _print_facts(facts: Sequence[Fact]) -> None:
    for fact in facts:
        console.show(f"    {fact.what:24} {fact.value:.4g} {fact.unit}".ljust(48) + f" {fact.source}")


def _agree(folder: CampaignFolder, commands: Sequence[str]) -> None:
    """Show commands that come of a record which this user did not ask for, and ask whether they are to be run."""
    console.say(f"{folder.root} was not measured by you, in this folder; this would be run:")
    for each in commands:
        console.say(f"  {each}")
    if not console.agreed("run it?", by_variable=False):
        raise CampaignError("nothing was started", "look at each word, and give the commands yourself")


def _finding(folder: CampaignFolder, recorded: Record, found: Finding, request: Asked | None) -> dict[str, Any]:
    """Return a finding as JSON has it, with the command that tests it."""
    told: dict[str, Any] = {
        "rule": found.rule,
        "says": found.says,
        "share": found.share,
        "evidence": [fact._asdict() for fact in found.facts],
        "test": None,
        "untested": found.untested,
        "by_hand": bool(found.test and found.untested),
    }
    if found.test:
        place = Path(f"{folder.root}-by-hand") if told["by_hand"] else folder.root
        words = command.words(recorded, found.test.changes, place, request)
        cell = command.cell_with(recorded, found.test.changes)
        told["test"] = {"rule": found.rule, "words": words, "command": command.in_words(words), "cell": cell}
        told["test"] |= found.test.prediction._asdict()
    return told


def _needed(folder: CampaignFolder, recorded: Record, lacking: Lacking, request: Asked | None) -> dict[str, Any]:
    asked = command.in_words(command.words(recorded, lacking.changes, folder.root, request))
    return {"rule": lacking.rule, "why": lacking.why, "command": asked}


def _measure(folder: CampaignFolder, known: Evidence, test: Mapping[str, Any]) -> None:
    predicted = Prediction(*(test[name] for name in Prediction._fields))
    before = known[predicted.figure]
    account.promise(folder, test["rule"], predicted, (known.cell, test["cell"]), (test["command"], before))
    console.say(f"{test['rule']}: {test['command']}")
    if _campaign(*test["words"]) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt


def _campaign(*words: str) -> int:
    """Give a command; its stdout goes to stderr, for ours is for what is advised."""
    return subprocess.run(python("-m", "campaign", *words), stdout=_STDERR, check=False).returncode


def _print(told: Mapping[str, Any], bound: Bound) -> None:
    counted = console.counted(told["runs"], "run") if told["valid"] else f"{told['runs']} runs, none of which counts"
    emulated = ", emulated storage" if told["emulated"] else ""
    console.show(f"{told['cell']}: {told['value']:.4g} {told['unit']}, median of {counted}{emulated}")
    console.show(f"bound by {bound}")
    if told["helps"]:
        console.show(f"what helps: {told['helps']}")
    seen: list[Any] = []
    for place, found in enumerate(told["findings"], 1):
        console.show(f"{place} {found['rule']}, {found['share']:.0%} of its time: {found['says']}")
        _print_facts([Fact(**each) for each in found["evidence"] if each not in seen])
        seen += found["evidence"]
        if test := found["test"]:
            console.show(f"    test by hand: {found['untested']}" if found["by_hand"] else "    test")
            console.show(f"      {test['command']}")
            console.show(f"    predicted {_predicted(test)}")
            for each in (each for each in told["tests"] if _is_of(each, told["cell"], test)):
                console.show(f"    {_outcome(each)}")
        else:
            console.show(f"    no test: {found['untested']}")
    same: dict[tuple[str, str], list[str]] = {}
    for lacking in told["not_decided"]:
        same.setdefault((lacking["why"], lacking["command"]), []).append(lacking["rule"])
    for (why, command_), names in same.items():
        console.show(f"not decided: {', '.join(names)}: {why}; this would tell:")
        console.show(f"      {command_}")
    _print_others(told)


def _is_of(tested: Tested, cell: str, test: Mapping[str, Any]) -> bool:
    return (tested["cell"], tested["rule"], tested["tested"]) == (cell, test["rule"], test["cell"])


def _predicted(test: Mapping[str, Any], value: str = "value") -> str:
    return f"{test[value]:.4g} {test['unit']} ({test['low']:.4g} to {test['high']:.4g})"


def _outcome(each: Tested) -> str:
    when = f"{each['utc'][:10]} {each['rule']} predicted {_predicted(each, 'predicted')} from {each['before']:.4g}"
    if (measured := each["measured"]) is None:
        return f"{when}; not measured: {each['why_not']}"
    known = ", which was known before" if each["known"] else ""
    known += f", by rules of version {each['rules']}" if each["rules"] != VERSION else ""
    runs = console.counted(measured["runs"], "run")
    came = f"{measured['median']:.4g} ({measured['min']:.4g} to {measured['max']:.4g}, {runs}){known}"
    return f"{when}; measured {came}: {'holds' if each['holds'] else 'FAILED'}"


def _print_others(told: Mapping[str, Any]) -> None:
    """Print what of this campaign failed, or is of this cell, and stands with no finding above."""
    shown = [found["test"] for found in told["findings"] if found["test"]]
    for each in told["tests"]:
        is_shown = any(_is_of(each, told["cell"], test) for test in shown)
        if not is_shown and (each["holds"] is False or each["cell"] == told["cell"]):
            console.show(f"tested before: {each['cell']}: {_outcome(each)}")
    failed = [each["rule"] for each in told["tests"] if each["holds"] is False]
    for rule in dict.fromkeys(failed):
        number = sum(each["rule"] == rule and each["measured"] is not None for each in told["tests"])
        tests = f"{failed.count(rule)} of {console.counted(number, 'test')}"
        console.show(f"{rule} has FAILED in {tests} of this campaign: take it with care")
