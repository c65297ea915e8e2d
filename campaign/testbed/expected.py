"""Calculate the expected speed of an emulated storage from its parameters, independently of the model's server.

`depth` is the constant number of outstanding requests. Flash and file servers are calculated with formulas. A disk is
simulated, because its arm chooses the request that it reaches first. The file is assumed to be contiguous on the disk.
Times are in seconds and sizes in bytes, unless a name has another unit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from campaign.testbed.spec import StorageRequest

MIB = 1 << 20
SEQUENTIAL_BYTES = 16 * MIB  # bytes per request of a program; the model gets such a request in parts of 1 MiB
_PARTS = SEQUENTIAL_BYTES // MIB
_SIMULATED = 3000  # number of simulated requests, so that the mean is right within 1 %


def sequential_mb_per_s(request: StorageRequest, access: str, file_bytes: int) -> float | None:
    """Return the expected MB/s at which a whole file is read, or written and flushed.

    Return None if the storage has no limit in MB/s. Also return None if it has a limit in requests per second, because
    the kernel chooses the size of requests.
    """
    speed = request.speed
    rate, requests = (
        (speed.read_mb_per_s, speed.read_iops) if access == "read" else (speed.write_mb_per_s, speed.write_iops)
    )
    if requests or rate is None:
        return None
    if request.model is None:
        return rate
    return file_bytes / 1e6 / _sequential_s(request.model.kind, _parameters(request), access, rate * 1e6, file_bytes)


def _sequential_s(kind: str, model: Mapping[str, float], access: str, rate: float, file_bytes: int) -> float:
    """Return the seconds to read or write a whole file in requests of `SEQUENTIAL_BYTES`, one after the other."""
    transfer_s, requests = file_bytes / rate, file_bytes / SEQUENTIAL_BYTES
    if kind == "disk":  # one seek; then the arm does not move, and the cache hides the gaps between requests
        return model["seek_track_ms"] / 1e3 + _seconds_per_turn(model) / 2 + transfer_s
    if kind == "flash":
        work_s = model[f"{access}_us"] / 1e6
        rounds_s = math.ceil(_PARTS / model["channels"]) * work_s + MIB / rate
        return requests * max(work_s + SEQUENTIAL_BYTES / rate, rounds_s)
    way_s = model["round_trip_us"] / 1e6
    if access == "write":
        return requests * way_s + transfer_s
    first_s = way_s + model["metadata_us"] / 1e6 + _server_disk_s(model, MIB)
    return first_s + (requests - 1) * max(0.0, way_s - model["read_ahead_mb"] * 1e6 / rate) + transfer_s


def reads_per_s(request: StorageRequest, block_bytes: int, depth: int, file_bytes: int) -> float | None:
    """Return the expected random reads per second of a storage with a model, or None without a model."""
    if request.model is None:
        return None
    model, kind = _parameters(request), request.model.kind
    transfer_s = block_bytes / model["read_mb_per_s"] / 1e6
    if kind == "disk":
        _, whole_s = _simulate_arm(model, block_bytes, depth, file_bytes)
        reads = _SIMULATED / whole_s
    elif kind == "flash":
        work_s = model["read_us"] / 1e6
        reads = min(depth / (work_s + transfer_s), model["channels"] / work_s if work_s else math.inf, 1 / transfer_s)
    else:
        reads = min(_server_reads_per_s(model, block_bytes, depth, file_bytes), 1 / transfer_s)
    return min(reads, request.speed.read_iops or math.inf)


def read_us(request: StorageRequest, block_bytes: int, file_bytes: int, share: float) -> float | None:
    """Return the expected latency of a single random read in microseconds, as the quantile `share` (0.5: median).

    Return None without a model. Also return None with a limit in reads per second, because the kernel lets requests
    pass in bursts.
    """
    if request.model is None or request.speed.read_iops:
        return None
    model, kind = _parameters(request), request.model.kind
    transfer_us = block_bytes / model["read_mb_per_s"]  # in microseconds
    if kind == "disk":
        latencies, _ = _simulate_arm(model, block_bytes, 1, file_bytes)
        return sorted(latencies)[int(share * len(latencies))] * 1e6
    if kind == "flash":
        return model["read_us"] + transfer_us
    turn_s = (share - 0.5) * _seconds_per_turn(model)  # all parts of a turn have the same probability
    disk_s = _server_disk_s(model, block_bytes) + turn_s
    return model["round_trip_us"] + model["metadata_us"] + disk_s * 1e6 + transfer_us


def _parameters(request: StorageRequest) -> dict[str, float]:
    pairs = (word.split("=") for word in request.server_arguments())
    return {key: float(value) for key, value in pairs if key != "kind"}


def _seconds_per_turn(model: Mapping[str, float]) -> float:
    return 60 / model["rpm"]


def _server_disk_s(model: Mapping[str, float], length: int) -> float:
    """Return the mean seconds of a request of `length` bytes on one disk of a file server."""
    return model["seek_average_ms"] / 1e3 + _seconds_per_turn(model) / 2 + length / model["disk_mb_per_s"] / 1e6


def _server_reads_per_s(model: Mapping[str, float], block_bytes: int, depth: int, file_bytes: int) -> float:
    """Return the reads per second of a file server, modelled as a closed queueing network.

    The network has a constant delay and several disks, and the reads are spread over the disks. An arriving request
    finds the queue of a network with one request less (Reiser and Lavenberg 1980). The request that a disk serves at
    this moment needs the mean residual time of a seek and of a part of a turn (Reiser 1979 on general service).
    """
    disk_s = _server_disk_s(model, block_bytes)
    others_s = (model["round_trip_us"] + model["metadata_us"] + block_bytes / model["read_mb_per_s"]) / 1e6
    residual_s = (disk_s + _seconds_per_turn(model) ** 2 / 12 / disk_s) / 2
    arms = min(model["osts"], math.ceil(file_bytes / (model["stripe_mib"] * MIB))) * model["disks"]
    queued = busy = rate = 0.0  # `queued`: mean requests at a disk; `busy`: share of time in which a disk has requests
    for outstanding in range(1, depth + 1):
        wait_s = (queued - busy) * disk_s + busy * residual_s
        rate = outstanding / (others_s + wait_s + disk_s)
        queued, busy = (rate / arms * seconds for seconds in (wait_s + disk_s, disk_s))
    return rate


def _simulate_arm(
    model: Mapping[str, float], block_bytes: int, depth: int, file_bytes: int
) -> tuple[list[float], float]:
    """Simulate requests to a disk with one arm; return the latency of each request, and the total seconds."""
    generator, turn_s, rate = random.Random(0), _seconds_per_turn(model), model["read_mb_per_s"] * 1e6  # noqa: S311 - places, not secrets
    track_bytes, blocks = rate * turn_s, file_bytes // block_bytes
    # The time of a seek grows with the square root of the distance. The average of this square root is 8/15.
    slope = (model["seek_average_ms"] - model["seek_track_ms"]) * 15 / 8
    head, now_s, latencies = 0.0, 0.0, []

    def seconds_to(position: float) -> float:
        """Return the seconds until the head is at `position`: a seek and the remaining part of a turn."""
        if position == head:
            return 0.0
        tracks = abs(position // track_bytes - head // track_bytes)
        seek_s = (model["seek_track_ms"] + slope * math.sqrt(tracks * track_bytes / model["capacity_gb"] / 1e9)) / 1e3
        arrival_s = now_s + (seek_s if tracks else 0.0)
        return arrival_s - now_s + (position / track_bytes * turn_s - arrival_s) % turn_s

    # A free arm chooses its next request immediately. The client of the finished request sends a new request later.
    waiting = [(float(generator.randrange(blocks) * block_bytes), 0.0) for _ in range(max(1, depth - 1))]
    for _ in range(_SIMULATED):
        position, sent_s = chosen_request = min(
            waiting[: int(model["queue"])], key=lambda request: seconds_to(request[0])
        )
        waiting.remove(chosen_request)
        done_s = now_s + seconds_to(position) + block_bytes / rate
        waiting.append((float(generator.randrange(blocks) * block_bytes), done_s if depth == 1 else now_s))
        head, now_s = position + block_bytes, done_s
        latencies.append(done_s - sent_s)
    return latencies, now_s
