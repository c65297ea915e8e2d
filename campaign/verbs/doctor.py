"""`python -m campaign doctor`: whether this machine can measure, and prove what it measures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign import prepare
from campaign.cluster import chosen
from campaign.config import words
from campaign.errors import CampaignError
from campaign.finding import Finding
from campaign.folder import CampaignFolder
from campaign.plan import cells_of, make
from campaign.verbs import asked
from campaign.work import Request
from jobs import cache, counters
from jobs.device import device_of, mount_of
from jobs.run import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PROBE_BYTES = 8 << 20
_WATCH_S = 1.0
_IMPORT_TIMEOUT_S = 300
_LEAST_FREE_BYTES = 3 << 30  # imagenet_subset takes 2 GB
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")


def main(argv: list[str]) -> int:
    """Print the findings; exit code 3 where one forbids a campaign."""
    parser = asked.parser("doctor", "Tell whether this machine can measure, and prove what it measures.", json=True)
    parser.usage = "%(prog)s [--json] [KEY=VALUE ...]     words as for a campaign, for example storage.root=/scratch"
    options, overrides = parser.parse_known_args(argv)
    points = _configured(overrides)
    findings = []
    on_nodes = chosen(points[0]) == "slurm"
    for finding in chain(_examine(points, on_nodes=on_nodes), _examine_cluster(points) if on_nodes else ()):
        findings.append(finding)
        if not options.json:
            _print(finding)
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    return 3 if any(finding.passed is False for finding in findings) else 0


def _configured(overrides: list[str]) -> list[dict[str, Any]]:
    from campaign.verbs.run import composed  # noqa: PLC0415 - Hydra is not on the way to doctor --help

    points = composed(words.split(overrides).hydra) or []
    cells_of(points)
    return points


def _examine(points: list[dict[str, Any]], *, on_nodes: bool) -> Iterator[Finding]:
    """Look at one thing after the other, and at each storage of the grid."""
    yield _python()
    yield _tensorflow()
    yield _clock()
    yield _load(points[0]["checks"])
    campaign = Path(points[0]["campaign_dir"]).expanduser().absolute()
    above = next(folder for folder in (campaign, *campaign.parents) if folder.exists())
    yield _guarded("records", above, _writable)
    for storage in {str(point["storage"]): point["storage"] for point in points}.values():
        if on_nodes and not storage["shared"]:
            message = f"{storage['name']}: {storage['root']} is each node's own (storage.shared=false)"
            yield Finding("storage", passed=None, message=message, hint="its jobs make their data there, and check it")
        else:
            yield from _examine_storage(storage)


def _examine_cluster(points: list[dict[str, Any]]) -> Iterator[Finding]:
    """Look at the cluster that the jobs would go to."""
    from campaign.slurm import examine  # noqa: PLC0415 - only where there is a cluster

    cells, conduct = cells_of(points)
    folder = CampaignFolder(Path(conduct["campaign_dir"]).expanduser().resolve())
    request = Request(folder, conduct, "doctor", utc_now(), ())
    yield from examine.cluster(make(cells, {**conduct, "redo": True}, folder).entries, request)


def _examine_storage(storage: Mapping[str, str]) -> Iterator[Finding]:
    try:
        root = prepare.storage_root(storage)
    except CampaignError as error:
        yield Finding("storage", passed=False, message=error.message, hint=error.hint)
        return
    yield _file_system(root)
    yield _guarded("write", root, _writable)
    yield _guarded("cold", root, _can_be_cold)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", passed=sys.version_info >= (3, 10), message=version, hint="Python 3.10 or later is needed")


def _tensorflow() -> Finding:
    """Import it in a process of its own, as the template does."""
    before = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import tensorflow; print(tensorflow.__version__)"],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("tensorflow", passed=False, message=f"import took over {_IMPORT_TIMEOUT_S} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        hint = "pip install -c requirements.lock -e ."
        return Finding("tensorflow", passed=False, message=f"cannot be imported: {last}", hint=hint)
    message = f"{done.stdout.strip()}, import {time.perf_counter() - before:.1f} s"
    return Finding("tensorflow", passed=True, message=message)


def _clock() -> Finding:
    source = _CLOCKSOURCE.read_text(encoding="ascii").strip() if _CLOCKSOURCE.exists() else "unknown"
    resolution = time.get_clock_info("perf_counter").resolution
    passed = None if source in _SLOW_CLOCKS or resolution > 1e-6 else True  # noqa: PLR2004 - a microsecond
    message = f"source {source}, resolution {resolution * 1e9:.0f} ns"
    return Finding("clock", passed=passed, message=message, hint="a slow clock source costs on each look")


def _load(limits: Mapping[str, float]) -> Finding:
    """Watch for a second what everybody else does."""
    before = counters.look(None)
    time.sleep(_WATCH_S)
    others = counters.between(before, counters.look(None))["other_cpu"] or 0.0
    message = f"others keep {others:.2f} cores busy, load average {os.getloadavg()[0]:.2f}"
    hint = f"runs are invalid above checks.other_cpu_max={limits['other_cpu_max']:g}; end what else is running"
    return Finding("load", passed=None if others > limits["other_cpu_max"] else True, message=message, hint=hint)


def _file_system(root: Path) -> Finding:
    mount, device, free = mount_of(root), device_of(root), shutil.disk_usage(root).free
    message = f"{root} on {mount.fstype} ({mount.source}), {free / 1e9:.1f} GB free"
    if mount.fstype in ("tmpfs", "ramfs"):
        return Finding("storage", passed=False, message=message, hint="memory cannot be cold: storage.root=… on a disk")
    if device is None:
        hint = "no block device of its own: traffic of others is not seen"
        return Finding("storage", passed=None, message=message, hint=hint)
    enough = True if free >= _LEAST_FREE_BYTES else None
    return Finding("storage", passed=enough, message=f"{message}, device {device.name}", hint="little space is left")


def _guarded(what: str, folder: Path, look: Callable[[str, Path], Finding]) -> Finding:
    try:
        return look(what, folder)
    except OSError as error:
        message = f"{folder}: {error.strerror}"
        return Finding(what, passed=False, message=message, hint="choose a folder that you may write to")


def _writable(what: str, folder: Path) -> Finding:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(b"x")
        os.fsync(file.fileno())
    return Finding(what, passed=True, message=f"{folder} can be written")


def _can_be_cold(what: str, folder: Path) -> Finding:
    """Write a file, drop it from memory, prove it, read it, and see whether its bytes come from the device."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfio-doctor-") as file:
        file.write(os.urandom(_PROBE_BYTES))
        os.fsync(file.fileno())
        paths = [Path(file.name)]
        cache.evict(paths)
        residency = cache.residency(paths)
        before = counters.look(None)
        cache.read_through(paths)
        fetched = counters.between(before, counters.look(None))["device_bytes"]
    seen = "unknown" if fetched is None else f"{fetched / _PROBE_BYTES:.0%}"
    resident = "an unknown share" if residency.fraction is None else f"{residency.fraction:.0%}"
    message = f"after eviction {resident} resident ({residency.method}), {seen} read from the device"
    cold = not residency.resident and fetched is not None and fetched >= _PROBE_BYTES
    hint = "runs with cache=cold will be invalid here; cache=as_is measures without the claim"
    return Finding(what, passed=cold, message=message, hint=hint)


def _print(finding: Finding) -> None:
    mark = {True: "ok", False: "FAILED", None: "warning"}[finding.passed]
    print(f"{finding.what:11} {mark:8} {finding.message}", flush=True)
    if finding.passed is not True and finding.hint:
        print(f"{'':11} {'hint:':8} {finding.hint}", flush=True)
