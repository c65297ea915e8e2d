"""What bounds a cell or a program: one word, and the two or three numbers that decide it.

Each rule says for which share of the time its resource was in use. The largest share is the word where it is large
enough and `APART` from the next one; else the word is `UNDECIDED`, for a wrong word is worse. A resource that is used
by one thread after the other needs half of the time; of what works side by side, the bottleneck is in use nearly all of
it (P. J. Denning and J. P. Buzen, ACM Computing Surveys 10, 1978: utilisation law).
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
"""What helps against each word."""
MORE_THREADS = "more threads: processors are idle meanwhile"
AHEAD = "batches made ahead (prefetch), so that waiting passes behind the steps; then a faster accelerator"

APART = 0.1  # between the largest share and the next one
LEAST_ALONE = 0.5  # of the time of one thread, which does one thing after the other
LEAST_TOGETHER = 0.8  # of the time of a resource that several threads use
SATURATED = 0.9  # of what a storage gives, of a quota, of a limit: all of it
HALF_FULL = SATURATED - APART  # of what more readers get
_START_MAX = 0.2  # of the time: a run whose start takes longer says little
_OTHERS = 0.5  # processors, as the check `quiet`
_THROTTLED = 0.01  # of the time, as the check `unthrottled`
_WAITS, _KEEPS_UP = 0.1, 0.05  # shares of a step: batches made ahead are too slow, and fast enough
_INPUT = "input"  # of a training: what it waits for is looked at then


class Number(NamedTuple):
    """One of the numbers that decide: a share (no unit), or an amount of what there is."""

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
    """Return a number with two digits, those before the point all."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits


class Bound(NamedTuple):
    """The word, the share of the time of its resource, the numbers that decide, and of `UNDECIDED` why it is so."""

    word: Word
    share: float
    numbers: tuple[Number, ...]
    why: str = ""

    @property
    def words(self) -> str:
        """Return the numbers, and why nothing is decided, as a short text."""
        return "; ".join(filter(None, [", ".join(map(str, self.numbers)), self.why]))

    def __str__(self) -> str:
        return f"{self.word}: {self.words}" if self.words else self.word

    @property
    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {**self._asdict(), "numbers": [number._asdict() for number in self.numbers]}


class Share(NamedTuple):
    """The answer of a rule: for which share of the time, the numbers, and why its word cannot be said nevertheless."""

    word: str
    share: float
    numbers: tuple[Number, ...]
    why: str = ""


Rule = Callable[[Work], Share | None]


def bound_of_work(work: Work) -> Bound:
    """Return what bounds a run or a program."""
    if work.elapsed_s <= 0 or work.start_s > _START_MAX * work.elapsed_s:
        start = Number("start", min(1.0, work.start_s / work.elapsed_s) if work.elapsed_s > 0 else 1.0)
        return Bound(UNDECIDED, 0.0, (start,), "too short a run")
    return _of_steps(work, work.steps) if work.steps else _of_input(work)


def bound_of(record: Record, peaks: Peaks | None = None) -> Bound | None:
    """Return what bounds the cell of a judged record; None for a baseline, and where no run has figures.

    Raises one of `judge.ODD_FIGURES` where a record lacks what its runs must have.
    """
    if record["cell"]["kind"] == "storage" or (work := work_of(record, peaks)) is None:
        return None
    if any("ranks" in run for run in record["runs"]):
        return Bound(UNDECIDED, 0.0, (), "several nodes: each rank may be bound by something else")
    return bound_of_work(work)


def help_of(bound: Bound, work: Work) -> str:
    """Return what helps, in words; empty where nothing is decided."""
    if bound.word == "steps" and work.steps and not work.steps.ahead:
        return AHEAD if work.steps.waiting_s >= _WAITS * work.elapsed_s else HELPS[bound.word]
    idle = work.threads is not None and work.threads <= work.free_cores - LEAST_ALONE
    return MORE_THREADS if idle and bound.word in ("processors", "decoding") else HELPS.get(bound.word, "")


def _throttled(work: Work) -> Share | None:
    """Share of the quota of processors, or of a limit on reads and writes, that was used up."""
    found = []
    if work.quota and work.throttled_s > _THROTTLED * work.elapsed_s:
        used = work.cpu_s / work.elapsed_s
        stopped = Number("stopped by it", work.throttled_s, work.elapsed_s, "s")
        numbers = (Number("", used, work.quota, "processors of a quota"), stopped)
        share = min(1.0, used / work.quota)
        why = "" if share >= LEAST_TOGETHER else "a quota stopped threads, and was not used up"
        found.append(Share("throttled", share, numbers, why))
    if work.io_limit:
        found.append(Share("throttled", min(1.0, work.io_limit), (Number("of a limit on I/O", work.io_limit),)))
    return max(found, key=lambda each: each.share, default=None)


def _processors(work: Work) -> Share:
    """Share of the processors that the threads could use, which the run itself kept busy."""
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
    """Share of the time in which the storage had requests of the run; by what it gives, its bytes or its latency."""
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
    """Return for which share of the time the storage had requests of the run, or threads waited for it."""
    if work.storage_busy_s is None or not work.making_s or _by_looks(work):
        return work.storage_share
    return min(1.0, work.storage_busy_s / work.making_s)


def _by_looks(work: Work) -> bool:
    """Return whether looks at the threads tell more than the device's busy time: that is long, and not exact."""
    coarse = not work.storage_exact and (work.storage_busy_s or 0.0) >= LEAST_ALONE * work.making_s
    return coarse and work.storage_share is not None


def _rate_in_use(work: Work) -> float:
    """Return the MB/s while the storage had requests."""
    share = _storage_use(work) or 0.0
    return work.read_mb / (share * work.making_s) if share and work.making_s else 0.0


def _storage_number(work: Work) -> tuple[Number, ...]:
    share = _storage_use(work)
    if share is None:
        return ()
    by_looks = work.storage_busy_s is None or _by_looks(work)
    return (Number("threads wait for storage" if by_looks else "storage busy", share),)


def _rest(work: Work) -> Share | None:
    """Share of the time of one thread that neither processors nor storage explain."""
    if work.threads != 1:
        return None
    rest = max(0.0, 1.0 - _processors(work).share - (_storage_use(work) or 0.0))
    return Share("rest", rest, (Number("neither processors nor storage", rest),), "what took the rest is not known")


RULES: Sequence[Rule] = (_throttled, _processors, _storage, _rest)
"""What may bound a pipeline or a program."""
_EXPLAINS = {"throttled": ("device", "latency", UNDECIDED)}
"""What only shows because of another word: a limit on reads keeps a storage busy that could give more."""


def _shares(work: Work, rules: Sequence[Rule]) -> list[Share]:
    found = [share for rule in rules if (share := rule(work)) is not None]
    full = {each.word for each in found if each.share >= SATURATED}
    explained = {word for cause in full for word in _EXPLAINS.get(cause, ())}
    return [each for each in found if each.word not in explained]


def _largest(shares: Sequence[Share], least: float) -> tuple[Share, str]:
    """Return the largest share, and why its word cannot be said, if so: it is small, or too near to the next one."""
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
    """Return what bounds steps of which it is known what their time went to, and nothing of processors and devices.

    `spent`: seconds of `elapsed_s` in which a step waited for ``read`` and ``decode``, each moment once; the rest of
    `steps.waiting_s` is not known. Reading is the storage's, by its bytes or its latency.
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
    """Return what bounds a training: its steps, or what its input waits for, by default by `RULES`.

    Where batches are made ahead and a step waits nevertheless, they take longer than the steps. Where none is made
    ahead, the larger part of the time decides.
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
