"""What the analysis reads of a record and of `campaign.json`, and what of a record cannot be true."""

from __future__ import annotations

import math
import reprlib
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.records.merit import (
    BYTES_READ,
    BYTES_WRITTEN,
    HIGHER,
    LOWER,
    OF_BEFORE,
    PIPELINE,
    STORAGE,
    TRAINING,
    Merit,
)
from analysis.records.shape import (
    NUMBERS,
    amount,
    bare,
    count,
    each_key,
    each_of,
    flag,
    flat,
    keyed,
    line,
    maybe,
    named,
    number,
    one_of,
    short,
    sound,
    text,
    unless_text,
)
from analysis.traces.categories import REMEDIES, SPENT

# Raw figures of a run in the order of the record; MB = 10^6 bytes, times in seconds.
COUNTS = ("images", "images_asked", "image_errors", "bytes_read", "device_bytes")
FIGURES = (
    "wall_s", "startup_s", "load_s", "compute_s", "checkpoint_s", "other_s", *COUNTS, "resident_fraction",
    "images_per_s", BYTES_READ, BYTES_WRITTEN,
)  # fmt: skip
# What a run says in words, where it says it.
WORDS = ("accelerator", "engine", "engine_version")
# Seconds of each snapshot, of which a run has the median, as `snapshot_blocked_s`.
OF_SNAPSHOT = ("blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s")
VALID = "valid"
# Of a run that was profiled; a run has them as `posix_reads`, and its reads by size as `posix_read_size_0` and so on.
OF_PROFILE = (
    "files", "opens", "reads", "writes", "stream_writes", "bytes_read", "bytes_written", "read_mb_per_s", "read_s",
    "write_s", "meta_s", "sequential", "consecutive",
)  # fmt: skip
PROFILE_SIZES = 10  # bins
# What all cells of the paper's micro-benchmark and mini-application have.
OF_PIPELINE = ("threads", "batch_size", "prefetch")

CONDITIONS = keyed({"process": each_key(bare), "machine": each_key(bare), "storages": each_key(each_key(bare))})
CHECK = keyed({"rule": text, "passed": maybe(flag)}, {"observed": sound, "limit": sound, "message": text})
RANK = keyed(
    {"rank": count, "figures": keyed({"wall_s": amount}, {"bytes_read": count})},
    {"node": line, "host": line, "left_s": amount, "ended_s": amount},
)
RUN = keyed(
    {
        "run": count,
        "role": one_of("warmup", "measured", "unprofiled"),
        "status": one_of("running", VALID, "invalid", "failed"),
    },
    {
        **dict.fromkeys(FIGURES, amount),
        **dict.fromkeys(COUNTS, count),
        **dict.fromkeys(WORDS, line),
        **dict.fromkeys(("reason", "started_utc"), text),
        "bytes_written": count,
        **dict.fromkeys(("elapsed_s", "throttled_s"), amount),
        "wall_parts": each_of(text),
        "rate": keyed({}, {"key": line}),
        "trace": keyed({}, {"file": text}),
        "profile": keyed({}, {**dict.fromkeys(OF_PROFILE, amount), "read_sizes": each_of(count), "file": maybe(text)}),
        "tensorflow": keyed(
            {},
            {
                "file": maybe(text),
                "steps_s": amount,
                "waited_s": amount,
                "spent_s": keyed({}, dict.fromkeys(SPENT, amount)),
                "remedies_s": keyed({}, dict.fromkeys(REMEDIES, amount)),
            },
        ),
        "targets": each_of(keyed({"role": line, "source": maybe(line)}, {"below": each_of(line)})),
        "checkpoints": each_of(
            # Some are differences of the clocks of two machines, and may be negative.
            keyed(dict.fromkeys(OF_SNAPSHOT, maybe(number)), {"bytes": amount})
        ),
        "checks": each_of(CHECK),
        "ranks": each_of(RANK),
        "conditions": CONDITIONS,
        "added": keyed({}, {"until_spread": number, "n": count, "width": number}),
    },
    others=flat,
)
OF_SETTINGS = keyed(
    {}, dict.fromkeys((*OF_PIPELINE, "iterations"), count) | {"benchmark": keyed({}, {"file_mb": count})}
)


def _settings(value: Any) -> None:
    named(value)
    OF_SETTINGS(value)


def _emulated(value: Any) -> None:
    named(value)
    each_key(each_key(sound))(value)


CELL = keyed(
    {"id": line, "benchmark": line, "benchmark_version": count, "settings": _settings},
    {"kind": one_of(STORAGE, PIPELINE, TRAINING), "figure": line, "unit": line, "better": one_of(HIGHER, LOWER)},
)
PROVENANCE = keyed(
    {},
    {
        "host": short,
        "quota_cores": amount,
        "emulated": _emulated,
        "versions": keyed({}, {"tensorflow": short}, others=sound),
        # Or the word unknown: an overlay, FUSE, network file systems and memory have no device.
        "mount": unless_text(keyed({}, {"source": short}, others=sound)),
        "device": unless_text(keyed({}, {"name": short}, others=sound)),
    },
    others=sound,
)
RECORD = keyed(
    {
        "schema": count,
        "cell": CELL,
        "status": one_of("running", "done", "failed", "invalid"),
        "runs": each_of(RUN),
    },
    {
        "reason": text,
        "campaign": keyed({}, {"size": short, "site": short}),
        "dataset": keyed({}, {"path": text, "checksum": text}),
        "provenance": PROVENANCE,
        "checks": each_of(CHECK),
        "looser_checks": each_of(short),
        "profile_cost": keyed({"pairs": count, **dict.fromkeys(("median", "min", "max"), number)}),
    },
)
REQUEST = keyed({"words": each_of(text), "cells": each_of(text), "utc": text})
CAMPAIGN = keyed({"schema": count, "requests": each_of(REQUEST)})

# A rate, and what it is a rate of, in its unit.
RATES = {"images_per_s": ("images", 1), BYTES_READ: ("bytes_read", 10**6), BYTES_WRITTEN: ("bytes_written", 10**6)}
ROUNDED = 1e-3
TIME_SLICE_S = 0.005  # of a gap between two parts that is none (`jobs/checks.py`)
# Rules whose value is at most, and at least, their limit where they passed (`jobs/checks.py`).
AT_MOST = frozenset(
    {
        "cold", "from_memory", "unthrottled", "unstolen", "undelayed", "time_adds_up", "unspoiled", "spread",
        "until_spread", "below_peak", "same_conditions",
    }
)  # fmt: skip
AT_LEAST = frozenset({"warm", "device_bytes", "reached_device"})
PARTS = ("load_s", "compute_s", "checkpoint_s", "other_s")


def contradictions(record: Mapping[str, Any], figure: str) -> Iterator[str]:
    """Yield what cannot be true of a record of the right shape, by its key; `figure` is its figure of merit."""
    yield from _of_cell(record["cell"])
    yield from _of_checks(record.get("checks") or (), "checks")
    numbers = Counter(run["run"] for run in record["runs"])
    yield from (f"{count} of its runs have the number {run}" for run, count in numbers.items() if count > 1)
    for place, run in enumerate(record["runs"]):
        yield from (f"{why} (run {run['run']})" for why in _of_run(run, f"runs[{place}]", figure))
    yield from _conditions(record)
    if record["status"] != "running":
        yield from _spread(record)


def _of_cell(cell: Mapping[str, Any]) -> Iterator[str]:
    benchmark, kind = cell["benchmark"], cell.get("kind")
    said = [name for name in Merit._fields if cell.get(name) is not None]
    if len(said) not in (0, len(Merit._fields)):
        yield f"of {', '.join(Merit._fields)} cell has {', '.join(said)} alone"
    known = OF_BEFORE[benchmark].kind if benchmark in OF_BEFORE else kind
    if kind not in (None, known):
        yield f"cell.kind is {kind}, and {benchmark} is of the kind {known}"
    if known != STORAGE and benchmark in OF_BEFORE:
        missing = [name for name in OF_PIPELINE if cell["settings"].get(name) is None]
        yield from (f"it has no cell.settings.{name}, without which {benchmark} cannot run" for name in missing)


def _of_run(run: Mapping[str, Any], place: str, figure: str) -> Iterator[str]:
    checks = run.get("checks") or ()
    yield from _of_checks(checks, f"{place}.checks")
    wall_s, asked = run.get("wall_s"), run.get("images_asked")
    for name, (moved, unit) in RATES.items():
        rate, all_moved = run.get(name), run.get(moved)
        if rate is None or all_moved is None or wall_s is None:
            continue
        if not math.isclose(rate * wall_s * unit, all_moved, rel_tol=ROUNDED):
            yield f"{place}.{name} is {rate:g}, and {moved} / wall_s is {all_moved / unit:g} / {wall_s:g}"
    if asked is not None and (run.get("images") or 0) > asked:
        yield f"{place}.images is {run['images']}, and images_asked {asked}"
    if run["status"] == VALID:
        yield from _of_valid(run, checks, place, figure)


def _of_valid(run: Mapping[str, Any], checks: Sequence[Mapping[str, Any]], place: str, figure: str) -> Iterator[str]:
    for name in {"wall_s", figure} if run["role"] == "measured" else {"wall_s"}:
        least_is_none = name == "wall_s" or name in RATES
        if type(run.get(name)) not in NUMBERS or run[name] < 0 or (least_is_none and run[name] == 0):
            yield f"{place} is valid, and its {name} is {reprlib.repr(run.get(name))}"
    for check in checks:
        if check["passed"] is False:
            yield f"{place} is valid, and its check {check['rule']} failed"
        elif check["passed"] and check["rule"] == "complete" and run.get("images") != run.get("images_asked"):
            yield f"{place} is complete, with {run.get('images')} of {run.get('images_asked')} images"
        elif check["passed"] and check["rule"] == "complete" and run.get("image_errors"):
            yield f"{place} is complete, with {run['image_errors']} image_errors"
        elif check["passed"] and check["rule"] == "time_adds_up":
            yield from _time(run, check.get("limit"), place)


def _time(run: Mapping[str, Any], limit: Any, place: str) -> Iterator[str]:
    parts: dict[str, Any] = {part: run.get(part) for part in run.get("wall_parts") or PARTS}
    if lacking := [part for part, value in parts.items() if type(value) not in NUMBERS]:
        yield f"{place} passed time_adds_up, and its {lacking[0]} is {reprlib.repr(parts[lacking[0]])}"
        return
    wall_s, total = run["wall_s"], sum(parts.values())
    if type(limit) in NUMBERS and abs(wall_s - total) > max(TIME_SLICE_S, (limit + ROUNDED) * wall_s):
        yield f"{place} passed time_adds_up, and the parts of its wall_s, {wall_s:g} s, make up {total:g} s"


def counting(record: Mapping[str, Any]) -> list[Any]:
    """Return the runs of a record that count: measured, and valid."""
    return [run for run in record["runs"] if (run["role"], run["status"]) == ("measured", VALID)]


def _conditions(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the run whose conditions are not those of the first one that counts: no median holds both."""
    first, *others = counting(record) or [{}]
    for run in others:
        if run.get("conditions") != first.get("conditions"):
            yield f"runs {first['run']} and {run['run']} are valid, and their conditions differ"


def _spread(record: Mapping[str, Any]) -> Iterator[str]:
    """Hold a passed spread against the rates that `jobs/checks.py` judges."""
    rates = [rate for run in counting(record) if type(rate := run.get(_rate(run))) in NUMBERS]
    for check in record.get("checks") or ():
        value: Any = check.get("observed")
        if check["rule"] != "spread" or not check["passed"] or type(value) not in NUMBERS:
            continue
        if len(rates) <= 1:
            yield f"its check spread passed, with {len(rates)} valid measured runs"
        elif max(rates) - min(rates) > (value + ROUNDED) * statistics.median(rates):
            found = f"(max - min) / median is ({max(rates):g} - {min(rates):g}) / {statistics.median(rates):g}"
            yield f"its check spread passed with {value:g}, and {found}"


def _rate(run: Mapping[str, Any]) -> str:
    named: str | None = (run.get("rate") or {}).get("key")
    return named or next((name for name in RATES if name in run), "")


def _of_checks(checks: Sequence[Mapping[str, Any]], place: str) -> Iterator[str]:
    many = Counter(check["rule"] for check in checks)
    yield from (f"{place} has {count} of the rule {rule}" for rule, count in many.items() if count > 1)
    for at, check in enumerate(checks):
        value: Any = check.get("observed")
        rule, limit = check["rule"], check.get("limit")
        if not check["passed"] or not {type(value), type(limit)} <= NUMBERS:
            continue
        if (rule in AT_MOST and value > limit) or (rule in AT_LEAST and value < limit):
            yield f"{place}[{at}], {rule}, passed with {value:g}, and its limit is {limit:g}"
