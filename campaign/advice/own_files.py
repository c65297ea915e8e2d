"""Apply the rules for cells to a user's own profile, time log or TensorFlow trace of any program.

Such a file contains less than a record. The report names the missing measurements, and no rule guesses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign.advice.advice_rules import find_input, find_input_bound, find_metadata
from campaign.advice.evidence import Evidence
from campaign.advice.findings import Finding, Undecided
from campaign.errors import UsageError
from jobs.errors import JobError
from jobs.events import read_time_logs, step_times, tensorflow_trace
from jobs.events.run_log import TimeBudget, time_budgets
from jobs.events.table import NS
from jobs.events.tensorflow_trace import INPUT, REMEDIES
from jobs.judging.bound import Bottleneck, DecidingNumber, advice_for, bottleneck_of_step_times
from jobs.judging.work_done import StepTimes, TimeUse
from jobs.profiler import report, saved_profiles

_PROCESSORS = "CPU seconds of the program, so there is no finding on processors"
_DEVICE = "load and limits of the storage devices, so a busy storage cannot be distinguished from a slow storage"
_QUOTA = "quotas and limits of the program's control group"
_STEPS = "marks of the training steps, so waiting cannot be distinguished from computing at the same time"
_BESIDE = (_PROCESSORS, _DEVICE, _QUOTA)
_READS = ("read", "open")  # actions of a time log, by the categories of TensorFlow's events
_DECODES = ("load", "shuffle")
_WAITS = ("next", "wait", "stage")
_COMPUTES = ("compute", "validate")
_CURE = (
    "name a profile (Profile.save, a campaign's profile-N.npz, a spill, a Darshan log), a time log, or a *.xplane.pb"
)

Rule = Callable[[Evidence], Finding | Undecided | None]


@dataclass(frozen=True)
class FileReport:
    """The advice on a file: its kind and content, what bounds the program, the findings, and what the file lacks."""

    kind: str
    holds: str
    bound: Bottleneck
    findings: Sequence[Finding]
    lacks: Sequence[str]
    helps: str = ""  # what would help; empty if the bound is undecided


def read_own_file(path: Path) -> FileReport:
    """Return the advice on a file; raises UsageError if it is of an unknown kind, damaged or too large."""
    try:
        return _report_profile(path, report.window_metrics(saved_profiles.read_profile(path)))
    except JobError as error:
        profile_error = error
    try:
        if path.suffix in (".pb", ".npz"):
            return _report_trace(path, tensorflow_trace.read_trace(path))
        log, _ = read_time_logs.read_logs([path])
        return _report_time_log(path, [*time_budgets(log, log.ranks)])
    except JobError as error:
        raise UsageError(error.message, _CURE) from profile_error


def _make_evidence(path: Path, kind: str, work: TimeUse, **known: Any) -> Evidence:
    """Return evidence with only the measurements of a file, which has fewer than a record."""
    settings = {"threads": work.threads or 1, "batch_size": 1, "prefetch": 0, "cache": "as_is"}
    run = {"elapsed_s": work.elapsed_s, "wall_s": work.elapsed_s, "load_s": work.elapsed_s}
    if work.steps:
        run |= {"load_s": work.steps.waiting_s, "compute_s": work.steps.compute_s}
    return Evidence(
        cell=path.name, settings=settings, kind=kind, figure="", unit="", rates={}, run=run, work=work, **known
    )


def _findings_of(evidence: Evidence, rule: Rule) -> list[Finding]:
    """Return a list with the finding of a rule, or an empty list if the rule has no finding.

    The finding has no test, because a file has no cell that could be measured again.
    """
    finding = rule(evidence)
    if not isinstance(finding, Finding):
        return []
    return [replace(finding, test=None, facts=[fact._replace(source="file") for fact in finding.facts])]


def _report_profile(path: Path, metrics: Mapping[str, Any]) -> FileReport:
    """Return the advice on a profile of POSIX calls: how much of the time calls took, and which calls took long."""
    wall_s, threads = metrics["wall_s"], metrics["threads"]
    calls_s = metrics["read_s"] + metrics["write_s"] + metrics["meta_s"]
    share = calls_s / (wall_s * threads) if threads and wall_s else None
    work = TimeUse(wall_s, threads=threads, storage_share=share, read_mb=metrics["bytes_read"] / 1e6)
    lacks = [_PROCESSORS, _DEVICE, _STEPS, _QUOTA]
    numbers = [DecidingNumber("threads in calls", share)] if share is not None else []
    if metrics["under_way_s"] is not None and wall_s:
        numbers.append(DecidingNumber("a call under way", metrics["under_way_s"] / wall_s))
    else:
        lacks.insert(0, "the times of the calls (a profile in the mode trace has these times)")
    if (device_bytes := metrics["device_bytes"]) is not None and metrics["bytes_read"]:
        numbers.append(DecidingNumber("bytes from devices", device_bytes / metrics["bytes_read"]))
    bound = Bottleneck("undecided", share or 0.0, tuple(numbers[:3]), "calls alone do not show it")
    profile = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    reads = f"{metrics['reads']:,} reads of {metrics['files']:,} files"
    content = f"{wall_s:.3f} s, {reads}, {metrics['bytes_read'] / 1e6:,.1f} MB"
    return FileReport(
        "profile",
        content,
        bound,
        _findings_of(_make_evidence(path, "pipeline", work, profile=profile), find_metadata),
        lacks,
    )


def _report_trace(path: Path, runtime: tensorflow_trace.Runtime) -> FileReport:
    """Return the advice on a trace of training steps by TensorFlow's profiler."""
    metrics = step_times.record_metrics(runtime)
    spent_s, waited_s = metrics["spent_s"], metrics["waited_s"]
    steps = StepTimes(
        metrics["steps"], waited_s, 0.0, spent_s["compute"], spent_s["checkpoint"], ahead=runtime.has_prefetch
    )
    numbers = {"steps_s": metrics["steps_s"], "waited_s": waited_s}
    numbers |= {f"exposed_s.{name}": metrics["exposed_s"][name] for name in INPUT}
    numbers |= {f"remedies_s.{name}": metrics["remedies_s"][name] for name in REMEDIES}
    evidence = _make_evidence(path, "training", TimeUse(metrics["steps_s"], steps=steps), tensorflow=numbers)
    bound = bottleneck_of_step_times(steps, metrics["steps_s"], spent_s)
    content = f"{metrics['steps']} steps of {metrics['steps_s']:.3f} s"
    lacks = [] if runtime.has_marks else [f"{_STEPS} (tf.profiler.experimental.Trace marks them)"]
    helps = advice_for(bound, evidence.work)
    return FileReport(
        "TensorFlow trace", content, bound, _findings_of(evidence, find_input_bound), [*lacks, *_BESIDE], helps
    )


def _report_time_log(path: Path, ranks: Sequence[TimeBudget]) -> FileReport:
    """Return the advice on a time log, from the times of all ranks added up.

    The times of different actions never overlap in a rank, because the log counts each moment for one action.
    """
    wall_s = sum(rank.end_ns - rank.start_ns for rank in ranks) / NS
    spent_s = {
        part: sum(rank.spent_ns.get(name, 0) for rank in ranks for name in names) / NS
        for part, names in (("read", _READS), ("decode", _DECODES), ("wait", _WAITS), ("compute", _COMPUTES),
                            ("checkpoint", ("checkpoint",)))
    }  # fmt: skip
    steps = StepTimes(
        1, spent_s["read"] + spent_s["decode"] + spent_s["wait"], 0.0, spent_s["compute"], spent_s["checkpoint"]
    )
    bound = bottleneck_of_step_times(steps, wall_s, spent_s)
    evidence = _make_evidence(path, "training", TimeUse(wall_s, steps=steps))
    content = f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}, {wall_s:.3f} s"
    has_known_actions = any(rank.spent_ns.get(name) for rank in ranks for name in (*_READS, *_COMPUTES))
    lacks = [] if has_known_actions else [f"known actions ({', '.join((*_COMPUTES, *_READS))})"]
    helps = advice_for(bound, evidence.work)
    return FileReport(
        "time log",
        content,
        bound,
        _findings_of(evidence, find_input) if has_known_actions else [],
        [*lacks, *_BESIDE],
        helps,
    )
