"""Settings that no program asks for: of the device, of the machine, of the folder, of the process's environment."""

import os
from pathlib import Path

from tests.lies import setup
from tests.lies.disturbances.disturbance import FLASH, Start, disturbance

_HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
_FREQUENCY = "/sys/devices/system/cpu/cpu0/cpufreq"
_HUGE_PAGES = Path(_HUGE)


def _set(place, file, word):
    """Write a setting of the kernel, and write back what it was at the end; choices stand as `a [b] c`."""
    text = file.read_text().strip()
    before = text.partition("[")[2].partition("]")[0] or text
    place.stack.callback(file.write_text, before)
    file.write_text(word)
    return f"{file.name} {before}, then {word}"


@disturbance("A preloaded library makes each read of the files 5 ms longer.", needs=("cc",))
def slow_reads(place):
    calls = place.scratch / "calls"
    calls.write_bytes(b"")
    preload = {"LD_PRELOAD": setup.library(place.scratch, "pread"), "LIES_CALLS": str(calls)}
    preload["LIES_DEVICE"] = str(place.paths[0].stat().st_dev)
    yield Start(preload, (), lambda: (calls.stat().st_size, f"{calls.stat().st_size} calls were held"))


@disturbance("Read-ahead of the device is 4 KiB, and its scheduler another one.", device=FLASH)
def other_queue(place):
    queue = Path("/sys/block", place.device, "queue")
    schedulers = (queue / "scheduler").read_text()
    other = "mq-deadline" if "[none]" in schedulers else "none"
    words = _set(place, queue / "read_ahead_kb", "4"), _set(place, queue / "scheduler", other)
    yield Start(happened=lambda: (True, ", ".join(words)))


@disturbance("Variables of the allocator let it give each block of 4 KiB back at once.")
def allocator(place):
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
    values = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    values["MALLOC_MMAP_MAX_"] = "1000000"
    yield Start(values, (), lambda: (True, ", ".join(names)))


@disturbance("The program may run on one processor alone (taskset).", needs=("taskset",))
def one_core(place):
    core = str(min(os.sched_getaffinity(0)))
    yield Start({}, ("taskset", "-c", core), lambda: (True, f"processor {core} of {os.cpu_count()}"))


@disturbance("Transparent huge pages are for everybody, and were for those alone who ask.", needs=(_HUGE,))
def huge_pages(place):
    other = "never" if "[always]" in _HUGE_PAGES.read_text() else "always"
    words = _set(place, _HUGE_PAGES, other)
    yield Start(happened=lambda: (True, words))


@disturbance("The processors may run at their lowest frequency alone.", needs=(f"{_FREQUENCY}/scaling_max_freq",))
def slow_processor(place):
    folders = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq")
    words = [_set(place, each / "scaling_max_freq", (each / "cpuinfo_min_freq").read_text()) for each in folders]
    yield Start(happened=lambda: (True, words[0]))


@disturbance("The folder has the attribute S (`chattr +S`): each write in it is flushed.", needs=("chattr",))
def sync_folder(place):
    folder = place.paths[0].parent.parent
    setup.call("chattr", "-R", "+S", folder)
    place.stack.callback(setup.call, "chattr", "-R", "-S", folder)
    yield Start(happened=lambda: (True, setup.call("lsattr", "-d", folder).split()[0]))
