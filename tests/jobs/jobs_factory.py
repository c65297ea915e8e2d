"""What the tests of `jobs/` share: small images, requests, and other people who use the machine."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from msgspec.structs import asdict
from PIL import Image

from jobs.benchmarks import alexnet, micro, registry
from jobs.data import manifest
from jobs.data.synthetic_images import ImageSpec
from jobs.judging.judge import judged_run
from jobs.model.conduct import Limits
from jobs.system import page_cache

ROOT = Path(__file__).parents[2]
PAGE = 4096
# Other people work on a machine that tests run on: only the tests of `quiet` judge what they do.
# Of milliseconds, the scheduler may take some between two parts.
DEAF = {
    **asdict(Limits()),
    "other_device_max": 1,
    "other_cpu_max": 1e9,
    "stolen_max": 1e4,
    "delayed_max": 1.0,
    "time_error_max": 0.2,
}
_MICRO = micro.BENCHMARK.defaults["benchmark"] | {"image_size": 32}
_SMALL = {"image_size": 32, "width": 0.02, "learning_rate": 1e-3, "dropout": 0.2}
_ALEXNET = alexnet.BENCHMARK.defaults["benchmark"] | _SMALL


def write_jpegs(folder, count, side=64):
    """Write noise, about 5 kB a file at 64 pixels, and put it on the device."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    paths = [folder / f"{number:03d}.jpg" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(path, quality=90)
    page_cache.sync_file_system(folder)
    return paths


def write_slow_jpeg(path):
    """Write a file that is small on the device and takes long to decode."""
    Image.fromarray(np.zeros((4000, 4000), dtype=np.uint8)).save(path)


def device_use(other_reads=0, **changed):
    """A device that was busy for a second with 1,000 reads of a run, 100 MB, and with 4 KiB reads of others."""
    reads, read_bytes = 1000 + other_reads, 100_000_000 + 4096 * other_reads
    nothing = dict.fromkeys(("writes", "written_bytes", "flushes", "flush_s"), 0)
    own = {"own_reads": 1000, "own_read_bytes": 100_000_000, "own_written_bytes": None}
    device = {"device": "vda", "block_bytes": 512, "reads": reads, "read_bytes": read_bytes, "busy_s": 1.0}
    return {**device, **nothing, **own, **changed}


def truncate(path):
    """Cut a file in half."""
    os.truncate(path, path.stat().st_size // 2)


def write_classes(folder, files, classes=4):
    """Write photographs whose class, a folder, can be told from their pixels; sorted."""
    spec = ImageSpec(files=files, median_bytes=4_000, sigma=0.3, width=128, height=96, classes=classes, seed=5)
    sizes = spec.sizes()
    for index in range(files):
        path = folder / spec.name(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(spec.content(index, int(sizes[index])))
    return sorted(folder.rglob("*.jpg"))


def spectral_slope(picture):
    """Exponent of the amplitude spectrum, averaged over directions; -1 is the classic value of nature."""
    grey = np.asarray(picture.convert("L"), dtype=float)
    side = min(grey.shape)
    window = np.hanning(side)
    grey = (grey[:side, :side] - grey[:side, :side].mean()) * window * window[:, None]
    amplitude = np.abs(np.fft.fftshift(np.fft.fft2(grey)))
    y, x = np.indices(amplitude.shape) - side // 2
    radius = np.hypot(y, x).astype(int).ravel()
    mean = np.bincount(radius, amplitude.ravel()) / np.bincount(radius)
    band = np.arange(4, int(0.4 * side))
    return float(np.polyfit(np.log(band), np.log(mean[band]), 1)[0])


def make_settings(**changes):
    """Return a cell's settings; a change goes where its key belongs."""
    return _changed({}, _MICRO, changes)


def make_alexnet_settings(accelerator="cpu", step_s=None, **changes):
    """Return a cell's settings for a small network on small images; a change goes where its key belongs."""
    more = {"accelerator": {"name": accelerator, "step_s": step_s}, "checkpoint": {"name": "none"}}
    return _changed(more, _ALEXNET, changes)


def _changed(more, benchmark, changes):
    settings = {"threads": 2, "batch_size": 4, "prefetch": 0, "iterations": None, "seed": 1, "cache": "cold", **more}
    others = {key: value for key, value in changes.items() if key not in benchmark}
    unknown = set(others) - set(settings)
    if unknown:
        raise KeyError(unknown)
    inner = {key: value for key, value in changes.items() if key in benchmark}
    return {**settings, **others, "benchmark": {**benchmark, **inner}}


def make_request(folder, held, **changes):
    """Return what `jobs.run.execute` takes; the list of files is kept in `held`."""
    held.mkdir(exist_ok=True)
    (held / manifest.MANIFEST_NAME).write_text(manifest.scan_folder(folder).to_json(), encoding="utf-8")
    more = {key: changes.pop(key) for key in ("limits", "trace") if key in changes}
    return request_of(folder, make_settings(**changes), manifest=str(held), **more)


def request_of(folder, settings, **more):
    """Return what `jobs.run.execute` takes of a folder that has its manifest; `limits` are for `judged`."""
    told = {"settings": settings, "dataset": str(folder), "manifest": None}
    return {**told, "trace": None, "checkpoint": None, "profile": None, **more}


def judged(figures, request):
    """Return the figures of a run with its verdict, by limits that are the test's own or for who is deaf to others."""
    settings = request["settings"]
    limits = Limits(**request.get("limits", DEAF))
    return (
        judged_run(figures, registry.benchmark_of(settings).page_cache(settings), limits)
        if "status" in figures
        else figures
    )


def judged_in_time(execute, request):
    """Return `judged` figures of a run that the scheduler let go on.

    In a run of 10 ms a busy machine may take 5 ms between two parts. As a campaign does, this makes up for such a run,
    twice at most; not where a test has limits of its own.
    """
    tries = 1 if "limits" in request else 3
    for _ in range(tries):
        figures = judged(execute(), request)
        if not was_held_up(figures):
            break
    return figures


def was_held_up(figures):
    """Return whether all that is wrong with a run is the time that the scheduler took between two parts of it."""
    return [each["rule"] for each in figures.get("checks", ()) if each["passed"] is False] == ["time_adds_up"]


def check(figures, rule):
    """Return the one check of this rule."""
    (found,) = [entry for entry in figures["checks"] if entry["rule"] == rule]
    return found


def passed(figures):
    """Return of each rule whether it holds."""
    return {entry["rule"]: entry["passed"] for entry in figures["checks"]}


def pages(paths):
    """Return how many pages these files fill."""
    return sum(-(-path.stat().st_size // PAGE) for path in paths)


def read_all(paths):
    """Read files the ordinary way, so that they are in memory."""
    return sum(len(path.read_bytes()) for path in paths)


def fetched():
    """Return the bytes that the kernel has fetched for this process so far."""
    return int(Path("/proc/self/io").read_text().split("\nread_bytes: ")[1].split("\n")[0])


@contextlib.contextmanager
def other_process(script, *words):
    """Run Python in another process; it has begun when it has printed a line, and is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


class HandClock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self._now_s = 100.0

    def now(self):
        return self._now_s

    def sleep(self, seconds):
        self._now_s += seconds

    def slow_turns(self, steps):
        """A range whose turns take their time, as work does that no part of a run names."""
        for step in range(steps):
            self.sleep(0.02)
            yield step


class Tensor:
    """Values as a batch of TensorFlow holds them; counts its copies."""

    def __init__(self, values):
        self.copies, self._values = 0, np.array(values)

    def numpy(self):
        self.copies += 1
        return self._values


def eventually(condition, within_s=30.0):
    """Wait until a condition holds; say whether it came to hold."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
