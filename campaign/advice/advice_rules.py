"""What may bound a cell: rules, each a pure function of evidence.

A rule answers with what it found, or with what it would need to know, or with None where it does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from campaign.advice import pipeline
from campaign.advice.evidence import Evidence, Fact
from campaign.advice.findings import MORE, Finding, Lacking, larger_files, test_of
from campaign.advice.training import IDLE, WAITING, input_, input_bound, no_prefetch
from campaign.console import counted

BASELINE = {"benchmark.name": "baseline", "benchmark.access": "random_read"}
_NO_FASTER = "no faster storage is known here: measure the same baseline there, or see `stage plan`"
_BUSY = 0.85  # of the processors: what is left a pipeline with few threads cannot fill (balance of two stages)
_AT_BASELINE = 0.85  # of what the storage gives by itself
_SMALL_READS = 0.5  # of the MB/s of one large file
_METADATA = 0.3  # of the time in calls
_OTHERS = 0.5  # processors, as the check `quiet`
_WORTH = 1.1  # times as fast
_THROTTLED = 0.01  # as the check `unthrottled`


def advise(e: Evidence) -> tuple[list[Finding], list[Lacking]]:
    """Apply all rules: what bounds the cell, the largest share of its time first, and what could not be decided."""
    said = [_unless_crowded(e, answer) if isinstance(answer := rule(e), Finding) else answer for rule in RULES]
    found = [each for each in said if isinstance(each, Finding)]
    # What else is found is found under the quota.
    ordered = sorted(found, key=lambda each: (each.rule != "throttled", -each.share))
    return ordered, [each for each in said if isinstance(each, Lacking)]


def throttled(e: Evidence) -> Finding | None:
    """Find a quota of processor time that held the run back."""
    if e.work.quota is None or e["throttled_s"] <= _THROTTLED * e["elapsed_s"]:
        return None
    most = min(e.work.cores, e.threads + 1) / e.work.quota
    return Finding(
        "throttled",
        f"a quota of {e.work.quota:.2g} of {e.work.cores:g} processors holds the run back",
        min(1.0, e["throttled_s"] / e["elapsed_s"]),
        [Fact("quota_cores", e.work.quota, "cores", "record"), *e.facts("throttled_s", "elapsed_s", "cpu_s")],
        test_of(e, {}, (1.0, math.sqrt(most), most)),
        "the quota is no key: give the command in a shell without it",
    )


def processors(e: Evidence) -> Finding | Lacking | None:
    """Find processors that decoding keeps busy: more threads do not help."""
    if e.waiting < IDLE or e.trains:
        return None
    busy = e.work.busy
    if why := held(e, "processors"):
        return Lacking("processors", why, {"redo": True})
    if busy < _BUSY:
        return None
    what = "decoding" if e.settings.get("benchmark.preprocess", True) else "handing files on"
    return Finding(
        "processors",
        f"{what} uses {busy:.0%} of the processors left to it ({e.work.free_cores:.2g} of {e.work.allowed:g}): threads"
        " do not help",
        busy * e.waiting,
        [
            *e.facts("cpu_s", "elapsed_s", "load_s", "other_cpu"),
            Fact("cores", e.work.allowed, "cores", "record"),
            *e.traced(),
        ],
        test_of(e, {"threads": 2 * e.threads}, (1.0, math.sqrt(1 / busy), 1 / busy)),
    )


def few_threads(e: Evidence) -> Finding | Lacking | None:
    """Find a pipeline that more threads make faster, by having more calls under way."""
    if e.work.busy >= _BUSY or e.waiting < IDLE or e.trains or e.bound.word == "device":
        return None
    wanted = 8 if e.threads < 8 else 2 * e.threads  # noqa: PLR2004 - the paper's largest
    counts = [count for count in e.readers if count > e.threads] if e.threads in e.readers else []
    work_alone = _is_busy(e)  # by too few threads: what it waits for the storage is little
    if e.cold and not counts and not work_alone:
        needed = f"what the storage gives to {counted(e.threads, 'reader')} and to {wanted} is not known"
        return Lacking("few_threads", needed, {**BASELINE, "threads": (e.threads, wanted)})
    best = max(counts or [2 * e.threads], key=lambda count: (pipeline.faster(e, count)[1], -count))
    gains = pipeline.faster(e, best)
    if work_alone:  # two processors may be one core, which gives the second thread less
        least = math.sqrt(gains[2])
        gains = (least, math.sqrt(least * gains[2]), gains[2])
    if gains[1] < _WORTH:
        return None
    known = [Fact(counted(count, "reader"), e.readers[count], "MB/s", "baseline") for count in (e.threads, best)
             if e.cold and counts]  # fmt: skip
    idle = f"{counted(e.threads, 'thread')} of {e.work.free_cores:.2g} processors" if work_alone else ""
    return Finding(
        "few_threads",
        f"{idle or counted(e.threads, 'file') + ' at once'}: neither the storage nor the processors are busy",
        e.waiting * (1 - e.work.busy),
        [*e.facts("load_s", "elapsed_s", "cpu_s", "read_mb_per_s"), *known, *e.traced()],
        test_of(e, {"threads": best}, gains),
    )


def device(e: Evidence) -> Finding | None:
    """Find a storage that gives what it gives by itself, and gives no more to more readers."""
    own = e.readers.get(e.threads)
    limit = e.work.given.at_most
    if not own and limit and e.bound.word == "device":
        rates = [*e.facts("read_mb_per_s"), Fact("at most", limit, "MB/s", "its bound" if e.emulated else "baseline")]
        says = f"the storage gives {e.bound.share:.0%} of the time what it can"
        return Finding("device", says, e.bound.share, [*rates, *e.traced()], None, _NO_FASTER)
    if not e.cold or not own or e.waiting < IDLE or e["read_mb_per_s"] < _AT_BASELINE * own:
        return None
    if max(e.readers.values()) >= _WORTH * own:  # that is of `few_threads`
        return None
    readers = counted(e.threads, "reader")
    faster = max(e.elsewhere.items(), key=lambda each: each[1][1], default=None)
    test, why = None, _NO_FASTER
    if faster and faster[1][1] >= _WORTH * own:
        name, (storage, rate) = faster
        low, high = pipeline.speedup(e, e.threads, rate / own)
        test, why = (
            test_of(e, {f"storage.{key}": storage[key] for key in storage}, (low, math.sqrt(low * high), high)),
            "",
        )
    return Finding(
        "device",
        f"the storage gives {e['read_mb_per_s'] / own:.0%} of what it gives to {readers} by itself",
        min(1.0, e["read_mb_per_s"] / own) * e.waiting,
        [*e.facts("read_mb_per_s"), Fact(readers, own, "MB/s", "baseline"),
         *([Fact(f"{name}, {readers}", rate, "MB/s", "baseline")] if test else []), *e.traced()],
        test,
        why,
    )  # fmt: skip


def small_reads(e: Evidence) -> Finding | Lacking | None:
    """Find files so small that the storage is positioned more than it moves bytes."""
    if not e.cold or _is_busy(e) or e.waiting < IDLE:
        return None
    if e.sequential is None:
        needed = "what the storage gives of one large file is not known"
        return Lacking("small_reads", needed, {"benchmark.name": "baseline", "benchmark.access": "read"})
    share = 1 - e["read_mb_per_s"] / e.sequential
    if share < _SMALL_READS:
        return None
    large = Fact("one large file", e.sequential, "MB/s", "its bound" if e.emulated else "baseline")
    size = e["bytes_read"] / e["images"]
    moving_s, file_s = size / 1e6 / e.sequential, size / 1e6 / e["read_mb_per_s"]
    gain = MORE * file_s / (file_s + (MORE - 1) * moving_s)
    return Finding(
        "small_reads",
        f"a file of {size / 1e3:.3g} kB takes {file_s * 1e3:.3g} ms, {moving_s * 1e3:.2g} of them to move its bytes",
        share * e.waiting * (1 - e.work.busy),
        [*e.facts("read_mb_per_s"), large, *e.traced()],
        *larger_files(e, (math.sqrt(gain), gain, gain * 1.1)),
    )


def _is_busy(e: Evidence) -> bool:
    """Tell whether processors bound the cell, so that it hardly waits for a storage."""
    return e.work.busy >= _BUSY or e.bound.word in ("decoding", "processors")


def metadata(e: Evidence) -> Finding | Lacking | None:
    """Find a run that opens and closes files for long, beside reading them; objects are not opened."""
    if _is_busy(e) or e.bound.word == "device" or e.waiting < IDLE or e.settings.get("storage.kind") == "s3":
        return None
    if not e.profile:
        return Lacking("metadata", "the calls are not known", {"profile.posix": "counters"})
    calls_s = e.profile["meta_s"] + e.profile["read_s"]
    share = e.profile["meta_s"] / calls_s if calls_s else 0.0
    if share < _METADATA:
        return None
    names = (("opens", ""), ("stats", ""), ("meta_s", "s"), ("read_s", "s"))
    # At least: all but these calls takes as much longer as there are more bytes. At most: no longer.
    rest_s = max(0.0, e["elapsed_s"] - e.profile["meta_s"] / e.threads)
    least = MORE * e["elapsed_s"] / (e["elapsed_s"] + (MORE - 1) * rest_s)
    return Finding(
        "metadata",
        f"{share:.0%} of the time in calls is not reading: opening, asking for sizes, closing",
        share * min(1.0, calls_s / (e.threads * e["load_s"])) * e.waiting,
        [Fact(name, e.profile[name], unit, "profile") for name, unit in names],
        *larger_files(e, (least, math.sqrt(least * MORE), MORE)),
    )


RULES: tuple[Callable[[Evidence], Finding | Lacking | None], ...] = (
    throttled, processors, few_threads, device, small_reads, metadata, input_, no_prefetch, input_bound
)  # fmt: skip


def _unless_crowded(e: Evidence, found: Finding) -> Finding | Lacking:
    """Return what was found, unless others held processors, or would while it is tested: in less time by `gain`.

    That a storage gives what it can, and that a training waits, holds whatever others do: of the first nothing is
    predicted then, and of the second an interval that is as wide (`input_`).
    """
    gain = 1.0
    if found.test:
        predicted = found.test.prediction
        gain = e[predicted.figure] / predicted.value
        gain = gain if predicted.figure == "wall_s" else 1 / gain
    why = held(e, found.rule, gain)
    if why is None or (found.rule in WAITING and not e.trains):
        return found
    if found.rule == "device":
        return replace(found, test=None, untested=why) if found.test else found
    return Lacking(found.rule, why, {"redo": True})


def held(e: Evidence, rule: str, gain: float = 1.0) -> str | None:
    """Say that others held processors that a run so many times as fast needs; None where a rule need not know.

    Larger files are no more files a second.
    """
    if rule in ("small_reads", "metadata"):
        return None
    together = gain * e["cpu_s"] / e["elapsed_s"] + e.work.others
    if e.work.within_quota or e.work.others < _OTHERS or together < _BUSY * e.work.allowed:
        return None
    return f"others held {e.work.others:.2g} of {e.work.allowed:g} processors: measure again when they do not"
