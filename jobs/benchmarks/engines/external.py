"""The external engines fio and IOR: build their command lines, run them, and read their output.

The output of an engine is stored unchanged. The manual fio(1) describes fio's JSON. IOR runs with one process. Some
versions of IOR print invalid JSON: brackets are missing, or other lines are mixed in (hpc/ior issues 102, 233, 503).
The small JSON objects with IOR's results are complete in all versions, so only these objects are read.
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
# Not-a-number and infinity as C's printf prints them, which are not valid JSON.
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])[+-]?(?:nan|inf(?:inity)?)(?=[\s,\]}])", re.IGNORECASE)
_FIO_ACCESS = {"write": "write", "read": "read", "random_read": "randread"}
_MIB = 1 << 20
_INNERMOST = re.compile(r"\{[^{}]*\}")
_IOR_VERSION = re.compile(r'(?:"Version": "|\bIOR-)(?P<version>\d[^\s:"]*)')
_IOR_PARTS = {"openTime": "open_s", "wrRdTime": "transfer_s", "closeTime": "close_s"}


class ExternalEngine(NamedTuple):
    """An external engine: its program, a function for its command line, and a function that reads its output.

    The function `outcome` raises EngineError unless the output has exactly one complete result of the order.
    """

    program: str
    command: Callable[[EngineOrder], list[str]]
    outcome: Callable[[str, EngineOrder], EngineOutcome]


def run_external(engine: ExternalEngine, raw: Path | None, order: EngineOrder) -> EngineOutcome:
    """Run an order with an external engine, and return the outcome; store the engine's output in the file `raw`."""
    command = engine.command(order)
    start = time.perf_counter()
    answer = program_output(command, order.file.parent, raw)
    return checked_outcome(engine, answer, order, time.perf_counter() - start)


def checked_outcome(engine: ExternalEngine, answer: str, order: EngineOrder, elapsed_s: float) -> EngineOutcome:
    """Return the outcome that an engine's output (`answer`) reports.

    Raises EngineError if the output is incomplete or not credible.
    """
    try:
        return engines.require_credible(engine.outcome(answer, order), order, elapsed_s)
    except EngineError as error:
        raise engine_error(engine.program, f"gave no credible result: {error}", answer) from error


def program_output(command: Sequence[str], folder: Path, raw: Path | None) -> str:
    """Run a program in `folder`, and return its standard output.

    The command, standard output and standard error are also written to the file `raw`. Raises EngineError if the
    program cannot be started or fails.
    """
    try:
        # If this process dies, the program is killed, because it must not continue to load the storage.
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
    """Return an error whose message ends with the last 300 characters of a program's output.

    The last 3,000 characters of the output are printed to standard error.
    """
    print(text[-10 * _TAIL_CHARACTERS :], file=sys.stderr)
    last_output = " ".join(text[-_TAIL_CHARACTERS:].split())
    return EngineError(
        f"{program} {fault}: …{last_output}" if last_output else f"{program} {fault}, and printed nothing"
    )


def json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text, which may have other content; NaN and infinity become None."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    end, cleaned = 0, _NO_NUMBER.sub("null", text)
    while (start := cleaned.find("{", end)) >= 0:
        end = start + 1
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(cleaned, start)
            yield value


def read_number(node: Mapping[str, Any], key: str) -> float:
    """Return the number with this key in an engine's output; raise EngineError if it is missing or not finite."""
    value = node.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise EngineError(f"the output has no number {key}: {value!r}"[:_TAIL_CHARACTERS])
    return value


def fio_command(order: EngineOrder) -> list[str]:
    """Return fio's command line for an order.

    The command line has the file's name without its folder, because fio interprets ``:`` and ``$`` in a path.
    """
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
    if order.access == "write":  # fio writes a new file without allocated blocks, and times the flush
        options |= {"end_fsync": 1, "create_on_open": 1, "fallocate": "none"}
    else:
        options["allow_file_create"] = 0
    if order.access == "random_read":
        options |= _fio_readers(order)
    flags = ["--thread", "--group_reporting", *([] if order.access == "write" else ["--readonly"])]
    return ["fio", *(f"--{key}={value}" for key, value in options.items()), *flags]


def _fio_readers(order: EngineOrder) -> dict[str, Any]:
    """Return fio options that give each reader its own part of the file, so that no block is read twice.

    Without separate parts, two readers could read the same block, because fio tracks read blocks only per reader.
    """
    blocks = order.file_bytes // order.block_bytes
    readers = max(1, min(order.threads, blocks))
    share = blocks // readers * order.block_bytes
    return {
        "numjobs": readers,
        "size": share,
        "offset_increment": share,
        "randrepeat": 0,  # with randrepeat=1, fio ignores randseed
        "randseed": order.seed + 1,  # must not be 0, because fio multiplies randseed to get each reader's seed
        "runtime": f"{round(order.seconds_max * 1000)}ms",  # in ms, because fio ignores fractions of a second
    }


def fio_outcome(answer: str, order: EngineOrder) -> EngineOutcome:
    """Return the outcome that fio's output reports.

    Raises EngineError unless the output has exactly one JSON document with exactly one job.
    """
    answers = [document for document in json_objects(answer) if "jobs" in document]
    if len(answers) != 1:
        raise EngineError(f"fio gave {len(answers)} answers" if answers else "fio gave no complete answer")
    jobs = answers[0]["jobs"]
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        raise EngineError("fio's answer does not have exactly one job")
    job = jobs[0]
    if read_number(job, "error"):
        raise EngineError(f"fio reports error {job['error']}")
    access_result = job.get("write" if order.access == "write" else "read")
    if not isinstance(access_result, dict):
        raise EngineError(f"fio's answer has no result of the {order.access}")
    moved_bytes, requests, milliseconds, rate = (
        read_number(access_result, key) for key in ("io_bytes", "total_ios", "runtime", "bw_bytes")
    )
    version = str(answers[0].get("fio version", engines.UNKNOWN))
    return EngineOutcome(int(moved_bytes), int(requests), milliseconds / 1e3, version, rate=rate)


def ior_command(order: EngineOrder) -> list[str]:
    """Return IOR's command line for an order (IOR 3.3 and later): one task, one block, and the file is not deleted."""
    size_options = ["-b", str(order.file_bytes), "-t", str(order.block_bytes)]
    direct = ["--posix.odirect"] if order.direct else []
    # Option -e: IOR times the flush, too. Option -E: IOR uses the existing file.
    access = ["-w", "-e"] if order.access == "write" else ["-r", "-E"]
    return [
        "ior", "-a", "POSIX", *access, "-k", "-i", "1", *size_options, *direct,
        "-o", order.file.name, "-O", "summaryFormat=JSON",
    ]  # fmt: skip


def ior_outcome(answer: str, order: EngineOrder) -> EngineOutcome:
    """Return the outcome that IOR's output reports.

    Raises EngineError unless the output has exactly one complete result of the order's access.
    """
    texts = _INNERMOST.findall(answer)
    objects = [document for text in texts for document in json_objects(text)]
    results = [result for result in objects if result.get("access") == order.access and "bwMiB" in result]
    if len(results) != 1:
        raise EngineError(f"IOR gave {len(results)} results" if results else "IOR gave no complete result")
    (result,), match = results, _IOR_VERSION.search(answer)
    version = f"IOR-{match['version']}" if match else engines.UNKNOWN
    # IOR does not report the bytes, so the outcome has the bytes of the order, and the reported rate confirms them.
    wall_s, rate = read_number(result, "totalTime"), read_number(result, "bwMiB") * _MIB
    parts = {name: read_number(result, ior_name) for ior_name, name in _IOR_PARTS.items()}
    requests = order.file_bytes // order.block_bytes
    return EngineOutcome(order.file_bytes, requests, wall_s, version, parts, rate)


EXTERNAL = {
    engine.program: engine
    for engine in (ExternalEngine("fio", fio_command, fio_outcome), ExternalEngine("ior", ior_command, ior_outcome))
}
"""The external engines, by name."""
