"""Read and write profiles in files: a saved window, the spill file of a killed process, or a Darshan log.

A Darshan log is written in format 3.41: a header with the position of each region, and then the regions (job, names,
and the records of each module), compressed by zlib (see darshan-util/darshan-logutils.h).

Darshan logs are read by PyDarshan, an optional package (``pip install 'darshan>=3.5'``). PyDarshan reads logs with C
code that trusts the sizes in a log, so that a damaged log can abort the process. Therefore PyDarshan runs in a separate
process with resource limits: ``python -m jobs.profiler.saved_profiles LOG WINDOW``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jobs.events import posix_window
from jobs.events.posix_window import (
    COUNTERS,
    DARSHAN_NAMES,
    DARSHAN_SECONDS,
    DARSHAN_TIMES,
    MODULES,
    OPERATIONS,
    READS,
    SIZES,
    WRITES,
    Window,
    checked_events,
)
from jobs.profiler.hook_library import HEAD_BYTES, ProfilerError, capacity_of_head, window_content
from jobs.system import files, programs, untrusted

MAGIC = b"3.41\0\0\0\0"
_BYTE_ORDER, _MODULES = 6567223, 64
_HEADER = struct.Struct(f"<8sqB7xQ2Q{2 * _MODULES}Q{_MODULES}I")
_JOB, _JOB_BYTES = struct.Struct("<7q1024s"), 4096
_DXT, _DXT_SEGMENT = struct.Struct("<Qqq64sqq"), np.dtype([("offset", "<i8"), ("length", "<i8"), ("at", "<f8", 2)])
_PLACES = {"POSIX": (1, 4), "STDIO": (9, 2), "DXT": (10, 1)}  # Darshan's number and version of each module
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
    "POSIX": (*_EDGES["START"], *_EDGES["END"], *DARSHAN_SECONDS.values(), *_SPREAD),
    "STDIO": (
        *("F_META_TIME", "F_WRITE_TIME", "F_READ_TIME"),
        *(f"F_{key}_{edge}_TIMESTAMP" for edge in ("START", "END") for key in ("OPEN", "CLOSE", "WRITE", "READ")),
        *_SPREAD,
    ),
}


def write_darshan(path: Path, window: Window) -> None:
    """Write a window as a Darshan log with the counters of each file.

    In mode trace, the log also has each read and write (Darshan's module DXT).
    """
    numbers = {name: hashlib.blake2b(os.fsencode(name), digest_size=8).digest() for name in window.paths}
    names = b"".join(number + os.fsencode(name) + b"\0" for name, number in numbers.items())
    regions = {_PLACES[module][0]: _records(window, module, numbers) for module in MODULES}
    if window.events is not None:
        regions[_PLACES["DXT"][0]] = b"".join(_segment_records(window, numbers))
    packed = {region: zlib.compress(data) for region, data in regions.items() if data}
    job, names_region = zlib.compress(_job(window)), zlib.compress(names)
    offset = _HEADER.size + len(job)
    table = [offset, len(names_region)]
    offset += len(names_region)
    for region in range(_MODULES):
        size = len(packed.get(region, b""))
        table += [offset if size else 0, size]
        offset += size
    versions = {region: version for region, version in _PLACES.values() if region in packed}
    partial = sum(1 << region for region in packed) if window.dropped else 0
    header = _HEADER.pack(MAGIC, _BYTE_ORDER, 0, partial, *table, *(versions.get(n, 0) for n in range(_MODULES)))
    with files.write_whole(path, durable=False) as file:
        file.write(b"".join((header, job, names_region, *(packed[region] for region in sorted(packed)))))


def _job(window: Window) -> bytes:
    edges = [part for time_ns in (window.started_ns, window.ended_ns) for part in divmod(time_ns, 10**9)]
    record = _JOB.pack(os.getuid(), *edges, 1, window.process, b"lib_ver=3.4.1\nh=jobs.profiler\n")
    program = " ".join(" ".join(sys.argv).split())[:1024].encode(errors="replace")
    # The last line declares one mount point, because PyDarshan refuses a log without mount points.
    return (record + program + b"\nunknown\t/").ljust(_JOB_BYTES, b"\0")


def _records(window: Window, module: str, numbers: dict[str, bytes]) -> bytes:
    """Return the bytes of the records of one module, with one record per file."""
    indices = [index for index, name in enumerate(window.modules) if name == module]
    rows, counters, times = window.counters[indices], _COUNTERS[module], _TIMES[module]
    kind = [("id", "S8"), ("rank", "<i8"), ("counters", "<i8", len(counters)), ("times", "<f8", len(times))]
    records = np.zeros(len(indices), kind)
    for file, row in zip(indices, records, strict=True):
        row["id"] = numbers[window.paths[file]]
    for key, index, name in DARSHAN_NAMES[module]:
        if name in counters:
            records["counters"][:, counters.index(name)] = rows[key] if index is None else rows[key][:, index]
    for key, name in DARSHAN_TIMES.items():
        seconds = np.where(rows[key] > 0, (rows[key] - window.started_ns) / 1e9, 0.0)
        records["times"][:, times.index(name)] = seconds
    for key, name in DARSHAN_SECONDS.items():
        if name in times:
            records["times"][:, times.index(name)] = rows[key] / 1e9
    return records.tobytes()


def _segment_records(window: Window, numbers: dict[str, bytes]) -> Iterator[bytes]:
    """Yield the DXT record of each file: first all writes, and then all reads of the file."""
    assert window.events is not None  # noqa: S101 - `write_darshan` has checked this
    codes = {kind: [OPERATIONS.index(name) for name in names] for kind, names in (("w", WRITES), ("r", READS))}
    is_complete = window.of_posix[window.events["file"]] & (window.events["returned"] >= 0)
    is_complete &= window.events["offset"] >= 0  # leave out pipes, which have no offsets
    transfers = window.events[is_complete & np.isin(window.events["operation"], codes["w"] + codes["r"])]
    is_read = np.isin(transfers["operation"], codes["r"])
    transfers = transfers[np.lexsort((transfers["start"], is_read, transfers["file"]))]
    segments = np.zeros(len(transfers), _DXT_SEGMENT)
    segments["offset"], segments["length"] = transfers["offset"], transfers["returned"]
    segments["at"] = (np.stack((transfers["start"], transfers["end"]), axis=1) - window.started_ns) / 1e9
    files_of_calls, starts = np.unique(transfers["file"], return_index=True)
    host = socket.gethostname().encode()[:63]
    for file, first, last in zip(files_of_calls.tolist(), starts, [*starts, len(transfers)][1:], strict=True):
        written = int(np.isin(transfers["operation"][first:last], codes["w"]).sum())
        number = int.from_bytes(numbers[window.paths[file]], "little")
        yield _DXT.pack(number, 0, 0, host, written, int(last - first) - written) + segments[first:last].tobytes()


_ARCHIVE = b"PK"  # first bytes of a zip archive; a .npz file is a zip archive
_ENDS = ("meta_end", "read_end", "write_end")
_MOST_S = 120  # time limit; PyDarshan reads 100,000 records in 12 s
_MOST_MEMORY_BYTES = 8 << 30  # limit of the address space; pandas and PyDarshan take 1.5 GiB at their start


def read_profile(path: Path) -> Window:
    """Return the window in a file; raise JobError if the format is unknown, or if the file is damaged or too large."""
    path = files.resolve_user_path(path)
    try:
        with untrusted.open_bounded(path, posix_window.LARGEST_BYTES) as file:
            begin = file.read(len(MAGIC))
            is_darshan = begin[:2] == b"3." and begin[-1:] == b"\0"
            if not is_darshan and not begin.startswith(_ARCHIVE):
                return _read_spill(file)
    except posix_window.FAULTS as error:
        raise posix_window.unreadable_profile_error(path, error) from error
    return _read_log(path) if is_darshan else posix_window.read_window(path)


def _read_spill(file: BinaryIO) -> Window:
    """Return the window in a spill file.

    If the process was killed before the window was stopped, return the calls until the end of the process.
    """
    file.seek(0)
    room, facts = capacity_of_head(file.read(HEAD_BYTES))
    if os.fstat(file.fileno()).st_size != room.size_bytes:
        raise ValueError("it is cut off")
    memory = np.memmap(file, np.uint8, "r", shape=(room.size_bytes,))
    number = 0
    if room.mode == "trace":
        complete = np.flatnonzero(room.events_in(memory)["operation"])
        number = int(complete[-1]) + 1 if len(complete) else 0
    content = window_content(room, memory, number)
    if room.mode == "trace":
        content["events"] = checked_events(content["events"][complete], len(content["paths"]))
    if "ended" not in facts:
        ends = [content["events"]["end"]] if number else [content["counters"][name] for name in _ENDS]
        ended_ns = max([facts["started_ns"], *(int(times.max()) for times in ends if len(times))])
        facts |= {"ended_ns": ended_ns, "dropped": 0, "read_bytes": 0, "kernel_read_bytes": None, "ended": False}
        facts |= {"beside": "", "device_bytes": None}  # these facts are unknown for a killed process
    return posix_window.from_head(facts, **content)


def _read_log(log: Path) -> Window:
    if importlib.util.find_spec("darshan") is None:
        raise ProfilerError(f"{log} is a Darshan log, and PyDarshan is not installed", "pip install 'darshan>=3.5'")
    with tempfile.TemporaryDirectory() as folder:
        window = Path(folder).resolve() / "window.npz"
        try:
            completed = programs.run_program(
                programs.python_command("-m", __name__, str(log), str(window)), timeout=_MOST_S
            )
        except subprocess.TimeoutExpired as error:
            raise ProfilerError(f"PyDarshan has not read {log} within {_MOST_S} s", "name a smaller log") from error
        if completed.returncode:
            last_line = (completed.stderr.strip().splitlines() or [""])[-1]
            reason = f"it was killed by signal {-completed.returncode}" if completed.returncode < 0 else last_line
            hint = "name a whole log, whose Darshan version is not newer than PyDarshan"
            raise ProfilerError(f"{log} is no Darshan log that PyDarshan reads: {reason}", hint)
        return posix_window.read_window(window)


def main(log: str, window: str) -> None:
    """Read a Darshan log with PyDarshan, and write the log as a window.

    A damaged log can end this process with an exception or with a signal.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_S, _MOST_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyDarshan warns of modules for which it has no summary
        import darshan  # noqa: PLC0415 - an optional package, and slow to import

        report = darshan.DarshanReport(f"/proc/self/fd/{files.open_file(Path(log))}", read_all=False)
        for module in report.modules:
            report.mod_read_all_records(module)
    posix_window.write_window(Path(window), _window_of_report(report))


def _window_of_report(report: Any) -> Window:
    records = [(module, record) for module in MODULES if module in report.records for record in report.records[module]]
    job = report.metadata["job"]
    started_ns = job["start_time_sec"] * 10**9 + job["start_time_nsec"]
    counters = np.zeros(len(records), COUNTERS)
    for (module, record), row in zip(records, counters, strict=True):
        values = dict(zip(report.counters[module]["counters"], record["counters"].tolist(), strict=True))
        times = dict(zip(report.counters[module]["fcounters"], record["fcounters"].tolist(), strict=True))
        for key, index, name in DARSHAN_NAMES[module]:
            value = max(0, values.get(f"{module}_{name}", 0))  # -1 means unknown, for a file of several ranks
            if index is None:
                row[key] = value
            else:
                row[key][index] = value
        for key, name in DARSHAN_SECONDS.items():
            row[key] = round(times.get(f"{module}_{name}", 0.0) * 1e9)
        for key, name in DARSHAN_TIMES.items():
            after_s = times.get(f"{module}_{name}", 0.0)
            row[key] = started_ns + round(after_s * 1e9) if after_s else 0
    files_of_records = [
        (report.name_records.get(record["id"], f"<{record['id']}>"), module) for module, record in records
    ]
    indices = {file: index for index, file in enumerate(dict.fromkeys(files_of_records))}
    counters = posix_window.add_rows(
        counters, np.array([indices[file] for file in files_of_records], int), len(indices)
    )
    return Window(
        mode="counters",
        started_ns=started_ns,
        ended_ns=job["end_time_sec"] * 10**9 + job["end_time_nsec"],
        process=job["jobid"],
        paths=[path for path, _ in indices],
        modules=[module for _, module in indices],
        counters=counters,
        events=None,
        dropped=0,
        read_bytes=int(counters["bytes_read"].sum()),
        kernel_read_bytes=None,
        clock_s=0.0 if job["start_time_nsec"] or job["end_time_nsec"] else 1.0,
        ranks=job["nprocs"],
        gaps=tuple(_gaps_of_report(report)),
    )


def _gaps_of_report(report: Any) -> Iterator[str]:
    """Yield sentences on what a Darshan log lacks, and on the bytes of its modules that are not read here."""
    if partial := [module for module, facts in report.modules.items() if facts["partial_flag"]]:
        files_of = ", ".join(partial)
        yield f"Darshan had no memory for all files of {files_of}: run the program with a larger DARSHAN_MODMEM"
    amounts = []
    for module in report.modules:
        if module in MODULES or module.startswith(("DXT", "LUSTRE", "HEATMAP")):  # they count no bytes of their own
            continue
        names = report.counters.get(module, {}).get("counters", [])
        places = [place for place, name in enumerate(names) if name.endswith(("_BYTES_READ", "_BYTES_WRITTEN"))]
        moved = sum(
            max(0, int(record["counters"][place])) for record in report.records.get(module, ()) for place in places
        )
        amounts.append(f"{module} ({moved / 1e6:,.1f} MB)" if places else f"{module} (bytes unknown)")
    if amounts:
        yield f"modules of the log that are not read here: {', '.join(amounts)}; a layer may count the bytes of another"


if __name__ == "__main__":
    main(*sys.argv[1:])
