"""What else can change the speed of a run: nothing of it is a setting of a cell, so that it must be the same by itself.

Of the process its environment and how the kernel treats it; of the machine processors, memory and the kernel's own
settings; of a storage how it is mounted and the queues of its devices. What this system does not tell is left out.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from jobs.system import cgroup
from jobs.system.device import devices_behind, mount_of
from jobs.system.interposed import allocator, interposed
from jobs.system.io_limits import limits

_libc = ctypes.CDLL(None)

Facts = dict[str, str | int | float]

# Names of variables begin so; OpenMP, Intel's libraries and TensorFlow read theirs at the start.
_VARIABLES = (
    "LD_", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONDEVMODE",
    "HDF5_", "TF_", "XLA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
# Of those not: what this tool sets itself, and Terraform's, which are secrets.
_NOT_VARIABLES = ("TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG", "TF_VAR_", "TF_TOKEN_", "TF_CLI_")
_LONGEST = 200  # letters of a value; a longer one is cut, and told from others by its checksum
_POLICIES = {0: "other", 1: "fifo", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}  # sched(7)
_IO_CLASSES = ("none", "realtime", "best effort", "idle")  # ioprio_get(2)
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())  # asm/unistd.h
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
_MEMORY_POLICIES = {1: "preferred", 2: "bind", 3: "interleave", 4: "local", 5: "preferred many", 6: "weighted"}
_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS, linux/fs.h
# Letters of lsattr(1) that change how files are read or written; the others follow from what a folder holds.
_ATTRIBUTES = {"c": 0x4, "S": 0x8, "A": 0x80, "j": 0x4000, "D": 0x10000, "C": 0x800000, "x": 0x2000000}
_CPUS = "/sys/devices/system/cpu"
_OF_MACHINE = {
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "huge_pages_defrag": "/sys/kernel/mm/transparent_hugepage/defrag",
    "cpu_governor": f"{_CPUS}/cpufreq/policy*/scaling_governor",
    "cpu_min_khz": f"{_CPUS}/cpufreq/policy*/scaling_min_freq",
    "cpu_max_khz": f"{_CPUS}/cpufreq/policy*/scaling_max_freq",
    "cpu_energy_preference": f"{_CPUS}/cpufreq/policy*/energy_performance_preference",
    "cpu_idle_disabled": f"{_CPUS}/cpu*/cpuidle/state*/disable",
    "cpu_boost": f"{_CPUS}/cpufreq/boost",
    "cpu_no_turbo": f"{_CPUS}/intel_pstate/no_turbo",
    "clock_source": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "pcie_power": "/sys/module/pcie_aspm/parameters/policy",
    **{
        f"vm.{name}": f"/proc/sys/vm/{name}"
        for name in (
            "dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes", "dirty_expire_centisecs",
            "dirty_writeback_centisecs", "swappiness", "vfs_cache_pressure", "zone_reclaim_mode",
        )
    },
}  # fmt: skip
_OF_DEVICE = (
    *(
        f"queue/{name}"
        for name in (
            "scheduler", "read_ahead_kb", "nr_requests", "max_sectors_kb", "nomerges", "rq_affinity", "wbt_lat_usec",
            "write_cache", "io_poll",
        )
    ),
    "device/queue_depth", "loop/dio", "md/degraded", "md/sync_action",
)  # fmt: skip
# Options of a mount that name a place, which is another one at each.
_PLACES = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "lowerdir=", "upperdir=", "workdir=")


def of_process() -> Facts:
    """Return priorities, who traces or filters its calls, the libraries that answer some, and its environment."""
    status = dict(line.split(":\t", 1) for line in _text("/proc/self/status").splitlines() if ":\t" in line)
    # As the process was started: what it sets itself, libraries do for every run.
    words = (each.partition("=") for each in _text("/proc/self/environ").split("\0"))
    variables = {name: value for name, _, value in words if name.startswith(_VARIABLES)}
    elsewhere = [f"{name}: {library}" for name, library in interposed().items()]
    elsewhere += [f"any call: {auditor}"] if (auditor := variables.get("LD_AUDIT")) else []  # rtld-audit(7), la_symbind
    facts: dict[str, str | int | None] = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": _POLICIES.get(os.sched_getscheduler(0) & 0xFF),
        "io_priority": _io_priority(),
        "memory_policy": _memory_policy(),
        "tracer": _text(f"/proc/{status['TracerPid']}/comm").strip() if status.get("TracerPid", "0") != "0" else None,
        "call_filter": status.get("Seccomp"),
        "interposed": _short(", ".join(elsewhere)) or None,
        "allocator": allocator(),
        **{name: _short(value) for name, value in sorted(variables.items()) if not name.startswith(_NOT_VARIABLES)},
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def of_machine() -> Facts:
    """Return processors, limits of the control groups, and what the kernel is set to for memory and frequencies."""
    facts = {
        "kernel": platform.release(),
        "cpus": _cpus(),
        "quota_cores": cgroup.quota(),
        # Of a job the memory grows with its processors, and these with the threads of a cell.
        "memory_limit_bytes": None if _job_cpus() else cgroup.memory_limit_bytes(),
        **{name: _value(Path("/").glob(pattern.lstrip("/"))) for name, pattern in _OF_MACHINE.items()},
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def of_storage(folder: Path) -> Facts:
    """Return how what holds a folder is mounted, and the settings of its device and of those below it (``below``).

    `folder` may be a device itself. Of several devices below, each value that one of them has. Limits of control groups
    on what is read and written there are one fact.
    """
    mount, (top, below), number = mount_of(folder), _devices(folder), folder.stat().st_dev
    options = [each for each in f"{mount.options},{mount.superblock}".split(",") if not each.startswith(_PLACES)]
    facts = {
        "mount": f"{mount.fstype} {','.join(dict.fromkeys(options))}",
        "attributes": _attributes(folder),
        "io_limits": ", ".join(sorted({f"{each.kind} {each.per_s}" for each in limits(devices_behind(folder))})),
        "file_system_read_ahead_kb": _value(_read_aheads(number, top)),
        **{file.rpartition("/")[2]: _value(device / file for device in top) for file in _OF_DEVICE},
        **{f"below.{file.rpartition('/')[2]}": _value(device / file for device in below) for file in _OF_DEVICE},
        "scheduler_settings": _of_schedulers(top),
        "below.scheduler_settings": _of_schedulers(below),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _devices(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the folder in sysfs of the device that holds a folder, and of those below that."""
    behind = [Path("/sys/block", device.name) for device in devices_behind(folder)]
    return behind[:1], behind[1:]


def _of_schedulers(devices: Iterable[Path]) -> str:
    """Return what the schedulers of devices are set to, by the names of the settings; each once."""
    files = [file for device in devices for file in sorted(device.glob("queue/iosched/*"))]
    return ", ".join(dict.fromkeys(f"{file.name} {_text(file).strip()}" for file in files))


def _read_aheads(number: int, devices: list[Path]) -> list[Path]:
    """Return the files that say how far a file system without a device of its own reads ahead; that of btrfs apart."""
    if os.major(number):
        return []
    of_btrfs = [
        each.parents[1] for device in devices for each in Path("/sys/fs/btrfs").glob(f"*/devices/{device.name}")
    ]
    places = [Path("/sys/class/bdi", f"{os.major(number)}:{os.minor(number)}"), *(each / "bdi" for each in of_btrfs)]
    return [place / "read_ahead_kb" for place in places]


def _attributes(folder: Path) -> str:
    """Return the letters of lsattr(1) that a folder has; empty where its file system knows none."""
    buffer = bytearray(8)
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_NONBLOCK)
        try:
            fcntl.ioctl(descriptor, _GET_FLAGS, buffer)
        finally:
            os.close(descriptor)
    flags = int.from_bytes(buffer, sys.byteorder)
    return "".join(letter for letter, flag in _ATTRIBUTES.items() if flags & flag)


def _cpus() -> str:
    """Say how many processors this process may use, and of how many cores these are; of a job if it lacks some."""
    allowed, parts = os.sched_getaffinity(0), ("physical_package_id", "core_id")
    if 0 < _job_cpus() <= len(allowed):
        return "those of the job"
    cores = {tuple(_text(f"{_CPUS}/cpu{cpu}/topology/{part}") for part in parts) for cpu in allowed}
    return f"{len(allowed)} of {len(cores)} core{'s' * (len(cores) != 1)}"


def _job_cpus() -> int:
    """Return how many processors Slurm gave to each task of this job; 0 outside a job."""
    return int(os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or 0)


def _io_priority() -> str | None:
    if _IOPRIO_GET is None or (priority := _libc.syscall(_IOPRIO_GET, 1, 0)) < 0:
        return None
    kind, level = priority >> 13, priority & 0x7
    return f"{_IO_CLASSES[kind]} {level}" if kind in (1, 2) else _IO_CLASSES[kind]


def _memory_policy() -> str | None:
    """Return how memory is taken from the nodes of a machine (numactl(8)); None for the kernel's own way."""
    mode = ctypes.c_int()
    if _GET_MEMPOLICY is None or _libc.syscall(_GET_MEMPOLICY, ctypes.byref(mode), None, 0, None, 0):
        return None
    return _MEMORY_POLICIES.get(mode.value & 0xFF)  # flags stand above


def _value(paths: Iterable[Path]) -> str | None:
    """Return the first lines of files, each once; of a list of choices the one in brackets; None for no file."""
    lines = filter(None, (_text(path).partition("\n")[0].strip() for path in paths))
    chosen = [found[1] if (found := re.search(r"\[(\S+)\]", line)) else line for line in lines]
    return ", ".join(dict.fromkeys(sorted(chosen))) or None


def _short(value: str) -> str:
    """Return a text as it can stand in a line: a long one, or one that is not printable, by its checksum."""
    if len(value) <= _LONGEST and value.isprintable():
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{len(value)} letters, SHA-256 {digest}…"


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
