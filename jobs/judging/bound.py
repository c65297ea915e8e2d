"""Find the bottleneck of a cell or a program: one word, and the two or three numbers that decide the word.

Each rule returns the share of the time in which one resource was in use. The resource with the largest share is the
bottleneck if its share is large enough, and is larger than the second largest share by at least `APART`. Otherwise the
word is `UNDECIDED`, because a wrong word would be worse than no answer.

If one thread uses the resources in turn, half of the time is enough. If several threads use the resources at the same
time, the bottleneck is in use nearly all the time (utilization law: P. J. Denning and J. P. Buzen, ACM Computing
Surveys 10, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jobs.judging.peaks import Peaks
from jobs.judging.work_done import StepTimes, TimeUse, time_use
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
_OTHERS = 0.5  # processors used by other programs; equal to the limit of the check `quiet`
_THROTTLED = 0.01  # share of the time; equal to the limit of the check `unthrottled`
# Shares of a step for waiting. Prefetched input is too slow above the first and fast enough below the second share.
_WAITS, _KEEPS_UP = (0.1, 0.05)
_INPUT = "input"  # marks a training that the input limits, before the bottleneck of the input is searched


class DecidingNumber(NamedTuple):
    """A number that decides a bottleneck: a share (without a unit), or an amount with or without a total."""

    what: str
    value: float
    of: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        if not self.unit:
            return f"{self.what} {self.value:.0%}"
        amount = _short(self.value) if self.of is None else f"{_short(self.value)} of {_short(self.of)}"
        return f"{amount} {self.unit} {self.what}".rstrip()


def _short(value: float) -> str:
    """Return a number as text: a number below 10 with two digits, a larger number rounded to an integer."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


class Bottleneck(NamedTuple):
    """The bottleneck as a word, with the share of the time and the numbers that decide the word.

    If the word is `UNDECIDED`, `why` has the reason.
    """

    word: Word
    share: float
    numbers: tuple[DecidingNumber, ...]
    why: str = ""

    @property
    def words(self) -> str:
        """Return a short text with the numbers and, if the bottleneck is undecided, the reason."""
        return "; ".join(filter(None, [", ".join(map(str, self.numbers)), self.why]))

    def __str__(self) -> str:
        return f"{self.word}: {self.words}" if self.words else self.word

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return {**self._asdict(), "numbers": [number._asdict() for number in self.numbers]}


class RuleResult(NamedTuple):
    """The result of a rule: the word for the resource, the share of the time, and the numbers.

    If the rule is uncertain about the word, `why` has the reason.
    """

    word: str
    share: float
    numbers: tuple[DecidingNumber, ...]
    why: str = ""


Rule = Callable[[TimeUse], RuleResult | None]


def bound_of_work(work: TimeUse) -> Bottleneck:
    """Return the bottleneck of a run or a program."""
    if work.elapsed_s <= 0 or work.start_s > _START_MAX * work.elapsed_s:
        start = DecidingNumber("start", min(1.0, work.start_s / work.elapsed_s) if work.elapsed_s > 0 else 1.0)
        return Bottleneck(UNDECIDED, 0.0, (start,), "too short a run")
    return _bound_of_steps(work, work.steps) if work.steps else _bound_of_input(work)


def bound_of_cell(record: Record, peaks: Peaks | None = None) -> Bottleneck | None:
    """Return the bottleneck of the cell of a judged record, or None for a baseline or a cell without metrics.

    Raises one of `jobs.model.record.ODD_FIGURES` if required fields are missing in the runs of the record.
    """
    if record["cell"]["kind"] == "storage" or (work := time_use(record, peaks)) is None:
        return None
    if any("ranks" in run for run in record["runs"]):
        return Bottleneck(UNDECIDED, 0.0, (), "several nodes: each rank may have another bottleneck")
    return bound_of_work(work)


def advice_for(bound: Bottleneck, work: TimeUse) -> str:
    """Return the advice against a bottleneck as text, or "" if the bottleneck is undecided."""
    if bound.word == "steps" and work.steps and not work.steps.ahead:
        return AHEAD if work.steps.waiting_s >= _WAITS * work.elapsed_s else HELPS[bound.word]
    idle = work.threads is not None and work.threads <= work.free_cores - LEAST_ALONE
    return MORE_THREADS if idle and bound.word in ("processors", "decoding") else HELPS.get(bound.word, "")


def _throttled(work: TimeUse) -> RuleResult | None:
    """Return the used share of the CPU quota or of a limit on reads and writes, or None if the run reached none."""
    limits = []
    if work.quota and work.throttled_s > _THROTTLED * work.elapsed_s:
        used_cores = work.cpu_s / work.elapsed_s
        stopped_number = DecidingNumber("stopped by the quota", work.throttled_s, work.elapsed_s, "s")
        numbers = (DecidingNumber("", used_cores, work.quota, "processors of a quota"), stopped_number)
        share = min(1.0, used_cores / work.quota)
        why = "" if share >= LEAST_TOGETHER else "a CPU quota stopped threads, although the quota was not used up"
        limits.append(RuleResult("throttled", share, numbers, why))
    if work.io_limit:
        limits.append(
            RuleResult("throttled", min(1.0, work.io_limit), (DecidingNumber("of a limit on I/O", work.io_limit),))
        )
    return max(limits, key=lambda limit: limit.share, default=None)


def _processors(work: TimeUse) -> RuleResult:
    """Return the busy share of the processors that the threads of the run can use."""
    cores = work.cores if work.within_quota else work.free_cores
    usable = min(cores, float(work.threads)) if work.threads else cores  # each parallel call of `map` uses one thread
    used_cores = work.making_cpu_s / work.making_s if work.making_s else 0.0
    word: Word = "decoding" if work.decodes and not _trains(work) else "processors"
    label = "left by other programs" if cores <= work.cores - APART else "busy"
    label = f"that {work.threads} thread{'s' if work.threads != 1 else ''} can use" if usable < cores else label
    unit = "processor" if _short(usable) == "1" else "processors"
    numbers = (DecidingNumber(label, min(used_cores, usable), usable, unit), *_storage_number(work))
    share = min(1.0, used_cores / usable)
    if _trains(work) and work.making_cpu_s < SATURATED * work.cores * work.elapsed_s:
        return RuleResult(word, share, numbers, "processors also train, and the input's part is unknown")
    is_crowded = work.others >= _OTHERS and usable + work.others > work.cores - APART
    if is_crowded and (work.ready_share is None or work.ready_share < SATURATED):
        return RuleResult(word, share, numbers, "the threads of the run may have waited for processors")
    return RuleResult(word, share, numbers)


def _storage(work: TimeUse) -> RuleResult | None:
    """Return the share of the time in which the storage had requests, or None if the share is unknown.

    The known speed of the storage decides whether the word is "device" (its bandwidth) or "latency".
    """
    share, rate = _storage_use(work), _rate_in_use(work)
    if share is None:
        return None
    maximum, rate_of_more = work.given.at_most, work.given.to_more
    number = _storage_number(work)
    if not work.storage_exact and not _uses_samples(work):
        return RuleResult(
            UNDECIDED, share, number, "the kernel counts the device's busy time in ticks, which are too coarse here"
        )
    if maximum and rate >= SATURATED * maximum:
        return RuleResult("device", share, (DecidingNumber("", min(rate, maximum), maximum, "MB/s"), *number))
    if rate_of_more and rate <= HALF_FULL * rate_of_more:
        numbers = (*number, DecidingNumber(f"of {work.given.readers} readers", rate, rate_of_more, "MB/s"))
        cpu_share = _processors(work).share  # more reads at once also need more CPU time
        is_crowded = work.threads != 1 and cpu_share > LEAST_TOGETHER - APART
        return RuleResult("latency", share, numbers, f"processors are also busy, {cpu_share:.0%}" if is_crowded else "")
    known_rate = [DecidingNumber("", min(rate, maximum), maximum, "MB/s")] if maximum else []
    if rate_of_more:
        known_rate = [DecidingNumber(f"of {work.given.readers} readers", min(rate, rate_of_more), rate_of_more, "MB/s")]
    reason = "" if maximum or rate_of_more else ", because the rate for more readers is unknown"
    return RuleResult(UNDECIDED, share, (*number, *known_rate), f"bandwidth or latency{reason}")


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


def _storage_number(work: TimeUse) -> tuple[DecidingNumber, ...]:
    share = _storage_use(work)
    if share is None:
        return ()
    uses_samples = work.storage_busy_s is None or _uses_samples(work)
    return (DecidingNumber("threads wait for storage" if uses_samples else "storage busy", share),)


def _rest(work: TimeUse) -> RuleResult | None:
    """Return the share of a single thread's time that is explained neither by processors nor by the storage."""
    if work.threads != 1:
        return None
    rest = max(0.0, 1.0 - _processors(work).share - (_storage_use(work) or 0.0))
    return RuleResult(
        "rest", rest, (DecidingNumber("neither processors nor storage", rest),), "the cause of this part is unknown"
    )


RULES: Sequence[Rule] = (_throttled, _processors, _storage, _rest)
"""The rules for a pipeline or a program."""
_EXPLAINS = {"throttled": ("device", "latency", UNDECIDED)}
"""For each word, the words that may be only a consequence. For example, a limit on reads makes a storage look busy."""


def _shares(work: TimeUse, rules: Sequence[Rule]) -> list[RuleResult]:
    shares = [share for rule in rules if (share := rule(work)) is not None]
    saturated = {share.word for share in shares if share.share >= SATURATED}
    explained = {word for cause in saturated for word in _EXPLAINS.get(cause, ())}
    return [share for share in shares if share.word not in explained]


def _largest(shares: Sequence[RuleResult], min_share: float) -> tuple[RuleResult, str]:
    """Return the result with the largest share, and the reason why its word is uncertain ("" for a certain word).

    The word is uncertain if the share is too small, or if the second largest share is nearly as large.
    """
    first, *others = sorted(shares, key=lambda share: -share.share)
    if first.share < min_share:
        return first, f"nothing took {min_share:.0%} of the time"
    if close := [share for share in others if first.share - share.share < APART]:
        numbers = ", ".join(str(number) for number in close[0].numbers[:1] if number not in first.numbers)
        return first, f"too near to {numbers or close[0].word}"
    return first, first.why


def _make_bound(share: RuleResult, why: str) -> Bottleneck:
    word: Any = UNDECIDED if why else share.word
    return Bottleneck(word, share.share, share.numbers, why)


def _trains(work: TimeUse) -> bool:
    return work.steps is not None and work.steps.on_processors


def _bound_of_input(work: TimeUse) -> Bottleneck:
    first, why = _largest(_shares(work, RULES), LEAST_ALONE if work.threads == 1 else LEAST_TOGETHER)
    is_shared = why and work.others >= _OTHERS
    suffix = f"; other programs used {work.others:.2g} of {work.cores:g} processors" if is_shared else ""
    return _make_bound(first, why + suffix)


def bottleneck_of_step_times(steps: StepTimes, elapsed_s: float, spent: Mapping[str, float]) -> Bottleneck:
    """Return the bottleneck of steps whose waiting times are split by cause, without facts about CPUs and devices.

    `spent` has the seconds in which steps waited for ``read`` and for ``decode``; the two times do not overlap. The
    remaining part of `steps.waiting_s` is unexplained. If reading takes the time, the bottleneck is the storage, but
    bandwidth and latency cannot be distinguished.
    """
    waiting = steps.waiting_s or 1.0
    read_share, decode_share = (spent.get(name, 0.0) / waiting for name in ("read", "decode"))
    parts = [
        RuleResult(
            UNDECIDED,
            read_share,
            (DecidingNumber("of it reading", read_share),),
            "the storage limits, by bandwidth or by latency",
        ),
        RuleResult("decoding", decode_share, (DecidingNumber("of it decoding", decode_share),)),
        RuleResult("rest", max(0.0, 1.0 - read_share - decode_share), (), "the cause of most input waiting is unknown"),
    ]
    if elapsed_s <= 0:
        return Bottleneck(UNDECIDED, 0.0, (), "no time")
    return _bound_of_steps(TimeUse(elapsed_s, steps=steps), steps, lambda: _make_bound(*_largest(parts, LEAST_ALONE)))


def _bound_of_steps(work: TimeUse, steps: StepTimes, of_input: Callable[[], Bottleneck] | None = None) -> Bottleneck:
    """Return the bottleneck of a training: the steps, or the bottleneck of the input.

    `of_input` returns the bottleneck of the input; by default, the `RULES` find the bottleneck. If steps wait although
    batches are prefetched, making the batches takes longer than the steps. Without prefetch, the longer part of the
    time decides.
    """
    seconds = (steps.waiting_s, steps.compute_s, steps.saving_s)
    waiting, computing, saving = steps.shares or (each / work.elapsed_s for each in seconds)
    numbers = (DecidingNumber("steps", computing), DecidingNumber("waiting for input", waiting))
    saving_share = RuleResult(
        "checkpoints", saving, (DecidingNumber("checkpoints", saving), *numbers), "checkpoints take most of the time"
    )
    times = [RuleResult("steps", computing, numbers), saving_share]
    late = steps.late if steps.ahead else None
    if late is None:
        times.append(RuleResult(_INPUT, waiting, numbers))
    elif _KEEPS_UP < late < _WAITS:
        return Bottleneck(UNDECIDED, computing, numbers, f"steps wait {late:.0%} of the time despite prefetch")
    elif late <= _KEEPS_UP and not steps.on_processors and not of_input:
        times += _shares(work, (_processors, _storage))
    first, why = _largest(times, LEAST_ALONE)
    if (late or 0.0) < _WAITS and first.word != _INPUT:
        return _make_bound(first, why)
    if why and late is None:
        return _make_bound(first, why)
    input_bound = of_input() if of_input else _bound_of_input(work)
    return input_bound._replace(share=waiting, numbers=(numbers[1], *input_bound.numbers)[:3])
