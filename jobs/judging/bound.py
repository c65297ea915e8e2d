"""The limit of the speed of a cell or a program: one word, and the two or three numbers that decide it.

Each rule gives the share of the time in which its resource was in use. The resource with the largest share is the
limit if its share is large enough and `APART` from the next; else the word is `UNDECIDED`, as a wrong word is worse.
If one thread uses the resources in turn, half of the time is enough; if several threads use them at once, the
bottleneck is in use nearly always (P. J. Denning and J. P. Buzen, ACM Computing Surveys 10, 1978: utilisation law).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jobs.judging.peaks import Peaks
from jobs.judging.work_done import Steps, Work, work_of
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

APART = 0.1  # between the largest share and the next one
LEAST_ALONE = 0.5  # of the time of a single thread, which does one thing after the other
LEAST_TOGETHER = 0.8  # of the time of a resource that several threads use
SATURATED = 0.9  # of a storage's maximum, a quota or a limit: this share counts as all of it
HALF_FULL = SATURATED - APART  # of the rate of more readers
_START_MAX = 0.2  # of the time: a run whose start takes longer says little
_OTHERS = 0.5  # processors, as the check `quiet`
_THROTTLED = 0.01  # of the time, as the check `unthrottled`
_WAITS, _KEEPS_UP = 0.1, 0.05  # shares of a step: batches made ahead are too slow, and fast enough
_INPUT = "input"  # the input limits a training: its own limit is looked at then


class Number(NamedTuple):
    """One of the deciding numbers: a share (without a unit), or an amount out of a total."""

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
    """Return a number with two digits, or with all digits of its whole part."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


class Bound(NamedTuple):
    """The limit as a word, the share of its resource in the time, the deciding numbers, and why it is `UNDECIDED`."""

    word: Word
    share: float
    numbers: tuple[Number, ...]
    why: str = ""

    @property
    def words(self) -> str:
        """Return the numbers, and the reason if nothing is decided, as a short text."""
        return "; ".join(filter(None, [", ".join(map(str, self.numbers)), self.why]))

    def __str__(self) -> str:
        return f"{self.word}: {self.words}" if self.words else self.word

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return {**self._asdict(), "numbers": [number._asdict() for number in self.numbers]}


class Share(NamedTuple):
    """The result of a rule: its word, the share of the time, the numbers, and why its word is too uncertain."""

    word: str
    share: float
    numbers: tuple[Number, ...]
    why: str = ""


Rule = Callable[[Work], Share | None]


def bound_of_work(work: Work) -> Bound:
    """Return the limit of the speed of a run or a program."""
    if work.elapsed_s <= 0 or work.start_s > _START_MAX * work.elapsed_s:
        start = Number("start", min(1.0, work.start_s / work.elapsed_s) if work.elapsed_s > 0 else 1.0)
        return Bound(UNDECIDED, 0.0, (start,), "too short a run")
    return _of_steps(work, work.steps) if work.steps else _of_input(work)


def bound_of(record: Record, peaks: Peaks | None = None) -> Bound | None:
    """Return the limit of the speed of the cell of a judged record; None for a baseline, or without metrics.

    Raises one of `jobs.model.record.ODD_FIGURES` if the record lacks fields that its runs must have.
    """
    if record["cell"]["kind"] == "storage" or (work := work_of(record, peaks)) is None:
        return None
    if any("ranks" in run for run in record["runs"]):
        return Bound(UNDECIDED, 0.0, (), "several nodes: each rank may be bound by something else")
    return bound_of_work(work)


def help_of(bound: Bound, work: Work) -> str:
    """Return advice against the limit, in words; empty if nothing is decided."""
    if bound.word == "steps" and work.steps and not work.steps.ahead:
        return AHEAD if work.steps.waiting_s >= _WAITS * work.elapsed_s else HELPS[bound.word]
    idle = work.threads is not None and work.threads <= work.free_cores - LEAST_ALONE
    return MORE_THREADS if idle and bound.word in ("processors", "decoding") else HELPS.get(bound.word, "")


def _throttled(work: Work) -> Share | None:
    """Return the used share of the quota of processors, or of a limit on reads and writes; None without either."""
    limits = []
    if work.quota and work.throttled_s > _THROTTLED * work.elapsed_s:
        used = work.cpu_s / work.elapsed_s
        stopped = Number("stopped by it", work.throttled_s, work.elapsed_s, "s")
        numbers = (Number("", used, work.quota, "processors of a quota"), stopped)
        share = min(1.0, used / work.quota)
        why = "" if share >= LEAST_TOGETHER else "a quota stopped threads, and was not used up"
        limits.append(Share("throttled", share, numbers, why))
    if work.io_limit:
        limits.append(Share("throttled", min(1.0, work.io_limit), (Number("of a limit on I/O", work.io_limit),)))
    return max(limits, key=lambda each: each.share, default=None)


def _processors(work: Work) -> Share:
    """Return the share of the processors usable by its threads that the run itself kept busy."""
    cores = work.cores if work.within_quota else work.free_cores
    usable = min(cores, float(work.threads)) if work.threads else cores  # the calls of the map are its threads
    used = work.making_cpu_s / work.making_s if work.making_s else 0.0
    word: Word = "decoding" if work.decodes and not _trains(work) else "processors"
    who = "left by others" if cores <= work.cores - APART else "busy"
    who = f"that {work.threads} thread{'s' if work.threads != 1 else ''} can use" if usable < cores else who
    unit = "processor" if _short(usable) == "1" else "processors"
    numbers = (Number(who, min(used, usable), usable, unit), *_storage_number(work))
    share = min(1.0, used / usable)
    if _trains(work) and work.making_cpu_s < SATURATED * work.cores * work.elapsed_s:
        return Share(word, share, numbers, "processors train, too: what the input takes of them is not known")
    crowded = work.others >= _OTHERS and usable + work.others > work.cores - APART
    if crowded and (work.ready_share is None or work.ready_share < SATURATED):
        return Share(word, share, numbers, "its threads may have waited for processors")
    return Share(word, share, numbers)


def _storage(work: Work) -> Share | None:
    """Return the share of the time in which the storage had requests; the word depends on its known speed."""
    share, rate = _storage_use(work), _rate_in_use(work)
    if share is None:
        return None
    most, more = work.given.at_most, work.given.to_more
    number = _storage_number(work)
    if not work.storage_exact and not _by_looks(work):
        return Share(UNDECIDED, share, number, "how long the device was busy is counted in ticks, too coarse for it")
    if most and rate >= SATURATED * most:
        return Share("device", share, (Number("", min(rate, most), most, "MB/s"), *number))
    if more and rate <= HALF_FULL * more:
        found = (*number, Number(f"of {work.given.readers} readers", rate, more, "MB/s"))
        used = _processors(work).share  # more reads at once need more of them, too
        crowded = work.threads != 1 and used > LEAST_TOGETHER - APART
        return Share("latency", share, found, f"processors {used:.0%}, too" if crowded else "")
    known = [Number("", min(rate, most), most, "MB/s")] if most else []
    known = [Number(f"of {work.given.readers} readers", min(rate, more), more, "MB/s")] if more else known
    why = "" if most or more else ": what it gives to more readers is not known"
    return Share(UNDECIDED, share, (*number, *known), f"bytes or latency{why}")


def _storage_use(work: Work) -> float | None:
    """Return the share of the time in which the storage had requests, or of threads that waited for it."""
    if work.storage_busy_s is None or not work.making_s or _by_looks(work):
        return work.storage_share
    return min(1.0, work.storage_busy_s / work.making_s)


def _by_looks(work: Work) -> bool:
    """Return whether samples of the threads replace the device's busy time, which is long and not exact."""
    coarse = not work.storage_exact and (work.storage_busy_s or 0.0) >= LEAST_ALONE * work.making_s
    return coarse and work.storage_share is not None


def _rate_in_use(work: Work) -> float:
    """Return the MB/s during the time in which the storage had requests."""
    share = _storage_use(work) or 0.0
    return work.read_mb / (share * work.making_s) if share and work.making_s else 0.0


def _storage_number(work: Work) -> tuple[Number, ...]:
    share = _storage_use(work)
    if share is None:
        return ()
    by_looks = work.storage_busy_s is None or _by_looks(work)
    return (Number("threads wait for storage" if by_looks else "storage busy", share),)


def _rest(work: Work) -> Share | None:
    """Return the share of the time of a single thread that neither processors nor storage explain."""
    if work.threads != 1:
        return None
    rest = max(0.0, 1.0 - _processors(work).share - (_storage_use(work) or 0.0))
    return Share("rest", rest, (Number("neither processors nor storage", rest),), "what took the rest is not known")


RULES: Sequence[Rule] = (_throttled, _processors, _storage, _rest)
"""The rules for a pipeline or a program."""
_EXPLAINS = {"throttled": ("device", "latency", UNDECIDED)}
"""Words that only follow from another word: a limit on reads keeps a storage busy that could give more."""


def _shares(work: Work, rules: Sequence[Rule]) -> list[Share]:
    shares = [share for rule in rules if (share := rule(work)) is not None]
    full = {each.word for each in shares if each.share >= SATURATED}
    explained = {word for cause in full for word in _EXPLAINS.get(cause, ())}
    return [each for each in shares if each.word not in explained]


def _largest(shares: Sequence[Share], least: float) -> tuple[Share, str]:
    """Return the largest share, and a reason if its word is uncertain: too small, or too near to the next."""
    first, *others = sorted(shares, key=lambda each: -each.share)
    if first.share < least:
        return first, f"nothing took {least:.0%} of the time"
    if near := [each for each in others if first.share - each.share < APART]:
        named = ", ".join(str(number) for number in near[0].numbers[:1] if number not in first.numbers)
        return first, f"too near to {named or near[0].word}"
    return first, first.why


def _bound(share: Share, why: str) -> Bound:
    word: Any = UNDECIDED if why else share.word
    return Bound(word, share.share, share.numbers, why)


def _trains(work: Work) -> bool:
    return work.steps is not None and work.steps.on_processors


def _of_input(work: Work) -> Bound:
    first, why = _largest(_shares(work, RULES), LEAST_ALONE if work.threads == 1 else LEAST_TOGETHER)
    held = f"; others held {work.others:.2g} of {work.cores:g} processors" if why and work.others >= _OTHERS else ""
    return _bound(first, why + held)


def bound_of_spent(steps: Steps, elapsed_s: float, spent: Mapping[str, float]) -> Bound:
    """Return the limit of steps whose waiting time is known by cause; processors and devices are not looked at.

    `spent`: the seconds in which a step waited for ``read`` and for ``decode``, not overlapping; the rest of
    `steps.waiting_s` is unexplained. Reading means the storage, by its bytes or its latency.
    """
    waiting = steps.waiting_s or 1.0
    read, decode = (spent.get(name, 0.0) / waiting for name in ("read", "decode"))
    parts = [
        Share(
            UNDECIDED, read, (Number("of it reading", read),), "the storage: by its bytes or its latency is not seen"
        ),
        Share("decoding", decode, (Number("of it decoding", decode),)),
        Share("rest", max(0.0, 1.0 - read - decode), (), "what the rest of the input waits for is not seen"),
    ]
    if elapsed_s <= 0:
        return Bound(UNDECIDED, 0.0, (), "no time")
    return _of_steps(Work(elapsed_s, steps=steps), steps, lambda: _bound(*_largest(parts, LEAST_ALONE)))


def _of_steps(work: Work, steps: Steps, of_input: Callable[[], Bound] | None = None) -> Bound:
    """Return the limit of a training: its steps, or the limit of its input (`of_input`, by default by `RULES`).

    If batches are made ahead and steps still wait, making them takes longer than the steps. If none are made ahead, the
    larger part of the time decides.
    """
    waiting, computing, saving = (each / work.elapsed_s for each in (steps.waiting_s, steps.compute_s, steps.saving_s))
    numbers = (Number("steps", computing), Number("waiting for input", waiting))
    saved = Share("checkpoints", saving, (Number("checkpoints", saving), *numbers), "for checkpoints there is no word")
    times = [Share("steps", computing, numbers), saved]
    late = steps.late if steps.ahead else None
    if late is None:
        times.append(Share(_INPUT, waiting, numbers))
    elif _KEEPS_UP < late < _WAITS:
        return Bound(UNDECIDED, computing, numbers, f"{late:.0%} of a step is waiting, though batches are made ahead")
    elif late <= _KEEPS_UP and not steps.on_processors and not of_input:
        times += _shares(work, (_processors, _storage))
    first, why = _largest(times, LEAST_ALONE)
    if (late or 0.0) < _WAITS and first.word != _INPUT:
        return _bound(first, why)
    if why and late is None:
        return _bound(first, why)
    found = of_input() if of_input else _of_input(work)
    return found._replace(share=waiting, numbers=(numbers[1], *found.numbers)[:3])
