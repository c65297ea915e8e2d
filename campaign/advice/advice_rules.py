"""Apply rules that find what may bound a cell; each rule is a pure function of the evidence on the cell.

A rule returns a `Finding` if it holds, an `Undecided` if a measurement is missing, None if it does not hold.
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
    PredictionTest,
    Undecided,
    predict_larger_files,
    predict_speedup,
    widen_by_noise,
)
from campaign.console import count_noun
from jobs.events.tensorflow_trace import INPUT, REMEDIES

IDLE = 0.05  # share of the run time; a run that waits less is not worth a change
WAITING = ("input", "compute")  # the names of the findings of `find_input`
_SLOWED = 0.5  # largest share of the remaining time for which the input pipeline may have occupied the processors


def find_input(e: Evidence) -> Finding | None:
    """Find whether a training computes or waits for its input; predict its time without input."""
    if e.kind != "training" or e.settings.get("benchmark.control", "none") != "none":
        return None
    bound = f"the training {'waits' if e.waiting_share >= IDLE else 'hardly waits'} for input"
    share = e.waiting_share if e.waiting_share >= IDLE else e["compute_s"] / e["elapsed_s"]
    emulated = ", of an emulated accelerator" if e.accelerator == "emulated" else ""
    remaining_s = max(1e-9, e["wall_s"] - e["load_s"] - e["startup_s"])  # a run without input also makes no iterator
    # The input pipeline, or other programs, may have slowed the steps down, because they used the same processors.
    slowed = _SLOWED if e.trains else min(1.0, max(0.0, e.work.others) / e.work.allowed)
    return Finding(
        "input" if e.waiting_share >= IDLE else "compute",
        f"{bound}: {e['load_s']:.2f} of {e['wall_s']:.2f} s are waiting, {e['compute_s']:.2f} s compute{emulated}",
        share,
        e.facts("wall_s", "load_s", "compute_s"),
        PredictionTest(
            {"benchmark.control": "no_io"},
            widen_by_noise(e, "wall_s", "s", ((1 - slowed) * remaining_s, remaining_s, remaining_s)),
        ),
    )


def find_no_prefetch(e: Evidence) -> Finding | None:
    """Find a training without prefetch that could make its next batch during a step."""
    if e.kind != "training" or e.settings["prefetch"] or e.waiting_share < IDLE or e.steps.number < 2:  # noqa: PLR2004
        return None
    if e.settings.get("benchmark.control", "none") != "none":
        return None
    waited_s, computed_s = e.steps.each_s
    batch_times_s = (waited_s, findings.seconds_per_batch(e))
    walls_s = [findings.training_wall_s(e, batch_s, threads=e.threads, prefetch=1) for batch_s in batch_times_s]
    least_s = e["cpu_s"] / e.work.free_cores if e.trains else 0.0
    shortest_s, _, longest_s = sorted([e["wall_s"] - e["load_s"] + e.steps.first_s, *walls_s])
    low, high, value = (max(least_s, seconds) for seconds in (shortest_s, longest_s, walls_s[1]))
    hidden = min(waited_s, computed_s)
    return Finding(
        "no_prefetch",
        f"no batch is made ahead: up to {hidden:.3f} of the {waited_s:.3f} s for a batch can pass during a step of "
        f"{computed_s:.3f} s",
        hidden * (e.steps.number - 1) / e["wall_s"],
        [Fact("wait for a batch", waited_s, "s", "record"), Fact("step", computed_s, "s", "record"),
         Fact("steps", e.steps.number, "", "record"), *e.facts("wall_s")],
        PredictionTest({"prefetch": 1}, widen_by_noise(e, "wall_s", "s", (low, value, max(value, high)))),
    )  # fmt: skip


def find_input_bound(e: Evidence) -> Finding | Undecided | None:
    """Find the part of the input pipeline for which a training waits, and the remedies, by TensorFlow's trace."""
    traced = e.tensorflow
    if e.kind != "training" or not traced or traced["waited_s"] < IDLE * traced["steps_s"]:
        is_undecided = e.kind == "training" and not traced and e.waiting_share >= IDLE
        undecided = Undecided("input_bound", "what the steps wait for is not known", {"profile.tensorflow": "all"})
        return undecided if is_undecided else None
    waited_s, saved_s = traced["waited_s"], {name: traced[f"remedies_s.{name}"] for name in REMEDIES}
    best = sorted((name for name in saved_s if saved_s[name] > IDLE * waited_s), key=lambda name: -saved_s[name])
    remedies = "; ".join(f"{REMEDIES[name]}: at most {saved_s[name]:.3g} s" for name in best)
    test, untested = (
        None,
        "reading takes little of this time; the rules input, no_prefetch and processors test the other parts",
    )
    if e.cold and "read" in best:
        # Without reads, decoding still takes time: at least as long as now, at most the time of all processor work on
        # the processors that other programs leave free, without any computing at the same time.
        remaining_s = traced["exposed_s.decode"] + saved_s["buffering"] + saved_s["input wait"]
        walls = [
            e["wall_s"] - e["load_s"] * saved / waited_s
            for saved in (saved_s["read"], max(0.0, waited_s - remaining_s))
        ]
        low, high = min(walls), max(*walls, e["wall_s"] - e["load_s"] + e["cpu_s"] / e.work.free_cores)
        test, untested = (
            PredictionTest({"cache": "warm"}, widen_by_noise(e, "wall_s", "s", (low, (low + high) / 2, high))),
            "",
        )
    return Finding(
        "input_bound",
        f"by TensorFlow's trace the steps wait for input in {waited_s:.3g} of {traced['steps_s']:.3g} s;"
        f" remedies: {remedies}",
        waited_s / traced["steps_s"],
        [Fact(f"exposed {name}", traced[f"exposed_s.{name}"], "s", "tensorflow") for name in INPUT],
        test,
        untested,
    )


BASELINE = {"benchmark.name": "baseline", "benchmark.access": "random_read"}
_NO_FASTER = "no faster storage has been measured: measure this baseline on another storage, or see `stage plan`"
_BUSY = 0.85  # share of the processors from which they count as busy: few threads cannot keep all of them busy
_AT_BASELINE = 0.85  # share of the storage's own MB/s from which the storage counts as fully used
_SMALL_READS = 0.5  # least loss of bandwidth, as a share of the MB/s of one large file
_METADATA = 0.3  # least share of opening and closing in the time of all calls
_OTHERS = 0.5  # processors that other programs may use without disturbing a run, as in the check `quiet`
_WORTH = 1.1  # least speedup that is worth a change
_THROTTLED = 0.01  # least share of the run time in which a quota stopped the run, as in the check `unthrottled`


def apply_rules(e: Evidence) -> tuple[list[Finding], list[Undecided]]:
    """Return the findings on a cell, the largest share of its time first, and the rules that could not be decided."""
    answers = [
        _withhold_if_disturbed(e, answer) if isinstance(answer := rule(e), Finding) else answer for rule in RULES
    ]
    found = [answer for answer in answers if isinstance(answer, Finding)]
    # A quota comes first, because all other findings hold only under this quota.
    ordered = sorted(found, key=lambda finding: (finding.rule != "throttled", -finding.share))
    return ordered, [answer for answer in answers if isinstance(answer, Undecided)]


def find_throttled(e: Evidence) -> Finding | None:
    """Find a CPU quota that slowed the run down."""
    if e.work.quota is None or e["throttled_s"] <= _THROTTLED * e["elapsed_s"]:
        return None
    speedup_at_most = min(e.work.cores, e.threads + 1) / e.work.quota
    return Finding(
        "throttled",
        f"a CPU quota slows the run down: it may use {e.work.quota:.2g} of {e.work.cores:g} processors",
        min(1.0, e["throttled_s"] / e["elapsed_s"]),
        [Fact("quota_cores", e.work.quota, "cores", "record"), *e.facts("throttled_s", "elapsed_s", "cpu_s")],
        predict_speedup(e, {}, (1.0, math.sqrt(speedup_at_most), speedup_at_most)),
        "no setting changes the quota: run the command in a shell without a quota",
    )


def find_processors(e: Evidence) -> Finding | Undecided | None:
    """Find a pipeline whose decoding keeps the processors busy, so that more threads do not help."""
    if e.waiting_share < IDLE or e.trains:
        return None
    busy = e.work.busy
    if disturbance := disturbance_by_others(e, "processors"):
        return Undecided("processors", disturbance, {"redo": True})
    if busy < _BUSY:
        return None
    work = "decoding" if e.settings.get("benchmark.preprocess", True) else "passing files on"
    return Finding(
        "processors",
        f"{work} uses {busy:.0%} of the processors that are free for it ({e.work.free_cores:.2g} of"
        f" {e.work.allowed:g}): more threads do not help",
        busy * e.waiting_share,
        [
            *e.facts("cpu_s", "elapsed_s", "load_s", "other_cpu"),
            Fact("cores", e.work.allowed, "cores", "record"),
            *e.trace_facts(),
        ],
        predict_speedup(e, {"threads": 2 * e.threads}, (1.0, math.sqrt(1 / busy), 1 / busy)),
    )


def find_few_threads(e: Evidence) -> Finding | Undecided | None:
    """Find a pipeline that would be faster with more threads, because more calls would be under way at once."""
    if e.work.busy >= _BUSY or e.waiting_share < IDLE or e.trains or e.bound.word == "device":
        return None
    more_threads = 8 if e.threads < 8 else 2 * e.threads  # noqa: PLR2004 - the paper's largest
    known_counts = [count for count in e.readers if count > e.threads] if e.threads in e.readers else []
    has_little_waiting = _is_busy(e)  # the threads hardly wait for the storage, but are too few for the processors
    if e.cold and not known_counts and not has_little_waiting:
        missing = f"the MB/s of the storage for {count_noun(e.threads, 'reader')} and for {more_threads} are not known"
        return Undecided("few_threads", missing, {**BASELINE, "threads": (e.threads, more_threads)})
    best = max(known_counts or [2 * e.threads], key=lambda count: (findings.speedup_with_threads(e, count)[1], -count))
    gains = findings.speedup_with_threads(e, best)
    if has_little_waiting:  # two logical processors may share a core, so a second thread may gain less
        least_gain = math.sqrt(gains[2])
        gains = (least_gain, math.sqrt(least_gain * gains[2]), gains[2])
    if gains[1] < _WORTH:
        return None
    baselines = [Fact(count_noun(count, "reader"), e.readers[count], "MB/s", "baseline") for count in (e.threads, best)
             if e.cold and known_counts]  # fmt: skip
    idle_processors = (
        f"{count_noun(e.threads, 'thread')} of {e.work.free_cores:.2g} processors" if has_little_waiting else ""
    )
    return Finding(
        "few_threads",
        f"{idle_processors or count_noun(e.threads, 'file') + ' at once'}: neither the storage nor the processors are"
        " busy",
        e.waiting_share * (1 - e.work.busy),
        [*e.facts("load_s", "elapsed_s", "cpu_s", "read_mb_per_s"), *baselines, *e.trace_facts()],
        predict_speedup(e, {"threads": best}, gains),
    )


def find_device(e: Evidence) -> Finding | None:
    """Find a storage that has reached its largest bandwidth, so that more readers would not get more MB/s."""
    own_rate = e.readers.get(e.threads)
    limit = e.work.given.at_most
    if not own_rate and limit and e.bound.word == "device":
        source = "emulation limit" if e.emulated else "baseline"
        rates = [*e.facts("read_mb_per_s"), Fact("at most", limit, "MB/s", source)]
        sentence = f"the storage is at its limit in {e.bound.share:.0%} of the time"
        return Finding("device", sentence, e.bound.share, [*rates, *e.trace_facts()], None, _NO_FASTER)
    if not e.cold or not own_rate or e.waiting_share < IDLE or e["read_mb_per_s"] < _AT_BASELINE * own_rate:
        return None
    if max(e.readers.values()) >= _WORTH * own_rate:  # the rule `find_few_threads` finds this case
        return None
    readers = count_noun(e.threads, "reader")
    faster = max(e.other_storages.items(), key=lambda item: item[1][1], default=None)
    test, untested = None, _NO_FASTER
    if faster and faster[1][1] >= _WORTH * own_rate:
        name, (storage, rate) = faster
        low, high = findings.speedup_of_storage(e, e.threads, rate / own_rate)
        test, untested = (
            predict_speedup(e, {f"storage.{key}": storage[key] for key in storage}, (low, math.sqrt(low * high), high)),
            "",
        )
    return Finding(
        "device",
        f"the run gets {e['read_mb_per_s'] / own_rate:.0%} of the MB/s of a baseline with {readers}",
        min(1.0, e["read_mb_per_s"] / own_rate) * e.waiting_share,
        [*e.facts("read_mb_per_s"), Fact(readers, own_rate, "MB/s", "baseline"),
         *([Fact(f"{name}, {readers}", rate, "MB/s", "baseline")] if test else []), *e.trace_facts()],
        test,
        untested,
    )  # fmt: skip


def find_small_reads(e: Evidence) -> Finding | Undecided | None:
    """Find files so small that the storage needs more time to find each file than to read its bytes."""
    if not e.cold or _is_busy(e) or e.waiting_share < IDLE:
        return None
    if e.sequential is None:
        missing = "the MB/s of one large file on the storage are not known"
        return Undecided("small_reads", missing, {"benchmark.name": "baseline", "benchmark.access": "read"})
    share = 1 - e["read_mb_per_s"] / e.sequential
    if share < _SMALL_READS:
        return None
    large_file = Fact("one large file", e.sequential, "MB/s", "emulation limit" if e.emulated else "baseline")
    size = e["bytes_read"] / e["images"]
    moving_s, file_s = size / 1e6 / e.sequential, size / 1e6 / e["read_mb_per_s"]
    gain = SIZE_FACTOR * file_s / (file_s + (SIZE_FACTOR - 1) * moving_s)
    return Finding(
        "small_reads",
        f"reading a file of {size / 1e3:.3g} kB takes {file_s * 1e3:.3g} ms; at the MB/s of a large file it would take"
        f" {moving_s * 1e3:.2g} ms",
        share * e.waiting_share * (1 - e.work.busy),
        [*e.facts("read_mb_per_s"), large_file, *e.trace_facts()],
        *predict_larger_files(e, (math.sqrt(gain), gain, gain * 1.1)),
    )


def _is_busy(e: Evidence) -> bool:
    """Return whether the processors limit the cell, which then hardly waits for the storage."""
    return e.work.busy >= _BUSY or e.bound.word in ("decoding", "processors")


def find_metadata(e: Evidence) -> Finding | Undecided | None:
    """Find a run that spends much of its time on opening and closing files; skip objects, which are never opened."""
    if _is_busy(e) or e.bound.word == "device" or e.waiting_share < IDLE or e.settings.get("storage.kind") == "s3":
        return None
    if not e.profile:
        return Undecided("metadata", "no run has a profile of its POSIX calls", {"profile.posix": "counters"})
    calls_s = e.profile["meta_s"] + e.profile["read_s"]
    share = e.profile["meta_s"] / calls_s if calls_s else 0.0
    if share < _METADATA:
        return None
    names = (("opens", ""), ("stats", ""), ("meta_s", "s"), ("read_s", "s"))
    # Larger files need fewer of these calls. The gain is least if all other work takes longer in proportion to the
    # bytes, and largest if the other work takes no longer.
    rest_s = max(0.0, e["elapsed_s"] - e.profile["meta_s"] / e.threads)
    least_gain = SIZE_FACTOR * e["elapsed_s"] / (e["elapsed_s"] + (SIZE_FACTOR - 1) * rest_s)
    return Finding(
        "metadata",
        f"{share:.0%} of the time in calls is not spent on reading, but on open, stat and close calls",
        share * min(1.0, calls_s / (e.threads * e["load_s"])) * e.waiting_share,
        [Fact(name, e.profile[name], unit, "profile") for name, unit in names],
        *predict_larger_files(e, (least_gain, math.sqrt(least_gain * SIZE_FACTOR), SIZE_FACTOR)),
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


def _withhold_if_disturbed(e: Evidence, finding: Finding) -> Finding | Undecided:
    """Return the finding, or an `Undecided` if other programs used processors that the run or its test needs.

    Other programs do not change the findings of `find_device` and `find_input`. A disturbed finding of `find_device`
    only loses its test. The interval that `find_input` predicts already allows for other programs.
    """
    gain = 1.0
    if finding.test:
        predicted = finding.test.prediction
        gain = e[predicted.figure] / predicted.value
        gain = gain if predicted.figure == "wall_s" else 1 / gain
    disturbance = disturbance_by_others(e, finding.rule, gain)
    if disturbance is None or (finding.rule in WAITING and not e.trains):
        return finding
    if finding.rule == "device":
        return replace(finding, test=None, untested=disturbance) if finding.test else finding
    return Undecided(finding.rule, disturbance, {"redo": True})


def disturbance_by_others(e: Evidence, rule: str, gain: float = 1.0) -> str | None:
    """Return why other programs would disturb a run that is `gain` times as fast; None if they would not.

    The rules for larger files are never disturbed, because a run with larger files reads no more files per second.
    """
    if rule in ("small_reads", "metadata"):
        return None
    needed_cores = gain * e["cpu_s"] / e["elapsed_s"] + e.work.others
    if e.work.within_quota or e.work.others < _OTHERS or needed_cores < _BUSY * e.work.allowed:
        return None
    return f"other programs used {e.work.others:.2g} of {e.work.allowed:g} processors: measure again without them"
