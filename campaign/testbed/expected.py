"""What an emulated storage does by its parameters: a calculation that shares nothing with the server of its model.

`depth` requests are always out. For flash and for a file server that has closed forms; for a disk, whose arm takes what
it reaches first, it is simulated. The file that is read is taken to lie in one piece. Seconds and bytes throughout,
unless a name says otherwise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from campaign.testbed.spec import Wanted

MIB = 1 << 20
SEQUENTIAL_BYTES = 16 * MIB  # that a program asks for at once; it comes to the model as requests of 1 MiB
_PARTS = SEQUENTIAL_BYTES // MIB
_SIMULATED = 3000  # requests: the mean is right within 1 %


def sequential_mb_per_s(wanted: Wanted, access: str, file_bytes: int) -> float | None:
    """Return MB/s of a file that is read from its beginning to its end, or written and flushed.

    None where they are not bounded, or by a number of requests whose size is the kernel's business.
    """
    speed = wanted.speed
    rate, requests = (
        (speed.read_mb_per_s, speed.read_iops) if access == "read" else (speed.write_mb_per_s, speed.write_iops)
    )
    if requests or rate is None:
        return None
    if wanted.model is None:
        return rate
    return file_bytes / 1e6 / _sequential_s(wanted.model.kind, _parameters(wanted), access, rate * 1e6, file_bytes)


def _sequential_s(kind: str, its: Mapping[str, float], access: str, rate: float, file_bytes: int) -> float:
    """Return the seconds of a whole file, in requests of `SEQUENTIAL_BYTES`, each asked for when the last has come."""
    transfer, requests = file_bytes / rate, file_bytes / SEQUENTIAL_BYTES
    if kind == "disk":  # to its first track; then the arm stays, and the cache hides that nothing is asked for a moment
        return its["seek_track_ms"] / 1e3 + _turn_s(its) / 2 + transfer
    if kind == "flash":
        work = its[f"{access}_us"] / 1e6
        in_turns = math.ceil(_PARTS / its["channels"]) * work + MIB / rate
        return requests * max(work + SEQUENTIAL_BYTES / rate, in_turns)
    way = its["round_trip_us"] / 1e6
    if access == "write":
        return requests * way + transfer
    first = way + its["metadata_us"] / 1e6 + _server_disk_s(its, MIB)
    return first + (requests - 1) * max(0.0, way - its["read_ahead_mb"] * 1e6 / rate) + transfer


def reads_per_s(wanted: Wanted, block_bytes: int, depth: int, file_bytes: int) -> float | None:
    """Return how many blocks at random places come a second; None of a storage without a model."""
    if wanted.model is None:
        return None
    its, kind = _parameters(wanted), wanted.model.kind
    transfer = block_bytes / its["read_mb_per_s"] / 1e6
    if kind == "disk":
        _, whole_s = _arm(its, block_bytes, depth, file_bytes)
        found = _SIMULATED / whole_s
    elif kind == "flash":
        work = its["read_us"] / 1e6
        found = min(depth / (work + transfer), its["channels"] / work if work else math.inf, 1 / transfer)
    else:
        found = min(_server_reads_per_s(its, block_bytes, depth, file_bytes), 1 / transfer)
    return min(found, wanted.speed.read_iops or math.inf)


def read_us(wanted: Wanted, block_bytes: int, file_bytes: int, share: float) -> float | None:
    """Return the microseconds in which a share of random reads has come, one at a time: 0.5 is the median."""
    if wanted.model is None or wanted.speed.read_iops:  # such a bound lets requests through in bursts
        return None
    its, kind = _parameters(wanted), wanted.model.kind
    transfer = block_bytes / its["read_mb_per_s"]  # in microseconds
    if kind == "disk":
        latencies, _ = _arm(its, block_bytes, 1, file_bytes)
        return sorted(latencies)[int(share * len(latencies))] * 1e6
    if kind == "flash":
        return its["read_us"] + transfer
    turned = (share - 0.5) * _turn_s(its)  # any part of a turn is as likely
    at_disk = _server_disk_s(its, block_bytes) + turned
    return its["round_trip_us"] + its["metadata_us"] + at_disk * 1e6 + transfer


def _parameters(wanted: Wanted) -> dict[str, float]:
    pairs = (word.split("=") for word in wanted.words())
    return {key: float(value) for key, value in pairs if key != "kind"}


def _turn_s(its: Mapping[str, float]) -> float:
    return 60 / its["rpm"]


def _server_disk_s(its: Mapping[str, float], length: int) -> float:
    """Return how long a disk of a server has a request, on the average."""
    return its["seek_average_ms"] / 1e3 + _turn_s(its) / 2 + length / its["disk_mb_per_s"] / 1e6


def _server_reads_per_s(its: Mapping[str, float], block_bytes: int, depth: int, file_bytes: int) -> float:
    """Analyse mean values of a closed network: a delay, and disks of which each read goes to any one.

    A request that comes finds at its disk what one request less leaves there (Reiser and Lavenberg 1980), and what is
    being served is done in the mean residual time of a seek and any part of a turn (Reiser 1979 on general service).
    """
    at_disk = _server_disk_s(its, block_bytes)
    others_s = (its["round_trip_us"] + its["metadata_us"] + block_bytes / its["read_mb_per_s"]) / 1e6
    residual = (at_disk + _turn_s(its) ** 2 / 12 / at_disk) / 2
    arms = min(its["osts"], math.ceil(file_bytes / (its["stripe_mib"] * MIB))) * its["disks"]
    queued = busy = rate = 0.0  # of each disk: requests there, and the share of time with any
    for out in range(1, depth + 1):
        waits = (queued - busy) * at_disk + busy * residual
        rate = out / (others_s + waits + at_disk)
        queued, busy = (rate / arms * each for each in (waits + at_disk, at_disk))
    return rate


def _arm(its: Mapping[str, float], block_bytes: int, depth: int, file_bytes: int) -> tuple[list[float], float]:
    """Simulate the arm of a disk; returns the latency of each request, and the seconds of all of them."""
    chance, turn, rate = random.Random(0), _turn_s(its), its["read_mb_per_s"] * 1e6  # noqa: S311 - places, not secrets
    track, blocks = rate * turn, file_bytes // block_bytes
    slope = (its["seek_average_ms"] - its["seek_track_ms"]) * 15 / 8  # of the root of the distance: 8/15 on the average
    head, now, latencies = 0.0, 0.0, []

    def positioned(place: float) -> float:
        """Seconds until the head is at the place: a seek, and the rest of a turn."""
        if place == head:
            return 0.0
        tracks = abs(place // track - head // track)
        seek = (its["seek_track_ms"] + slope * math.sqrt(tracks * track / its["capacity_gb"] / 1e9)) / 1e3
        there = now + (seek if tracks else 0.0)
        return there - now + (place / track * turn - there) % turn

    # When the arm gets free it chooses at once; who has just been answered asks again after that.
    waiting = [(float(chance.randrange(blocks) * block_bytes), 0.0) for _ in range(max(1, depth - 1))]
    for _ in range(_SIMULATED):
        place, asked = chosen = min(waiting[: int(its["queue"])], key=lambda request: positioned(request[0]))
        waiting.remove(chosen)
        done = now + positioned(place) + block_bytes / rate
        waiting.append((float(chance.randrange(blocks) * block_bytes), done if depth == 1 else now))
        head, now = place + block_bytes, done
        latencies.append(done - asked)
    return latencies, now
