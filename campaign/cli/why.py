"""`python -m campaign why CELL`: every run of one cell with every check."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells import record, requests
from campaign.cells.folder import CampaignFolder, existing
from campaign.cells.verdicts import Verdicts, usable
from campaign.cli import arguments
from campaign.cluster.states import State, states
from campaign.config.command_line import again
from campaign.config.tree import unusual
from campaign.errors import UsageError
from campaign.storage import emulation
from jobs.checks import unit
from jobs.judging import judge, paired
from jobs.judging.bound import Bound
from jobs.model.codes import CellState, End, RunEnd, sentence
from jobs.model.record import Asked, Record
from jobs.model.results import Addition, Run

_MARKS = {True: "ok", False: "FAILED", None: "unverifiable"}
_OF_LOOSER = (
    "not compared with others; cure: measure without them, or put the tolerance into the site's file (conf/site)"
)


def main(argv: list[str]) -> int:
    """Print all that is recorded of one cell; exit code 0 where it is done, else 1."""
    parser = arguments.parser(
        "why", "Show every run of one cell with every check, and the command that runs it again.", json=True
    )
    parser.add_argument("cell", metavar="CELL", help="its id, the start of it, or the hash at its end")
    arguments.add_folder(parser)
    options = parser.parse_intermixed_args(argv)  # a flag may stand between cell and folder
    if Path(options.cell).is_dir():
        raise UsageError(
            f"'{options.cell}' is a folder, and the cell comes first",
            f"python -m campaign why {shlex.join([str(options.campaign_dir), options.cell])}",
        )
    folder, campaign = existing(options.campaign_dir)
    verdicts = Verdicts(folder, requests=campaign["requests"])
    recorded = arguments.judged(verdicts, options.cell)
    cell, bound = recorded["cell"]["id"], verdicts.bound(recorded)
    state = states(folder, campaign)[cell]
    if options.json:
        ended = {key: state[key] for key in ("status", "reason", "end")}
        print(json.dumps({**recorded, **ended, "bound": bound and bound.as_json}, indent=1))
    else:
        with usable(folder.record(cell)):
            _print_record(recorded, state, str(folder.cell(cell)), bound)
            console.show(_again(folder, recorded, requests.own(folder.root, campaign, recorded)))
    return 0 if state["status"] == CellState.DONE else 1


def _print_record(recorded: Record, state: State, where: str, bound: Bound | None) -> None:
    cell, data = recorded["cell"], recorded["dataset"]
    console.show(f"{cell['id']}: {state['status']}" + (f": {state['reason']}" if state["reason"] else ""))
    others = [f"{key}={value}" for key, value in unusual(cell["settings"]).items()]
    console.show(f"  benchmark  {cell['benchmark']} version {cell['benchmark_version']} {' '.join(others)}".rstrip())
    files = f"{data['files']} files, " if "files" in data else ""
    console.show(f"  data       {data['path']}: {files}{data['bytes'] / 1e6:.1f} MB")
    if bound:
        console.show(f"  bound      {bound}")
    for key, facts in (recorded["provenance"].get("emulated") or {}).items():
        console.show(f"  emulated   {key} {facts['name']}: {emulation.bounds(facts)}")
    if looser := recorded.get("looser_checks"):
        console.show(f"  looser     judged by looser checks than the site's: {', '.join(looser)}; {_OF_LOOSER}")
    if first := judge.first_conditions(recorded):
        for name, facts in {"process": first["process"], "machine": first["machine"], **first["storages"]}.items():
            console.show(f"  {name:10} {', '.join(f'{fact} {value}' for fact, value in facts.items())}")
    console.show(f"  record     {where}/record.json")
    for check in recorded["checks"]:
        console.show(f"  {check['rule']:10} {_MARKS[check['passed']]}: {check['message']}")
    if cost := recorded.get("profile_cost"):
        console.show(f"  profile    {paired.in_words(cost)}")
    if state["status"] not in (CellState.RUNNING, CellState.QUEUED):
        recorded = {**recorded, "runs": [{**run} for run in recorded["runs"]]}
        end: End = {"code": RunEnd.WORKER_ENDED}
        record.fail_open_runs(recorded, {**end, "worker": state["end"]} if state["end"] else end)
    for run in recorded["runs"]:
        _print_run(run, where)


def _again(folder: CampaignFolder, recorded: Record, request: Asked | None) -> str:
    """Return the command that runs a cell again: this user's own for it, or else one that is made of its settings."""
    if request:
        return f"again: {again(request['words'], recorded['cell']['id'])}"
    from campaign.advice import command  # noqa: PLC0415 - Hydra takes long

    try:
        found = command.in_words(command.words(recorded, {}, folder.root))
    except UsageError as error:
        return f"again: by hand, for {error.message}"
    return f"again, by its settings, for you did not ask for it in this folder: {found}"


def _of_trace(trace: Mapping[str, Any]) -> list[str]:
    unread = [f"{name}: {state}" for name, state in trace.get("sources", {}).items() if state != "ok"]
    error = trace.get("error")
    return [f"not written: {error}", *unread] if error else unread


def _of_ranks(run: Run) -> list[str]:
    """Return what each rank did, when it began and ended after all were let begin, and how far its clock is ahead."""
    found = []
    for each in run.get("ranks", []):
        own, (low, high) = each["figures"], each["clock_s"] or (0.0, 0.0)
        where = each["node"] or each["host"]
        last = ", the last one" if each["rank"] == run["straggler"] else ""
        found.append(
            f"rank {each['rank']:<7} {where}: {own['wall_s']:.4f} s, {own['bytes_read'] / 1e6:.1f} MB; began within"
            f" {(each['left_s'] or 0.0) * 1e3:.2f} ms, ended after {each['ended_s'] or 0.0:.4f} s{last};"
            f" clock {low * 1e3:+.2f} to {high * 1e3:+.2f} ms"
        )
    if found and not run["private_caches"]:
        found.append("caches       these ranks share a page cache: what one has read, another reads from memory")
    return found


def _of_objects(run: Run) -> list[str]:
    """Return how a run came to its objects, what failed on the way, and whose processors it took."""
    found = run.get("objects")
    if not found:
        return []
    errors = ", ".join(f"{count} {word}" for word, count in sorted(found["errors"].items())) or "no error"
    gets = " ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in found["first_byte_s"].items())
    first = f"; first byte {gets}" if gets else ""  # of puts there is none
    used = {"client": run["cpu_s"]} | {name: each["cpu_s"] for name, each in found["servers"].items()}
    tls = "TLS, certificate verified" if found["tls"] else "no TLS"
    spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())
    way = f"{found['endpoint']} {found['bucket']}: {found['protocol']}, {tls}, {found['client']}"
    return [
        f"objects      {way}, {found['engine']}, {found['concurrency']} at once",
        f"requests     {found['requests']}, sent again {found['retries']} times ({errors}){first}",
        f"processors   {spent} in {run['elapsed_s']:.2f} s",
    ]


def _of_added(added: Addition, unit: str) -> str:
    if added["interval"] is None:
        return f"until_spread={added['until_spread']:g}: {added['n']} runs were too few for an interval of the median"
    low, high = added["interval"]
    return (
        f"until_spread={added['until_spread']:g}: of {added['n']} runs the {added['confidence']:.1%} interval of the"
        f" median was {low:.1f} to {high:.1f} {unit}, {added['width']:.2%} wide"
    )


def _print_run(run: Run, where: str) -> None:
    figure = console.figure(run) or "no figure"
    if "images_per_s" in run:
        figure += f", {run['read_mb_per_s']:.1f} MB/s"
    console.show(f"run {run['run']} ({run['role']}) {run['started_utc']}: {run['status']}, {figure}")
    if run.get("added"):
        console.show(f"  added        {_of_added(run['added'], unit(run))}")
    for check in run.get("checks", []):
        console.show(f"  {check['rule']:12} {_MARKS[check['passed']]}: {check['message']}")
    for line in (*_of_ranks(run), *_of_objects(run)):
        console.show(f"  {line}")
    for line in _of_trace(run.get("trace") or {}):
        console.show(f"  trace        {line}")
    for bad in run.get("unreadable", []):
        console.show(f"  unreadable   {bad['file']}: {bad['error']}")
    if run["status"] == "failed":
        console.show(f"  reason       {sentence(run['end'])}")
        for line in run.get("log_tail", "").splitlines():
            console.show(f"  log          {line}")
        if run.get("log"):
            console.show(f"  whole log    {where}/{run['log']}")
