"""What disturbed a run: its threads could not work, a limit was reached, or other programs used its devices.

Delays come from samples of the threads. The kernel counts a device's requests, not whose they are. It counts the bytes
fetched per process: others made at most as many read requests as their bytes have blocks, and at most those left if
each piece of the run's own files is one request. If a run writes nothing, all writes and flushes are those of others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.model.results import DeviceUse, Run
from jobs.objects import STORES

# States of a thread (`jobs.system.threads`) in which it does none of the measured work, in words.
DELAYS = {
    "idle_device": "waited for a device that had nothing to do",
    "asleep": "slept",
    "held": "were held by another program",
}
_BUSY = (*DELAYS, "running", "storage")
_CHANCE = 0.04  # probability that a run with exactly that share shows as much; honest runs have nearly none
_STEPS = 40


def certain_share(count: int, of: int) -> float:
    """Return the largest share that is certainly reached, if `count` of `of` samples showed an event.

    By Chernoff's bound: with a smaller true share, fewer than one run in 25 would show as many events.
    """
    low, high = 0.0, count / of if of else 0.0
    for _ in range(_STEPS if count else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if of * _divergence(count / of, middle) > -math.log(_CHANCE) else (low, middle)
    return low


def _divergence(observed: float, true: float) -> float:
    """Return the relative entropy of two shares, `observed` above `true`."""
    rest = (1 - observed) * math.log((1 - observed) / (1 - true)) if observed < 1 else 0.0
    return observed * math.log(observed / true) + rest


def delayed_share(run: Run) -> float:
    """Return the share of the time in which the run certainly could not work.

    Either threads with work made no progress, or the process stood still for longer than the hypervisor explains.
    """
    waits, elapsed_s = run["waits"], run["elapsed_s"]
    stopped: float = max(waits["late_s"] / elapsed_s, certain_share(waits["late"], waits["alarms"]))
    unexplained = stopped - run.get("steal_s", 0.0) / elapsed_s
    return max(0.0, unexplained, certain_share(_met(waits, DELAYS), _met(waits, _BUSY)))


def most_certain(run: Run) -> float:
    """Return the share that would be certain if every sample showed a delay; it is small for few samples."""
    return certain_share(run["waits"]["looks"], run["waits"]["looks"])


def delays(run: Run) -> str:
    """Return the observed delays in words."""
    waits = run["waits"]
    met = [f"{waits['threads'][kind]} {words}" for kind, words in DELAYS.items() if kind in waits["threads"]]
    functions = f" (in {', '.join(sorted(waits['functions']))})" if waits["functions"] else ""
    busy = f"of {_met(waits, _BUSY)} threads with work {' and '.join(met) or 'none was kept from it'}{functions}"
    stood = f"it stood still at {waits['late']} of {waits['alarms']} alarms, for {waits['late_s']:.2f} s or more"
    return f"at {waits['looks']} looks, {busy}; {stood}"


def _met(waits: Mapping[str, Any], kinds: Mapping[str, str] | tuple[str, ...]) -> int:
    return sum(waits["threads"].get(kind, 0) for kind in kinds)


def nearest_limit(run: Run) -> tuple[float, str] | None:
    """Return the largest share of a limit on reads and writes that a run reached, and words; None without limits."""
    near = [(each["reached_per_s"] / each["per_s"], each) for each in run.get("io_limits", ())]
    if not near:
        return None
    share, limit = max(near, key=lambda each: each[0])
    unit = "MB" if limit["kind"].endswith("bps") else "requests"
    scale = 1e6 if unit == "MB" else 1
    verb = "read" if limit["kind"].startswith("read") else "written"
    reached, most = limit["reached_per_s"] / scale, limit["per_s"] / scale
    return share, f"{limit['group']} lets {most:.4g} {unit}/s be {verb} on {limit['device']}, and it did {reached:.4g}"


# The writes of the file system itself during a short run are no second user. Measured for a commit with three files
# appended to: 7 writes and 2 flushes on ext4, 4 and 2 on XFS, 22 and 2 on btrfs; in 36 idle seconds at most one read.
_NEGLIGIBLE_READS, _NEGLIGIBLE_WRITES, _NEGLIGIBLE_FLUSHES = 4, 24, 3
_NEGLIGIBLE_BYTES = 1 << 20


class Others(NamedTuple):
    """The largest possible use of one device by other programs."""

    device: str
    reads: int
    writes: int
    flushes: int
    share: float  # of the run in which the device served them, 0 to 1

    @property
    def message(self) -> str:
        """Return a sentence about this use."""
        sentence = f"took {self.share:.1%} of the time of {self.device}"
        return (
            f"{sentence} with {self.reads} reads, {self.writes} writes and {self.flushes} flushes"
            if self.share
            else sentence
        )


def others(run: Run) -> Others | None:
    """Return the use of the run's device that served others longest; None if no device can tell.

    If servers of objects used the device and this user may not see their bytes, they cannot be told from others.
    """
    if "objects" in run and (run["objects"]["servers"].get(STORES) or {}).get("read_bytes") is None:
        return None
    uses = [_of_device(use, run["elapsed_s"], _saving_s(run)) for use in run["device_use"] or ()]
    return max(uses, key=lambda each: each.share, default=None)


def _saving_s(run: Run) -> float:
    """Return the seconds in which the run itself may have flushed: until each snapshot was durable, else all."""
    if "checkpoints" not in run:
        return run["elapsed_s"]
    always_s, lines = run["elapsed_s"], run["checkpoints"]
    durations = [(line.get("blocked_s"), line.get("durable_fast_s"), line.get("durable_slow_s")) for line in lines]
    return sum(max(always_s if end_s is None else end_s for end_s in each) for each in durations)


def _of_device(use: DeviceUse, elapsed_s: float, saving_s: float) -> Others:
    """Return the use of a device by others: its busy time, divided by requests, or by bytes if their part is larger.

    A small request takes nearly as long as a large one if each is a seek, and much less if the bytes take the time: the
    larger of both shares is the most that others can have had. A flush stops all other requests. If the run writes,
    only the bytes tell whose the writes are, and flushes beyond the time of its own count for others.
    """
    own_written = use["own_written_bytes"]
    read_bytes = max(0, use["read_bytes"] - use["own_read_bytes"])
    written_bytes = max(0, use["written_bytes"] - (own_written or 0))
    reads = min(max(0, use["reads"] - use["own_reads"]), read_bytes // use["block_bytes"])
    writes, flushes, flush_s = use["writes"], use["flushes"], use["flush_s"]
    if own_written is not None:
        writes, flush_s = _part(written_bytes, use["written_bytes"], writes), max(0.0, flush_s - saving_s)
        flushes = flushes if flush_s else 0
    few = (
        reads <= _NEGLIGIBLE_READS
        and writes <= _NEGLIGIBLE_WRITES
        and flushes <= _NEGLIGIBLE_FLUSHES
        and read_bytes + written_bytes <= _NEGLIGIBLE_BYTES
    )
    by_requests = (reads + writes) / max(1, use["reads"] + use["writes"])
    by_bytes = (read_bytes + written_bytes) / max(1, use["read_bytes"] + use["written_bytes"])
    busy_s = max(by_requests, by_bytes) * use["busy_s"] + flush_s
    share = 0.0 if few else min(1.0, busy_s / elapsed_s)
    return Others(use["device"], reads, writes, flushes, share)


def _part(part: int, whole: int, count: int) -> int:
    return round(count * part / whole) if whole else 0
