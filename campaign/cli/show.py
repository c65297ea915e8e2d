"""Run the verb `show CELL|FILE`: print runs and checks of a cell, what bounds it, and commands that test the advice."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import console
from campaign.advice import account, advice_rules, command, evidence
from campaign.advice.evidence import Evidence
from campaign.advice.findings import Finding, Prediction, Undecided
from campaign.advice.save_interval import save_interval
from campaign.cells.folder import CampaignFolder, last_own_request, open_existing
from campaign.cells.verdicts import Verdicts, require_usable
from campaign.cli import arguments, print_cell
from campaign.cluster.survey import cell_states
from campaign.config.command_line import command_to_continue
from campaign.errors import CampaignError, UsageError
from jobs.judging.bound import advice_for
from jobs.model.codes import CellState, ExitCode
from jobs.model.record import Record, RecordedCall
from jobs.system.programs import python_command

_ABOUT = (
    "Show every run of a cell with every check. Then show what bounds the cell, the largest part of its time first,"
    " each with the evidence and a command that tests it. For a file of your own, show what bounds the program that"
    " wrote it."
)
_CELL = "a cell, named by the start of its id or hash; or a file of your own: a profile, time log or trace"
_STDERR = 2


def main(argv: list[str]) -> int:
    """Print a cell, or the advice on a file of the user's own; return the exit code.

    For a cell, the code is 0 if the cell is done, else 1. With ``--test``, it is 0 if every prediction holds, else 1.
    """
    parser = arguments.make_parser("show", _ABOUT, json=True)
    parser.add_argument("cell", metavar="CELL|FILE", help=_CELL)
    parser.add_argument("--test", action="store_true", help="run the test commands; compare prediction and result")
    arguments.add_folder(parser)
    options = parser.parse_intermixed_args(argv)  # a flag may stand between cell and folder
    if not options.cell.strip():
        words = shlex.join(["status", "--all", str(options.campaign_dir)])
        raise UsageError("the name of the cell is empty", f"python -m campaign {words} lists all cells")
    named = Path(options.cell).expanduser()
    if named.is_file():
        return _show_file(named, as_json=options.json, test=options.test)
    if named.is_dir():
        raise UsageError(
            f"'{options.cell}' is a folder, and show takes a cell as its first argument",
            f"python -m campaign show {shlex.join([str(options.campaign_dir), options.cell])}",
        )
    folder, campaign = open_existing(options.campaign_dir)
    verdicts = Verdicts(folder, requests=campaign["requests"])
    recorded = arguments.read_judged_record(verdicts, options.cell)
    cell, bound = recorded["cell"]["id"], verdicts.bound(recorded)
    request = last_own_request(folder.root, campaign, recorded)
    advice, not_advised = None, None
    try:
        advice, failed = _advise(verdicts, recorded, request, test=options.test)
    except CampaignError as error:
        if options.test:
            raise
        not_advised, failed = error.message, False
    state = cell_states(folder, campaign)[cell]
    if options.json:
        ended = {key: state[key] for key in ("status", "reason", "end")}
        advised = {"bound": bound and bound.as_json, "advice": advice, "not_advised": not_advised}
        console.show_json({**recorded, **ended, **advised})
    else:
        with require_usable(folder.record(cell)):
            print_cell.print_record(recorded, state, str(folder.cell(cell)))
        console.show(_command_to_repeat(folder, recorded, request))
        if bound:
            console.show(f"bound by {bound}")
        print_cell.print_advice(cell, advice) if advice else console.show(f"no advice: {not_advised}")
    return int(failed if options.test else state["status"] != CellState.DONE)


def _advise(
    verdicts: Verdicts, recorded: Record, request: RecordedCall | None, *, test: bool
) -> tuple[dict[str, Any], bool]:
    """Return the advice on a cell as ``--json`` prints it, and whether a prediction failed.

    With `test`, this function first runs the test commands; only predictions tested in this call can fail. Raises
    CampaignError if no advice can be given on the cell, or if the user refuses to run the commands.
    """
    folder = verdicts.folder
    with require_usable(folder.record(recorded["cell"]["id"])):
        cell_evidence = evidence.gather_evidence(verdicts, recorded)
        rule_findings, undecided = advice_rules.apply_rules(cell_evidence)
        findings = [
            {**_finding_as_json(finding), **_test_as_json(folder, recorded, finding, request)}
            for finding in rule_findings
        ]
        not_decided = [_undecided_as_json(folder, recorded, lacking, request) for lacking in undecided]
    tested = [each["test"] for each in findings if each["test"] and not each["by_hand"]] if test else []
    if tested and request is None:
        _require_consent(folder, [each["command"] for each in tested])
    for each in tested:
        _run_test(folder, cell_evidence, each)
    history = account.judge_predictions(Verdicts(folder, requests=open_existing(folder.root)[1]["requests"]), recorded)
    if tested:
        _run_verb("report", str(folder.root))  # the report shows the outcomes of the tests
    latest = {(each["cell"], each["tested"], each["rule"]): each["holds"] for each in history}
    return {
        "figure": cell_evidence.figure,
        "unit": cell_evidence.unit,
        "value": cell_evidence[cell_evidence.figure],
        "runs": len(cell_evidence.rates[cell_evidence.figure]),
        "valid": cell_evidence.valid,
        "emulated": cell_evidence.emulated,
        "helps": advice_for(cell_evidence.bound, cell_evidence.work),
        "findings": findings,
        "not_decided": not_decided,
        "tests": history,
        "save_interval": save_interval(recorded["runs"]),
    }, not all(latest[cell_evidence.cell, each["cell"], each["rule"]] for each in tested)


def _show_file(file: Path, *, as_json: bool, test: bool) -> int:
    """Print the advice on a file of the user's own; return the exit code."""
    if test:
        raise UsageError("--test measures cells, and a file has no cells", "name a cell, or leave --test out")
    from campaign.advice import own_files  # noqa: PLC0415 - numpy, which takes long to import

    report = own_files.read_own_file(file)
    findings = [_finding_as_json(finding) for finding in report.findings]
    if as_json:
        file_facts = {"file": str(file), "kind": report.kind, "bound": report.bound.as_json, "helps": report.helps}
        console.show_json({**file_facts, "findings": findings, "lacks": list(report.lacks)})
        return 0
    console.show(f"{file}: a {report.kind}, {report.holds}")
    console.show(f"bound by {report.bound}")
    if report.helps:
        console.show(f"what helps: {report.helps}")
    for place, finding in enumerate(findings, 1):
        print_cell.print_finding(place, finding, finding["evidence"])
    for lack in report.lacks:
        console.show(f"the file lacks: {lack}")
    return 0


def _command_to_repeat(folder: CampaignFolder, recorded: Record, request: RecordedCall | None) -> str:
    """Return the line with the command that runs a cell again.

    It is the user's recorded command, or a command made from the cell's settings if somebody else measured the cell.
    """
    if request:
        return f"run the cell again: {command_to_continue(request['words'], recorded['cell']['id'])}"
    try:
        repeated = command.format_command(command.arguments_for(recorded, {}, folder.root))
    except UsageError as error:
        return f"no command can run this cell again: {error.message}"
    why = "made from the cell's settings, because you did not start it in this folder"
    return f"run the cell again ({why}): {repeated}"


def _require_consent(folder: CampaignFolder, commands: Sequence[str]) -> None:
    """Print the test commands and ask the user to confirm them, because they come from somebody else's record.

    Raises CampaignError if the user does not confirm.
    """
    console.say(f"you did not measure {folder.root} in this folder; show would run these commands:")
    for each in commands:
        console.say(f"  {each}")
    if not console.ask_for_yes("run these commands?", by_variable=False):
        raise CampaignError("nothing was started", "check each word of the commands, and run them yourself")


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    evidence_facts = [fact._asdict() for fact in finding.facts]
    return {"rule": finding.rule, "says": finding.says, "share": finding.share, "evidence": evidence_facts}


def _test_as_json(
    folder: CampaignFolder, recorded: Record, finding: Finding, request: RecordedCall | None
) -> dict[str, Any]:
    """Return the command that tests a finding, with its prediction, or the reason why no command can test it."""
    by_hand = bool(finding.test and finding.untested)
    test: dict[str, Any] | None = None
    if finding.test:
        place = Path(f"{folder.root}-by-hand") if by_hand else folder.root
        words = command.arguments_for(recorded, finding.test.changes, place, request)
        cell = command.changed_cell_id(recorded, finding.test.changes)
        test = {"rule": finding.rule, "words": words, "command": command.format_command(words), "cell": cell}
        test |= finding.test.prediction._asdict()
    return {"test": test, "untested": finding.untested, "by_hand": by_hand}


def _undecided_as_json(
    folder: CampaignFolder, recorded: Record, lacking: Undecided, request: RecordedCall | None
) -> dict[str, Any]:
    """Return a rule that could not be decided, with the command that would decide it."""
    shell_command = command.format_command(command.arguments_for(recorded, lacking.changes, folder.root, request))
    return {"rule": lacking.rule, "why": lacking.why, "command": shell_command}


def _run_test(folder: CampaignFolder, cell_evidence: Evidence, test: Mapping[str, Any]) -> None:
    """Record the prediction of a test in the campaign folder, and then run the command of the test."""
    predicted = Prediction(*(test[name] for name in Prediction._fields))
    before = cell_evidence[predicted.figure]
    account.record_prediction(
        folder, test["rule"], predicted, (cell_evidence.cell, test["cell"]), (test["command"], before)
    )
    console.say(f"{test['rule']}: {test['command']}")
    if _run_verb(*test["words"]) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt


def _run_verb(*words: str) -> int:
    """Run `python -m campaign` and return its exit code; its stdout goes to stderr, so stdout has only the advice."""
    return subprocess.run(python_command("-m", "campaign", *words), stdout=_STDERR, check=False).returncode
