"""Print a cell as text: its record with every run and every check, what bounds it, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign import console
from campaign.cells import record
from campaign.cluster.survey import StateOfCell
from campaign.config.tree import non_default_settings
from campaign.storage import emulation
from campaign.storage.datasets import unread_in_words
from jobs.checks import rate_unit
from jobs.judging import judge
from jobs.judging.bound import UNDECIDED
from jobs.model.codes import CellState, End, RunEnd, run_end_sentence
from jobs.model.record import Record
from jobs.model.results import ReasonOfAddedRun, Run

_MARKS = {True: "ok", False: "FAILED", None: "unverifiable"}


def print_record(recorded: Record, state: StateOfCell, where: str) -> None:
    """Print the settings and the data of a judged record, and every run with its checks.

    `where` is the folder of the cell.
    """
    cell, data = recorded["cell"], recorded["dataset"]
    console.show(f"{cell['id']}: {state['status']}" + (f": {state['reason']}" if state["reason"] else ""))
    others = [f"{key}={value}" for key, value in non_default_settings(cell["settings"]).items()]
    console.show(f"  benchmark  {cell['benchmark']} version {cell['benchmark_version']} {' '.join(others)}".rstrip())
    files = f"{data['files']} files, " if "files" in data else ""
    console.show(f"  data       {data['path']}: {files}{data['bytes'] / 1e6:.1f} MB")
    for line in unread_in_words(data):
        console.show(f"             {line}")
    for key, facts in (recorded["provenance"].get("emulated") or {}).items():
        console.show(f"  emulated   {key} {facts['name']}: {emulation.limits_in_words(facts)}")
    why, cure = judge.refusal_of_comparison(recorded)
    if why:
        console.show(f"  looser     {why}; not compared with other cells; {cure}")
    if first := judge.first_conditions(recorded):
        for name, facts in {"process": first["process"], "machine": first["machine"], **first["storages"]}.items():
            console.show(f"  {name:10} {', '.join(f'{fact} {value}' for fact, value in facts.items())}")
    console.show(f"  record     {where}/record.json")
    for check in recorded["checks"]:
        console.show(f"  {check['rule']:10} {_MARKS[check['passed']]}: {check['message']}")
    if state["status"] not in (CellState.RUNNING, CellState.QUEUED):
        recorded = {**recorded, "runs": [{**run} for run in recorded["runs"]]}
        end: End = {"code": RunEnd.WORKER_ENDED}
        record.fail_open_runs(recorded, {**end, "worker": state["end"]} if state["end"] else end)
    for run in recorded["runs"]:
        _print_run(run, where)


def _lines_on_trace(trace: Mapping[str, Any]) -> list[str]:
    """Return lines that name the sources that a trace could not read, and the error if its file was not written."""
    unread = [f"{name}: {state}" for name, state in trace.get("sources", {}).items() if state != "ok"]
    error = trace.get("error")
    return [f"not written: {error}", *unread] if error else unread


def _lines_on_ranks(run: Run) -> list[str]:
    """Return one line for each rank of a run: bytes read, start and end after the start signal, offset of its clock."""
    lines = []
    for each in run.get("ranks", []):
        own, (low, high) = each["figures"], each["clock_s"] or (0.0, 0.0)
        where = each["node"] or each["host"]
        last = ", the last one" if each["rank"] == run["straggler"] else ""
        lines.append(
            f"rank {each['rank']:<7} {where}: {own['wall_s']:.4f} s, {own['bytes_read'] / 1e6:.1f} MB; began within"
            f" {(each['left_s'] or 0.0) * 1e3:.2f} ms, ended after {each['ended_s'] or 0.0:.4f} s{last};"
            f" clock {low * 1e3:+.2f} to {high * 1e3:+.2f} ms"
        )
    if lines and not run["private_caches"]:
        lines.append("caches       the ranks share a page cache: one rank reads from memory what another rank has read")
    return lines


def _lines_on_objects(run: Run) -> list[str]:
    """Return lines on the objects of a run: protocol, requests, errors, processor time of the client and the servers.

    A run that uses no object store has no such lines.
    """
    objects = run.get("objects")
    if not objects:
        return []
    errors = ", ".join(f"{count} {word}" for word, count in sorted(objects["errors"].items())) or "no error"
    gets = " ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in objects["first_byte_s"].items())
    first = f"; first byte {gets}" if gets else ""  # empty if no object was read
    used = {"client": run["cpu_s"]} | {name: each["cpu_s"] for name, each in objects["servers"].items()}
    tls = "TLS, certificate verified" if objects["tls"] else "no TLS"
    spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())
    way = f"{objects['endpoint']} {objects['bucket']}: {objects['protocol']}, {tls}, {objects['client']}"
    return [
        f"objects      {way}, {objects['engine']}, {objects['concurrency']} at once",
        f"requests     {objects['requests']}, sent again {objects['retries']} times ({errors}){first}",
        f"processors   {spent} in {run['elapsed_s']:.2f} s",
    ]


def _describe_addition(added: ReasonOfAddedRun, unit: str) -> str:
    """Return in words why the setting ``until_spread`` added a run."""
    if added["interval"] is None:
        return f"until_spread={added['until_spread']:g}: {added['n']} runs were too few for an interval of the median"
    low, high = added["interval"]
    return (
        f"until_spread={added['until_spread']:g}: the {added['confidence']:.1%} interval of the median of"
        f" {added['n']} runs was {low:.1f} to {high:.1f} {unit}, {added['width']:.2%} wide"
    )


def _print_run(run: Run, where: str) -> None:
    figure = console.format_rate(run) or "no figure"
    if "images_per_s" in run:
        figure += f", {run['read_mb_per_s']:.1f} MB/s"
    console.show(f"run {run['run']} ({run['role']}) {run['started_utc']}: {run['status']}, {figure}")
    if run.get("added"):
        console.show(f"  added        {_describe_addition(run['added'], rate_unit(run))}")
    for check in run.get("checks", []):
        console.show(f"  {check['rule']:12} {_MARKS[check['passed']]}: {check['message']}")
    for line in (*_lines_on_ranks(run), *_lines_on_objects(run)):
        console.show(f"  {line}")
    for line in _lines_on_trace(run.get("trace") or {}):
        console.show(f"  trace        {line}")
    for bad in run.get("unreadable", []):
        console.show(f"  unreadable   {bad['file']}: {bad['error']}")
    if run["status"] == "failed":
        console.show(f"  reason       {run_end_sentence(run['end'])}")
        for line in run.get("log_tail", "").splitlines():
            console.show(f"  log          {line}")
        if run.get("log"):
            console.show(f"  whole log    {where}/{run['log']}")


def print_answer(answer: Mapping[str, Any]) -> None:
    """Print what bounds a cell and what would help; `answer` has the keys that ``show --json`` adds to the record."""
    bound, tried = answer["bound"], answer["tried"]
    console.show(answer["again"])
    if answer["measured"]["runs"]:
        console.show(_median_in_words(answer["measured"]))
    if bound:
        share = "" if bound["word"] == UNDECIDED else f", {bound['share']:.0%}"
        console.show(f"bound by {bound['word']}{share}: {bound['because']}")
    if bound and bound["helps"]:
        console.show(f"what helps: {bound['helps']}")
    if tried:
        gave = f"; it gave {_median_in_words(tried)}" if tried["runs"] else ""
        console.show(f"{'to try it' if bound['helps'] else 'to decide it'}{gave}:")
        console.show(f"    {tried['command']}")
    for line in filter(None, (*answer["hints"], answer["save_interval"])):
        console.show(line)


def _median_in_words(found: Mapping[str, Any]) -> str:
    return f"{found['median']:.4g} {found['unit']}, median of {console.count_noun(found['runs'], 'run')}"
