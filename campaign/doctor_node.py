"""Examine a machine for `doctor`: can a campaign run here, and can it prove its measurements.

On a cluster `doctor` submits a job that examines the compute node::

    python -m campaign.doctor_node REQUEST.json > ANSWER.json
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypedDict

from campaign.console import count_noun
from campaign.errors import CampaignError
from campaign.storage import emulation, locks
from campaign.storage.roots import path_on_rank, require_folder_on_ranks, storage_root
from jobs.errors import JobError, NotInstalledError
from jobs.lazy_imports import has_tensorflow
from jobs.model import reading
from jobs.model.settings import Node
from jobs.objects.client import ROOM_CURE, Client
from jobs.observe import counters
from jobs.system import page_cache, programs, tunables
from jobs.system.device import IN_MEMORY, device_of, mount_of
from jobs.system.layers import emulated_storage, has_own_cache

_PROBE_BYTES = 8 << 20
_WATCH_S = 1.0
_IMPORT_TIMEOUT_S = 300
_LEAST_FREE_BYTES = 3 << 30  # imagenet_subset takes 2 GB
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")


@dataclass(frozen=True)
class NodeFinding:
    """The result of one check of a machine or a cluster."""

    what: str
    passed: bool | None  # False: campaigns fail here; None: campaigns run, with worse or less certain results
    message: str
    hint: str = ""


class ExaminationRequest(TypedDict):
    """The request to examine a node, which `doctor` writes for its job."""

    nonce: str  # a random text, which the answer repeats
    storages: list[Node]  # settings of the storages; ``cold`` is true if a cell reads with a cold page cache
    checks: dict[str, float]
    needing_tensorflow: list[str]  # the benchmarks of the campaign that use TensorFlow


class NodeFindings(TypedDict):
    """The findings on a node."""

    nonce: str
    host: str
    findings: list[Node]


def check_python() -> NodeFinding:
    """Check the version of the Python interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return NodeFinding(
        "python", passed=sys.version_info >= (3, 11), message=version, hint="Python 3.11 or later is needed"
    )


def check_campaign_folder(campaign: Path) -> NodeFinding:
    """Check that files can be written into the campaign folder; if it does not exist, check its nearest parent."""
    parent = next(folder for folder in (campaign, *campaign.parents) if folder.exists())
    return _run_check("records", parent, _check_writable)


def examine_machine(
    storages: Iterable[Node], checks: Mapping[str, float], needing_tensorflow: Sequence[str]
) -> Iterator[NodeFinding]:
    """Yield the findings on TensorFlow, the clock, the load and the memory of the machine, and each storage.

    `needing_tensorflow` names the benchmarks of the campaign that use TensorFlow.
    """
    yield _check_tensorflow(needing_tensorflow)
    yield _check_clock()
    yield _check_load(checks)
    yield from _check_reclaim()
    for storage in storages:
        yield from examine_storage(storage)


def examine_storage(storage: Node) -> Iterator[NodeFinding]:
    """Yield the findings on a storage: can files be written, locked, and evicted from the page cache."""
    if storage.get("kind") == "s3":
        yield _check_object_store(storage)
        return
    try:
        root = storage_root(storage)
    except CampaignError as error:
        yield NodeFinding("storage", passed=False, message=error.message, hint=error.hint)
        return
    yield _check_file_system(root, cold=storage["cold"])
    if storage.get("node_root"):
        yield _check_page_caches(root, storage)
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        yield NodeFinding("write", passed=True, message=f"{root} is read-only: data sets must already exist")
        return
    yield _run_check("write", root, _check_writable)
    if storage["exclusive"] == "lock":
        yield _run_check("lock", root, _check_lockable)
    cold_reads = _run_check("cold", root, _check_cold_reads)
    yield cold_reads if cold_reads.passed or storage["cold"] else replace(cold_reads, passed=None)


def _check_object_store(storage: Node) -> NodeFinding:
    """Check, without retries, that the objects of a bucket can be listed and that the store is not nearly full."""
    try:
        client = Client({**storage, "retries": 0})
        next(client.list_objects(), None)
    except JobError as error:
        return NodeFinding("storage", passed=False, message=error.message, hint=error.hint)
    room_of_store = client.bucket_space()
    message = f"{client.url_of('')} at {storage['endpoint']} can be listed" + (
        f", {room_of_store}" if room_of_store else ""
    )
    if room_of_store and room_of_store.is_nearly_full:
        return NodeFinding("storage", passed=None, message=f"{message}: the store is nearly full", hint=ROOM_CURE)
    hint = "name the store's disk with storage.device=… if it is on this machine; else no run is proved to be cold"
    proved = bool(storage["device"]) or not storage["cold"]
    return NodeFinding("storage", passed=True if proved else None, message=message, hint=hint)


def _check_tensorflow(benchmarks: Sequence[str]) -> NodeFinding:
    """Check that a child process can import TensorFlow, as the process that forks the runs does."""
    if not has_tensorflow():
        error = NotInstalledError("TensorFlow", benchmarks)
        message = error.message if benchmarks else f"{error.message}, and this campaign does not need it"
        return NodeFinding("tensorflow", passed=not benchmarks, message=message, hint=error.hint)
    started_s = time.perf_counter()
    try:
        process = subprocess.run(
            programs.python_command("-c", "import tensorflow; print(tensorflow.__version__)"),
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NodeFinding("tensorflow", passed=False, message=f"import took over {_IMPORT_TIMEOUT_S} s")
    if process.returncode != 0:
        last_line = (process.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        hint = NotInstalledError("TensorFlow").hint
        return NodeFinding("tensorflow", passed=False, message=f"cannot be imported: {last_line}", hint=hint)
    message = f"{process.stdout.strip()}, import {time.perf_counter() - started_s:.1f} s"
    return NodeFinding("tensorflow", passed=True, message=message)


def _check_clock() -> NodeFinding:
    source = _CLOCKSOURCE.read_text(encoding="ascii").strip() if _CLOCKSOURCE.exists() else "unknown"
    resolution = time.get_clock_info("perf_counter").resolution
    passed = None if source in _SLOW_CLOCKS or resolution > 1e-6 else True  # noqa: PLR2004 - a microsecond
    message = f"source {source}, resolution {resolution * 1e9:.0f} ns"
    return NodeFinding("clock", passed=passed, message=message, hint="reading this clock source takes long")


def _check_load(limits: Mapping[str, float]) -> NodeFinding:
    """Check for one second that other programs keep few processors busy."""
    old_counters = counters.read_counters(None)
    time.sleep(_WATCH_S)
    others_cpu = counters.subtract_readings(old_counters, counters.read_counters(None))["other_cpu"] or 0.0
    message = f"other programs keep {others_cpu:.2f} cores busy, load average {os.getloadavg()[0]:.2f}"
    hint = f"runs are invalid above checks.other_cpu_max={limits['other_cpu_max']:g}; stop the other programs"
    return NodeFinding(
        "load", passed=None if others_cpu > limits["other_cpu_max"] else True, message=message, hint=hint
    )


def _check_reclaim() -> Iterator[NodeFinding]:
    """Yield a finding if the kernel (DAMON) evicts pages although enough memory is free."""
    if switches := tunables.proactive_reclaim():
        message = f"the kernel evicts pages early ({', '.join(switches)}), even pages that were read just before"
        hint = (
            "warm runs may be refused, and bytes may be read and counted twice; an administrator can switch early"
            " eviction off: write `off` into a file `state`, `N` into a parameter"
        )
        yield NodeFinding("reclaim", passed=None, message=message, hint=hint)


def _check_file_system(root: Path, *, cold: bool) -> NodeFinding:
    mount, device, free = mount_of(root), device_of(root), shutil.disk_usage(root).free
    message = f"{root} on {mount.fstype} ({mount.source}), {free / 1e9:.1f} GB free"
    facts = emulated_storage(root)
    message += f", emulated: {emulation.limits_in_words(facts)}" if facts else ""
    if mount.fstype in IN_MEMORY:
        hint = "files in memory are never cold: choose storage.root=… on a disk"
        return NodeFinding("storage", passed=False if cold else None, message=message, hint=hint)
    if device is None:
        hint = "the storage has no block device here, so the reads and writes of other programs cannot be counted"
        return NodeFinding("storage", passed=None, message=message, hint=hint)
    enough = True if free >= _LEAST_FREE_BYTES else None
    return NodeFinding(
        "storage", passed=enough, message=f"{message}, device {device.name}", hint="little space is free"
    )


def _check_page_caches(root: Path, storage: Node) -> NodeFinding:
    """Check that each emulated node has its own folder and its own page cache."""
    nodes = storage.get("nodes", 1)
    try:
        require_folder_on_ranks({"storage": storage, "nodes": nodes})
    except CampaignError as error:
        return NodeFinding("caches", passed=False, message=error.message, hint=error.hint)
    folders = [Path(path_on_rank(str(root), storage, rank)) for rank in range(nodes)]
    are_private = len({folder.stat().st_dev for folder in folders}) == len(folders) and all(map(has_own_cache, folders))
    caches = "a page cache each" if are_private else "one page cache: a file that one node reads is in memory for all"
    hint = "python -m campaign testbed up nodes=… makes nodes with separate page caches"
    message = f"{count_noun(nodes, 'emulated node')} with {caches}"
    return NodeFinding("caches", passed=are_private or None, message=message, hint=hint)


def _run_check(name: str, folder: Path, check: Callable[[str, Path], NodeFinding]) -> NodeFinding:
    """Run a check and return its finding. If the file system reports an error, return a failed finding."""
    try:
        return check(name, folder)
    except OSError as error:
        message = f"{folder}: {error.strerror}"
        return NodeFinding(name, passed=False, message=message, hint="choose a folder that you may write to")


def _check_writable(name: str, folder: Path) -> NodeFinding:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(b"x")
        os.fsync(file.fileno())
    return NodeFinding(name, passed=True, message=f"{folder} can be written")


def _check_lockable(name: str, folder: Path) -> NodeFinding:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        try:
            with locks.acquire_lock(Path(file.name)):
                return NodeFinding(name, passed=True, message=f"files in {folder} can be locked")
        except CampaignError as error:
            return NodeFinding(name, passed=False, message=error.message, hint=error.hint)


def _check_cold_reads(name: str, folder: Path) -> NodeFinding:
    """Check that a file can be evicted from the page cache, and that its bytes are then read from the device."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(os.urandom(_PROBE_BYTES))
        os.fsync(file.fileno())
        paths = [Path(file.name)]
        page_cache.evict_pages(paths)
        residency = page_cache.residency(paths)
        old_counters = counters.read_counters(None)
        page_cache.read_through(paths)
        fetched_bytes = counters.subtract_readings(old_counters, counters.read_counters(None))["device_bytes"]
    fetched_share = "unknown" if fetched_bytes is None else f"{fetched_bytes / _PROBE_BYTES:.0%}"
    resident_share = "an unknown share" if residency.fraction is None else f"{residency.fraction:.0%}"
    message = f"after eviction {resident_share} resident ({residency.method}), {fetched_share} read from the device"
    cold = not residency.resident and fetched_bytes is not None and fetched_bytes >= _PROBE_BYTES
    hint = "runs with cache=cold will be invalid here; cache=as_is measures without a proof of a cold page cache"
    return NodeFinding(name, passed=cold, message=message, hint=hint)


def main(request_file: str) -> int:
    """Read an examination request from a file, examine this machine, print the findings as JSON, and return 0."""
    request = reading.read_json(Path(request_file), ExaminationRequest)
    findings = examine_machine(request["storages"], request["checks"], request["needing_tensorflow"])
    answer: NodeFindings = {"nonce": request["nonce"], "host": platform.node(), "findings": [*map(asdict, findings)]}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
