"""What everybody else did to the devices of a run: how many requests, and for how much of its time.

The kernel counts a device's requests and not whose they are. It does count the bytes that were fetched for a process:
what others read is at most as many requests as their bytes have blocks, and at most what is left when each piece of the
run's own files is one request. All writes and flushes of a run that writes nothing are others'.
"""

from __future__ import annotations

from typing import NamedTuple

from jobs.model.results import DeviceUse, Run
from jobs.objects import STORES

# What a file system does by itself during a short run is no second user. Measured, a commit with three files appended
# to: 7 writes and 2 flushes on ext4, 4 and 2 on XFS, 22 and 2 on btrfs; of 36 s left alone at most one read.
_NEGLIGIBLE_READS, _NEGLIGIBLE_WRITES, _NEGLIGIBLE_FLUSHES = 4, 24, 3
_NEGLIGIBLE_BYTES = 1 << 20


class Others(NamedTuple):
    """What others asked of one device at most."""

    device: str
    reads: int
    writes: int
    flushes: int
    share: float  # of the run in which the device served them, 0 to 1

    @property
    def message(self) -> str:
        """Return it in words."""
        told = f"took {self.share:.1%} of the time of {self.device}"
        return (
            f"{told} with {self.reads} reads, {self.writes} writes and {self.flushes} flushes" if self.share else told
        )


def others(run: Run) -> Others | None:
    """Return what others asked of that device of a run which served them longest; None where no device tells.

    What a device moved for servers of objects whose bytes this user may not see cannot be told from what others moved.
    """
    if "objects" in run and (run["objects"]["servers"].get(STORES) or {}).get("read_bytes") is None:
        return None
    found = [_of_device(use, run["elapsed_s"], _saving_s(run)) for use in run["device_use"] or ()]
    return max(found, key=lambda each: each.share, default=None)


def _saving_s(run: Run) -> float:
    """Return for how long a run may itself have flushed: until each snapshot was durable, else all the time."""
    if "checkpoints" not in run:
        return run["elapsed_s"]
    always_s, lines = run["elapsed_s"], run["checkpoints"]
    ends = [(line.get("blocked_s"), line.get("durable_fast_s"), line.get("durable_slow_s")) for line in lines]
    return sum(max(always_s if end_s is None else end_s for end_s in each) for each in ends)


def _of_device(use: DeviceUse, elapsed_s: float, saving_s: float) -> Others:
    """Share the time with requests in flight by requests, or by bytes where those are the larger part.

    A small request takes nearly as long as a large one where each is a seek, and much less where bytes are what takes
    time: the larger of both shares is the most that others can have had. A flush holds all others up. Of a run that
    writes, it is told by the bytes alone whose its writes are, and flushes are others' beyond the time of its own.
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
