"""Print a cell as text: its record with every run and every check, and the advice on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from campaign import console
from campaign.advice.findings import VERSION
from campaign.advice.save_interval import draw_lost_time, format_interval
from campaign.cells import record
from campaign.cluster.survey import StateOfCell
from campaign.config.tree import non_default_settings
from campaign.storage import emulation
from campaign.storage.datasets import unread_in_words
from jobs.checks import rate_unit
from jobs.judging import judge, stopping
from jobs.model.codes import CellState, End, RunEnd, run_end_sentence
from jobs.model.record import Record, TestedPrediction
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
    if cost := recorded.get("profile_cost"):
        console.show(f"  profile    {stopping.cost_in_words(cost)}")
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


def print_advice(cell: str, advice: Mapping[str, Any]) -> None:
    """Print the advice on a cell: its findings, the rules that could not be decided, and earlier tests.

    `advice` is the dictionary that ``show --json`` prints.
    """
    counted = (
        console.count_noun(advice["runs"], "run") if advice["valid"] else f"{advice['runs']} runs, none of which counts"
    )
    emulated = ", emulated storage" if advice["emulated"] else ""
    console.show(f"{advice['value']:.4g} {advice['unit']}, median of {counted}{emulated}")
    if advice["helps"]:
        console.show(f"what helps: {advice['helps']}")
    printed: list[Any] = []
    for place, finding in enumerate(advice["findings"], 1):
        print_finding(place, finding, [each for each in finding["evidence"] if each not in printed])
        printed += finding["evidence"]
        if test := finding["test"]:
            console.show(f"    test by hand: {finding['untested']}" if finding["by_hand"] else "    test")
            console.show(f"      {test['command']}")
            console.show(f"    predicted {_format_prediction(test)}")
            for each in (each for each in advice["tests"] if _is_same_test(each, cell, test)):
                console.show(f"    {_format_outcome(each)}")
        else:
            console.show(f"    no test: {finding['untested']}")
    if advice["save_interval"]:
        console.show(format_interval(advice["save_interval"]))
        for line in draw_lost_time(advice["save_interval"]):
            console.show(f"    {line}")
    same: dict[tuple[str, str], list[str]] = {}
    for lacking in advice["not_decided"]:
        same.setdefault((lacking["why"], lacking["command"]), []).append(lacking["rule"])
    for (why, command_), names in same.items():
        console.show(f"not decided: {', '.join(names)}: {why}; this command would decide it:")
        console.show(f"      {command_}")
    _print_other_tests(cell, advice)


def print_finding(place: int, finding: Mapping[str, Any], evidence: Sequence[Mapping[str, Any]]) -> None:
    """Print a finding of the advice: its number in the list of findings, its text and its evidence.

    The caller leaves out evidence that an earlier finding has already printed.
    """
    console.show(f"{place} {finding['rule']}, {finding['share']:.0%} of the run time: {finding['says']}")
    for fact in evidence:
        console.show(f"    {fact['what']:24} {fact['value']:.4g} {fact['unit']}".ljust(48) + f" {fact['source']}")


def _is_same_test(tested: TestedPrediction, cell: str, test: Mapping[str, Any]) -> bool:
    return (tested["cell"], tested["rule"], tested["tested"]) == (cell, test["rule"], test["cell"])


def _format_prediction(test: Mapping[str, Any], value: str = "value") -> str:
    return f"{test[value]:.4g} {test['unit']} ({test['low']:.4g} to {test['high']:.4g})"


def _format_outcome(each: TestedPrediction) -> str:
    when = (
        f"{each['utc'][:10]} {each['rule']} predicted {_format_prediction(each, 'predicted')} from {each['before']:.4g}"
    )
    if (measured := each["measured"]) is None:
        return f"{when}; not decided: {each['why_not']}"
    remark = ", which was known before" if each["known"] else ""
    remark += f", by rules of version {each['rules']}" if each["rules"] != VERSION else ""
    runs = console.count_noun(measured["runs"], "run")
    came = f"{measured['median']:.4g} ({measured['min']:.4g} to {measured['max']:.4g}, {runs}){remark}"
    return f"{when}; measured {came}: {'holds' if each['holds'] else 'FAILED'}"


def _print_other_tests(cell: str, advice: Mapping[str, Any]) -> None:
    """Print the tests that failed or tested this cell, except tests that were already printed with their finding.

    For each rule that failed a test of this campaign, print a warning.
    """
    printed = [finding["test"] for finding in advice["findings"] if finding["test"]]
    for each in advice["tests"]:
        is_shown = any(_is_same_test(each, cell, test) for test in printed)
        if not is_shown and (each["holds"] is False or each["cell"] == cell):
            console.show(f"tested before: {each['cell']}: {_format_outcome(each)}")
    failed = [each["rule"] for each in advice["tests"] if each["holds"] is False]
    for rule in dict.fromkeys(failed):
        number = sum(each["rule"] == rule and each["measured"] is not None for each in advice["tests"])
        tests = f"{failed.count(rule)} of {console.count_noun(number, 'test')}"
        console.show(f"rule {rule} has FAILED in {tests} of this campaign: doubt its other predictions")
