"""Find disturbances of a run: delayed threads, reached limits, and other programs that used the devices of the run.

Delays are found by samples of the threads. The kernel counts the requests to a device, but not which process made a
request; it counts the fetched bytes for each process. So the number of read requests of other programs has two upper
bounds: the number of blocks in the bytes that other programs read, and the number of requests that remain after one
request for each extent of the run's own files. If a run writes nothing, other programs made all writes and flushes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.model.results import DeviceUse, Run
from jobs.objects import OSD_PROCESS_NAME

# The states of a thread (`jobs.system.threads`) in which the thread does no measured work, with a text for messages.
DELAYS = {
    "idle_device": "waited for a device that had nothing to do",
    "asleep": "slept",
    "held": "were held by another program",
}
_BUSY = (*DELAYS, "running", "storage")
_CHANCE = 0.04  # probability with which `certain_share` may return a share that is larger than the true share
_STEPS = 40


def certain_share(count: int, samples: int) -> float:
    """Return the share of the time that an event certainly took, if `count` of `samples` samples showed the event.

    This share is Chernoff's bound: if the true share were smaller, fewer than one run in 25 would show as many events.
    """
    low, high = 0.0, count / samples if samples else 0.0
    for _ in range(_STEPS if count else 0):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if samples * _divergence(count / samples, middle) > -math.log(_CHANCE) else (low, middle)
        )
    return low


def _divergence(observed: float, true: float) -> float:
    """Return the relative entropy of two shares; `observed` must be larger than `true`."""
    rest = (1 - observed) * math.log((1 - observed) / (1 - true)) if observed < 1 else 0.0
    return observed * math.log(observed / true) + rest


def delayed_share(run: Run) -> float:
    """Return the share of the time in which the run certainly could not work.

    The result is the larger of two shares. The first is the share of samples in which a thread with work made no
    progress. The second is the share of the time in which the whole process stood still, minus the time that the
    hypervisor took.
    """
    waits, elapsed_s = run["waits"], run["elapsed_s"]
    stopped: float = max(waits["late_s"] / elapsed_s, certain_share(waits["late"], waits["alarms"]))
    unexplained = stopped - run.get("steal_s", 0.0) / elapsed_s
    return max(0.0, unexplained, certain_share(_count_threads(waits, DELAYS), _count_threads(waits, _BUSY)))


def most_certain(run: Run) -> float:
    """Return the share of delays that would be certain if every sample showed a delay.

    The share is small if there are only few samples.
    """
    return certain_share(run["waits"]["looks"], run["waits"]["looks"])


def delays_in_words(run: Run) -> str:
    """Return a text that describes the observed delays."""
    waits = run["waits"]
    delay_texts = [f"{waits['threads'][state]} {text}" for state, text in DELAYS.items() if state in waits["threads"]]
    functions = f" (in {', '.join(sorted(waits['functions']))})" if waits["functions"] else ""
    threads = f"of {_count_threads(waits, _BUSY)} threads with work"
    thread_text = f"{threads} {' and '.join(delay_texts) or 'none was delayed'}{functions}"
    stop_text = (
        f"the process stood still at {waits['late']} of {waits['alarms']} alarms, for {waits['late_s']:.2f} s or more"
    )
    return f"at {waits['looks']} looks, {thread_text}; {stop_text}"


def _count_threads(waits: Mapping[str, Any], states: Mapping[str, str] | tuple[str, ...]) -> int:
    return sum(waits["threads"].get(state, 0) for state in states)


def nearest_limit(run: Run) -> tuple[float, str] | None:
    """Return the largest share that a run reached of a limit on reads and writes, and a text about this limit.

    Return None if there is no such limit.
    """
    limits = run.get("io_limits", ())
    if not limits:
        return None
    share, limit = max(((limit["reached_per_s"] / limit["per_s"], limit) for limit in limits), key=lambda pair: pair[0])
    unit = "MB" if limit["kind"].endswith("bps") else "requests"
    scale = 1e6 if unit == "MB" else 1
    verb = "read" if limit["kind"].startswith("read") else "written"
    observed_rate, limit_rate = limit["reached_per_s"] / scale, limit["per_s"] / scale
    rule = f"{limit['group']} lets {limit_rate:.4g} {unit}/s be {verb} on {limit['device']}"
    return share, f"{rule}, and the run had {observed_rate:.4g}"


# A few writes by the file system itself do not count as a disturbance. After appending to three files, a commit caused
# 7 writes and 2 flushes on ext4, 4 writes and 2 flushes on XFS, and 22 writes and 2 flushes on btrfs. At most one read
# was observed in 36 idle seconds.
_NEGLIGIBLE_READS, _NEGLIGIBLE_WRITES, _NEGLIGIBLE_FLUSHES = 4, 24, 3
_NEGLIGIBLE_BYTES = 1 << 20


class OtherUse(NamedTuple):
    """The largest possible use of one device by other programs."""

    device: str
    reads: int
    writes: int
    flushes: int
    share: float  # share of the run's time in which the device served other programs, from 0 to 1

    @property
    def message(self) -> str:
        """Return a sentence about the use by other programs."""
        sentence = f"took {self.share:.1%} of the time of {self.device}"
        return (
            f"{sentence} with {self.reads} reads, {self.writes} writes and {self.flushes} flushes"
            if self.share
            else sentence
        )


def longest_other_use(run: Run) -> OtherUse | None:
    """Return how other programs used the device of the run that served them longest.

    Return None if the use is unknown for all devices. The use is also unknown if the servers of an object store used
    the device, but the user may not read the counters of these servers.
    """
    if "objects" in run and (run["objects"]["servers"].get(OSD_PROCESS_NAME) or {}).get("read_bytes") is None:
        return None
    uses = [_use_by_others(use, run["elapsed_s"], _saving_s(run)) for use in run["device_use"] or ()]
    return max(uses, key=lambda use: use.share, default=None)


def _saving_s(run: Run) -> float:
    """Return the seconds in which the run itself may have flushed a device.

    A run with snapshots flushes only until each snapshot is durable. Any other run may flush at any time.
    """
    if "checkpoints" not in run:
        return run["elapsed_s"]
    elapsed_s, lines = run["elapsed_s"], run["checkpoints"]
    ends = [(line.get("blocked_s"), line.get("durable_fast_s"), line.get("durable_slow_s")) for line in lines]
    return sum(max(elapsed_s if end_s is None else end_s for end_s in ends_s) for ends_s in ends)


def _use_by_others(use: DeviceUse, elapsed_s: float, saving_s: float) -> OtherUse:
    """Return the largest possible use of a device by other programs, as a share of the run's time.

    The busy time of the device is divided by requests (as if every request took a seek) and by bytes. The larger share
    of other programs counts. The time of flushes is added, because a flush stops all other requests. If the run itself
    writes, the number of writes is divided in proportion to the bytes, and only the time of flushes beyond `saving_s`
    counts for other programs.
    """
    own_written = use["own_written_bytes"]
    read_bytes = max(0, use["read_bytes"] - use["own_read_bytes"])
    written_bytes = max(0, use["written_bytes"] - (own_written or 0))
    reads = min(max(0, use["reads"] - use["own_reads"]), read_bytes // use["block_bytes"])
    writes, flushes, flush_s = use["writes"], use["flushes"], use["flush_s"]
    if own_written is not None:
        writes, flush_s = _scale(written_bytes, use["written_bytes"], writes), max(0.0, flush_s - saving_s)
        flushes = flushes if flush_s else 0
    is_negligible = (
        reads <= _NEGLIGIBLE_READS
        and writes <= _NEGLIGIBLE_WRITES
        and flushes <= _NEGLIGIBLE_FLUSHES
        and read_bytes + written_bytes <= _NEGLIGIBLE_BYTES
    )
    by_requests = (reads + writes) / max(1, use["reads"] + use["writes"])
    by_bytes = (read_bytes + written_bytes) / max(1, use["read_bytes"] + use["written_bytes"])
    busy_s = max(by_requests, by_bytes) * use["busy_s"] + flush_s
    share = 0.0 if is_negligible else min(1.0, busy_s / elapsed_s)
    return OtherUse(use["device"], reads, writes, flushes, share)


def _scale(part: int, whole: int, count: int) -> int:
    return round(count * part / whole) if whole else 0
