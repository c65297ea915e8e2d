"""What a user's own profile, time log or TensorFlow trace says of what bounds a program, by the rules for cells.

Such a file has a part of what a record has. What it lacks is named, and no rule guesses it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign.advice.advice_rules import metadata
from campaign.advice.evidence import Evidence
from campaign.advice.findings import Finding, Lacking
from campaign.advice.training import input_, input_bound
from campaign.errors import UsageError
from jobs.judging.bound import Bound, Number, bound_of_spent, help_of
from jobs.judging.work_done import Steps, Work
from jobs.profiler import ProfilerError, report, saved
from jobs.profiler.tensorflow_table import INPUT, REMEDIES
from jobs.system import untrusted
from jobs.system.programs import python

_PROCESSORS = "CPU seconds of the program, so nothing is said of processors"
_DEVICE = "what its devices did and could give, so a busy storage is not told from a slow one"
_QUOTA = "quotas and limits of its control group"
_STEPS = "its steps, so waiting is not told from computing beside it"
_BESIDE = (_PROCESSORS, _DEVICE, _QUOTA)
_READS = ("read", "open")  # of a time log, as categories of TensorFlow's events have them
_DECODES = ("load", "shuffle")
_WAITS = ("next", "wait", "stage")
_COMPUTES = ("compute", "validate")
_CURE = (
    "name a profile (Profile.save, a campaign's profile-N.npz, a spill, a Darshan log), a time log, or a *.xplane.pb"
)

Rule = Callable[[Evidence], Finding | Lacking | None]


@dataclass(frozen=True)
class Told:
    """What a file says: its kind, in words what it holds, what bounds the program, what rules found, what it lacks."""

    kind: str
    holds: str
    bound: Bound
    findings: Sequence[Finding]
    lacks: Sequence[str]
    helps: str = ""  # empty where nothing is decided


def read(path: Path) -> Told:
    """Return what a file says. Raises UsageError: it is of no kind that is known, damaged or too large."""
    try:
        return _profile(path, report.figures(saved.read(path)))
    except ProfilerError as error:
        first = error
    if path.suffix in (".pb", ".npz"):
        found, why = _analysis("trace", path)
        if found:
            return _trace(path, found[0])
        raise UsageError(why or first.message, _CURE)
    ranks, why = _analysis("timelog", path, "--budget")
    if ranks:
        return _time_log(path, ranks)
    raise UsageError(why or first.message, _CURE)


def _analysis(verb: str, path: Path, *words: str) -> tuple[Any, str]:
    """Return what the analysis reads in a file, as JSON, or None and why it cannot."""
    call = python("-m", "analysis", verb, str(path), *words, "--json")
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        return None, done.stderr.partition("\n")[0].removeprefix("error: ")
    return untrusted.json_value(done.stdout.encode()), ""


def _evidence(path: Path, kind: str, work: Work, **known: Any) -> Evidence:
    settings = {"threads": work.threads or 1, "batch_size": 1, "prefetch": 0, "cache": "as_is"}
    run = {"elapsed_s": work.elapsed_s, "wall_s": work.elapsed_s, "load_s": work.elapsed_s}
    if work.steps:
        run |= {"load_s": work.steps.waiting_s, "compute_s": work.steps.compute_s}
    return Evidence(
        cell=path.name, settings=settings, kind=kind, figure="", unit="", rates={}, run=run, work=work, **known
    )


def _found(evidence: Evidence, rule: Rule) -> list[Finding]:
    """Return what a rule finds, without its test: there is no cell to measure again."""
    found = rule(evidence)
    if not isinstance(found, Finding):
        return []
    return [replace(found, test=None, facts=[fact._replace(source="file") for fact in found.facts])]


def _profile(path: Path, seen: Mapping[str, Any]) -> Told:
    """Return what calls tell: for how long one was under way, and which kind took long."""
    wall_s, threads = seen["wall_s"], seen["threads"]
    calls_s = seen["read_s"] + seen["write_s"] + seen["meta_s"]
    share = calls_s / (wall_s * threads) if threads and wall_s else None
    work = Work(wall_s, threads=threads, storage_share=share, read_mb=seen["bytes_read"] / 1e6)
    lacks = [_PROCESSORS, _DEVICE, _STEPS, _QUOTA]
    numbers = [Number("threads in calls", share)] if share is not None else []
    if seen["under_way_s"] is not None and wall_s:
        numbers.append(Number("a call under way", seen["under_way_s"] / wall_s))
    else:
        lacks.insert(0, "when a call was under way (the mode trace has it)")
    if (fetched := seen["device_bytes"]) is not None and seen["bytes_read"]:
        numbers.append(Number("bytes from devices", fetched / seen["bytes_read"]))
    bound = Bound("undecided", share or 0.0, tuple(numbers[:3]), "calls alone do not tell")
    profile = {name: float(value) for name, value in seen.items() if isinstance(value, int | float)}
    holds = f"{wall_s:.3f} s, {seen['reads']:,} reads of {seen['files']:,} files, {seen['bytes_read'] / 1e6:,.1f} MB"
    return Told("profile", holds, bound, _found(_evidence(path, "pipeline", work, profile=profile), metadata), lacks)


def _trace(path: Path, seen: Mapping[str, Any]) -> Told:
    """Return what TensorFlow's trace of steps tells."""
    spent = {name: each["spent_s"] for name, each in seen["seconds"].items()}
    waited = seen["verdict"]["waited_s"]
    steps = Steps(
        seen["steps"], waited, 0.0, spent["compute"], spent["checkpoint"], ahead=seen["verdict"]["prefetched"]
    )
    found = {"steps_s": seen["steps_s"], "waited_s": waited}
    found |= {f"exposed_s.{name}": seen["seconds"][name]["exposed_s"] for name in INPUT}
    found |= {f"remedies_s.{name}": spent.get(name, 0.0) for name in REMEDIES}
    found["remedies_s.prefetch"] = seen["verdict"]["remedies_s"].get("prefetch", 0.0)
    evidence = _evidence(path, "training", Work(seen["steps_s"], steps=steps), tensorflow=found)
    bound = bound_of_spent(steps, seen["steps_s"], spent)
    holds = f"{seen['steps']} steps of {seen['steps_s']:.3f} s"
    lacks = [] if seen["steps_marked"] else [f"{_STEPS} (tf.profiler.experimental.Trace marks them)"]
    helps = help_of(bound, evidence.work)
    return Told("TensorFlow trace", holds, bound, _found(evidence, input_bound), [*lacks, *_BESIDE], helps)


def _time_log(path: Path, ranks: Mapping[str, Mapping[str, Any]]) -> Told:
    """Return what a time log tells: all ranks together, each moment of a rank to one action."""
    wall_s = sum(each["wall_s"] for each in ranks.values())
    spent = {
        part: sum(each["spent_s"].get(name, 0.0) for each in ranks.values() for name in names)
        for part, names in (("read", _READS), ("decode", _DECODES), ("wait", _WAITS), ("compute", _COMPUTES),
                            ("checkpoint", ("checkpoint",)))
    }  # fmt: skip
    steps = Steps(1, spent["read"] + spent["decode"] + spent["wait"], 0.0, spent["compute"], spent["checkpoint"])
    bound = bound_of_spent(steps, wall_s, spent)
    evidence = _evidence(path, "training", Work(wall_s, steps=steps))
    holds = f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}, {wall_s:.3f} s"
    known = any(each["spent_s"].get(name) for each in ranks.values() for name in (*_READS, *_COMPUTES))
    lacks = [] if known else [f"actions that are known ({', '.join((*_COMPUTES, *_READS))})"]
    helps = help_of(bound, evidence.work)
    return Told("time log", holds, bound, _found(evidence, input_) if known else [], [*lacks, *_BESIDE], helps)
