"""Find the bottleneck of a cell or a program: one word, the numbers that decide it, and what would help.

Each rule returns the share of the time in which one resource was in use. The resource with the largest share is the
bottleneck if its share is large enough, and is larger than the second largest share by at least `APART`. Otherwise the
word is `UNDECIDED`, because a wrong word would be worse than no answer.

If one thread uses the resources in turn, half of the time is enough. If several threads use the resources at the same
time, the bottleneck is in use nearly all the time (utilization law: P. J. Denning and J. P. Buzen, ACM Computing
Surveys 10, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from jobs.judging.peaks import RANDOM, Peaks
from jobs.judging.work_done import MANY_READERS, StepTimes, TimeUse, time_use
from jobs.model.record import Record

Word = Literal["processors", "decoding", "device", "latency", "throttled", "steps", "undecided"]
UNDECIDED: Word = "undecided"

HELPS: Mapping[str, str] = {
    "processors": "more processors, or less work for each byte; a faster storage does not help",
    "decoding": "more processors, smaller or cheaper images (or images decoded once); a faster storage does not help",
    "device": "a faster storage, or fewer bytes",
    "latency": "more reads at once (threads), or fewer and larger files; the storage can deliver more MB/s",
    "throttled": "a larger limit of the control group, because storage and processors are not fully used",
    "steps": "a faster accelerator, or less to compute",
}
"""The advice to the user for each bottleneck."""
MORE_THREADS = "more threads, because some processors are idle"
AHEAD = "prefetched batches (prefetch), so that the input is prepared during the steps; then a faster accelerator"

APART = 0.1  # smallest difference between the largest and the second largest share
LEAST_ALONE = 0.5  # smallest share of the time for a bottleneck of one thread, which uses the resources in turn
LEAST_TOGETHER = 0.8  # smallest share of the time for a bottleneck of several threads
SATURATED = 0.9  # a resource counts as fully used from this share of a maximum, a quota or a limit
HALF_FULL = SATURATED - APART  # a storage has reserves below this share of the rate that more readers get
_START_MAX = 0.2  # largest share of the time for the start; a run with a longer start is too short
# Share of the time from which stops by a quota count. It is no limit of a check: with a looser limit a run is valid
# although a quota slows it down, and the quota is still what bounds it.
_THROTTLED = 0.01
# Shares of a step for waiting. Prefetched input is too slow above the first and fast enough below the second share.
_WAITS, _KEEPS_UP = (0.1, 0.05)
_INPUT = "input"  # marks a training that the input limits, before the bottleneck of the input is searched


_UNKNOWN_RATE = "bandwidth or latency, because the rate for more readers is unknown"


class Bound(NamedTuple):
    """The bottleneck as a word, with the share of the time, and the numbers that decide the word or why none holds.

    `helps` says what would help, and `try_` has the settings to change, by dotted keys. If the word is `UNDECIDED`,
    `try_` has the settings of the baselines that would decide it; a tuple of values makes a grid.
    """

    word: Word
    share: float
    because: str
    helps: str = ""
    try_: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.word}: {self.because}" if self.because else self.word

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        fields = self._asdict()
        return fields | {"try": {**fields.pop("try_")}}


class Part(NamedTuple):
    """The part of the time for which a resource was in use: its word, its share, and the numbers of the share.

    If the word is uncertain, `why` has the reason.
    """

    word: str
    share: float
    numbers: tuple[str, ...]
    why: str = ""


def _amount(value: float, of: float, what: str = "") -> str:
    return f"{_short(value)} of {_short(of)} {what}".rstrip()


def _short(value: float) -> str:
    """Return a number as text: a number below 10 with two digits, a larger number rounded to an integer."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


Rule = Callable[[TimeUse], Part | None]


def bound_of_work(work: TimeUse) -> Bound:
    """Return the bottleneck of a run or a program, and what would help."""
    if work.elapsed_s <= 0 or work.start_s > _START_MAX * work.elapsed_s:
        start = min(1.0, work.start_s / work.elapsed_s) if work.elapsed_s > 0 else 1.0
        return Bound(UNDECIDED, 0.0, f"start {start:.0%}; too short a run")
    part = _bound_of_steps(work, work.steps) if work.steps else _bound_of_input(work)
    word: Any = UNDECIDED if part.why else part.word
    because = "; ".join(filter(None, [", ".join(part.numbers), part.why]))
    return Bound(word, part.share, because, *_remedy(word, work))


def bound_of_cell(record: Record, peaks: Peaks | None = None) -> Bound | None:
    """Return the bottleneck of the cell of a judged record, or None for a baseline or a cell without metrics.

    Raises one of `jobs.model.record.ODD_FIGURES` if required fields are missing in the runs of the record.
    """
    if record["cell"]["kind"] == "storage" or (work := time_use(record, peaks)) is None:
        return None
    if any("ranks" in run for run in record["runs"]):
        return Bound(UNDECIDED, 0.0, "several nodes: each rank may have another bottleneck")
    bound = bound_of_work(work)
    if _UNKNOWN_RATE in bound.because and work.threads and _has_baselines(record):
        more = max(MANY_READERS, 2 * work.threads)
        baselines = {"benchmark.name": "baseline", "benchmark.access": RANDOM, "threads": (work.threads, more)}
        return bound._replace(try_=baselines)
    has_settings = bound.try_.keys() <= record["cell"]["settings"].keys()
    return bound if has_settings else bound._replace(try_={})


def _has_baselines(record: Record) -> bool:
    """Return whether baselines with random reads can tell how fast the storage of a cell is for more readers."""
    cell = record["cell"]
    return cell["data"] == "images" and cell["page_cache"] == "cold" and "staging" not in cell["settings"]


def _remedy(word: Word, work: TimeUse) -> tuple[str, Mapping[str, Any]]:
    """Return what helps against a bottleneck, and the settings to change; both are empty if it is undecided."""
    helps, threads = HELPS.get(word, ""), work.threads
    if word == "steps" and work.steps and not work.steps.ahead and work.steps.waiting_s >= _WAITS * work.elapsed_s:
        return AHEAD, {"prefetch": 1}
    if word in ("processors", "decoding") and threads is not None and threads <= work.free_cores - LEAST_ALONE:
        return MORE_THREADS, {"threads": 2 * threads}
    if word == "latency" and threads is not None:
        return helps, {"threads": work.given.readers}
    return helps, {}


def _throttled(work: TimeUse) -> Part | None:
    """Return the used share of the CPU quota or of a limit on reads and writes, or None if the run reached none."""
    limits = []
    if work.quota and work.throttled_s > _THROTTLED * work.elapsed_s:
        used_cores = work.cpu_s / work.elapsed_s
        stopped = _amount(work.throttled_s, work.elapsed_s, "s stopped by the quota")
        numbers = (_amount(used_cores, work.quota, "processors of a quota"), stopped)
        share = min(1.0, used_cores / work.quota)
        why = "" if share >= LEAST_TOGETHER else "a CPU quota stopped threads, although the quota was not used up"
        limits.append(Part("throttled", share, numbers, why))
    if work.io_limit:
        limits.append(Part("throttled", min(1.0, work.io_limit), (f"of a limit on I/O {work.io_limit:.0%}",)))
    return max(limits, key=lambda limit: limit.share, default=None)


def _processors(work: TimeUse) -> Part:
    """Return the busy share of the processors that the threads of the run can use."""
    cores = work.cores if work.within_quota else work.free_cores
    usable = min(cores, float(work.threads)) if work.threads else cores  # each parallel call of `map` uses one thread
    used_cores = work.making_cpu_s / work.making_s if work.making_s else 0.0
    word: Word = "decoding" if work.decodes and not _trains(work) else "processors"
    label = "left by other programs" if cores <= work.cores - APART else "busy"
    label = f"that {work.threads} thread{'s' if work.threads != 1 else ''} can use" if usable < cores else label
    unit = "processor" if _short(usable) == "1" else "processors"
    numbers = (_amount(min(used_cores, usable), usable, f"{unit} {label}"), *_storage_number(work))
    share = min(1.0, used_cores / usable)
    if _trains(work) and work.making_cpu_s < SATURATED * work.cores * work.elapsed_s:
        return Part(word, share, numbers, "processors also train, and the input's part is unknown")
    is_crowded = work.others >= work.others_max and usable + work.others > work.cores - APART
    if is_crowded and (work.ready_share is None or work.ready_share < SATURATED):
        return Part(word, share, numbers, "the threads of the run may have waited for processors")
    return Part(word, share, numbers)


def _storage(work: TimeUse) -> Part | None:
    """Return the share of the time in which the storage had requests, or None if the share is unknown.

    The known speed of the storage decides whether the word is "device" (its bandwidth) or "latency".
    """
    share, rate = _storage_use(work), _rate_in_use(work)
    if share is None:
        return None
    maximum, rate_of_more = work.given.at_most, work.given.to_more
    number = _storage_number(work)
    if not work.storage_exact and not _uses_samples(work):
        return Part(
            UNDECIDED, share, number, "the kernel counts the device's busy time in ticks, which are too coarse here"
        )
    of_maximum = (_amount(min(rate, maximum), maximum, "MB/s"),) if maximum else ()
    if maximum and rate >= SATURATED * maximum:
        return Part("device", share, (*of_maximum, *number))
    if not rate_of_more:
        return Part(UNDECIDED, share, (*number, *of_maximum), "bandwidth or latency" if maximum else _UNKNOWN_RATE)
    of_more = _amount(min(rate, rate_of_more), rate_of_more, f"MB/s of {work.given.readers} readers")
    if rate > HALF_FULL * rate_of_more:
        return Part(UNDECIDED, share, (*number, of_more), "bandwidth or latency")
    cpu_share = _processors(work).share  # more reads at once also need more CPU time
    is_crowded = work.threads != 1 and cpu_share > LEAST_TOGETHER - APART
    return Part(
        "latency", share, (*number, of_more), f"processors are also busy, {cpu_share:.0%}" if is_crowded else ""
    )


def _storage_use(work: TimeUse) -> float | None:
    """Return the share of the time in which the storage had requests.

    If the busy time of the device is unknown or too inexact, return the share of threads that waited for the storage.
    """
    if work.storage_busy_s is None or not work.making_s or _uses_samples(work):
        return work.storage_share
    return min(1.0, work.storage_busy_s / work.making_s)


def _uses_samples(work: TimeUse) -> bool:
    """Return whether samples of the threads replace a busy time of the device that is long but inexact."""
    is_coarse = not work.storage_exact and (work.storage_busy_s or 0.0) >= LEAST_ALONE * work.making_s
    return is_coarse and work.storage_share is not None


def _rate_in_use(work: TimeUse) -> float:
    """Return the read rate in MB/s during the time in which the storage had requests."""
    share = _storage_use(work) or 0.0
    return work.read_mb / (share * work.making_s) if share and work.making_s else 0.0


def _storage_number(work: TimeUse) -> tuple[str, ...]:
    share = _storage_use(work)
    if share is None:
        return ()
    uses_samples = work.storage_busy_s is None or _uses_samples(work)
    return (f"{'threads wait for storage' if uses_samples else 'storage busy'} {share:.0%}",)


def _rest(work: TimeUse) -> Part | None:
    """Return the share of a single thread's time that is explained neither by processors nor by the storage."""
    if work.threads != 1:
        return None
    rest = max(0.0, 1.0 - _processors(work).share - (_storage_use(work) or 0.0))
    return Part("rest", rest, (f"neither processors nor storage {rest:.0%}",), "the cause of this part is unknown")


RULES: Sequence[Rule] = (_throttled, _processors, _storage, _rest)
"""The rules for a pipeline or a program."""
_EXPLAINS = {"throttled": ("device", "latency", UNDECIDED)}
"""For each word, the words that may be only a consequence. For example, a limit on reads makes a storage look busy."""


def _shares(work: TimeUse, rules: Sequence[Rule]) -> list[Part]:
    shares = [share for rule in rules if (share := rule(work)) is not None]
    saturated = {share.word for share in shares if share.share >= SATURATED}
    explained = {word for cause in saturated for word in _EXPLAINS.get(cause, ())}
    return [share for share in shares if share.word not in explained]


def _largest(shares: Sequence[Part], min_share: float) -> Part:
    """Return the largest part, with the reason why its word is uncertain.

    The word is uncertain if the share is too small, or if the second largest share is nearly as large.
    """
    first, *others = sorted(shares, key=lambda share: -share.share)
    if first.share < min_share:
        return first._replace(why=f"nothing took {min_share:.0%} of the time")
    if close := [share for share in others if first.share - share.share < APART]:
        numbers = ", ".join(number for number in close[0].numbers[:1] if number not in first.numbers)
        return first._replace(why=f"too near to {numbers or close[0].word}")
    return first


def _trains(work: TimeUse) -> bool:
    return work.steps is not None and work.steps.on_processors


def _bound_of_input(work: TimeUse) -> Part:
    first = _largest(_shares(work, RULES), LEAST_ALONE if work.threads == 1 else LEAST_TOGETHER)
    if not first.why or work.others < work.others_max:
        return first
    others = f"other programs used {work.others:.2g} of {work.cores:g} processors"
    return first._replace(why=f"{first.why}; {others}")


def _bound_of_steps(work: TimeUse, steps: StepTimes) -> Part:
    """Return the bottleneck of a training: the steps, or the bottleneck of the input.

    If steps wait although batches are prefetched, making the batches takes longer than the steps. Without prefetch, the
    longer part of the time decides.
    """
    seconds = (steps.waiting_s, steps.compute_s, steps.saving_s)
    waiting, computing, saving = steps.shares or (each / work.elapsed_s for each in seconds)
    numbers = (f"steps {computing:.0%}", f"waiting for input {waiting:.0%}")
    saves = Part("checkpoints", saving, (f"checkpoints {saving:.0%}", *numbers), "checkpoints take most of the time")
    times = [Part("steps", computing, numbers), saves]
    late = steps.late if steps.ahead else None
    if late is None:
        times.append(Part(_INPUT, waiting, numbers))
    elif _KEEPS_UP < late < _WAITS:
        return Part(UNDECIDED, computing, numbers, f"steps wait {late:.0%} of the time despite prefetch")
    elif late <= _KEEPS_UP and not steps.on_processors:
        times += _shares(work, (_processors, _storage))
    first = _largest(times, LEAST_ALONE)
    if ((late or 0.0) < _WAITS and first.word != _INPUT) or (first.why and late is None):
        return first
    of_input = _bound_of_input(work)
    return of_input._replace(share=waiting, numbers=(numbers[1], *of_input.numbers)[:3])
