"""Find out whether a machine can measure, and prove what it measures: this one, or by hand any node.

On a node of a cluster `doctor` has a job do it::

    python -m campaign.doctor.node ASKED.json > ANSWER.json
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypedDict

from campaign.console import counted
from campaign.errors import CampaignError
from campaign.storage import emulation, locks
from campaign.storage.roots import require_seen, seen_by, storage_root
from jobs.errors import JobError
from jobs.model import reading
from jobs.model.settings import Node
from jobs.objects import room
from jobs.objects.client import Client
from jobs.observe import counters
from jobs.system import page_cache, programs
from jobs.system.device import device_of, mount_of
from jobs.system.emulated import emulated
from jobs.system.layers import own_cache

_PROBE_BYTES = 8 << 20
_WATCH_S = 1.0
_IMPORT_TIMEOUT_S = 300
_LEAST_FREE_BYTES = 3 << 30  # imagenet_subset takes 2 GB
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    passed: bool | None  # False: campaigns will fail here; None: they will run, with a figure worse or less proved
    message: str
    hint: str = ""


class Asked(TypedDict):
    """What a node is to examine."""

    word: str  # anything: the answer has it, too
    storages: list[Node]  # as in a configuration, and ``cold``: are cells to find its files out of memory
    checks: dict[str, float]


class Answer(TypedDict):
    """What was found on it."""

    word: str
    host: str
    findings: list[Node]


def python() -> Finding:
    """Check the interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", passed=sys.version_info >= (3, 11), message=version, hint="Python 3.11 or later is needed")


def records(campaign: Path) -> Finding:
    """Try to write where the campaign folder is, or will be."""
    above = next(folder for folder in (campaign, *campaign.parents) if folder.exists())
    return _guarded("records", above, _writable)


def machine(storages: Iterable[Node], checks: Mapping[str, float]) -> Iterator[Finding]:
    """Check what measures: TensorFlow, the clock, the others on this machine, and each storage."""
    yield _tensorflow()
    yield _clock()
    yield _load(checks)
    for each in storages:
        yield from storage(each)


def storage(described: Node) -> Iterator[Finding]:
    """Check a storage: is it there, may it be written and locked, can a file on it be cold."""
    if described.get("kind") == "s3":
        yield _object_store(described)
        return
    try:
        root = storage_root(described)
    except CampaignError as error:
        yield Finding("storage", passed=False, message=error.message, hint=error.hint)
        return
    yield _file_system(root, cold=described["cold"])
    if described.get("node_root"):
        yield _page_caches(root, described)
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        yield Finding("write", passed=True, message=f"{root} is read-only: what is to be read must be there already")
        return
    yield _guarded("write", root, _writable)
    if described["exclusive"] == "lock":
        yield _guarded("lock", root, _lockable)
    found = _guarded("cold", root, _can_be_cold)
    yield found if found.passed or described["cold"] else replace(found, passed=None)


def _object_store(described: Node) -> Finding:
    """List it, and ask how full it is; nothing is asked again."""
    try:
        client = Client({**described, "retries": 0})
        next(client.listed(), None)
    except JobError as error:
        return Finding("storage", passed=False, message=error.message, hint=error.hint)
    found = client.room()
    message = f"{client.url_of('')} at {described['endpoint']} can be listed" + (f", {found}" if found else "")
    if found and found.is_nearly_full:
        return Finding("storage", passed=None, message=f"{message}: it is nearly full", hint=room.CURE)
    hint = "storage.device=… names its disk where that is on this machine: without it no run is proved to be cold"
    proved = bool(described["device"]) or not described["cold"]
    return Finding("storage", passed=True if proved else None, message=message, hint=hint)


def _tensorflow() -> Finding:
    """Import it in a process of its own, as the template does."""
    before = time.perf_counter()
    try:
        done = subprocess.run(
            programs.python("-c", "import tensorflow; print(tensorflow.__version__)"),
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("tensorflow", passed=False, message=f"import took over {_IMPORT_TIMEOUT_S} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        hint = "pip install -c requirements.lock -e ."
        return Finding("tensorflow", passed=False, message=f"cannot be imported: {last}", hint=hint)
    message = f"{done.stdout.strip()}, import {time.perf_counter() - before:.1f} s"
    return Finding("tensorflow", passed=True, message=message)


def _clock() -> Finding:
    source = _CLOCKSOURCE.read_text(encoding="ascii").strip() if _CLOCKSOURCE.exists() else "unknown"
    resolution = time.get_clock_info("perf_counter").resolution
    passed = None if source in _SLOW_CLOCKS or resolution > 1e-6 else True  # noqa: PLR2004 - a microsecond
    message = f"source {source}, resolution {resolution * 1e9:.0f} ns"
    return Finding("clock", passed=passed, message=message, hint="a slow clock source costs time at each reading")


def _load(limits: Mapping[str, float]) -> Finding:
    """Measure for a second what other processes do."""
    before = counters.reading(None)
    time.sleep(_WATCH_S)
    others = counters.between(before, counters.reading(None))["other_cpu"] or 0.0
    message = f"others keep {others:.2f} cores busy, load average {os.getloadavg()[0]:.2f}"
    hint = f"runs are invalid above checks.other_cpu_max={limits['other_cpu_max']:g}; end what else is running"
    return Finding("load", passed=None if others > limits["other_cpu_max"] else True, message=message, hint=hint)


def _file_system(root: Path, *, cold: bool) -> Finding:
    mount, device, free = mount_of(root), device_of(root), shutil.disk_usage(root).free
    message = f"{root} on {mount.fstype} ({mount.source}), {free / 1e9:.1f} GB free"
    facts = emulated(root)
    message += f", emulated: {emulation.bounds(facts)}" if facts else ""
    if mount.fstype in ("tmpfs", "ramfs"):
        hint = "memory cannot be cold: storage.root=… on a disk"
        return Finding("storage", passed=False if cold else None, message=message, hint=hint)
    if device is None:
        hint = "no block device of its own: traffic of others is not seen"
        return Finding("storage", passed=None, message=message, hint=hint)
    enough = True if free >= _LEAST_FREE_BYTES else None
    return Finding("storage", passed=enough, message=f"{message}, device {device.name}", hint="little space is left")


def _page_caches(root: Path, described: Node) -> Finding:
    """See whether each rank on emulated nodes has its folder, and what it reads is in no other's page cache."""
    nodes = described.get("nodes", 1)
    try:
        require_seen({"storage": described, "nodes": nodes})
    except CampaignError as error:
        return Finding("caches", passed=False, message=error.message, hint=error.hint)
    folders = [Path(seen_by(str(root), described, rank)) for rank in range(nodes)]
    private = len({folder.stat().st_dev for folder in folders}) == len(folders) and all(map(own_cache, folders))
    what = "a page cache each" if private else "one page cache: what one has read, the others find in memory"
    hint = "python -m campaign testbed up nodes=… gives each its own"
    message = f"{counted(nodes, 'emulated node')} with {what}"
    return Finding("caches", passed=private or None, message=message, hint=hint)


def _guarded(what: str, folder: Path, check: Callable[[str, Path], Finding]) -> Finding:
    try:
        return check(what, folder)
    except OSError as error:
        message = f"{folder}: {error.strerror}"
        return Finding(what, passed=False, message=message, hint="choose a folder that you may write to")


def _writable(what: str, folder: Path) -> Finding:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(b"x")
        os.fsync(file.fileno())
    return Finding(what, passed=True, message=f"{folder} can be written")


def _lockable(what: str, folder: Path) -> Finding:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        try:
            with locks.locked(Path(file.name)):
                return Finding(what, passed=True, message=f"files in {folder} can be locked")
        except CampaignError as error:
            return Finding(what, passed=False, message=error.message, hint=error.hint)


def _can_be_cold(what: str, folder: Path) -> Finding:
    """Write a file, drop it from memory, prove it, read it, and see whether its bytes come from the device."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(os.urandom(_PROBE_BYTES))
        os.fsync(file.fileno())
        paths = [Path(file.name)]
        page_cache.evict(paths)
        residency = page_cache.residency(paths)
        before = counters.reading(None)
        page_cache.read_through(paths)
        fetched = counters.between(before, counters.reading(None))["device_bytes"]
    seen = "unknown" if fetched is None else f"{fetched / _PROBE_BYTES:.0%}"
    resident = "an unknown share" if residency.fraction is None else f"{residency.fraction:.0%}"
    message = f"after eviction {resident} resident ({residency.method}), {seen} read from the device"
    cold = not residency.resident and fetched is not None and fetched >= _PROBE_BYTES
    hint = "runs with cache=cold will be invalid here; cache=as_is measures without that proof"
    return Finding(what, passed=cold, message=message, hint=hint)


def main(asked: str) -> int:
    """Examine this machine as the file asks, and print what was found as JSON."""
    request = reading.read(Path(asked), Asked)
    found = [asdict(finding) for finding in machine(request["storages"], request["checks"])]
    answer: Answer = {"word": request["word"], "host": platform.node(), "findings": found}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
