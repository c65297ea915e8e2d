"""External engines, fio and IOR: their command lines, their runs, and the readers of their output.

The output is stored unchanged. For fio's JSON see fio(1). IOR runs with one process, and prints its JSON piece by
piece: some versions leave out brackets, print other lines in between, or print pieces after the end (hpc/ior issues
102, 233, 503). The small objects with the results are complete in all versions, so only these are read.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jobs.benchmarks.engines import engine as engines
from jobs.benchmarks.engines.engine import EngineOrder, EngineOutcome
from jobs.errors import EngineError
from jobs.fork_server import die_with_parent
from jobs.system import files, programs

_TAIL_CHARACTERS = 300
# C's printf of a value that is no number, for which JSON has no word.
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])[+-]?(?:nan|inf(?:inity)?)(?=[\s,\]}])", re.IGNORECASE)
_FIO_ACCESS = {"write": "write", "read": "read", "random_read": "randread"}
_MIB = 1 << 20
_INNERMOST = re.compile(r"\{[^{}]*\}")
_IOR_VERSION = re.compile(r'(?:"Version": "|\bIOR-)(?P<version>\d[^\s:"]*)')
_IOR_PARTS = {"openTime": "open_s", "wrRdTime": "transfer_s", "closeTime": "close_s"}


class ExternalEngine(NamedTuple):
    """An external engine: its program, its command line for an order, and the reader of its output.

    The reader raises EngineError unless the output holds exactly one complete result of the order.
    """

    program: str
    command: Callable[[EngineOrder], list[str]]
    outcome: Callable[[str, EngineOrder], EngineOutcome]


def run_external(engine: ExternalEngine, raw: Path | None, order: EngineOrder) -> EngineOutcome:
    """Return the outcome of a program that runs an order; `raw` is the file for its output."""
    command = engine.command(order)
    start = time.perf_counter()
    answer = program_output(command, order.file.parent, raw)
    return checked_outcome(engine, answer, order, time.perf_counter() - start)


def checked_outcome(engine: ExternalEngine, answer: str, order: EngineOrder, elapsed_s: float) -> EngineOutcome:
    """Return the outcome in a program's output; raise EngineError if it is incomplete or contradicts itself."""
    try:
        return engines.require_credible(engine.outcome(answer, order), order, elapsed_s)
    except EngineError as error:
        raise engine_error(engine.program, f"is not credible: {error}", answer) from error


def program_output(command: Sequence[str], folder: Path, raw: Path | None) -> str:
    """Return the standard output of a program run in `folder`, also written to `raw`; raise EngineError if it fails."""
    try:
        # It must not continue to use the storage after this process.
        completed = programs.run_program(command, cwd=folder, preexec_fn=die_with_parent)
    except OSError as error:
        raise EngineError(f"{command[0]} cannot be started: {error.strerror}") from error
    error_head = f"--- standard error, exit code {completed.returncode}"
    log_text = f"$ {shlex.join(command)}\n{completed.stdout}\n{error_head}\n{completed.stderr}"
    if raw is not None:
        with suppress(OSError):  # a full disk must not end the run
            files.write_text(raw, log_text)
    if completed.returncode:
        raise engine_error(
            command[0], f"ended with exit code {completed.returncode}", completed.stderr.strip() or completed.stdout
        )
    return completed.stdout


def engine_error(program: str, fault: str, text: str) -> EngineError:
    """Return an error that ends with a program's last output; more of the output goes to standard error."""
    print(text[-10 * _TAIL_CHARACTERS :], file=sys.stderr)
    last_output = " ".join(text[-_TAIL_CHARACTERS:].split())
    return EngineError(
        f"{program} {fault}: …{last_output}" if last_output else f"{program} {fault}, and printed nothing"
    )


def json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text with any other content; NaN and infinity become None."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    end, cleaned = 0, _NO_NUMBER.sub("null", text)
    while (start := cleaned.find("{", end)) >= 0:
        end = start + 1
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(cleaned, start)
            yield value


def read_number(node: Mapping[str, Any], key: str) -> float:
    """Return a number of a program's output; raise EngineError if it is missing or not finite."""
    value = node.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise EngineError(f"its answer has no number {key}: {value!r}"[:_TAIL_CHARACTERS])
    return value


def fio_command(order: EngineOrder) -> list[str]:
    """Return fio's command line; the file is named relative to its folder, because fio interprets ``:`` and ``$``."""
    options = {
        "name": "baseline",
        "filename": order.file.name,
        "rw": _FIO_ACCESS[order.access],
        "bs": order.block_bytes,
        "size": order.file_bytes,
        "ioengine": "psync",
        "direct": int(order.direct),
        "output-format": "json",
    }
    if order.access == "write":  # a new file without allocated blocks; the flush is part of the time
        options |= {"end_fsync": 1, "create_on_open": 1, "fallocate": "none"}
    else:
        options["allow_file_create"] = 0
    if order.access == "random_read":
        options |= _fio_readers(order)
    flags = ["--thread", "--group_reporting", *([] if order.access == "write" else ["--readonly"])]
    return ["fio", *(f"--{key}={value}" for key, value in options.items()), *flags]


def _fio_readers(order: EngineOrder) -> dict[str, Any]:
    """Return options that give each reader its own part of the file, because fio tracks blocks per job only."""
    blocks = order.file_bytes // order.block_bytes
    readers = max(1, min(order.threads, blocks))
    share = blocks // readers * order.block_bytes
    return {
        "numjobs": readers,
        "size": share,
        "offset_increment": share,
        "randrepeat": 0,  # else fio ignores randseed
        "randseed": order.seed + 1,  # each reader's seed is a multiple of it, so it must not be 0
        "runtime": f"{round(order.seconds_max * 1000)}ms",  # fio ignores a limit of a fraction of a second
    }


def fio_outcome(answer: str, order: EngineOrder) -> EngineOutcome:
    """Return the outcome in fio's output; raise EngineError unless it holds one JSON document with one job."""
    answers = [document for document in json_objects(answer) if "jobs" in document]
    if len(answers) != 1:
        raise EngineError(f"it gave {len(answers)} answers" if answers else "it gave no complete answer")
    jobs = answers[0]["jobs"]
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        raise EngineError("its answer does not have one job")
    job = jobs[0]
    if read_number(job, "error"):
        raise EngineError(f"error {job['error']}")
    access_result = job.get("write" if order.access == "write" else "read")
    if not isinstance(access_result, dict):
        raise EngineError("its answer has no result of the access")
    moved_bytes, requests, milliseconds, rate = (
        read_number(access_result, key) for key in ("io_bytes", "total_ios", "runtime", "bw_bytes")
    )
    version = str(answers[0].get("fio version", engines.UNKNOWN))
    return EngineOutcome(int(moved_bytes), int(requests), milliseconds / 1e3, version, rate=rate)


def ior_command(order: EngineOrder) -> list[str]:
    """Return IOR's command line (IOR 3.3 and later): one task, one block; IOR does not delete the file."""
    size_options = ["-b", str(order.file_bytes), "-t", str(order.block_bytes)]
    direct = ["--posix.odirect"] if order.direct else []
    # -e: the flush is part of the time. -E: the existing file is used.
    access = ["-w", "-e"] if order.access == "write" else ["-r", "-E"]
    return [
        "ior", "-a", "POSIX", *access, "-k", "-i", "1", *size_options, *direct,
        "-o", order.file.name, "-O", "summaryFormat=JSON",
    ]  # fmt: skip


def ior_outcome(answer: str, order: EngineOrder) -> EngineOutcome:
    """Return the outcome in IOR's output; raise EngineError unless it has exactly one complete result of the access."""
    texts = _INNERMOST.findall(answer)
    objects = [document for text in texts for document in json_objects(text)]
    results = [result for result in objects if result.get("access") == order.access and "bwMiB" in result]
    if len(results) != 1:
        raise EngineError(f"it gave {len(results)} results" if results else "it gave no complete result")
    (result,), match = results, _IOR_VERSION.search(answer)
    version = f"IOR-{match['version']}" if match else engines.UNKNOWN
    # IOR reports no bytes, so its rate and time are checked with the bytes of the order.
    wall_s, rate = read_number(result, "totalTime"), read_number(result, "bwMiB") * _MIB
    parts = {name: read_number(result, ior_name) for ior_name, name in _IOR_PARTS.items()}
    requests = order.file_bytes // order.block_bytes
    return EngineOutcome(order.file_bytes, requests, wall_s, version, parts, rate)


EXTERNAL = {
    engine.program: engine
    for engine in (ExternalEngine("fio", fio_command, fio_outcome), ExternalEngine("ior", ior_command, ior_outcome))
}
"""The external engines, by name."""
