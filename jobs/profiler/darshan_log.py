"""A window as a Darshan log, format 3.41.

A log is a header with the place of each region, then regions packed by zlib: job, names, one for each module's records
(darshan-util/darshan-logutils.h). Logs are read by PyDarshan (`jobs.profiler.saved`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jobs.profiler.window import (
    DARSHAN_NAMES,
    MODULES,
    OPERATIONS,
    READS,
    SIZES,
    SPENT,
    TIMES,
    WRITES,
    Window,
)
from jobs.system import files

MAGIC = b"3.41\0\0\0\0"
_BYTE_ORDER, _MODULES = 6567223, 64
_HEADER = struct.Struct(f"<8sqB7xQ2Q{2 * _MODULES}Q{_MODULES}I")
_JOB, _JOB_BYTES = struct.Struct("<7q1024s"), 4096
_DXT, _DXT_SEGMENT = struct.Struct("<Qqq64sqq"), np.dtype([("offset", "<i8"), ("length", "<i8"), ("at", "<f8", 2)])
_PLACES = {"POSIX": (1, 4), "STDIO": (9, 2), "DXT": (10, 1)}  # number and version of each module
_RANKS = ("FASTEST_RANK", "FASTEST_RANK_BYTES", "SLOWEST_RANK", "SLOWEST_RANK_BYTES")
_SPREAD = ("F_FASTEST_RANK_TIME", "F_SLOWEST_RANK_TIME", "F_VARIANCE_RANK_TIME", "F_VARIANCE_RANK_BYTES")
_COUNTERS = {
    "POSIX": (
        *("OPENS", "FILENOS", "DUPS", "READS", "WRITES", "SEEKS", "STATS", "MMAPS", "FSYNCS", "FDSYNCS"),
        *("RENAME_SOURCES", "RENAME_TARGETS", "RENAMED_FROM", "MODE", "BYTES_READ", "BYTES_WRITTEN", "MAX_BYTE_READ"),
        *("MAX_BYTE_WRITTEN", "CONSEC_READS", "CONSEC_WRITES", "SEQ_READS", "SEQ_WRITES", "RW_SWITCHES"),
        *("MEM_NOT_ALIGNED", "MEM_ALIGNMENT", "FILE_NOT_ALIGNED", "FILE_ALIGNMENT"),
        *("MAX_READ_TIME_SIZE", "MAX_WRITE_TIME_SIZE"),
        *(f"SIZE_{kind}_{size}" for kind in ("READ", "WRITE") for size in SIZES),
        *(f"{kind}{place}_{what}" for kind, key in (("STRIDE", "STRIDE"), ("ACCESS", "ACCESS"))
          for what in (key, "COUNT") for place in range(1, 5)),
        *_RANKS,
    ),
    "STDIO": (
        *("OPENS", "FDOPENS", "READS", "WRITES", "SEEKS", "FLUSHES", "BYTES_WRITTEN", "BYTES_READ", "MAX_BYTE_READ"),
        *("MAX_BYTE_WRITTEN", *_RANKS),
    ),
}  # fmt: skip
_EDGES = {
    edge: [f"F_{key}_{edge}_TIMESTAMP" for key in ("OPEN", "READ", "WRITE", "CLOSE")] for edge in ("START", "END")
}
_TIMES = {
    "POSIX": (*_EDGES["START"], *_EDGES["END"], *(f"F_{key.upper()}" for key in SPENT), *_SPREAD),
    "STDIO": (
        *("F_META_TIME", "F_WRITE_TIME", "F_READ_TIME"),
        *(f"F_{key}_{edge}_TIMESTAMP" for edge in ("START", "END") for key in ("OPEN", "CLOSE", "WRITE", "READ")),
        *_SPREAD,
    ),
}


def write(path: Path, window: Window) -> None:
    """Write the counters of each file and, where the window has them, its reads and writes one by one (DXT)."""
    numbers = {name: hashlib.blake2b(os.fsencode(name), digest_size=8).digest() for name in window.paths}
    names = b"".join(number + os.fsencode(name) + b"\0" for name, number in numbers.items())
    regions = {_PLACES[module][0]: _records(window, module, numbers) for module in MODULES}
    if window.events is not None:
        regions[_PLACES["DXT"][0]] = b"".join(_segments(window, numbers))
    packed = {place: zlib.compress(data) for place, data in regions.items() if data}
    job, named = zlib.compress(_job(window)), zlib.compress(names)
    at = _HEADER.size + len(job)
    table = [at, len(named)]
    at += len(named)
    for place in range(_MODULES):
        size = len(packed.get(place, b""))
        table += [at if size else 0, size]
        at += size
    versions = {place: version for place, version in _PLACES.values() if place in packed}
    partial = sum(1 << place for place in packed) if window.dropped else 0
    header = _HEADER.pack(MAGIC, _BYTE_ORDER, 0, partial, *table, *(versions.get(n, 0) for n in range(_MODULES)))
    with files.whole(path, durable=False) as file:
        file.write(b"".join((header, job, named, *(packed[place] for place in sorted(packed)))))


def _job(window: Window) -> bytes:
    edges = [part for at_ns in (window.started_ns, window.ended_ns) for part in divmod(at_ns, 10**9)]
    record = _JOB.pack(os.getuid(), *edges, 1, window.process, b"lib_ver=3.4.1\nh=jobs.profiler\n")
    program = " ".join(" ".join(sys.argv).split())[:1024].encode(errors="replace")
    return (record + program + b"\nunknown\t/").ljust(_JOB_BYTES, b"\0")  # one mount: a log without any is refused


def _records(window: Window, module: str, numbers: dict[str, bytes]) -> bytes:
    """Return the records of one module, a row a file."""
    chosen = [place for place, of in enumerate(window.modules) if of == module]
    rows, counters, times = window.counters[chosen], _COUNTERS[module], _TIMES[module]
    kind = [("id", "S8"), ("rank", "<i8"), ("counters", "<i8", len(counters)), ("times", "<f8", len(times))]
    records = np.zeros(len(chosen), kind)
    for place, row in zip(chosen, records, strict=True):
        row["id"] = numbers[window.paths[place]]
    for key, index, name in DARSHAN_NAMES[module]:
        if name in counters:
            records["counters"][:, counters.index(name)] = rows[key] if index is None else rows[key][:, index]
    for key in TIMES:
        action, _, edge = key.upper().partition("_")
        seconds = np.where(rows[key] > 0, (rows[key] - window.started_ns) / 1e9, 0.0)
        records["times"][:, times.index(f"F_{action}_{edge}_TIMESTAMP")] = seconds
    for key in SPENT:
        if (name := f"F_{key.upper()}") in times:
            records["times"][:, times.index(name)] = rows[key] / 1e9
    return records.tobytes()


def _segments(window: Window, numbers: dict[str, bytes]) -> Iterator[bytes]:
    """Yield the DXT record of each file: first its writes, then its reads."""
    assert window.events is not None  # noqa: S101 - `write` has asked
    codes = {kind: [OPERATIONS.index(name) for name in names] for kind, names in (("w", WRITES), ("r", READS))}
    ours = np.isin(window.modules, "POSIX")[window.events["file"]] & (window.events["returned"] >= 0)
    ours &= window.events["offset"] >= 0  # of a pipe there is no segment
    moved = window.events[ours & np.isin(window.events["operation"], codes["w"] + codes["r"])]
    moved = moved[np.lexsort((moved["start"], np.isin(moved["operation"], codes["r"]), moved["file"]))]
    segments = np.zeros(len(moved), _DXT_SEGMENT)
    segments["offset"], segments["length"] = moved["offset"], moved["returned"]
    segments["at"] = (np.stack((moved["start"], moved["end"]), axis=1) - window.started_ns) / 1e9
    places, starts = np.unique(moved["file"], return_index=True)
    host = socket.gethostname().encode()[:63]
    for place, first, last in zip(places.tolist(), starts, [*starts, len(moved)][1:], strict=True):
        written = int(np.isin(moved["operation"][first:last], codes["w"]).sum())
        number = int.from_bytes(numbers[window.paths[place]], "little")
        yield _DXT.pack(number, 0, 0, host, written, int(last - first) - written) + segments[first:last].tobytes()
