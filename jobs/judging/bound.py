"""The limit of the speed of a cell or a program: one word, and the two or three numbers that decide it.

Each rule returns the share of the time in which its resource was in use. The resource with the largest share is the
limit if its share is large enough, and at least `APART` larger than the next one. Otherwise the word is `UNDECIDED`,
because a wrong word would be worse. If one thread uses the resources in turn, half of the time is enough. If several
threads use them at once, the bottleneck is in use nearly always (P. J. Denning and J. P. Buzen, ACM Computing Surveys
10, 1978: utilisation law).
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
    "processors": "more processors, or less work for each byte; a faster storage is not used",
    "decoding": "more processors, smaller or cheaper images (or images decoded once); a faster storage is not used",
    "device": "a faster storage, or fewer bytes",
    "latency": "more reads at once (threads), or fewer and larger files; more MB/s are there",
    "throttled": "a larger limit of the control group: storage and processors have more to give",
    "steps": "a faster accelerator, or less to compute",
}
"""The advice for each word."""
MORE_THREADS = "more threads: processors are idle meanwhile"
AHEAD = "batches made ahead (prefetch), so that waiting passes behind the steps; then a faster accelerator"

APART = 0.1  # smallest difference between the largest share and the next one
LEAST_ALONE = 0.5  # of the time of a single thread, which uses the resources in turn
LEAST_TOGETHER = 0.8  # of the time of a resource that several threads use
SATURATED = 0.9  # this share of a maximum, a quota or a limit counts as all of it
HALF_FULL = SATURATED - APART  # as a share of the rate of more readers
_START_MAX = 0.2  # of the time; a run with a longer start is too short
_OTHERS = 0.5  # processors, as in the check `quiet`
_THROTTLED = 0.01  # of the time, as in the check `unthrottled`
_WAITS, _KEEPS_UP = (
    0.1,
    0.05,
)  # shares of a step for waiting: input that is prefetched is too slow above the first, fast enough below the second
_INPUT = "input"  # the word if the input limits a training; then the limit of the input is found


class DecidingNumber(NamedTuple):
    """One of the deciding numbers: a share (without a unit), or an amount of a total."""

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
    """Return a number with two digits, or with all digits of its integer part."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


class Bound(NamedTuple):
    """The limit as a word, the share of the time of its resource, the deciding numbers, and why it is `UNDECIDED`."""

    word: Word
    share: float
    numbers: tuple[DecidingNumber, ...]
    why: str = ""

    @property
    def words(self) -> str:
        """Return the numbers, and the reason if the limit is undecided, as a short text."""
        return "; ".join(filter(None, [", ".join(map(str, self.numbers)), self.why]))

    def __str__(self) -> str:
        return f"{self.word}: {self.words}" if self.words else self.word

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return {**self._asdict(), "numbers": [number._asdict() for number in self.numbers]}


class RuleResult(NamedTuple):
    """The result of a rule: its word, the share of the time, the numbers, and why the word is uncertain."""

    word: str
    share: float
    numbers: tuple[DecidingNumber, ...]
    why: str = ""


Rule = Callable[[TimeUse], RuleResult | None]


def bound_of_work(work: TimeUse) -> Bound:
    """Return the limit of the speed of a run or a program."""
    if work.elapsed_s <= 0 or work.start_s > _START_MAX * work.elapsed_s:
        start = DecidingNumber("start", min(1.0, work.start_s / work.elapsed_s) if work.elapsed_s > 0 else 1.0)
        return Bound(UNDECIDED, 0.0, (start,), "too short a run")
    return _bound_of_steps(work, work.steps) if work.steps else _bound_of_input(work)


def bound_of_cell(record: Record, peaks: Peaks | None = None) -> Bound | None:
    """Return the limit of the speed of the cell of a judged record; None for a baseline or without metrics.

    Raises one of `jobs.model.record.ODD_FIGURES` if the record lacks fields that its runs must have.
    """
    if record["cell"]["kind"] == "storage" or (work := time_use(record, peaks)) is None:
        return None
    if any("ranks" in run for run in record["runs"]):
        return Bound(UNDECIDED, 0.0, (), "several nodes: each rank may be bound by something else")
    return bound_of_work(work)


def help_of(bound: Bound, work: TimeUse) -> str:
    """Return advice against the limit, as text; empty if the limit is undecided."""
    if bound.word == "steps" and work.steps and not work.steps.ahead:
        return AHEAD if work.steps.waiting_s >= _WAITS * work.elapsed_s else HELPS[bound.word]
    idle = work.threads is not None and work.threads <= work.free_cores - LEAST_ALONE
    return MORE_THREADS if idle and bound.word in ("processors", "decoding") else HELPS.get(bound.word, "")


def _throttled(work: TimeUse) -> RuleResult | None:
    """Return the used share of the CPU quota, or of a limit on reads and writes; None without either."""
    limits = []
    if work.quota and work.throttled_s > _THROTTLED * work.elapsed_s:
        used_cores = work.cpu_s / work.elapsed_s
        stopped_number = DecidingNumber("stopped by it", work.throttled_s, work.elapsed_s, "s")
        numbers = (DecidingNumber("", used_cores, work.quota, "processors of a quota"), stopped_number)
        share = min(1.0, used_cores / work.quota)
        why = "" if share >= LEAST_TOGETHER else "a quota stopped threads, and was not used up"
        limits.append(RuleResult("throttled", share, numbers, why))
    if work.io_limit:
        limits.append(
            RuleResult("throttled", min(1.0, work.io_limit), (DecidingNumber("of a limit on I/O", work.io_limit),))
        )
    return max(limits, key=lambda limit: limit.share, default=None)


def _processors(work: TimeUse) -> RuleResult:
    """Return the busy share of the processors that the threads of the run can use."""
    cores = work.cores if work.within_quota else work.free_cores
    usable = min(cores, float(work.threads)) if work.threads else cores  # each call of the map is a thread
    used_cores = work.making_cpu_s / work.making_s if work.making_s else 0.0
    word: Word = "decoding" if work.decodes and not _trains(work) else "processors"
    label = "left by others" if cores <= work.cores - APART else "busy"
    label = f"that {work.threads} thread{'s' if work.threads != 1 else ''} can use" if usable < cores else label
    unit = "processor" if _short(usable) == "1" else "processors"
    numbers = (DecidingNumber(label, min(used_cores, usable), usable, unit), *_storage_number(work))
    share = min(1.0, used_cores / usable)
    if _trains(work) and work.making_cpu_s < SATURATED * work.cores * work.elapsed_s:
        return RuleResult(word, share, numbers, "processors train, too: what the input takes of them is not known")
    is_crowded = work.others >= _OTHERS and usable + work.others > work.cores - APART
    if is_crowded and (work.ready_share is None or work.ready_share < SATURATED):
        return RuleResult(word, share, numbers, "its threads may have waited for processors")
    return RuleResult(word, share, numbers)


def _storage(work: TimeUse) -> RuleResult | None:
    """Return the share of the time in which the storage had requests; its word depends on the known speed."""
    share, rate = _storage_use(work), _rate_in_use(work)
    if share is None:
        return None
    maximum, rate_of_more = work.given.at_most, work.given.to_more
    number = _storage_number(work)
    if not work.storage_exact and not _uses_samples(work):
        return RuleResult(
            UNDECIDED, share, number, "how long the device was busy is counted in ticks, too coarse for it"
        )
    if maximum and rate >= SATURATED * maximum:
        return RuleResult("device", share, (DecidingNumber("", min(rate, maximum), maximum, "MB/s"), *number))
    if rate_of_more and rate <= HALF_FULL * rate_of_more:
        numbers = (*number, DecidingNumber(f"of {work.given.readers} readers", rate, rate_of_more, "MB/s"))
        cpu_share = _processors(work).share  # more reads at once need more processors, too
        is_crowded = work.threads != 1 and cpu_share > LEAST_TOGETHER - APART
        return RuleResult("latency", share, numbers, f"processors {cpu_share:.0%}, too" if is_crowded else "")
    known_rate = [DecidingNumber("", min(rate, maximum), maximum, "MB/s")] if maximum else []
    if rate_of_more:
        known_rate = [DecidingNumber(f"of {work.given.readers} readers", min(rate, rate_of_more), rate_of_more, "MB/s")]
    reason = "" if maximum or rate_of_more else ": what it gives to more readers is not known"
    return RuleResult(UNDECIDED, share, (*number, *known_rate), f"bytes or latency{reason}")


def _storage_use(work: TimeUse) -> float | None:
    """Return the share of the time in which the storage had requests, or the share of threads that waited for it."""
    if work.storage_busy_s is None or not work.making_s or _uses_samples(work):
        return work.storage_share
    return min(1.0, work.storage_busy_s / work.making_s)


def _uses_samples(work: TimeUse) -> bool:
    """Return whether samples of the threads replace the busy time of the device, because this is long and inexact."""
    is_coarse = not work.storage_exact and (work.storage_busy_s or 0.0) >= LEAST_ALONE * work.making_s
    return is_coarse and work.storage_share is not None


def _rate_in_use(work: TimeUse) -> float:
    """Return the MB/s during the time in which the storage had requests."""
    share = _storage_use(work) or 0.0
    return work.read_mb / (share * work.making_s) if share and work.making_s else 0.0


def _storage_number(work: TimeUse) -> tuple[DecidingNumber, ...]:
    share = _storage_use(work)
    if share is None:
        return ()
    uses_samples = work.storage_busy_s is None or _uses_samples(work)
    return (DecidingNumber("threads wait for storage" if uses_samples else "storage busy", share),)


def _rest(work: TimeUse) -> RuleResult | None:
    """Return the share of the time of a single thread that neither processors nor storage explain."""
    if work.threads != 1:
        return None
    rest = max(0.0, 1.0 - _processors(work).share - (_storage_use(work) or 0.0))
    return RuleResult(
        "rest", rest, (DecidingNumber("neither processors nor storage", rest),), "what took the rest is not known"
    )


RULES: Sequence[Rule] = (_throttled, _processors, _storage, _rest)
"""The rules for a pipeline or a program."""
_EXPLAINS = {"throttled": ("device", "latency", UNDECIDED)}
"""Words that only follow from another word: a limit on reads keeps a storage busy that could be faster."""


def _shares(work: TimeUse, rules: Sequence[Rule]) -> list[RuleResult]:
    shares = [share for rule in rules if (share := rule(work)) is not None]
    saturated = {share.word for share in shares if share.share >= SATURATED}
    explained = {word for cause in saturated for word in _EXPLAINS.get(cause, ())}
    return [share for share in shares if share.word not in explained]


def _largest(shares: Sequence[RuleResult], min_share: float) -> tuple[RuleResult, str]:
    """Return the largest share, and a reason if its word is uncertain: it is too small, or too near to the next one."""
    first, *others = sorted(shares, key=lambda share: -share.share)
    if first.share < min_share:
        return first, f"nothing took {min_share:.0%} of the time"
    if close := [share for share in others if first.share - share.share < APART]:
        numbers = ", ".join(str(number) for number in close[0].numbers[:1] if number not in first.numbers)
        return first, f"too near to {numbers or close[0].word}"
    return first, first.why


def _make_bound(share: RuleResult, why: str) -> Bound:
    word: Any = UNDECIDED if why else share.word
    return Bound(word, share.share, share.numbers, why)


def _trains(work: TimeUse) -> bool:
    return work.steps is not None and work.steps.on_processors


def _bound_of_input(work: TimeUse) -> Bound:
    first, why = _largest(_shares(work, RULES), LEAST_ALONE if work.threads == 1 else LEAST_TOGETHER)
    suffix = f"; others held {work.others:.2g} of {work.cores:g} processors" if why and work.others >= _OTHERS else ""
    return _make_bound(first, why + suffix)


def bound_of_spent(steps: StepTimes, elapsed_s: float, spent: Mapping[str, float]) -> Bound:
    """Return the limit of steps whose waiting time is known by cause, without processors and devices.

    `spent` has the seconds in which a step waited for ``read`` and for ``decode``, which do not overlap; the rest of
    `steps.waiting_s` is unexplained. Reading stands for the storage, limited by its bytes or its latency.
    """
    waiting = steps.waiting_s or 1.0
    read_share, decode_share = (spent.get(name, 0.0) / waiting for name in ("read", "decode"))
    parts = [
        RuleResult(
            UNDECIDED,
            read_share,
            (DecidingNumber("of it reading", read_share),),
            "the storage: by its bytes or its latency is not seen",
        ),
        RuleResult("decoding", decode_share, (DecidingNumber("of it decoding", decode_share),)),
        RuleResult(
            "rest", max(0.0, 1.0 - read_share - decode_share), (), "what the rest of the input waits for is not seen"
        ),
    ]
    if elapsed_s <= 0:
        return Bound(UNDECIDED, 0.0, (), "no time")
    return _bound_of_steps(TimeUse(elapsed_s, steps=steps), steps, lambda: _make_bound(*_largest(parts, LEAST_ALONE)))


def _bound_of_steps(work: TimeUse, steps: StepTimes, of_input: Callable[[], Bound] | None = None) -> Bound:
    """Return the limit of a training: its steps, or the limit of its input (`of_input`, by default by `RULES`).

    If batches are prefetched and steps still wait, making the batches takes longer than the steps. Without prefetch the
    larger part of the time decides.
    """
    waiting, computing, saving = (
        seconds / work.elapsed_s for seconds in (steps.waiting_s, steps.compute_s, steps.saving_s)
    )
    numbers = (DecidingNumber("steps", computing), DecidingNumber("waiting for input", waiting))
    saving_share = RuleResult(
        "checkpoints", saving, (DecidingNumber("checkpoints", saving), *numbers), "for checkpoints there is no word"
    )
    times = [RuleResult("steps", computing, numbers), saving_share]
    late = steps.late if steps.ahead else None
    if late is None:
        times.append(RuleResult(_INPUT, waiting, numbers))
    elif _KEEPS_UP < late < _WAITS:
        return Bound(UNDECIDED, computing, numbers, f"{late:.0%} of a step is waiting, though batches are made ahead")
    elif late <= _KEEPS_UP and not steps.on_processors and not of_input:
        times += _shares(work, (_processors, _storage))
    first, why = _largest(times, LEAST_ALONE)
    if (late or 0.0) < _WAITS and first.word != _INPUT:
        return _make_bound(first, why)
    if why and late is None:
        return _make_bound(first, why)
    input_bound = of_input() if of_input else _bound_of_input(work)
    return input_bound._replace(share=waiting, numbers=(numbers[1], *input_bound.numbers)[:3])
