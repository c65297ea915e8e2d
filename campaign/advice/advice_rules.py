"""Find what may bound a cell: rules, each a pure function of evidence.

A rule returns a `Finding` if it holds, an `Undecided` if it lacks a measurement, None if it does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from campaign.advice import findings
from campaign.advice.evidence import Evidence, Fact
from campaign.advice.findings import (
    SIZE_FACTOR,
    Finding,
    Test,
    Undecided,
    predict_larger_files,
    predict_speedup,
    widen_by_noise,
)
from campaign.console import counted
from jobs.events.tensorflow_trace import INPUT, REMEDIES

IDLE = 0.05  # share of the run; less waiting is not worth a change
WAITING = ("input", "compute")  # the rules of the findings of `find_input`
_SLOWED = 0.5  # of what is left, by the input's own work: two that share a processor have half of it each


def find_input(e: Evidence) -> Finding | None:
    """Find whether a training computes or waits for its input; predict its time without input."""
    if e.kind != "training" or e.settings.get("benchmark.control", "none") != "none":
        return None
    bound = "it waits for its input" if e.waiting >= IDLE else "it hardly waits for its input"
    share = e.waiting if e.waiting >= IDLE else e["compute_s"] / e["elapsed_s"]
    emulated = ", of an emulated accelerator" if e.accelerator == "emulated" else ""
    left_s = max(1e-9, e["wall_s"] - e["load_s"] - e["startup_s"])  # no iterator is made either
    # What else kept the processors busy slowed the steps, too: the input's own work, or others by as much as they held.
    slowed = _SLOWED if e.trains else min(1.0, max(0.0, e.work.others) / e.work.allowed)
    return Finding(
        "input" if e.waiting >= IDLE else "compute",
        f"{bound}: {e['load_s']:.2f} of {e['wall_s']:.2f} s are waiting, {e['compute_s']:.2f} s compute{emulated}",
        share,
        e.facts("wall_s", "load_s", "compute_s"),
        Test({"benchmark.control": "no_io"}, widen_by_noise(e, "wall_s", "s", ((1 - slowed) * left_s, left_s, left_s))),
    )


def find_no_prefetch(e: Evidence) -> Finding | None:
    """Find a training without prefetch that could make its next batch during a step."""
    if e.kind != "training" or e.settings["prefetch"] or e.waiting < IDLE or e.steps.number < 2:  # noqa: PLR2004
        return None
    if e.settings.get("benchmark.control", "none") != "none":
        return None
    waited_s, computed_s = e.steps.each_s
    made = (waited_s, findings.seconds_per_batch(e))
    walls = [findings.training_wall_s(e, each, threads=e.threads, prefetch=1) for each in made]
    floor = e["cpu_s"] / e.work.free_cores if e.trains else 0.0
    low, high = (max(floor, each) for each in sorted([e["wall_s"] - e["load_s"] + e.steps.first_s, *walls])[::2])
    value = max(floor, walls[1])
    hidden = min(waited_s, computed_s)
    return Finding(
        "no_prefetch",
        f"no batch is made ahead: of {waited_s:.3f} s for a batch up to {hidden:.3f} s can pass during a step of "
        f"{computed_s:.3f} s",
        hidden * (e.steps.number - 1) / e["wall_s"],
        [Fact("wait for a batch", waited_s, "s", "record"), Fact("step", computed_s, "s", "record"),
         Fact("steps", e.steps.number, "", "record"), *e.facts("wall_s")],
        Test({"prefetch": 1}, widen_by_noise(e, "wall_s", "s", (low, value, max(value, high)))),
    )  # fmt: skip


def find_input_bound(e: Evidence) -> Finding | Undecided | None:
    """Find the part of the input that a training waits for, by TensorFlow's trace of its steps, and the remedies."""
    seen = e.tensorflow
    if e.kind != "training" or not seen or seen["waited_s"] < IDLE * seen["steps_s"]:
        missing = e.kind == "training" and not seen and e.waiting >= IDLE
        lacking = Undecided("input_bound", "what its steps wait for is not known", {"profile.tensorflow": "all"})
        return lacking if missing else None
    waited, saves = seen["waited_s"], {name: seen[f"remedies_s.{name}"] for name in REMEDIES}
    best = sorted((name for name in saves if saves[name] > IDLE * waited), key=lambda name: -saves[name])
    remedies = "; ".join(f"{REMEDIES[name]}: at most {saves[name]:.3g} s" for name in best)
    test, why = (
        None,
        "it reads little: of the rest, `input`, `find_no_prefetch` and `find_processors` have tests",
    )
    if e.cold and "read" in best:
        # What was decoded while something was read as well is still to be done: as it was, or all of it by the
        # processors that others leave, beside no computing.
        left = seen["exposed_s.decode"] + saves["buffering"] + saves["input wait"]
        walls = [e["wall_s"] - e["load_s"] * saved / waited for saved in (saves["read"], max(0.0, waited - left))]
        low, high = min(walls), max(*walls, e["wall_s"] - e["load_s"] + e["cpu_s"] / e.work.free_cores)
        test, why = Test({"cache": "warm"}, widen_by_noise(e, "wall_s", "s", (low, (low + high) / 2, high))), ""
    return Finding(
        "input_bound",
        f"by TensorFlow's trace it waits for input in {waited:.3g} of {seen['steps_s']:.3g} s of its steps; what would"
        f" remove it: {remedies}",
        waited / seen["steps_s"],
        [Fact(f"exposed {name}", seen[f"exposed_s.{name}"], "s", "tensorflow") for name in INPUT],
        test,
        why,
    )


BASELINE = {"benchmark.name": "baseline", "benchmark.access": "random_read"}
_NO_FASTER = "no faster storage is known here: measure the same baseline there, or see `stage plan`"
_BUSY = 0.85  # of the processors: what is left a pipeline with few threads cannot fill (balance of two stages)
_AT_BASELINE = 0.85  # of what the storage gives by itself
_SMALL_READS = 0.5  # of the MB/s of one large file
_METADATA = 0.3  # of the time in calls
_OTHERS = 0.5  # processors, as the check `quiet`
_WORTH = 1.1  # times as fast
_THROTTLED = 0.01  # as the check `unthrottled`


def apply_rules(e: Evidence) -> tuple[list[Finding], list[Undecided]]:
    """Return the findings on a cell, the largest share of its time first, and the rules that could not be decided."""
    answers = [
        _withhold_if_disturbed(e, answer) if isinstance(answer := rule(e), Finding) else answer for rule in RULES
    ]
    held_rules = [each for each in answers if isinstance(each, Finding)]
    # A quota comes first, because all other findings hold under this quota only.
    ordered = sorted(held_rules, key=lambda each: (each.rule != "throttled", -each.share))
    return ordered, [each for each in answers if isinstance(each, Undecided)]


def find_throttled(e: Evidence) -> Finding | None:
    """Find a quota of processor time that held the run back."""
    if e.work.quota is None or e["throttled_s"] <= _THROTTLED * e["elapsed_s"]:
        return None
    most = min(e.work.cores, e.threads + 1) / e.work.quota
    return Finding(
        "throttled",
        f"a quota of {e.work.quota:.2g} of {e.work.cores:g} processors holds the run back",
        min(1.0, e["throttled_s"] / e["elapsed_s"]),
        [Fact("quota_cores", e.work.quota, "cores", "record"), *e.facts("throttled_s", "elapsed_s", "cpu_s")],
        predict_speedup(e, {}, (1.0, math.sqrt(most), most)),
        "the quota is no key: give the command in a shell without it",
    )


def find_processors(e: Evidence) -> Finding | Undecided | None:
    """Find a pipeline whose decoding keeps the processors busy, so that more threads do not help."""
    if e.waiting < IDLE or e.trains:
        return None
    busy = e.work.busy
    if why := disturbance_by_others(e, "processors"):
        return Undecided("processors", why, {"redo": True})
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
        predict_speedup(e, {"threads": 2 * e.threads}, (1.0, math.sqrt(1 / busy), 1 / busy)),
    )


def find_few_threads(e: Evidence) -> Finding | Undecided | None:
    """Find a pipeline that is faster with more threads, because more calls are then under way at once."""
    if e.work.busy >= _BUSY or e.waiting < IDLE or e.trains or e.bound.word == "device":
        return None
    wanted = 8 if e.threads < 8 else 2 * e.threads  # noqa: PLR2004 - the paper's largest
    counts = [count for count in e.readers if count > e.threads] if e.threads in e.readers else []
    work_alone = _is_busy(e)  # by too few threads: what it waits for the storage is little
    if e.cold and not counts and not work_alone:
        needed = f"what the storage gives to {counted(e.threads, 'reader')} and to {wanted} is not known"
        return Undecided("few_threads", needed, {**BASELINE, "threads": (e.threads, wanted)})
    best = max(counts or [2 * e.threads], key=lambda count: (findings.speedup_with_threads(e, count)[1], -count))
    gains = findings.speedup_with_threads(e, best)
    if work_alone:  # two processors may be one core, which gives the second thread less
        least = math.sqrt(gains[2])
        gains = (least, math.sqrt(least * gains[2]), gains[2])
    if gains[1] < _WORTH:
        return None
    baselines = [Fact(counted(count, "reader"), e.readers[count], "MB/s", "baseline") for count in (e.threads, best)
             if e.cold and counts]  # fmt: skip
    idle = f"{counted(e.threads, 'thread')} of {e.work.free_cores:.2g} processors" if work_alone else ""
    return Finding(
        "few_threads",
        f"{idle or counted(e.threads, 'file') + ' at once'}: neither the storage nor the processors are busy",
        e.waiting * (1 - e.work.busy),
        [*e.facts("load_s", "elapsed_s", "cpu_s", "read_mb_per_s"), *baselines, *e.traced()],
        predict_speedup(e, {"threads": best}, gains),
    )


def find_device(e: Evidence) -> Finding | None:
    """Find a storage that is at its limit for this number of readers, and gives no more to more readers."""
    own = e.readers.get(e.threads)
    limit = e.work.given.at_most
    if not own and limit and e.bound.word == "device":
        rates = [*e.facts("read_mb_per_s"), Fact("at most", limit, "MB/s", "its bound" if e.emulated else "baseline")]
        says = f"the storage gives {e.bound.share:.0%} of the time what it can"
        return Finding("device", says, e.bound.share, [*rates, *e.traced()], None, _NO_FASTER)
    if not e.cold or not own or e.waiting < IDLE or e["read_mb_per_s"] < _AT_BASELINE * own:
        return None
    if max(e.readers.values()) >= _WORTH * own:  # `find_few_threads` finds this case
        return None
    readers = counted(e.threads, "reader")
    faster = max(e.elsewhere.items(), key=lambda each: each[1][1], default=None)
    test, why = None, _NO_FASTER
    if faster and faster[1][1] >= _WORTH * own:
        name, (storage, rate) = faster
        low, high = findings.speedup_of_storage(e, e.threads, rate / own)
        test, why = (
            predict_speedup(e, {f"storage.{key}": storage[key] for key in storage}, (low, math.sqrt(low * high), high)),
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


def find_small_reads(e: Evidence) -> Finding | Undecided | None:
    """Find files so small that the storage spends more time on positioning than on moving bytes."""
    if not e.cold or _is_busy(e) or e.waiting < IDLE:
        return None
    if e.sequential is None:
        needed = "what the storage gives of one large file is not known"
        return Undecided("small_reads", needed, {"benchmark.name": "baseline", "benchmark.access": "read"})
    share = 1 - e["read_mb_per_s"] / e.sequential
    if share < _SMALL_READS:
        return None
    large = Fact("one large file", e.sequential, "MB/s", "its bound" if e.emulated else "baseline")
    size = e["bytes_read"] / e["images"]
    moving_s, file_s = size / 1e6 / e.sequential, size / 1e6 / e["read_mb_per_s"]
    gain = SIZE_FACTOR * file_s / (file_s + (SIZE_FACTOR - 1) * moving_s)
    return Finding(
        "small_reads",
        f"a file of {size / 1e3:.3g} kB takes {file_s * 1e3:.3g} ms, {moving_s * 1e3:.2g} of them to move its bytes",
        share * e.waiting * (1 - e.work.busy),
        [*e.facts("read_mb_per_s"), large, *e.traced()],
        *predict_larger_files(e, (math.sqrt(gain), gain, gain * 1.1)),
    )


def _is_busy(e: Evidence) -> bool:
    """Return whether processors bound the cell, so that it hardly waits for a storage."""
    return e.work.busy >= _BUSY or e.bound.word in ("decoding", "processors")


def find_metadata(e: Evidence) -> Finding | Undecided | None:
    """Find a run that spends much of its time on opening and closing files; objects are not opened."""
    if _is_busy(e) or e.bound.word == "device" or e.waiting < IDLE or e.settings.get("storage.kind") == "s3":
        return None
    if not e.profile:
        return Undecided("metadata", "the calls are not known", {"profile.posix": "counters"})
    calls_s = e.profile["meta_s"] + e.profile["read_s"]
    share = e.profile["meta_s"] / calls_s if calls_s else 0.0
    if share < _METADATA:
        return None
    names = (("opens", ""), ("stats", ""), ("meta_s", "s"), ("read_s", "s"))
    # At least: all but these calls takes as much longer as there are more bytes. At most: no longer.
    rest_s = max(0.0, e["elapsed_s"] - e.profile["meta_s"] / e.threads)
    least = SIZE_FACTOR * e["elapsed_s"] / (e["elapsed_s"] + (SIZE_FACTOR - 1) * rest_s)
    return Finding(
        "metadata",
        f"{share:.0%} of the time in calls is not reading: opening, asking for sizes, closing",
        share * min(1.0, calls_s / (e.threads * e["load_s"])) * e.waiting,
        [Fact(name, e.profile[name], unit, "profile") for name, unit in names],
        *predict_larger_files(e, (least, math.sqrt(least * SIZE_FACTOR), SIZE_FACTOR)),
    )


RULES: tuple[Callable[[Evidence], Finding | Undecided | None], ...] = (
    find_throttled,
    find_processors,
    find_few_threads,
    find_device,
    find_small_reads,
    find_metadata,
    find_input,
    find_no_prefetch,
    find_input_bound,
)


def _withhold_if_disturbed(e: Evidence, found: Finding) -> Finding | Undecided:
    """Return the finding, or an `Undecided` if other programs held processors that the run or its test needs.

    The findings of `find_device` and `find_input` hold whatever other programs do. The first then loses its test; the
    second has an interval that is wide enough for them.
    """
    gain = 1.0
    if found.test:
        predicted = found.test.prediction
        gain = e[predicted.figure] / predicted.value
        gain = gain if predicted.figure == "wall_s" else 1 / gain
    why = disturbance_by_others(e, found.rule, gain)
    if why is None or (found.rule in WAITING and not e.trains):
        return found
    if found.rule == "device":
        return replace(found, test=None, untested=why) if found.test else found
    return Undecided(found.rule, why, {"redo": True})


def disturbance_by_others(e: Evidence, rule: str, gain: float = 1.0) -> str | None:
    """Return why other programs would disturb a run that is `gain` times as fast; None if they do not.

    The rules for larger files are never disturbed: a run with larger files reads no more files per second.
    """
    if rule in ("small_reads", "metadata"):
        return None
    together = gain * e["cpu_s"] / e["elapsed_s"] + e.work.others
    if e.work.within_quota or e.work.others < _OTHERS or together < _BUSY * e.work.allowed:
        return None
    return f"others held {e.work.others:.2g} of {e.work.allowed:g} processors: measure again when they do not"
